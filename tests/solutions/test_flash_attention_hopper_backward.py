"""The Gluon backward: run in threads from its source, counted, and on a GPU held.

No GPU is needed but for the last tests. What the emulator cannot say, registers and
spills, the compiler says.
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
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from triton.experimental.gluon import language as gl

import kernelwright as kw
import solutions.flash_attention_triton as face
from kernelwright.gluon import Machine
from solutions.flash_attention import flash_attention
from solutions.flash_attention_triton import backward, forward, hopper_backward
from solutions.flash_attention_triton.hopper_backward_ends import (
    finish_kernel,
    prepare_kernel,
)
from solutions.flash_attention_triton.options import Causal, read_options
from tests.gluon_backward import (
    Given,
    Size,
    assembly,
    emulated,
    given_for,
    gradients,
    worst,
)

on_gpu = pytest.mark.gpu
interpreted = pytest.mark.skipif(
    kw.cuda.backend() == "gpu", reason="CPU tensors need Triton's interpreter"
)
both_widths = pytest.mark.parametrize("head_dim", [64, 128])
D = 128
SIZES: dict[str, Size] = {
    "one tile": (1, 1, 1, 64, 128, False),
    "one query and key": (1, 1, 1, 1, 1, True),
    "ragged, grouped": (1, 2, 1, 200, 300, False),
    "causal": (2, 2, 2, 130, 256, True),
    "causal, grouped": (1, 4, 2, 321, 321, True),
    "more planes than begin together": (9, 2, 2, 70, 200, "bottom-right"),
    "rows that see nothing": (1, 2, 1, 300, 200, "bottom-right"),
    "after a cache": (1, 1, 1, 100, 400, "bottom-right"),
    "keys that none sees": (1, 1, 1, 64, 300, True),
    "queries past the keys": (1, 1, 1, 400, 100, True),
    "only the last query sees the key": (1, 1, 1, 129, 1, "bottom-right"),
    "two keys": (1, 2, 1, 129, 2, False),
    "one query after a cache": (2, 2, 1, 1, 133, "bottom-right"),
}


def run(
    given: Given, late: bool = True, seed: int = 0, resident: int = 3,
    module: types.ModuleType = hopper_backward, side: int = 16,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Run the kernel of a module, the solution's if none is named."""
    operations = {"gl.inline_asm_elementwise": assembly}
    return emulated(Machine(module, late, seed, operations), given, resident, side)


# A wgmma may read its operands until it is waited for, or at once.
@interpreted
@pytest.mark.parametrize(("head_dim", "side"), [(64, 16), (128, 16), (128, 1)])
@pytest.mark.parametrize("late", [False, True], ids=["reads early", "reads late"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_kernel_is_right_whatever_its_roles_order(
    size: Size, late: bool, head_dim: int, side: int
) -> None:
    given = given_for(size, head_dim)
    errors = worst(given, run(given, late, side=side))
    assert max(errors.values()) < 1e-5, errors


@interpreted
@both_widths
def test_keys_past_the_end_do_not_overflow(head_dim: int) -> None:
    # Their logit is 0, and exp(0 - lse) would be inf; times a key of zeros, NaN.
    given = given_for((1, 1, 1, 100, 200, False), head_dim, low=True)
    assert float(given.lse.max()) < -89
    # Float32 knows a logit of -100 to 1e-5, and so the weights.
    assert max(worst(given, run(given)).values()) < 2e-3


@interpreted
def test_rows_that_see_nothing_have_no_gradient() -> None:
    found = run(given_for(SIZES["rows that see nothing"]))
    assert not found["dq"][:, :, :100].any()
    assert all(bool(torch.isfinite(found[name]).all()) for name in ("dq", "dk", "dv"))


@interpreted
@pytest.mark.parametrize("side", [1, 16])
@pytest.mark.parametrize("causal", [False, True])
def test_order_gives_the_same_bits(causal: bool, side: int) -> None:
    given = given_for((1, 2, 2, 200, 900, causal))
    first = run(given, seed=1, side=side)
    for seed in (2, 3):
        again = run(given, seed=seed, resident=2 * seed, side=side)
        assert all(torch.equal(first[name], again[name]) for name in first)


@interpreted
@pytest.mark.parametrize("causal", [False, True])
def test_every_program_takes_its_turn(causal: bool) -> None:
    turns = run(given_for((1, 2, 1, 130, 300, causal)))["turns"].tolist()
    each = [1, 1, 2] if causal else [3, 3, 3]  # tiles of keys that add to one of dQ
    assert turns == [3, *each, *each]


def spoiled(old: str, new: str, folder: Path) -> types.ModuleType:
    """Return the kernel's module with a mistake in its source."""
    source = Path(hopper_backward.__file__).read_text()
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
        ("c * 2 + C + zero", "c * 2 + zero"),  # the other's columns of K
        ("if n0 + KEYS > kv_len:", "if n0 > kv_len:"),  # keys past the end count
        ("+ 1) * ROWS + last - 1) // KEYS", "+ 1) * ROWS + last) // KEYS"),  # a turn
        ("m = first + count - 1 - i", "m = first + i"),  # the edges' place
    ],
)
def test_the_emulator_sees_mistakes(old: str, new: str, tmp_path: Path) -> None:
    given = given_for((1, 1, 1, 256, 200, "kv_len" not in old), low="kv_len" in old)
    side = 16 if "count" in old else 1
    try:
        found = run(given, module=spoiled(old, new, tmp_path), side=side)
    except kw.KernelDeadlock:
        return
    assert not max(worst(given, found).values()) < 1e-2


