"""The Gluon forwards without a GPU: their own source, their roles in threads."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from benchmarks._flash_attention_triton_errors import standard
from kernelwright import KernelFault
from kernelwright.gluon import Machine
from solutions.flash_attention_triton import forward, hopper, hopper_64
from solutions.flash_attention_triton.options import Causal
from tests.gluon_forward import Heads, emulated

ROOT = Path(__file__).parents[2]
Run = Callable[[Machine, Heads, Causal], tuple[torch.Tensor, torch.Tensor]]
Case = tuple[int, int, int, int, Causal]

# heads, kv_heads, q_len, kv_len, causal
CASES: dict[str, Case] = {
    "one query and key": (1, 1, 1, 1, False),
    "ragged, grouped": (2, 1, 300, 700, False),
    "causal": (1, 1, 530, 530, True),
    "causal, fewer queries": (2, 2, 65, 600, True),
    "causal, fewer keys": (1, 1, 400, 130, True),
    "after a cache": (1, 1, 150, 901, "bottom-right"),
    "tiles that some consumers see": (1, 1, 200, 326, "bottom-right"),
    "rows that see nothing": (1, 1, 500, 300, "bottom-right"),
}


def machine_of(kind: type[Machine], module: Any, late: bool, seed: int) -> Machine:
    """Return a machine that runs a solution's kernel."""
    # What is pinned is so in the assembler's order alone.
    return kind(module, late, seed, {"_pin": lambda _, x, nowhere: x})


