"""The forward candidates without a GPU: run by an emulator, and by sm_90's compiler."""

from __future__ import annotations

import inspect
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from benchmarks._flash_attention_triton_errors import standard
from benchmarks.candidates import __main__ as command
from benchmarks.candidates import hopper_hd64
from benchmarks.candidates.forward import CANDIDATES, CHECKED, TIMED, exact, prepare
from benchmarks.candidates.forward_model import (
    PASSED,
    Chip,
    Instruction,
    cycles,
    read,
)
from benchmarks.candidates.interface import Proposal, Shape
from tests.gluon_forward import emulated
from tests.gluon_machine import Machine, number

KNOBS = [dict(one.run.keywords) for one in CANDIDATES]  # type: ignore[attr-defined]
NAMES = [one.name for one in CANDIDATES]


# --- the polynomial -----------------------------------------------------------------


def fma(a: Any, b: Any, c: Any) -> torch.Tensor:
    """Multiply and add, rounded to float32 once: float64 holds the product exactly."""
    return (torch.as_tensor(a).double() * b + c).float()


def polynomial(x: torch.Tensor) -> torch.Tensor:
    """Do what the assembly does, instruction by instruction."""
    r = x.clamp(min=hopper_hd64.LEAST)
    shifted = r + 12582912.0
    r = r - (shifted - 12582912.0)
    c0, c1, c2, c3 = torch.tensor(hopper_hd64.POLYNOMIAL).double()
    p = fma(fma(fma(r, c3, c2), r.double(), c1), r.double(), c0)
    exponent = shifted.view(torch.int32) << 23
    return (p.view(torch.int32) + exponent).view(torch.float32)


def test_the_polynomial_is_2_to_the_x() -> None:
    x = torch.cat((torch.linspace(-125, 0, 2_000_001), torch.linspace(-1, 8, 100_001)))
    off = (polynomial(x).double() / torch.exp2(x.double()) - 1).abs()
    assert off.max() < 7.6e-5
    assert off.max() > 7e-5  # the fit's own error: float32 adds next to nothing


def test_what_is_too_small_becomes_next_to_nothing_and_never_wraps() -> None:
    x = torch.tensor([-125.0, -126.5, -1e4, -torch.inf])
    assert ((polynomial(x) > 0) & (polynomial(x) < 1e-37)).all()


def test_the_assembly_has_the_polynomial_s_numbers() -> None:
    found = re.findall(
        r"0f([0-9A-F]{8})", inspect.getsource(hopper_hd64._exp2_of_four.fn)
    )
    told = [struct.unpack(">f", bytes.fromhex(bits))[0] for bits in found]
    wanted = [hopper_hd64.LEAST, 12582912.0, 12582912.0]
    wanted += reversed(hopper_hd64.POLYNOMIAL)
    assert told == [pytest.approx(value, rel=1e-7) for value in wanted]


# --- the kernel's own source, in threads --------------------------------------------


class Forward(Machine):
    """The emulator, with what the forward kernel calls beside it."""

    def __init__(self, late: bool, seed: int) -> None:
        super().__init__(hopper_hd64, late, seed)
        self.names["_exp2_of_four"] = _exp2_of_four


def _exp2_of_four(x: torch.Tensor) -> Any:
    fourth = torch.arange(x.shape[1]) % 4 == 3
    return number(torch.where(fourth, polynomial(torch.Tensor(x)), torch.exp2(x)))


CASES = (  # heads, kv_heads, q_len, kv_len, causal
    (2, 1, 300, 700, False), (1, 1, 1, 1, False), (1, 1, 530, 530, True),
    (2, 2, 65, 600, True), (1, 1, 400, 130, True), (1, 1, 150, 901, "bottom-right"),
    (1, 1, 500, 300, "bottom-right"), (1, 1, 200, 326, "bottom-right"),
)  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("knobs", KNOBS, ids=NAMES)
def test_the_kernel_is_right_whatever_the_order(
    knobs: dict[str, Any], late: bool
) -> None:
    torch.manual_seed(0)
    launched = {"in_turn": False, "poly": False, **knobs}
    for many, kv_heads, q_len, kv_len, causal in CASES:
        q = torch.randn(1, many, q_len, 64) * 3
        k, v = torch.randn(2, 1, kv_heads, kv_len, 64)
        machine = Forward(late, seed=q_len)
        out, lse = emulated(machine, (q, k, v), causal, launched)
        true, true_lse = standard(q.double(), k.double(), v.double(), causal=causal)
        far = 2e-4 if knobs.get("poly") else 2e-5
        torch.testing.assert_close(out.double(), true, rtol=far, atol=far)
        torch.testing.assert_close(lse.double(), true_lse, rtol=1e-5, atol=1e-4)


# --- sm_90's compiler ---------------------------------------------------------------


