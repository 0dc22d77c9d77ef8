"""The fused backward: run in threads from its source, interpreted, and counted.

No GPU is needed but for the last tests. What the emulator cannot say, registers and
bank conflicts, the compiler says, or nobody before a GPU is at hand.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.experimental.gluon import language as gl

import kernelwright as kw
from benchmarks.candidates import backward as candidates
from benchmarks.candidates import backward_fused
from benchmarks.candidates.backward_ends import finish_kernel, prepare_kernel
from benchmarks.candidates.backward_launch import LOG2E
from benchmarks.candidates.backward_launch import backward_fused as launched
from benchmarks.candidates.backward_triton import backward_triton_fused
from solutions.flash_attention_triton.options import Causal, read_options
from tests.gluon_machine import Descriptor, Machine, Pointer

on_gpu = pytest.mark.gpu
interpreted = pytest.mark.skipif(
    kw.cuda.backend() == "gpu", reason="CPU tensors need Triton's interpreter"
)
D = 128
# batch, heads, kv_heads, q_len, kv_len, causal
SIZES: dict[str, tuple[int, int, int, int, int, Causal]] = {
    "one tile": (1, 1, 1, 64, 128, False),
    "one query and key": (1, 1, 1, 1, 1, True),
    "ragged, grouped": (1, 2, 1, 200, 300, False),
    "causal": (2, 2, 2, 130, 256, True),
    "causal, grouped": (1, 4, 2, 321, 321, True),
    "rows that see nothing": (1, 2, 1, 300, 200, "bottom-right"),
    "after a cache": (1, 1, 1, 100, 400, "bottom-right"),
    "keys that none sees": (1, 1, 1, 64, 300, True),
    "queries past the keys": (1, 1, 1, 400, 100, True),
}


def given_for(
    size: tuple[int, int, int, int, int, Causal], low: bool = False
) -> candidates.Given:
    """Draw in float32, and attend by the formula; low: no logit is above -80."""
    batch, heads, kv_heads, q_len, kv_len, causal = size
    torch.manual_seed(q_len + kv_len)
    q, grad = torch.randn(2, batch, heads, q_len, D)
    k, v = torch.randn(2, batch, kv_heads, kv_len, D)
    if low:
        q, k = 3 + 0.1 * q, -3 + 0.1 * k
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = candidates.attend(q.double(), k.double(), v.double(), options)
    return candidates.Given(q, k, v, grad, out.float(), lse, causal, options)


def emulated(
    given: candidates.Given, ordered: bool, late: bool = True, seed: int = 0,
    resident: int = 3, bulk: bool = False, module: types.ModuleType = backward_fused,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Launch as ``backward_launch`` does, the fused kernel on the emulator."""
    q, k, v, grad, options = given.q, given.k, given.v, given.grad, given.options
    batch, heads, q_len = q.shape[:3]
    kv_heads, kv_len = k.shape[1:3]
    tiles = batch * heads * -(-q_len // 64)
    stats = torch.full((tiles, 128), torch.nan)
    sums = torch.full(((tiles + 1) * 64 * D,), torch.nan)
    turns = torch.full((tiles + 1,), -1, dtype=torch.int32)
    prepare_kernel[(tiles,)](
        given.out, grad, given.lse, stats, sums, turns, *grad.stride()[:3], heads,
        q_len, D=D,
    )  # fmt: skip
    dq, dk, dv = (torch.full_like(t, torch.nan) for t in (q, k, v))

    def described(tensor: torch.Tensor) -> Descriptor:
        return Descriptor(tensor, [1, 1, 64, D])

    Machine(module, late, seed).launch(
        "fused_kernel", -(-kv_len // 128) * batch * kv_heads, resident,
        *map(described, (q, k, v, grad)), Descriptor(stats, [1, 128]), described(dk),
        described(dv), Descriptor(sums.view(-1, 64), [64, 64]), Pointer(sums),
        Pointer(turns), batch, heads, heads // kv_heads, q_len, kv_len,
        options.last, options.scale, options.scale * LOG2E, D=D,
        BOUNDED=options.bounded[1], ORDERED=ordered, BULK=bulk, REGISTERS=240,
    )  # fmt: skip
    finish_kernel[(tiles,)](sums, dq, q_len, options.scale, D=D, BULK=bulk)
    return {"dq": dq, "dk": dk, "dv": dv, "turns": turns}


def worst(given: candidates.Given, found: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the largest error of each gradient, of what is largest in it."""
    right = candidates.formula(given, torch.float64)
    return {
        name: float((found[name].double() - r).abs().max() / r.abs().max().clamp(1e-9))
        for name, r in right.items()
    }


@interpreted
@pytest.mark.parametrize("bulk", [False, True], ids=["registers", "TMA"])
@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_the_kernel_is_right(
    size: tuple[int, int, int, int, int, Causal], ordered: bool, bulk: bool
) -> None:
    given = given_for(size)
    for late in (True,) if bulk else (False, True):
        errors = worst(given, emulated(given, ordered, late, bulk=bulk))
        assert max(errors.values()) < 1e-5, (late, errors)


@interpreted
def test_keys_past_the_end_do_not_overflow() -> None:
    # Their logit is 0, and exp(0 - lse) would be inf; times a key of zeros, NaN.
    given = given_for((1, 1, 1, 100, 200, False), low=True)
    assert float(given.lse.max()) < -89
    # Float32 knows a logit of -100 to 1e-5, and so the weights.
    assert max(worst(given, emulated(given, True)).values()) < 2e-3


@interpreted
def test_rows_that_see_nothing_have_no_gradient() -> None:
    given = given_for(SIZES["rows that see nothing"])
    found = emulated(given, True)
    assert not found["dq"][:, :, :100].any()
    assert all(bool(torch.isfinite(found[name]).all()) for name in ("dq", "dk", "dv"))


@interpreted
@pytest.mark.parametrize("bulk", [False, True], ids=["registers", "TMA"])
@pytest.mark.parametrize("causal", [False, True])
def test_order_gives_the_same_bits(causal: bool, bulk: bool) -> None:
    given = given_for((1, 1, 1, 200, 900, causal))
    first = emulated(given, True, seed=1, resident=3, bulk=bulk)
    for seed in (2, 3):
        again = emulated(given, True, seed=seed, resident=2 * seed, bulk=bulk)
        assert all(torch.equal(first[name], again[name]) for name in first)


@interpreted
@pytest.mark.parametrize("causal", [False, True])
def test_every_program_takes_its_turn(causal: bool) -> None:
    given = given_for((1, 2, 1, 130, 300, causal))
    turns = emulated(given, True)["turns"].tolist()
    each = [1, 1, 2] if causal else [3, 3, 3]  # tiles of keys that add to one of dQ
    assert turns == [3, *each, *each]


def spoiled(old: str, new: str, folder: Path) -> types.ModuleType:
    """Return the kernel's module with a mistake in its source."""
    source = Path(backward_fused.__file__).read_text()
    assert old in source
    path = folder / "spoiled.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("spoiled", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@interpreted
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("zero = t >> 30", "zero = 1 - 2 * C"),  # the other's keys
        ("scale_log2 - lse", "scale_log2"),  # weights that sum to anything
        ("place = t & 1", "place = 0"),  # the other step's dS
        ("if n0 + KEYS > kv_len:", "if n0 > kv_len:"),  # keys past the end count
        ("+ 1) * ROWS + last - 1) // KEYS", "+ 1) * ROWS + last) // KEYS"),  # a turn
    ],
)
def test_the_emulator_sees_mistakes(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.gluon_machine.PATIENCE", 2.0)
    given = given_for((1, 1, 1, 256, 200, "kv_len" not in old), low="kv_len" in old)
    try:
        found = emulated(given, True, module=spoiled(old, new, tmp_path))
    except AssertionError as error:
        assert "deadlock" in str(error)
        return
    assert not max(worst(given, found).values()) < 1e-2


@interpreted
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_triton_in_one_pass_is_right(
    size: tuple[int, int, int, int, int, Causal],
) -> None:
    g = given_for(size)
    gradients = backward_triton_fused(
        g.grad, g.q, g.k, g.v, g.out, g.lse, g.options, bulk=False
    )
    errors = worst(g, dict(zip(("dq", "dk", "dv"), gradients, strict=True)))
    assert max(errors.values()) < 1e-5, errors


@interpreted
def test_the_ends_are_right() -> None:
    given = given_for(SIZES["rows that see nothing"])
    heads, q_len = given.q.shape[1:3]
    tiles = heads * 5
    stats, sums = torch.full((tiles, 2, 64), torch.nan), torch.full((tiles, 64, D), 7.0)
    turns = torch.full((tiles + 1,), 7, dtype=torch.int32)
    prepare_kernel[(tiles,)](
        given.out, given.grad, given.lse, stats, sums, turns,
        *given.grad.stride()[:3], heads, q_len, D=D,
    )  # fmt: skip
    assert not sums.any() and not turns.any()
    lse, dot = (stats[:, n].reshape(heads, 320) for n in (0, 1))
    assert (lse[:, :100] == math.inf).all() and (lse[:, 300:] == math.inf).all()
    torch.testing.assert_close(lse[:, 100:300], given.lse[0, :, 100:] * LOG2E)
    right = -(given.out * given.grad).sum(-1)[0]
    torch.testing.assert_close(dot[:, :300], right, rtol=1e-5, atol=1e-5)
    assert not dot[:, 300:].any()

    # One number in a tile's sum belongs to one row and column, all are met.
    places = torch.arange(tiles * 64 * D, dtype=torch.float32)
    dq = torch.full((heads, 320, D), torch.nan)
    finish_kernel[(tiles,)](places, dq, 320, 1.0, D=D, BULK=False)
    at = dq[0, :64].long()
    assert sorted(at.flatten().tolist()) == list(range(64 * D))
    row, column = torch.arange(64)[:, None], torch.arange(D)
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    fours = (column // 64 * 8 + column % 64 // 8) * 128 + thread
    assert torch.equal(at, fours * 4 + row // 8 % 2 * 2 + column % 2)


def test_four_numbers_of_a_thread_are_side_by_side() -> None:
    # What ``_scrambled``, ``finish_kernel`` and the emulator take for granted.
    accumulator = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    view = accumulator.format_tensor_view([64, 64])
    held = [re.findall(r"T(\d+):(\d+)", line) for line in view.splitlines()]
    for row in range(64):
        for column in range(64):
            thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
            register = column // 8 * 4 + row // 8 % 2 * 2 + column % 2
            assert held[row][column] == (str(thread), str(register))


@pytest.fixture(scope="module")
def machine_code() -> list[dict[str, Any]]:
    """Compile some variants in a process that does not interpret."""
    chosen = ["3", "7", "10"]
    command = [
        sys.executable, "-m", "benchmarks.candidates.backward_machine_code", *chosen
    ]  # fmt: skip
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_fits_an_sm(machine_code: list[dict[str, Any]]) -> None:
    assert len(machine_code) == 3
    for found in machine_code:
        assert found["registers"] <= 168  # of 384 threads: all that there are
        assert found["shared_bytes"] <= 227 * 1024
        # A few words that are kept outside of every step; no step touches them.
        assert found["stack_bytes"] <= (48 if found["grouped"] or found["bulk"] else 16)


def test_no_step_spills_or_waits_for_what_it_just_asked(
    machine_code: list[dict[str, Any]],
) -> None:
    for found in machine_code:
        # Two consumers, each with steps at an edge and steps inside, which are shorter.
        steps = sorted(found["steps"], key=lambda step: int(step["instructions"]))[:4]
        assert len(steps) == 4
        assert max(step["instructions"] for step in steps[:2]) < 450
        for step in steps[:2] if found["bulk"] else steps:
            assert step["local"] == 0
        for step in steps:
            # Not one wait a wgmma: the assembler did not put them in sequence.
            assert step["wgmma_waits"] == 4


def test_what_is_allowed_is_little() -> None:
    given = given_for(SIZES["ragged, grouped"])
    half = candidates.Given(
        *(t.bfloat16() for t in (given.q, given.k, given.v, given.grad, given.out)),
        given.lse, given.causal, given.options,
    )  # fmt: skip
    right, allowed = candidates.exact(half)
    for name, most in allowed.items():
        largest = float(right[name].abs().max())
        assert 0.005 * largest < most < 0.1 * largest


def test_what_is_predicted_names_what_is_timed() -> None:
    for one in candidates.CANDIDATES:
        assert set(one.predicted) == {shape.label for shape in one.timed}
        assert all(shape.head_dim == D for shape in (*one.checked, *one.timed))


@on_gpu
@pytest.mark.parametrize("shape", candidates.CHECKED, ids=lambda s: s.label)
@pytest.mark.parametrize("one", candidates.CANDIDATES, ids=lambda c: c.name)
def test_right_on_a_gpu(one: Any, shape: Any) -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the fused kernel is for Hopper")
    torch.manual_seed(0)
    given = one.prepare(shape)
    found, (right, allowed) = one.run(given)(), one.exact(given)
    for name, exact in right.items():
        error = (found[name].double() - exact).abs().max()
        assert error <= allowed[name], (name, float(error), allowed[name])


@on_gpu
@pytest.mark.parametrize("bulk", [False, True], ids=["registers", "TMA"])
@pytest.mark.parametrize("shape", candidates.TIMED, ids=lambda s: s.label)
def test_the_same_bits_on_a_gpu(shape: Any, bulk: bool) -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the fused kernel is for Hopper")
    g = candidates.prepare(shape)
    run = partial(launched, g.grad, g.q, g.k, g.v, g.out, g.lse, g.options, bulk=bulk)
    first = run()
    for _ in range(5):
        again = run()
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
