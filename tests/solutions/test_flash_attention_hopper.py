"""The Gluon forward without a GPU: its own source, its roles in threads."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from solutions.flash_attention_triton import hopper
from solutions.flash_attention_triton.options import UNBOUNDED, Causal, read_options
from tests.gluon_machine import Descriptor, Machine, Pointer

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


def emulated(
    heads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    causal: Causal,
    late: bool,
    knobs: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run every program of the kernel on float32 tensors; return out and lse."""
    q, k, v = heads
    batch, many, q_len, width = q.shape
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan)
    consumers, block_n = knobs["consumers"], knobs["block_n"]
    rows, keys = [1, 1, 64, width], [1, 1, block_n, width]
    bounded = options.bounded[1]
    machine = Machine(hopper, late, seed=q_len)
    machine.names["_pin"] = lambda x, nowhere: x  # of the assembler's order alone
    machine.launch(
        "_forward_kernel", -(-q_len // (64 * consumers)) * batch * many, 2,
        Descriptor(q, rows), Descriptor(k, keys), Descriptor(v, keys),
        Descriptor(out, rows), Pointer(lse.view(-1)), many, many // k.shape[1], q_len,
        k.shape[2], options.last if bounded else UNBOUNDED,
        options.scale * hopper.LOG2E, D=width, BLOCK_N=block_n,
        STAGES=knobs["stages"], CONSUMERS=consumers, BOUNDED=bounded,
        IN_TURN=knobs["in_turn"], REGISTERS=0,
    )  # fmt: skip
    return out, lse


def exact(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: Causal
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend by the formula in float64; a row that sees nothing is zeros, lse -inf."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        q_len, kv_len = scores.shape[-2:]
        behind = kv_len - q_len if causal == "bottom-right" else 0
        hidden = torch.ones(q_len, kv_len, dtype=torch.bool).triu(1 + behind)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v, scores.logsumexp(-1)


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
    out, lse = emulated((q, k, v), causal, late, knobs)
    true, true_lse = exact(q, k, v, causal)
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
    monkeypatch.setitem(globals(), "Machine", Hasty)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 700, 64)
    with pytest.raises(AssertionError):
        out, _ = emulated((q, k, v), False, True, KNOBS[0])
        true, _ = exact(q, k, v, False)
        torch.testing.assert_close(out.double(), true, rtol=2e-5, atol=2e-5)
