"""Messages are noted from their begin to their end, waited for or not."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

import kernelwright as kw
from kernelwright.measure.messages import Event, note_backward, note_messages


def _noted() -> tuple[list[Event], list[float]]:
    events: list[Event] = []
    layer = torch.nn.Linear(3, 2)
    handles = []
    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: handles.append(dist.all_reduce(p.grad, async_op=True))
        )
    loss = layer(torch.ones(1, 3)).sum()
    real = dist.all_reduce
    with note_messages(events):
        note_backward(layer.parameters(), loss.backward, events)
        for handle in handles:
            handle.wait()
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
    assert dist.all_reduce is real
    # The library's own thread notes an end, which may be after the wait for it.
    until = time.monotonic() + 5
    while len(events) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    return events, tensor.tolist()


def test_each_message_and_each_gradient_is_noted() -> None:
    for events, summed in kw.ranks(2, _noted):
        assert summed == [2.0] * 4
        kinds = [what for what, *_ in events]
        assert sorted(kinds) == ["all-reduce"] * 3 + ["backward"] + ["gradient"] * 2
        assert all(begin <= end for *_, begin, end in events)
        # A gradient is noted before it is sent.
        made = [begin for what, _, begin, _ in events if what == "gradient"]
        sent = sorted(begin for what, _, begin, _ in events if what == "all-reduce")
        assert min(made) < sent[0]
        named = {name for what, name, *_ in events if what == "all-reduce"}
        assert named == {
            "message 0, 8 bytes",
            "message 1, 24 bytes",
            "message 2, 16 bytes",
        }