def run_hopper(
    machine: Machine, heads: Heads, causal: Causal, consumers: int = 2,
    block_n: int = 128, in_turn: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Run ``hopper.py``'s kernel."""
    return emulated(
        machine, heads, causal, consumers, block_n, D=heads[0].shape[3],
        BLOCK_N=block_n, STAGES=2, CONSUMERS=consumers, IN_TURN=in_turn, REGISTERS=0,
    )  # fmt: skip


def run_hopper_64(
    machine: Machine, heads: Heads, causal: Causal
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run ``hopper_64.py``'s kernel."""
    return emulated(machine, heads, causal, 3, 128)


KERNELS: dict[str, tuple[Any, Run, int]] = {
    "two": (hopper, run_hopper, 64),
    "two in turn": (hopper, partial(run_hopper, in_turn=True), 128),
    "three in turn": (
        hopper, partial(run_hopper, consumers=3, block_n=64, in_turn=True), 128,
    ),
    "three of 64": (hopper_64, run_hopper_64, 64),
}  # fmt: skip


# A wgmma may read its operands until it is waited for, or at once.
@pytest.mark.parametrize("late", [False, True], ids=["reads early", "reads late"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_gluon_kernel_is_right_whatever_its_roles_order(
    case: Case, kernel: tuple[Any, Run, int], late: bool
) -> None:
    (many, kv_heads, q_len, kv_len, causal), (module, run, width) = case, kernel
    torch.manual_seed(q_len)
    q = torch.randn(1, many, q_len, width) * 3
    k, v = torch.randn(2, 1, kv_heads, kv_len, width)
    out, lse = run(machine_of(Machine, module, late, q_len), (q, k, v), causal)
    true, true_lse = standard(q.double(), k.double(), v.double(), causal=causal)
    torch.testing.assert_close(out.double(), true, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(lse.double(), true_lse, rtol=1e-5, atol=1e-4)


# --- mistakes that must show --------------------------------------------------------


def slowly(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Let a function begin later."""

    def after_a_while(*args: Any, **known: Any) -> Any:
        time.sleep(seconds)
        return function(*args, **known)

    return after_a_while


def far_off(run: Run, machine: Machine, causal: Causal) -> float:
    """Return the largest error; some tiles of keys more than a ring holds."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 1, 300, 64), *torch.randn(2, 1, 1, 1100, 64)
    true, _ = standard(q.double(), k.double(), v.double(), causal=causal)
    out, _ = run(machine, (q, k, v), causal)
    return float((out.double() - true).abs().nan_to_num(torch.inf).max())


@pytest.mark.parametrize("role", ["_producer", "_step"])
@pytest.mark.parametrize("kernel", ["two", "three of 64"])
def test_a_role_that_waits_for_nobody_is_noticed(kernel: str, role: str) -> None:
    class Hasty(Machine):
        """One role finds every barrier passed, and what it should wait for is slow."""

        def launch(self, *args: Any, **known: Any) -> None:
            names = self.names
            if role == "_producer":
                names["warpgroup_mma_wait"] = slowly(names["warpgroup_mma_wait"], 0.02)
            else:
                load = names["tma"].async_copy_global_to_shared
                names["tma"].async_copy_global_to_shared = slowly(load, 0.005)
            barriers = SimpleNamespace(**vars(names["mbarrier"]))
            barriers.wait = lambda bar, phase, pred=True: None
            code = names[role].__code__
            names[role] = FunctionType(code, {**names, "mbarrier": barriers}, role)
            super().launch(*args, **known)

    module, run, _ = KERNELS[kernel]
    machine = machine_of(Hasty, module, True, 0)
    try:
        assert far_off(run, machine, False) > 1e-3
    except KernelFault as error:
        assert "deadlock" in str(error) or "more arrive" in str(error)


GIVEN_BACK = "    mbarrier.arrive(empty.index(stage), count=1)\n"
READ = "    acc, p, later, sums = warpgroup_mma_wait(0, deps=[acc, p, later, sums])\n"
PASSED_OVER = "        mbarrier.arrive(empty.index(i % STAGES), count=1)\n"
MISTAKES = {  # a function of hopper_64, what it has, what it then has, what is seen
    "none": ("_step", READ, READ, ""),
    "V of the same tile as K": ("_producer", "at + KEYS, 0", "at, 0", "values"),
    "one tile too few": ("_producer", "range(steps + 1)", "range(steps)", "deadlock"),
    "a stage given back while V is read": (
        "_step", READ + GIVEN_BACK, GIVEN_BACK + READ, "values",
    ),
    "a product not waited for": ("_step", "wait(0, deps", "wait(1, deps", "too soon"),
    "acc not shrunk": (
        "_step", "later, m_new, sums, alpha", "later, m_new, sums, alpha * 0 + 1",
        "values",
    ),
    "a tile passed over and not given back": ("_consume", PASSED_OVER, "", "deadlock"),
    "an edge taken for a whole tile": (
        "_consume", "shared, True, S", "shared, False, S", "values",
    ),
    "its first tile placed by the program's steps": (
        "_consume", "(own - 1) * KEYS", "(steps - 1) * KEYS", "values",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_planted_mistake_is_noticed(mistake: tuple[str, str, str, str]) -> None:
    name, old, new, seen = mistake
    source = inspect.getsource(getattr(hopper_64, name).fn)
    assert source.count(old) == 1
    machine = machine_of(Machine, hopper_64, True, 0)
    planted = source[source.index("def ") :].replace(old, new)
    exec("from __future__ import annotations\n" + planted, machine.names)
    wait = machine.names["warpgroup_mma_wait"]
    machine.names["warpgroup_mma_wait"] = slowly(wait, 0.005)
    if seen in ("", "values"):
        right = far_off(run_hopper_64, machine, "bottom-right") < 2e-5
        assert right == (not seen)
    else:
        with pytest.raises(KernelFault, match=seen):
            far_off(run_hopper_64, machine, "bottom-right")


# --- what is launched, and what the compiler makes of it ----------------------------


@pytest.mark.parametrize(("width", "taken"), [(64, "hopper_64"), (128, "hopper")])
def test_each_head_dim_has_its_kernel(
    width: int, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(name: str) -> Callable[..., tuple[str, str]]:
        return lambda *given: (name, "lse")

    monkeypatch.setattr(hopper, "refuses", lambda *given: None)
    monkeypatch.setattr(hopper, "forward_gluon", launch("hopper"))
    monkeypatch.setattr(hopper_64, "forward_gluon_64", launch("hopper_64"))
    q = torch.zeros(1, 1, 1, width, dtype=torch.float16)
    assert forward(q, q, q, kernel="gluon") == (taken, "lse")


def error_of_rounding(q: Any, k: Any, v: Any, causal: Causal, true: Any) -> float:
    """Return the error of weights and results that are rounded to the inputs' dtype.

    The weights are computed in float32, so that large logits do not excuse anything.
    """
    eye = torch.eye(k.shape[2], device=k.device).expand(*k.shape[:2], -1, -1)
    weights, _ = standard(q.float(), k.float(), eye, causal=causal)
    values = v.float().repeat_interleave(q.shape[1] // k.shape[1], 1)
    rounded = weights.to(q.dtype).float() @ values
    return float((rounded.to(q.dtype).double() - true).abs().max())


LARGE = 1e4
ON_A_GPU: list[tuple[Case, torch.dtype, float | None]] = [
    *((case, torch.bfloat16, None) for case in CASES.values()),
    ((2, 1, 1500, 1111, False), torch.bfloat16, None),
    ((2, 1, 257, 1, False), torch.bfloat16, None),
    ((2, 1, 1000, 600, True), torch.float16, None),
    ((2, 2, 700, 900, False), torch.bfloat16, LARGE),
    ((2, 2, 900, 900, True), torch.bfloat16, LARGE),
]


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("case", "dtype", "largest"), ON_A_GPU, ids=str)
def test_the_gluon_kernel_is_right_on_a_gpu(
    case: Case, dtype: torch.dtype, largest: float | None, width: int
) -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("wgmma is Hopper's alone")
    many, kv_heads, q_len, kv_len, causal = case
    q = torch.randn(2, many, q_len, width, device="cuda")
    k, v = torch.randn(2, 2, kv_heads, kv_len, width, device="cuda")
    if largest is not None:
        logits = q @ k.repeat_interleave(many // kv_heads, 1).mT / width**0.5
        q *= largest / logits.abs().max()
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    true, true_lse = standard(q.double(), k.double(), v.double(), causal=causal)
    allowed = 2 * error_of_rounding(q, k, v, causal, true) + torch.finfo(dtype).eps
    out, lse = forward(q, k, v, causal=causal, kernel="gluon")
    assert (out.double() - true).abs().max() <= allowed + 2e-6
    near = 1e-4 + 1e-5 * float(true_lse[true_lse.isfinite()].abs().max())
    torch.testing.assert_close(lse.double(), true_lse, rtol=0, atol=near)


@pytest.fixture(scope="module")
def machine_code() -> list[dict[str, Any]]:
    """Compile without a mask and with one, in a process that does not interpret."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hopper_64_code"], cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_three_consumers_fit_an_sm_and_spill_nothing(
    machine_code: list[dict[str, Any]],
) -> None:
    assert len(machine_code) == 2
    for made in machine_code:
        assert made["spills"] == made["stack_bytes"] == 0
        assert made["shared_bytes"] <= 227 * 1024
        assert made["warps"] == 16  # the producer's one has three beside it
        # At launch all have as many; then consumers take what the producer returns.
        assert made["registers_at_start"] * made["warps"] * 32 <= 65536
        assert {160, 24} <= set(made["registers"])
        assert 3 * 128 * 160 + 128 * 24 <= 65536


def test_a_step_of_three_consumers_is_what_was_measured(
    machine_code: list[dict[str, Any]],
) -> None:
    for made in machine_code:
        assert len(made["loops"]) == 3
        for loop in made["loops"]:
            assert loop["HGMMA"] == 4 + 8  # 64 x 128 by 16 of 64; 64 x 64 by 16 of 128
            assert loop["MUFU"] == 64 + 2  # a thread's weights, and two rows' alpha
            assert loop["F2FP"] == 32
            assert loop["SHFL"] == 4  # for the largest; the sums wait until the end
            # For the logits, and for the product that runs behind them. A third wait
            # would mean that the compiler could not keep both at work.
            assert loop["wgmma waits"] == 2
            assert loop["all"] <= 410


def test_what_tma_cannot_read_is_named() -> None:
    x = torch.zeros(2, 3, 40, 64, dtype=torch.bfloat16)
    for readable in (x, x.transpose(1, 2), x[:, 1:, 5:], x[:, :1].expand(2, 1, 40, 64)):
        assert hopper.out_of_reach(readable) is None
    apart, others = hopper.out_of_reach(x[..., 4:]) or ("", "")
    assert (apart, others) == ("rows at multiples of 16 bytes", "others")
    alike = hopper.out_of_reach(x[:, :1].expand(2, 3, 40, 64))
    assert alike == ("each row in a place of its own", "an expanded one")