@interpreted
@both_widths
def test_the_ends_are_right(head_dim: int) -> None:
    given = given_for(SIZES["rows that see nothing"], head_dim)
    heads, q_len = given.q.shape[1:3]
    tiles = heads * 5
    stats = torch.full((tiles, 2, 64), torch.nan)
    sums = torch.full((tiles, 64, head_dim), 7.0)
    turns = torch.full((tiles + 1,), 7, dtype=torch.int32)
    prepare_kernel[(tiles,)](
        given.out, given.grad, given.lse, stats, sums, turns,
        *given.grad.stride()[:3], heads, q_len, D=head_dim,
    )  # fmt: skip
    assert not sums.any() and not turns.any()
    lse, dot = (stats[:, n].reshape(heads, 320) for n in (0, 1))
    assert (lse[:, :100] == math.inf).all() and (lse[:, 300:] == math.inf).all()
    wanted = given.lse[0, :, 100:] * hopper_backward.LOG2E
    torch.testing.assert_close(lse[:, 100:300], wanted)
    right = -(given.out * given.grad).sum(-1)[0]
    torch.testing.assert_close(dot[:, :300], right, rtol=1e-5, atol=1e-5)
    assert not dot[:, 300:].any()

    # One number in a tile's sum belongs to one row and column, all are met.
    places = torch.arange(tiles * 64 * head_dim, dtype=torch.float32)
    dq = torch.full((heads, 320, head_dim), torch.nan)
    finish_kernel[(tiles,)](places, dq, 320, 1.0, D=head_dim)
    at = dq[0, :64].long()
    assert sorted(at.flatten().tolist()) == list(range(64 * head_dim))
    row, column = torch.arange(64)[:, None], torch.arange(head_dim)
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    fours = column // 8 * 128 + thread
    assert torch.equal(at, fours * 4 + row // 8 % 2 * 2 + column % 2)


@pytest.mark.parametrize("columns", [32, 64])
def test_four_numbers_of_a_thread_are_side_by_side(columns: int) -> None:
    # What ``_scrambled``, ``finish_kernel`` and the emulator take for granted.
    accumulator = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])
    if not hasattr(accumulator, "format_tensor_view"):
        pytest.skip("this Triton draws no layouts")
    view = accumulator.format_tensor_view([64, columns])
    held = [re.findall(r"T(\d+):(\d+)", line) for line in view.splitlines()]
    for row in range(64):
        for column in range(columns):
            thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
            register = column // 8 * 4 + row // 8 % 2 * 2 + column % 2
            assert held[row][column] == (str(thread), str(register))


