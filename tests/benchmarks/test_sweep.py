"""The sweep of softmax's settings: what it tries is right, on any machine."""

from __future__ import annotations

import pytest
import torch

from benchmarks.sweep_softmax import settings
from solutions.softmax import launch


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_what_is_tried_is_right(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    y, grad = torch.softmax(torch.randn(2, 5000), 1), torch.randn(2, 5000)
    given = (grad,) if way == "forward" else (y, grad)
    right = torch.softmax(grad, 1)
    if way == "backward":
        right = y * (grad - (y * grad).sum(1, keepdim=True))
    named = dict(settings(5000, len(given)))
    kinds = {name.split(",")[0]: name for name in named}
    assert {"whole rows", "pieces of 4096", "pieces of 8192"} <= kinds.keys()
    # Each is a value of a name that the launch has.
    assert all(hasattr(launch, name) for one in named.values() for name in one)
    for name in kinds.values():
        with monkeypatch.context() as patch:
            for key, value in named[name].items():
                patch.setattr(launch, key, value)
            out = torch.full_like(grad, torch.nan)
            into = launch.forward_into if way == "forward" else launch.backward_into
            into(*(t.unsqueeze(-1) for t in (*given, out)))
            assert torch.allclose(out, right, atol=1e-6), name


def test_no_setting_asks_for_more_than_registers_hold() -> None:
    assert not any("whole" in name for name, _ in settings(262_144, 1))
    assert not any("16384, 4 warps" in name for name, _ in settings(262_144, 2))
    assert any("16384, 8 warps" in name for name, _ in settings(262_144, 1))
