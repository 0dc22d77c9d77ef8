"""Data parallelism: the same model on every rank, each with its own part of the batch.

    grad = (grad of rank 0 + … + grad of rank n - 1) / n

Backward makes the last layer's gradients first. They are put into buckets as they come,
and a full bucket is all-reduced while backward goes on with the layers before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from solutions.parallel._collectives import (
    Group,
    all_reduce,
    broadcast,
    rank_and_size,
    told_by_all,
)
from solutions.parallel.agreement import agree_on_each
from solutions.parallel.buckets import Bucket, make_buckets

MIB = 2**20


class DistributedDataParallel(nn.Module):
    """Average a module's gradients over all ranks, while backward computes them.

    The first backward uses the parameters' order from the last to the first; from then
    on buckets follow the order in which gradients came on rank 0. ``state_dict`` is the
    module's own. After a backward each ``grad`` is a part of a bucket: the next
    backward overwrites it, so clone what is to be kept.

    Args:
        module: on its device already; every rank's has the same parameters. Rank 0's
            values are sent to all.
        group: the ranks; all when absent.
        bucket_bytes: the most that one all-reduce carries, 25 MiB.
        find_unused_parameters: some parameters may have no gradient in a step, others
            on each rank. They count as zeros; one that no rank used is left alone.
        broadcast_buffers: whether buffers are rank 0's before each forward.
        reduce_dtype: of the buckets, such as ``torch.bfloat16`` to halve the bytes, or
            ``torch.float32`` for 16-bit gradients; each gradient's own when absent.
        events: a list that is given ``(what, name, begin, end)`` of each gradient and
            bucket, in seconds of ``time.perf_counter``; nothing is noted when absent.

    Raises:
        ValueError: parameters differ among ranks, by name; or in backward, one was
            given no gradient on some rank. Every rank raises (on a GPU one step later,
            for nobody waits for the answer).

    Cost: a step sends 2 (n - 1) / n of the gradients' bytes a rank, most of it while
    backward runs; as much memory as the gradients.

    Source: Li et al., *PyTorch Distributed* (VLDB 2020), sections 3.2 and 4.2.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        group: Group = None,
        bucket_bytes: int = 25 * MIB,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        reduce_dtype: torch.dtype | None = None,
        events: list[tuple[str, str, float, float]] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.bucket_bytes = bucket_bytes
        self.find_unused_parameters = find_unused_parameters
        self.broadcast_buffers = broadcast_buffers
        self.reduce_dtype = reduce_dtype
        self.events = events
        _, self.world = rank_and_size(group)
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("the module has no parameter that takes a gradient.")
        self._names = [name for name, _ in named]
        self._parameters_in_order = [parameter for _, parameter in named]
        agree_on_each(
            "the parameters",
            self._names,
            [f"{p.dtype} {tuple(p.shape)}" for _, p in named],
            "Build the same module on every rank.",
            group,
        )
        self._send_from_rank_0(module.parameters())
        self._send_from_rank_0(module.buffers())
        count = len(named)
        self._arrived: list[int] = []
        self._by_use = False
        self._buckets: list[Bucket] = []
        self._where: dict[int, Bucket] = {}
        self._fill(reversed(range(count)))
        self._sync = True
        self._under_way = False
        self._unused: set[int] = set()
        self._launched = 0
        self._late: Callable[[], float] | None = None
        for number, parameter in enumerate(self._parameters_in_order):
            parameter.register_post_accumulate_grad_hook(self._hook(number))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; the backward of what it returns averages the gradients."""
        if self.broadcast_buffers and self.training and self._sync:
            self._send_from_rank_0(self.module.buffers())
        out = self.module(*args, **kwargs)
        if not (self._sync and torch.is_grad_enabled()):
            return out
        found = [t for t in _tensors(out) if t.grad_fn is not None]
        self._unused = set()
        if self.find_unused_parameters:
            self._unused = self._not_reached(found)
        for tensor in found:
            tensor.register_hook(self._begin)
        return out

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add gradients up on this rank alone; the next backward outside sends them."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's own."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the module's own; ``assign`` would part parameters from their hooks."""
        if assign:
            raise ValueError("assign=True makes new parameters: load before wrapping.")
        return self.module.load_state_dict(state_dict, strict)

    # --- a step -----------------------------------------------------------------

    def _begin(self, grad: torch.Tensor) -> None:
        """At the first gradient of all: count anew, and come back at the end."""
        if self._under_way or not self._sync:
            return
        self._under_way = True
        self._launched = 0
        self._arrived = []
        for bucket in self._buckets:
            bucket.missing, bucket.handle = set(bucket.members), None
        self._lost().zero_()
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        engine.queue_callback(self._finish)
        for number in sorted(self._unused):
            self._take(number, None)

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if not self._sync:
                return
            self._begin(parameter)
            if self.events is not None:
                now = time.perf_counter()
                self.events.append(("gradient", self._names[number], now, now))
            self._arrived.append(number)
            self._take(number, parameter.grad)

        return hook

    def _take(self, number: int, grad: torch.Tensor | None) -> None:
        """Put a gradient into its bucket; send all buckets that are full, in order."""
        bucket = self._where[number]
        if number not in bucket.missing:
            raise RuntimeError(
                f"{self._names[number]} was given two gradients in one backward. "
                "Use what is called twice within one forward."
            )
        view = bucket.views[number]
        if grad is None:
            view.zero_()
        elif grad.data_ptr() == view.data_ptr() and grad.dtype == view.dtype:
            view.div_(self.world)
        elif grad.dtype == view.dtype and not grad.is_sparse:
            torch.div(grad.detach(), self.world, out=view)
        else:  # in the wider type first: a quotient is rounded too
            view.copy_(grad).div_(self.world)
        bucket.missing.discard(number)
        self._launch()

    def _launch(self) -> None:
        """Send in one order, which is the same on all ranks: they match by it alone."""
        while self._launched < len(self._buckets):
            bucket = self._buckets[self._launched]
            if bucket.missing:
                return
            bucket.begin(self.group)
            if self.events is not None:
                self._note(bucket, f"bucket {self._launched}")
            self._launched += 1

    def _finish(self) -> None:
        """Wait for all sums, once backward is through, and hand the gradients out."""
        self._under_way = False
        lost = [n for b in self._buckets for n in b.missing]
        for number in lost:
            self._where[number].views[number].zero_()
            self._where[number].missing.discard(number)
        self._lost().fill_(len(lost))
        self._launch()
        for bucket in self._buckets:
            assert bucket.handle is not None
            bucket.handle.wait()
        used = self._used_somewhere()
        for bucket in self._buckets:
            for number, view in bucket.views.items():
                parameter = self._parameters_in_order[number]
                if number not in used:
                    continue
                if view.dtype == parameter.dtype:
                    parameter.grad = view
                elif parameter.grad is None:
                    parameter.grad = view.to(parameter.dtype)
                else:
                    parameter.grad.copy_(view)
        self._tell_of(lost)
        if not self._by_use:
            self._order_by_use()

    def _tell_of(self, lost: list[int]) -> None:
        """Raise on every rank where a parameter of some rank was given no gradient."""
        flag = self._lost()
        late, self._late = self._late, None
        if flag.is_cuda:
            # Read in the next step, when it is here without waiting.
            copied = flag.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self._late = lambda: (event.synchronize(), float(copied))[1]
        count = late() if late else 0.0 if flag.is_cuda else float(flag)
        if count:
            said = told_by_all(", ".join(self._names[n] for n in lost), self.group)
            listed = "; ".join(f"rank {r}: {one}" for r, one in enumerate(said) if one)
            raise ValueError(
                f"parameters were given no gradient in this backward ({listed}). If "
                "that is meant, say find_unused_parameters=True."
            )

    def _used_somewhere(self) -> set[int]:
        """Return the parameters that some rank used."""
        everyone = set(range(len(self._names)))
        if not self.find_unused_parameters:
            return everyone
        device = self._buckets[0].buffer.device
        count = torch.ones(len(self._names), dtype=torch.int32, device=device)
        count[sorted(self._unused)] = 0
        all_reduce(count, self.group).wait()
        return everyone - {n for n, by in enumerate(count.tolist()) if not by}

    # --- buckets ----------------------------------------------------------------

    def _lost(self) -> torch.Tensor:
        """Return the number that counts parameters without a gradient.

        To assign a Python number to a place of a tensor on a GPU would wait for it.
        """
        return self._buckets[-1].buffer[-1:]

    def _fill(self, order: Any) -> None:
        self._buckets = make_buckets(
            self._parameters_in_order, order, self.bucket_bytes, self.reduce_dtype
        )
        self._where = {n: bucket for bucket in self._buckets for n in bucket.members}

    def _order_by_use(self) -> None:
        """Fill buckets anew, in the order of rank 0's gradients, from now on."""
        self._by_use = True
        if self.find_unused_parameters:
            return  # what is used changes from step to step, and so does the order
        device = self._buckets[0].buffer.device
        order = torch.tensor(self._arrived, device=device)
        broadcast(order, self.group)
        grads = [(p, p.grad) for p in self._parameters_in_order]
        self._fill(order.tolist())
        for number, (parameter, grad) in enumerate(grads):
            view = self._where[number].views[number]
            if grad is not None and view.dtype == parameter.dtype:
                parameter.grad = view.copy_(grad)

    def _note(self, bucket: Bucket, name: str) -> None:
        """Note when a bucket's sum is there, without waiting for it."""
        events, began = self.events, bucket.began
        assert events is not None

        def done(_: object) -> None:
            events.append(("all-reduce", name, began, time.perf_counter()))

        future = getattr(bucket.handle, "get_future", None)
        if future is None:
            done(None)
        else:
            future().then(done)

    def _not_reached(self, outputs: list[torch.Tensor]) -> set[int]:
        """Walk the graph from the outputs; return the parameters that it lacks."""
        seen: set[Any] = set()
        todo: list[Any] = [t.grad_fn for t in outputs]
        reached: set[int] = set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if hasattr(node, "variable"):
                reached.add(id(node.variable))
            todo.extend(following for following, _ in node.next_functions)
        own = enumerate(self._parameters_in_order)
        # What a step without messages left behind is to be sent all the same.
        return {n for n, p in own if id(p) not in reached and p.grad is None}

    @torch.no_grad()
    def _send_from_rank_0(self, tensors: Any) -> None:
        """Overwrite tensors with rank 0's: one message for each dtype and device."""
        kinds: dict[Any, list[torch.Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for some in kinds.values():
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in some])
            broadcast(flat, self.group)
            parts = flat.split([tensor.numel() for tensor in some])
            for tensor, part in zip(some, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Give the tensors of what a module returns, however nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