@pytest.fixture(scope="module")
def machine_code() -> list[dict[str, Any]]:
    """Compile every variant for Hopper in a process that does not interpret."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hopper_backward_code"],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_fits_an_sm(machine_code: list[dict[str, Any]]) -> None:
    assert len(machine_code) == 14
    for found in machine_code:
        assert found["registers"] <= 168  # of 384 threads: all that there are
        assert found["shared_bytes"] <= 227 * 1024
        # A few words that are kept outside of every step; no step touches them.
        assert found["stack_bytes"] <= (56 if found["grouped"] else 24)


def test_no_step_spills_or_waits_for_what_it_just_asked(
    machine_code: list[dict[str, Any]],
) -> None:
    for found in machine_code:
        # Two consumers, each with steps at an edge and steps inside, which are shorter.
        steps = sorted(found["steps"], key=lambda step: int(step["instructions"]))[:4]
        assert len(steps) == 4
        assert max(step["instructions"] for step in steps[:2]) < 450
        assert all(step["local"] == 0 for step in steps[:2])
        for step in steps:
            # At an edge, which a tile of keys has two of, one number may go and come.
            assert step["local"] <= 2
            # Not one wait a wgmma: the assembler did not put them in sequence.
            assert step["wgmma_waits"] == 4


def refusal(grad: Any, q: Any, k: Any, v: Any, **told: Any) -> str | None:
    """Ask whether the kernel can; as on a Hopper if the tensors say so."""
    none: dict[str, Any] = {
        "mask": None, "key_padding_mask": None, "causal": False, "scale": None,
        "window": None, "dropout_p": 0.0, "seed": None,
    }  # fmt: skip
    options = read_options(q, k, v, **none | told)
    return hopper_backward.refuses(grad, q, k, v, options)


def drawn(*size: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> Any:
    """Draw grad, q, k and v of batch, heads, kv_heads, q_len, kv_len, head_dim."""
    batch, heads, kv_heads, q_len, kv_len, width = size
    q, grad = torch.randn(2, batch, heads, q_len, width, device=device).to(dtype)
    k, v = torch.randn(2, batch, kv_heads, kv_len, width, device=device).to(dtype)
    return grad, q, k, v


def test_what_it_cannot_do_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(*size: int) -> Any:
        return drawn(*size, dtype=torch.float16, device="cpu")

    grad, q, k, v = half(1, 2, 1, 40, 50, D)
    assert "on a GPU only" in str(refusal(grad, q, k, v))
    # Beyond that it asks as the forward does, and looks at grad itself.
    monkeypatch.setattr(hopper_backward.hopper, "refuses", lambda *_: None)
    assert refusal(grad, q, k, v, causal="bottom-right") is None
    odd = torch.empty(grad.numel() + 1, dtype=grad.dtype)[1:].view(grad.shape)
    assert "grad has others" in str(refusal(odd, q, k, v))
    apart = torch.empty(1, 2, 40, D + 4, dtype=grad.dtype)[..., :D]
    assert "grad has others" in str(refusal(apart, q, k, v))


def test_one_is_chosen_by_name_or_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    device = "cuda" if kw.cuda.backend() == "gpu" else "cpu"
    grad, q, k, v = drawn(1, 1, 1, 5, 7, D, dtype=torch.float32, device=device)
    out, lse = forward(q, k, v)

    def call(**told: Any) -> Any:
        return backward(grad, q, k, v, out, lse, **told)

    with pytest.raises(ValueError, match="kernel='gluon' cannot do this: "):
        call(kernel="gluon")
    with pytest.raises(ValueError, match="no kernel 'cuda'"):
        call(kernel="cuda")
    by_triton = call()
    assert all(map(torch.equal, by_triton, call(kernel="triton")))
    monkeypatch.setattr(hopper_backward, "refuses", lambda *_: None)
    monkeypatch.setattr(hopper_backward, "backward_gluon", lambda *_: "by Gluon")
    assert call() == call(kernel="gluon") == "by Gluon"
    assert call(kernel="triton") != "by Gluon"
    monkeypatch.setattr(face, "_NO_GLUON", "there is none")
    assert call() != "by Gluon"


@pytest.fixture
def hopper() -> None:
    """Skip where there is no Hopper."""
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("wgmma is Hopper's alone")


@pytest.fixture
def launches(hopper: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Note the shape of q of every launch of the Gluon backward."""
    noted: list[tuple[int, ...]] = []
    launch = hopper_backward.backward_gluon

    def noting(*given: Any) -> Any:
        noted.append(tuple(given[1].shape))
        return launch(*given)

    monkeypatch.setattr(hopper_backward, "backward_gluon", noting)
    return noted


def expect(grad: Any, q: Any, k: Any, v: Any, causal: Causal) -> None:
    """At most twice the error of the formula in the same dtype, and a rounding."""
    out, lse = forward(q, k, v, causal=causal)
    found = backward(grad, q, k, v, out, lse, causal=causal, kernel="gluon")
    right = gradients(q, k, v, grad, causal)
    own = gradients(q, k, v, grad, causal, q.dtype)
    for got, (name, exact) in zip(found, right.items(), strict=True):
        assert got.dtype == q.dtype and got.shape == exact.shape
        # One key has all the weight: dq and dk are 0, by luck without an error in the
        # formula, and a few roundings of float32 in a kernel. Hence the least largest.
        rounding = torch.finfo(q.dtype).eps * exact.abs().max().clamp(0.1)
        allowed = 2 * (own[name].double() - exact).abs().max() + rounding
        assert (got.double() - exact).abs().max() <= allowed, (name, q.shape, causal)


@on_gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True, "bottom-right"])
@both_widths
def test_right_on_a_gpu(head_dim: int, causal: Causal, dtype: torch.dtype) -> None:
    for size in (
        (2, 4, 4, 512, 512), (1, 4, 2, 333, 517), (1, 6, 2, 700, 300),
        (1, 2, 1, 64, 1000), (1, 1, 1, 1, 1), (2, 2, 1, 1, 33), (1, 1, 1, 129, 1),
        (3, 12, 6, 400, 400),
    ):  # fmt: skip
        expect(*drawn(*size, head_dim, dtype=dtype), causal)


