"""The Gluon forward without a GPU: its own source, its roles in threads."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from benchmarks._flash_attention_triton_errors import standard
from solutions.flash_attention_triton import hopper
from solutions.flash_attention_triton.options import Causal
from tests.gluon_forward import emulated
from tests.gluon_machine import Machine

# head_dim, heads, kv_heads, q_len, kv_len, causal
CASES: dict[str, tuple[int, int, int, int, int, Causal]] = {
    "one query and key": (64, 1, 1, 1, 1, False),
    "ragged, grouped": (64, 2, 1, 300, 700, False),
    "causal": (128, 1, 1, 530, 530, True),
    "causal, fewer queries": (64, 2, 2, 65, 600, True),
    "causal, fewer keys": (64, 1, 1, 400, 130, True),
    "after a cache": (128, 1, 1, 150, 901, "bottom-right"),
    "rows that see nothing": (64, 1, 1, 500, 300, "bottom-right"),
}
KNOBS = [
    {"consumers": consumers, "block_n": block_n, "stages": 2, "in_turn": in_turn}
    for consumers, block_n, in_turn in ((2, 128, False), (2, 128, True), (3, 64, True))
]


def machine_of(kind: type[Machine], late: bool, seed: int) -> Machine:
    """Return a machine that runs the solution's kernel."""
    machine = kind(hopper, late, seed)
    machine.names["_pin"] = lambda x, nowhere: x  # of the assembler's order alone
    return machine


# A wgmma may read its operands until it is waited for, or at once.
@pytest.mark.parametrize("late", [False, True], ids=["reads early", "reads late"])
@pytest.mark.parametrize("knobs", KNOBS, ids=["two", "two in turn", "three in turn"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_gluon_kernel_is_right_whatever_its_roles_order(
    case: tuple[int, int, int, int, int, Causal], knobs: dict[str, Any], late: bool
) -> None:
    width, many, kv_heads, q_len, kv_len, causal = case
    torch.manual_seed(q_len)
    q = torch.randn(1, many, q_len, width) * 3
    k, v = torch.randn(2, 1, kv_heads, kv_len, width)
    out, lse = emulated(machine_of(Machine, late, q_len), (q, k, v), causal, knobs)
    true, true_lse = standard(q.double(), k.double(), v.double(), causal=causal)
    torch.testing.assert_close(out.double(), true, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(lse.double(), true_lse, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("role", ["_producer", "_step"])
def test_a_role_that_waits_for_nobody_is_noticed(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hasty(Machine):
        """One role finds every barrier passed."""

        def launch(self, *args: Any, **known: Any) -> None:
            barriers = SimpleNamespace(**vars(self.names["mbarrier"]))
            barriers.wait = lambda bar, phase, pred=True: None
            code = self.names[role].__code__
            known_to_it = {**self.names, "mbarrier": barriers}
            self.names[role] = FunctionType(code, known_to_it, role)
            super().launch(*args, **known)

    monkeypatch.setattr("tests.gluon_machine.PATIENCE", 2.0)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 700, 64)
    true, _ = standard(q.double(), k.double(), v.double())
    with pytest.raises(AssertionError):
        out, _ = emulated(machine_of(Hasty, True, 0), (q, k, v), False, KNOBS[0])
        torch.testing.assert_close(out.double(), true, rtol=2e-5, atol=2e-5)
