"""Products shared by ranks, and a ring of keys: what is under way, and what is held."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from autograder.worker.entry import WrongReturn
from autograder.worker.in_flight import in_flight
from autograder.worker.operations import is_own
from kernelwright.torch_mode import QuickMode

_PRODUCTS = ("aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm.", "aten.matmul.")


def adapt_product(answer: Any, *given: Any) -> Any:
    """Call an answer that hides one all-reduce behind a product."""
    begun: list[int] = []
    waited = 0
    with _Watch() as watch:

        def told(what: str, tensor: torch.Tensor) -> None:
            nonlocal waited
            if what == "all_reduce":
                begun.append(watch.products)
            elif what == "wait":
                waited = watch.products
            if what != "wait":
                return
            if len(begun) > 1:
                raise WrongReturn(
                    f"{len(begun)} sums are begun where one is wanted: the gradient of "
                    "what a rank has for itself is whole there, and its sum too large."
                )
            if begun and begun[-1] == watch.products:
                raise WrongReturn(
                    "the sum is waited for right after it was begun: compute what does "
                    "not need it in between, and wait then."
                )

        with in_flight(told):
            found = answer(*given)
    ranks = dist.get_world_size()
    if ranks == 1:
        return found
    if not begun:
        raise WrongReturn(
            "no sum was begun with async_op=True: begin it so, compute what does not "
            "need it, and wait then."
        )
    if waited and watch.products > waited:
        raise WrongReturn(
            "a product is computed after the sum was waited for, and no product needs "
            "that sum: compute it while the sum is under way."
        )
    (tokens, _), weight = given[0].shape, given[1]
    least = 3 * tokens * weight.numel() // ranks
    # A bias's gradient may be a product, too.
    if watch.multiplied > least + tokens * len(weight):
        raise WrongReturn(
            f"the products take {watch.multiplied:,} multiplications; wanted "
            f"{least:,}: those of x or h, of the gradient, and of this rank's part of "
            "the weight, one each."
        )
    return found


def adapt_ring(
    answer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: int
) -> Any:
    """Call an answer that passes keys and values on; hold its memory to a bound."""
    size = dist.get_world_size()
    coming: list[int] = []
    waited = 0
    with _Watch() as watch:

        def told(what: str, tensor: torch.Tensor) -> None:
            nonlocal waited
            waited += what == "wait"
            if what == "isend" and not coming and watch.products:
                raise WrongReturn(
                    "the first message is sent after a product: send first, and "
                    "compute while it travels."
                )
            if what == "irecv":
                coming.append(watch.products)
            if what == "wait" and not causal and coming[-1] == watch.products:
                raise WrongReturn(
                    "the next keys are waited for before those at hand were attended "
                    "to: compute first, and wait then."
                )

        with in_flight(told):
            found = answer(q, k, v, bool(causal))
    if size > 1 and not coming and q.numel():
        raise WrongReturn(
            "no message came by irecv: one that blocks (send, recv) leaves nothing to "
            "compute meanwhile. Take isend and irecv."
        )
    if waited < len(coming):
        return found  # that nobody waits is found from the record, and is told first
    # Messages begin before a product: between two of them lies what is attended to.
    attended = len({*coming, watch.products}) - 1
    if causal and coming and attended > dist.get_rank() + 1:
        raise WrongReturn(
            f"rank {dist.get_rank()} attends to the keys of {attended} ranks or more; "
            "its queries see none of later ranks' keys: skip those, and pass them on."
        )
    heads, tokens, d = q.shape
    # Scores, their mask, weights; keys twice; what was attended to, and a product; and
    # a pair that went, which the library's threads let go when they come to it.
    most = 4 * heads * tokens * (3 * tokens + 12 * d + 16) + tokens * tokens + 4096
    if watch.peak > most:
        raise WrongReturn(
            f"at its worst moment {watch.peak:,} bytes were held beside the arguments; "
            f"wanted at most {most:,}: two pairs of k and v, those at hand and those "
            "that come."
        )
    return found


class _Watch(QuickMode):
    """Count products, and the bytes of results that are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products = self.multiplied = self.held = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if is_own():
            # A copy that a message needs; when it is freed, the library's threads say.
            return func(*args, **(kwargs or {}))
        if str(func).startswith(_PRODUCTS):
            self.products += 1
            left, right = [one for one in args if isinstance(one, torch.Tensor)][-2:]
            self.multiplied += left.numel() * right.shape[-1]
        found = func(*args, **(kwargs or {}))
        given = {one.untyped_storage().data_ptr() for one in _tensors(args)}
        for tensor in _tensors(found):
            storage = tensor.untyped_storage()
            place = storage.data_ptr()
            if place and place not in given and place not in self.known:
                self.known.add(place)
                self.held += storage.nbytes()
                weakref.finalize(storage, self._freed(place, storage.nbytes()))
        self.peak = max(self.peak, self.held)
        return found

    def _freed(self, place: int, size: int) -> Callable[[], None]:
        def freed() -> None:
            self.known.discard(place)
            self.held -= size

        return freed


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for one in value for tensor in _tensors(one)]
    return []