@on_gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch", [2, 5])
@both_widths
def test_right_where_programs_outnumber_the_sms(
    head_dim: int, batch: int, causal: Causal
) -> None:
    expect(*drawn(batch, 16, 16, 2048, 2048, head_dim), causal)


@on_gpu
@pytest.mark.usefixtures("hopper")
def test_right_with_large_logits() -> None:
    grad, q, k, v = drawn(1, 4, 4, 512, 512, D)
    largest = (q.float() @ k.float().mT / math.sqrt(D)).abs().max()
    expect(grad, (q * (100 / largest)).bfloat16(), k, v, True)


@on_gpu
def test_strides_are_taken_as_they_are(launches: list[tuple[int, ...]]) -> None:
    size = (2, 200, 3, D)  # heads behind the length, as a projection leaves them
    grad, q, k, v = (
        torch.randn(size, device="cuda").bfloat16().transpose(1, 2) for _ in range(4)
    )
    expect(grad, q, k, v, True)
    assert len(launches) == 1
    # A gradient without a step of 1 is copied; one that TMA cannot read is Triton's.
    out, lse = forward(q, k, v)
    wanted = backward(grad, q, k, v, out, lse)
    turned = grad.mT.contiguous().mT
    assert all(map(torch.equal, backward(turned, q, k, v, out, lse), wanted))
    assert len(launches) == 3
    alike = grad[:, :1].expand_as(grad)  # one gradient for all heads
    wanted = backward(alike.contiguous(), q, k, v, out, lse)
    assert len(launches) == 4
    apart = torch.empty(*grad.shape[:3], D + 4, device="cuda", dtype=grad.dtype)
    apart[..., :D] = alike
    for unread in (alike, apart[..., :D]):
        by_triton = backward(unread, q, k, v, out, lse)
        assert len(launches) == 4
        for got, near in zip(by_triton, wanted, strict=True):
            torch.testing.assert_close(got, near, rtol=2e-2, atol=2e-2)


@on_gpu
def test_the_public_functions_take_it_where_it_can(
    launches: list[tuple[int, ...]],
) -> None:
    def attend(width: int = D, dtype: torch.dtype = torch.bfloat16, **told: Any) -> int:
        before = len(launches)
        _, q, k, v = drawn(1, 4, 2, 200, 300, width, dtype=dtype)
        leaves = [t.requires_grad_() for t in (q, k, v)]
        flash_attention(*leaves, **told).sum().backward()
        assert all(t.grad is not None and t.grad.isfinite().all() for t in leaves)
        return len(launches) - before

    mask = torch.ones(200, 300, dtype=torch.bool, device="cuda")
    assert attend() == attend(causal=True) == attend(causal="bottom-right") == 1
    assert attend(dtype=torch.float16) == attend(scale=0.3) == attend(kernel="mma") == 1
    assert attend(64) == 1
    assert attend(96) == attend(dtype=torch.float32) == attend(kernel="triton") == 0
    assert attend(window=7) == attend(mask=mask) == attend(dropout_p=0.1, seed=1) == 0


@on_gpu
@pytest.mark.parametrize(
    "size",
    [(4, 16, 16, 4096, 4096), (1, 16, 16, 16384, 16384), (1, 16, 2, 4097, 4001)],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
@both_widths
def test_every_run_gives_the_same_bits(
    size: tuple[int, ...], causal: bool, head_dim: int,
    launches: list[tuple[int, ...]],
) -> None:  # fmt: skip
    grad, q, k, v = drawn(*size, head_dim)
    out, lse = forward(q, k, v, causal=causal)
    first = backward(grad, q, k, v, out, lse, causal=causal)
    # Elsewhere on the chip at the same time: programs start and end otherwise.
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    for _ in range(5):
        with torch.cuda.stream(beside):
            forward(q[:, :4], k[:, :1], v[:, :1])
        again = backward(grad, q, k, v, out, lse, causal=causal)
        assert all(map(torch.equal, first, again))
    torch.cuda.synchronize()
    assert len(launches) == 2  # then that of the recording


@on_gpu
@pytest.mark.usefixtures("hopper")
def test_on_a_stream_of_its_own() -> None:
    grad, q, k, v = drawn(1, 8, 8, 1024, 1024, D)
    out, lse = forward(q, k, v)
    wanted = backward(grad, q, k, v, out, lse, kernel="gluon")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = backward(grad, q, k, v, out, lse, kernel="gluon")
    stream.synchronize()
    assert all(map(torch.equal, found, wanted))