@pytest.fixture(scope="module")
def machine_code() -> dict[str, Any]:
    """Compile all candidates in a process that does not interpret Triton."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.candidates.forward_machine_code"],
        env={**os.environ, "TRITON_INTERPRET": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize(
    ("name", "knobs"), [*zip(NAMES, KNOBS, strict=True)], ids=NAMES
)
def test_the_machine_code_is_as_it_was_counted(
    name: str, knobs: dict[str, Any], machine_code: dict[str, Any]
) -> None:
    made = machine_code[name]
    consumers, logits = knobs["consumers"], 64 * knobs["block_n"] // 128  # of a thread
    assert made["spills"] == made["stack_bytes"] == 0
    assert made["shared_bytes"] <= 227 * 1024
    assert made["warps"] == 4 * (consumers + 1)
    # At launch all warps have as many; then consumers take what the producer returns.
    assert made["registers_at_start"] * made["warps"] * 32 <= 65536
    assert hopper_hd64.REGISTERS[consumers] in made["registers"]
    polynomials = logits // 4 if knobs.get("poly") else 0
    assert len(made["loops"]) == consumers
    for loop in made["loops"]:
        assert loop["MUFU"] == logits + 2 - polynomials
        assert loop["F2FP"] == logits // 2
        assert loop["SHFL"] == 4  # for the largest; the sums wait until the end
        # For the logits, and for the product that runs behind them. A third wait would
        # mean that the compiler could not keep both at work.
        assert loop["wgmma waits"] == 2
        assert loop["all"] <= {128: 410, 64: 260}[knobs["block_n"]] + 8 * polynomials


# --- the model of a sub-partition ---------------------------------------------------

CHIP = Chip(exponential=40, ahead=64, left=0, barrier=22, product=30)
PRODUCT = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR32], RZ, gsb0"


def loop(*names: str, pause: int = 1, **more: Any) -> list[Instruction]:
    """Make a loop of instructions that know nothing of each other."""
    notes = {"sets": (), "waits": (), **more}
    return [
        Instruction(name.split(".")[0].split(" ")[0], name, pause, **notes)
        for name in names
    ]


def test_the_model_s_units_take_as_long_as_the_guide_says() -> None:
    for names, lone, of_two in (
        (["FFMA"] * 8, 8, 8), (["FMNMX"] * 8, 16, 16), (["MUFU"] * 4, 32, 32),
        (["IMAD"] * 4, 8, 8), ([PRODUCT], 64, 64), (["MUFU", *["FMNMX"] * 4], 8, 8),
        (["BAR"], 22, 11), (["UMOV"] * 6, 6, 6),
    ):  # fmt: skip
        assert cycles(loop(*names), 1, CHIP) == pytest.approx(lone, abs=0.5), names
        assert cycles(loop(*names), 2, CHIP) == pytest.approx(of_two, abs=0.5), names


def test_more_warps_hide_a_wait_in_the_model() -> None:
    chain = [*loop("MUFU", sets=(1,)), *loop("FADD", waits=(1,))]
    assert cycles(chain, 1, CHIP) == pytest.approx(41, abs=1)
    assert cycles(chain, 3, CHIP) == pytest.approx(41 / 3, abs=1)
    assert cycles(chain, 8, CHIP) == pytest.approx(8, abs=1)  # now the unit is full


def test_a_product_is_waited_for_in_the_model() -> None:
    step = loop(PRODUCT, "WARPGROUP.DEPBAR.LE gsb0, 0x0")
    assert cycles(step, 1, CHIP) == pytest.approx(64 + CHIP.product + 1, abs=1)
    assert cycles(step, 2, CHIP) == pytest.approx(64, abs=1)
    passing = (64 + PASSED) / 2  # a turn comes when the product before is issued
    assert cycles(step, 2, CHIP, in_turn=True) == pytest.approx(passing, abs=8)


def test_the_compiler_s_notes_are_read() -> None:
    word = 7 << 41 | 2 << 46 | 7 << 49 | 0b000101 << 52
    line = f"        /*0a10*/  @!P0 FADD R1, R2, R3 ;  /* 0x{5:016x} */\n"
    shown = line + f"{'':40}/* 0x{word:016x} */\n"
    found = read(shown)
    assert found == [(0xA10, Instruction("FADD", "FADD R1, R2, R3 ", 7, (2,), (0, 2)))]


# --- what is measured with them -----------------------------------------------------


def test_the_reference_allows_roundings_only() -> None:
    shape = Shape(1, 2, 1, 70, 90, 64, True, largest=1e4)
    given = prepare(shape, "cpu")
    q, k, v = given.heads
    true, allowed = exact(given)
    logits = q.float() @ k.float().repeat_interleave(2, 1).mT / 8
    assert logits.abs().max() == pytest.approx(1e4, rel=0.02)
    assert allowed["out"] < 0.05
    wrong, _ = standard(q.double(), k.double(), v.double())
    _, bad = command.compare({"out": wrong, "lse": true["lse"]}, true, allowed)
    assert len(bad) == 1
    assert bad[0].startswith("out is off by")


def test_nan_and_misplaced_infinities_are_wrong() -> None:
    true = {"lse": torch.tensor([1.0, -torch.inf])}
    for values, fits in (
        ([1.0, -torch.inf], True), ([1.0, 0.0], False),
        ([torch.nan, -torch.inf], False), ([-torch.inf, -torch.inf], False),
    ):  # fmt: skip
        _, bad = command.compare({"lse": torch.tensor(values)}, true, {"lse": 0.1})
        assert (not bad) == fits


def test_shapes_cover_tails_groups_masks_and_large_logits() -> None:
    assert {shape.causal for shape in CHECKED} == {False, True, "bottom-right"}
    assert any(shape.heads > shape.kv_heads for shape in CHECKED)
    assert any(shape.largest == 1e4 and shape.causal for shape in CHECKED)
    assert any(shape.dtype == torch.float16 for shape in CHECKED)
    assert any(shape.q_len % 64 and shape.kv_len % 128 for shape in CHECKED)
    assert len({shape.label for shape in (*CHECKED, *TIMED)}) == len(CHECKED + TIMED)
    assert all(set(one.predicted) == {s.label for s in TIMED} for one in CANDIDATES)


def test_every_module_s_candidates_are_found_once() -> None:
    proposals, broken = command.found()
    assert not broken
    assert [one.name for one in proposals if one in CANDIDATES] == NAMES
    assert command.choose(proposals, NAMES[:2]) == list(CANDIDATES[:2])
    assert command.groups(CANDIDATES) == {CANDIDATES[0].replaces: list(CANDIDATES)}
    with pytest.raises(SystemExit, match="no candidate is called other"):
        command.choose(proposals, ["other"])


def test_what_does_not_end_or_fails_is_named() -> None:
    slow = [sys.executable, "-c", "import time; time.sleep(30)"]
    assert command.run_within(slow, 0.5) == "not done within 0 s"
    wrong = [sys.executable, "-c", "import sys; sys.exit('out is off')"]
    assert command.run_within(wrong, 20) == "out is off"
    assert command.run_within([sys.executable, "-c", "pass"], 20) == ""


def test_a_failed_group_is_timed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(what: str, names: list[str], *_: Any) -> tuple[list[Any], str]:
        return [{"name": n} for n in names], "it hangs" if "bad" in names else ""

    monkeypatch.setattr(command, "ask", ask)
    rows, failed = command.time_apart("solution", ["good", "bad", "best"], 0.1)
    assert failed == {"bad": "beside solution: it hangs"}
    assert {row["name"] for row in rows} >= {"good", "best"}


def proposal(run: Any, **more: Any) -> Proposal:
    """Propose something that needs no GPU: to double a tensor."""
    return Proposal(
        name="doubled", replaces="solution", predicted={SMALL.label: 2.0}, because="",
        prepare=lambda shape: torch.arange(1.0, shape.q_len + 1), run=run,
        solution=lambda x: lambda: (2 * x,), peer=lambda x: lambda: 2 * x,
        peer_name="library", exact=lambda x: ({"out": 2 * x.double()}, {"out": 1e-6}),
        flops=lambda shape: 6e9, **{"checked": (SMALL,), "timed": (SMALL,), **more},
    )  # fmt: skip


SMALL, LARGE = Shape(1, 1, 1, 4, 4, 64), Shape(1, 1, 1, 9, 9, 64, True)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda x: lambda: {"out": 2 * x}, ""),
        (lambda x: lambda: {"out": 2 * x + (len(x) == 4)}, "full: out is off by 1.0"),
        (lambda x: lambda: {"out": 2 * x + (len(x) == 9)}, "causal: out is"),
        (lambda x: lambda: {"out": x[:2]}, "out is (2,), not (4,)"),
        (lambda x: lambda: {"gone": x}, "KeyError"),
    ],
)
def test_a_candidate_is_held_against_float64_and_the_solution(
    run: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    one = proposal(run, timed=(SMALL, LARGE))
    wrong = command.check(one, tmp_path / "told.json")
    assert bool(wrong) == bool(words)
    assert words in capsys.readouterr().err.splitlines()[-1]
    if not words:
        told = json.loads((tmp_path / "told.json").read_text())
        assert [row["shape"] for row in told] == [SMALL.label, LARGE.label]


def test_all_are_timed_together_and_compared_with_the_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def time_in_turn(todo: Any, *_: Any, **__: Any) -> dict[str, list[float]]:
        ms = {"solution": 6.0, "library": 3.0, "doubled": 2.0}
        return {one.name: [ms[one.name]] * 2 for one in todo}

    monkeypatch.setattr(command, "time_in_turn", time_in_turn)
    told = tmp_path / "told.json"
    one = proposal(lambda x: lambda: {"out": 2 * x})
    assert command.time_group([one], 0.1, told) == 0
    rows = json.loads(told.read_text())
    assert [row["candidate"] for row in rows] == ["solution", "library", "doubled"]
    assert rows[2]["of_solution"] == 3.0
    assert rows[2]["of_peer"] == 1.5
    assert rows[2]["predicted"] == 2.0
    assert rows[2]["tflops"] == pytest.approx(3.0)
    assert "predicted" not in rows[0]
    command.print_table(rows)
    assert re.search(r"doubled +2\.0000 +3\.0 +3\.000 +2\.00", capsys.readouterr().out)
