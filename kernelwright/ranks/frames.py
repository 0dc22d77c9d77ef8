"""Where a thread is: the innermost of its frames that is the author's own code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

# Says of a file's name whether the author's code stands in it.
Own = Callable[[str], bool]


def own_frame(
    frame: FrameType | None, own: Own
) -> tuple[FrameType | None, list[FrameType]]:
    """Return the innermost frame of the author's code, and the frames within that."""
    within: list[FrameType] = []
    while frame is not None and not own(frame.f_code.co_filename):
        within.append(frame)
        frame = frame.f_back
    return frame, within


def frame_of(thread: int) -> FrameType | None:
    """Return the frame that a thread is in at this moment."""
    return sys._current_frames().get(thread)
