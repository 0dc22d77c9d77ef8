"""Which operation of the group a rank waits in, read from its frames."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from kernelwright.ranks.messages import Pending


def waits(within: Sequence[FrameType]) -> str:
    """Return ``waits in recv for rank 1``; '' for frames of no operation.

    Args:
        within: the frames that the author's innermost called, the innermost first.
    """
    for inner in reversed(within):
        code = inner.f_code
        if code is Pending.wait.__code__:
            message = inner.f_locals["self"].message
            what = "sent" if message.sends else "received"
            return f"waits for what it {what} on line {message.line} {message.ends}"
        if code.co_filename.endswith("distributed_c10d.py"):
            named = map(inner.f_locals.get, ("dst", "src", "group_dst", "group_src"))
            peer = next((rank for rank in named if type(rank) is int), None)
            said = f"waits in {inner.f_code.co_name}"
            return said if peer is None else f"{said} for rank {peer}"
    return ""
