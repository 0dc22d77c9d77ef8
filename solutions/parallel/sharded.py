"""A sharded optimizer: each rank keeps the state of its part of the parameters.

Adam keeps two numbers for every parameter, in fp32: 8 bytes, where the parameter has 2
or 4. On n ranks that all step alike, n - 1 of the copies are the same. So the ranks
share the work out: gradients are reduce-scattered, each rank steps with its n-th, and
the parameters are all-gathered. Both halves together send what an all-reduce would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from solutions.parallel._collectives import (
    Group,
    Handle,
    all_gather,
    rank_and_size,
    reduce_scatter,
)
from solutions.parallel.agreement import agree_on_each
from solutions.parallel.products import gathered


class _Flat:
    """A group's parameters one behind the other, with what makes the ranks' parts even.

    The parameters become views of it: what is gathered here is theirs.
    """

    def __init__(self, parameters: list[torch.Tensor], rank: int, size: int) -> None:
        kinds = {(p.dtype, p.device) for p in parameters}
        if len(kinds) != 1:
            raise ValueError(
                f"a parameter group has {len(kinds)} kinds of dtype and device; wanted "
                "one: make a group of each."
            )
        self.parameters = parameters
        numbers = sum(p.numel() for p in parameters)
        self.part = -(-numbers // size)
        self.begin = rank * self.part
        self.whole = parameters[0].new_zeros(size * self.part)
        for parameter, view in zip(parameters, self.views(self.whole), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self.own = self.mine(self.whole).requires_grad_()
        self.gradient: torch.Tensor | None = None

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return each parameter's part of a flat tensor, in its shape."""
        sizes = [p.numel() for p in self.parameters]
        parts = flat[: sum(sizes)].split(sizes)
        shapes = (p.shape for p in self.parameters)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def mine(self, flat: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a flat tensor."""
        return flat[self.begin : self.begin + self.part].detach()

    def gradients(self) -> torch.Tensor:
        """Put the gradients one behind the other; a parameter without one has zeros."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.whole)
        pairs = zip(self.parameters, self.views(self.gradient), strict=True)
        for parameter, view in pairs:
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        return self.gradient


class ShardedOptimizer(torch.optim.Optimizer):
    """Any elementwise optimizer, its state spread over ranks (ZeRO, stage 1).

    Args:
        params: parameters or groups of them, as of any optimizer; those of a group
            have one dtype and device. Each becomes a view of one buffer.
        optimizer: its class, such as ``torch.optim.AdamW``. What it does with an
            element may depend on that element alone: no norms of layers, no factors.
        group: the ranks; all when absent.
        average: whether gradients are each rank's own, to be averaged here; leave it
            out beside ``DistributedDataParallel``, which has averaged them.
        defaults: what the optimizer is made with, ``lr`` and so on.

    ``state_dict`` is what the optimizer would have on one process. Every rank calls it,
    and every rank is given it; a checkpoint loads into any number of ranks, or into the
    plain optimizer. A parameter without a gradient counts as one with zeros.

    Raises:
        ValueError: on every rank: parameters that differ among ranks, by name.

    Cost: an n-th of the state's memory and of the step's work; a step sends (n - 1) / n
    of the parameters' bytes, and with ``average`` as much for the gradients.

    Source: Rajbhandari et al., *ZeRO* (SC 2020), section 5.1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer: Callable[..., torch.optim.Optimizer],
        *,
        group: Group = None,
        average: bool = False,
        **defaults: Any,
    ) -> None:
        self.group, self.average = group, average
        rank, size = rank_and_size(group)
        given = list(params)
        if not given:
            raise ValueError("the optimizer has no parameters.")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        groups = [{**one, "params": list(one["params"])} for one in groups]
        listed = [p for one in groups for p in one["params"]]
        agree_on_each(
            "the parameters",
            [f"parameter {number}" for number in range(len(listed))],
            [f"{p.dtype} {tuple(p.shape)}" for p in listed],
            "Hand over the same parameters on every rank.",
            group,
        )
        self._flats: list[_Flat] = []
        inner: list[dict[str, Any]] = []
        for one in groups:
            flat = _Flat(one["params"], rank, size)
            self._flats.append(flat)
            inner.append({**one, "params": [flat.own]})
        self.inner = optimizer(inner, **defaults)
        super().__init__(groups, self.inner.defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Average the gradients where asked to, step with this rank's part, gather."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _, size = rank_and_size(self.group)
        for mine, theirs, flat in self._all():
            theirs |= {k: v for k, v in mine.items() if k != "params"}
            whole = flat.gradients()
            if self.average:
                own = torch.empty_like(flat.own)
                reduce_scatter(own, whole, self.group).wait()
                flat.own.grad = own.div_(size)
            else:
                flat.own.grad = flat.mine(whole).clone()
        self.inner.step()
        handles: list[Handle] = []
        for _, _, flat in self._all():
            flat.own.grad = None
            # The part is copied out: the gather writes where it would be read.
            own = flat.own.detach().clone()
            handles.append(all_gather(flat.whole, own, self.group))
        for handle in handles:
            handle.wait()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Gather the state: what the plain optimizer's ``state_dict`` would return."""
        packed = super().state_dict()
        state: dict[int, dict[str, Any]] = {}
        first = 0
        for _, _, flat in self._all():
            numbers = range(first, first + len(flat.parameters))
            first += len(numbers)
            for key, value in self.inner.state.get(flat.own, {}).items():
                values = [value.clone() if torch.is_tensor(value) else value] * len(
                    numbers
                )
                if torch.is_tensor(value) and value.shape == flat.own.shape:
                    values = flat.views(gathered(value, self.group))
                for number, one in zip(numbers, values, strict=True):
                    state.setdefault(number, {})[key] = (
                        one.clone() if torch.is_tensor(one) else one
                    )
        return {**packed, "state": state}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of any number of ranks, of which this one keeps its part.

        Raises:
            ValueError: it is of other parameters.
        """
        groups = state_dict["param_groups"]
        counts = [len(one["params"]) for one in groups]
        wanted = [len(flat.parameters) for flat in self._flats]
        if counts != wanted:
            raise ValueError(
                f"the checkpoint has groups of {counts} parameters, this optimizer of "
                f"{wanted}: hand the same parameters over in the same order."
            )
        for mine, loaded in zip(self.param_groups, groups, strict=True):
            mine |= {k: v for k, v in loaded.items() if k != "params"}
        for one, (_, _, flat) in zip(groups, self._all(), strict=True):
            states = [state_dict["state"].get(number, {}) for number in one["params"]]
            self.inner.state[flat.own] = self._packed(flat, states)

    def _packed(self, flat: _Flat, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Put each parameter's state one behind the other; keep this rank's part."""
        packed: dict[str, Any] = {}
        for key in {key for state in states for key in state}:
            first = next(state[key] for state in states if key in state)
            if not torch.is_tensor(first) or first.ndim == 0:
                packed[key] = first.clone() if torch.is_tensor(first) else first
                continue
            whole = torch.zeros_like(flat.whole, dtype=first.dtype)
            for state, view in zip(states, flat.views(whole), strict=True):
                if key not in state:
                    continue
                if state[key].shape != view.shape:
                    raise ValueError(
                        f"the checkpoint's {key} has shape {tuple(state[key].shape)}; "
                        f"wanted the parameter's, {tuple(view.shape)}."
                    )
                view.copy_(state[key])
            packed[key] = flat.mine(whole).clone()
        return packed

    def _all(self) -> Iterable[tuple[dict[str, Any], dict[str, Any], _Flat]]:
        return zip(self.param_groups, self.inner.param_groups, self._flats, strict=True)
