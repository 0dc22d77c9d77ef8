"""What a chain moves is what its operations read and write, fused or not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernelwright.draw import chain_of, fusion_flows
from kernelwright.errors import ArgumentError

N = 1000
FULL = 4 * N  # bytes of a tensor


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Write GELU out: five operations, one of which reads two tensors."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def test_counts_a_launch_an_operation_and_each_tensor_once() -> None:
    chain = chain_of(gelu, torch.randn(N))
    assert chain.launches == 5
    assert chain.nbytes == 11 * FULL
    assert chain.fused_nbytes == 2 * FULL


def test_an_operand_given_twice_is_read_once() -> None:
    assert chain_of(lambda x: x * x, torch.randn(N)).nbytes == 2 * FULL


@pytest.mark.parametrize(
    ("shape", "held"), [((10, 100), 1000), ((100,), 100), ((10, 1), 10), ((), 1)]
)
def test_what_is_broadcast_is_read_as_small_as_it_is(
    shape: tuple[int, ...], held: int
) -> None:
    chain = chain_of(torch.add, torch.randn(10, 100), torch.randn(shape))
    assert chain.nbytes == 8 * N + 4 * held
    expanded = torch.randn(shape).expand(10, 100)
    assert chain_of(torch.add, torch.randn(10, 100), expanded).nbytes == chain.nbytes


def test_views_launch_nothing() -> None:
    chain = chain_of(lambda x: x.view(10, 100).mT[None].exp(), torch.randn(N))
    assert [each.text for each in chain.operations] == ["t1 = exp(x)"]


def test_two_halves_of_a_tensor_are_two_reads() -> None:
    def gate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    chain = chain_of(gate, torch.randn(10, 100))
    assert chain.nbytes == 5 * FULL // 2
    assert chain.fused_nbytes == 3 * FULL // 2


def test_an_operation_in_place_writes_a_value_of_its_own() -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).add_(1).relu_()

    chain = chain_of(inside, torch.randn(N))
    assert (chain.launches, chain.nbytes) == (3, 6 * FULL)
    assert chain.fused_nbytes == 2 * FULL


def test_an_argument_that_is_written_must_be_in_memory_in_the_end() -> None:
    chain = chain_of(lambda x: x.mul_(2).sum(), torch.randn(N))
    assert chain.fused_nbytes == 2 * FULL + 4


def test_a_random_mask_is_written_and_nothing_is_read_for_it() -> None:
    chain = chain_of(lambda x: F.dropout(x, 0.5), torch.randn(N))
    drawn = chain.operations[0]
    assert drawn.elementwise and not drawn.reads
    assert chain.fused_nbytes == 2 * FULL


def test_what_two_kernels_need_stays_in_memory_until_both_are_one() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        b = a + 1
        return b * a

    chain = chain_of(both, torch.randn(N))
    first, last = chain.fused(2)
    assert [value.name for value in first.writes] == ["t1", "t2"]
    assert [value.name for value in last.reads] == ["t2", "t1"]
    assert sum(kernel.nbytes for kernel in (first, last)) == 6 * FULL


def test_two_results_are_both_written() -> None:
    chain = chain_of(lambda x: (x.exp(), x.exp() * 2), torch.randn(N))
    assert chain.fused_nbytes == 3 * FULL


def test_shapes_suffice() -> None:
    x = torch.empty(2**20, 2**10, device="meta")
    assert chain_of(gelu, x).nbytes == 11 * 2**32


def test_takes_a_function_that_needs_gradients() -> None:
    x = torch.randn(N, requires_grad=True)
    assert chain_of(gelu, x).launches == 5


def test_refuses_what_launches_nothing() -> None:
    with pytest.raises(ArgumentError, match="launches no kernel"):
        chain_of(lambda x: x[None], torch.randn(N))


# --- the figure -------------------------------------------------------------------


def test_has_a_frame_for_each_number_of_kernels() -> None:
    figure = fusion_flows(gelu, torch.randn(N))
    assert len(figure.frames) == 5
    assert figure.frames[0].words == "Eager: 5 launches, 44 KB."
    assert figure.frames[-1].words == (
        "All in one kernel: 1 launch, 8 KB, 18% of eager's."
    )


def flows(svg: str) -> list[float]:
    """Return how wide each flow is drawn."""
    found = re.findall(r'd="M[\d.]+ ([\d.]+)H[\d.]+L[\d.]+ ([\d.]+)L', svg)
    return [2 * (float(tip) - float(edge)) for edge, tip in found]


def test_flows_are_as_wide_as_their_bytes_and_vanish_when_fused() -> None:
    x, row = torch.randn(10, 100), torch.randn(100)
    figure = fusion_flows(lambda x, b: torch.relu(x + b), x, row)
    eager, fused = (flows(frame.svg) for frame in figure.frames)
    assert len(eager) == 5 and len(fused) == 3
    wide, thin = max(eager), min(eager)
    assert wide / thin == pytest.approx(10, rel=1e-3)
    assert sum(fused) == pytest.approx(2 * wide + thin, rel=1e-3)


def test_says_where_an_operation_needs_more_than_its_element() -> None:
    plain = fusion_flows(gelu, torch.randn(N))
    row = fusion_flows(lambda x: x - x.mean(), torch.randn(N))
    assert "dashed" not in plain.caption
    assert "mean(x)" in row.caption
    assert row.frames[0].svg.count('dasharray="5 4"') == 1
    assert row.frames[-1].svg.count('dasharray="5 4"') == 1


CHAINS: list[tuple[Callable[..., Any], list[torch.Tensor]]] = [
    (F.gelu, [torch.randn(N)]),
    (lambda q, k: torch.softmax(q @ k.mT, -1), [torch.randn(8, 4), torch.randn(9, 4)]),
    (lambda x: torch.stack(list(x.unbind(0))), [torch.randn(4, 5)]),
    (lambda c, x: torch.where(c > 0, x.half(), 1), [torch.randn(7), torch.randn(7)]),
]


@pytest.mark.parametrize(("function", "given"), CHAINS)
def test_draws_any_function_of_tensors(
    function: Callable[..., Any], given: list[torch.Tensor]
) -> None:
    figure = fusion_flows(function, *given)
    assert str(figure) and "NaN" not in figure._repr_html_()
    chain = chain_of(function, *given)
    assert len(figure.frames) == chain.launches
    assert chain.fused_nbytes <= chain.nbytes


def test_says_how_many_operations_it_can_show() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(15):
            x = x + 1
        return x

    with pytest.raises(ArgumentError, match="launches 15 kernels; wanted at most 14"):
        fusion_flows(long, torch.randn(N))
