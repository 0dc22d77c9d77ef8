"""What a timer sees: the CPU's and the GPU's lanes while a kernel is timed.

Every frame is a real run of somebody's timer on a practice GPU, the reader's own
among them. The measured stretch lies over what really happened.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.measure.practice import Operation, PracticeGPU, PracticeKernel

Timer = Callable[[PracticeGPU, PracticeKernel], float | None]

_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT = 62, 12
_LANES = {"CPU": 62, "GPU": 142}
_ROW = 56
_COLOURS = {"launch": 0, "compile": 1, "event": 4, "read": 4, "kernel": 2, "flush": 3}


@dataclass(frozen=True)
class Frame:
    """One timer's run.

    Args:
        label: which timer.
        says_ms: what it returned; ``None`` if it raised.
        trouble: what it raised.
        true_ms: how long the kernel really takes with its input in memory.
        log: what happened.
        stretch: from when to when the timer looked, in ms.
    """

    label: str
    says_ms: float | None
    trouble: str
    true_ms: float
    log: tuple[Operation, ...]
    stretch: tuple[float, float] | None

    def words(self) -> str:
        """Return the frame in a sentence."""
        if self.says_ms is None:
            return f"{self.label}: {self.trouble}"
        ratio = self.says_ms / self.true_ms
        verdict = "right" if abs(ratio - 1) < 1e-6 else f"{ratio:.2f} of the truth"
        return (
            f"{self.label}: says {self.says_ms:.3f} ms, the kernel takes "
            f"{self.true_ms:.3f} ms: {verdict}"
        )


@dataclass(frozen=True, repr=False)
class TimerView:
    """Frames to leaf through; ``str`` says them in words."""

    frames: tuple[Frame, ...]

    def __str__(self) -> str:
        return "\n".join(frame.words() for frame in self.frames)

    __repr__ = __str__

    def svg(self, number: int = 0) -> str:
        """Return one frame's picture alone."""
        return _svg(self.frames[number], self._end())

    def _end(self) -> float:
        return max(op.stop_ms for frame in self.frames for op in frame.log)

    def _repr_html_(self) -> str:
        from kernelwright.draw import palette

        figure = palette.unique("kw-timer")
        drawn = "".join(
            f'<div class="kw-frame"{" hidden" if i else ""}>{self.svg(i)}</div>'
            for i in range(len(self.frames))
        )
        items = "".join(f"<li>{html.escape(f.words())}</li>" for f in self.frames)
        words = [frame.words() for frame in self.frames]
        return (
            f'<figure class="kw-timer" id="{figure}"><style>{_style()}</style>{drawn}'
            f'<div class="kw-control"><label for="{figure}-slider">Timer</label>'
            f'<input type="range" data-lm-suppress-shortcuts="true" '
            f'id="{figure}-slider" min="0" '
            f'max="{len(self.frames) - 1}" value="0" '
            f'aria-describedby="{figure}-words">'
            f'<output id="{figure}-words" for="{figure}-slider" aria-live="polite">'
            f"{html.escape(words[0])}</output></div>"
            f"<figcaption><ol>{items}</ol></figcaption>"
            f"<script>({_SCRIPT})({json.dumps(figure)}, {json.dumps(words)});</script>"
            "</figure>"
        )


def timer_view(
    timers: Mapping[str, Timer],
    *,
    cold_ms: float = 0.5,
    warm_ms: float = 0.3,
    compile_ms: float = 0.8,
) -> TimerView:
    """Let timers time one kernel, each on a practice GPU of its own, and draw it.

    Args:
        timers: by name; each is called with the GPU and the kernel, and returns ms.
        cold_ms: what the kernel takes with its input in memory.
        warm_ms: what it takes with its input in the cache.
        compile_ms: what its first launch costs besides.
    """
    frames = []
    for label, timer in timers.items():
        # Launches dearer than real ones, so that they can be seen.
        gpu = PracticeGPU(launch_ms=0.08, event_ms=0.02, wake_ms=0.03, flush_ms=0.25)
        kernel = gpu.kernel("kernel", cold_ms, warm_ms, compile_ms=compile_ms)
        says, trouble = None, ""
        try:
            found: float | None = timer(gpu, kernel)
            if found is None:
                raise NotImplementedError
            says = float(found)
        except NotImplementedError:
            trouble = "nothing is written here yet"
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        log = tuple(gpu.log) or (Operation("CPU", "read", "", 0.0, 1.0),)
        frames.append(Frame(label, says, trouble, cold_ms, log, _stretch(log)))
    return TimerView(tuple(frames))


def _stretch(log: tuple[Operation, ...]) -> tuple[float, float] | None:
    """Find the last stretch that was timed: between two marks, or two readings."""
    for kind in ("mark", "read"):
        times = [op.stop_ms for op in log if op.kind == kind]
        if len(times) >= 2:
            return times[-2], times[-1]
    return None


def _svg(frame: Frame, end_ms: float) -> str:
    from kernelwright.draw import palette

    scale = (_WIDTH - _LEFT - _RIGHT) / end_ms
    title = palette.unique("kw-title")
    parts = []
    if frame.stretch:
        x = _LEFT + frame.stretch[0] * scale
        width = max(2.0, (frame.stretch[1] - frame.stretch[0]) * scale)
        parts.append(
            f'<rect class="kw-stretch" x="{x:g}" y="40" width="{width:g}" '
            'height="172"/>'
        )
        anchor = "end" if x > _WIDTH / 2 else "start"
        parts.append(
            palette.text(
                x + (width if anchor == "end" else 0),
                30,
                "what the timer counts",
                class_="kw-counted",
                text_anchor=anchor,
            )
        )
    for lane, y in _LANES.items():
        parts.append(palette.text(4, y + _ROW / 2 + 6, lane))
        parts.append(
            f'<line class="kw-lane" x1="{_LEFT}" y1="{y + _ROW}" '
            f'x2="{_WIDTH - _RIGHT}" y2="{y + _ROW}"/>'
        )
    for op in frame.log:
        parts.append(_operation(op, scale))
    parts.append(palette.text(_LEFT, 240, "0 ms", class_="kw-small"))
    parts.append(
        palette.text(
            _WIDTH - _RIGHT,
            240,
            f"{end_ms:.2f} ms",
            class_="kw-small",
            text_anchor="end",
        )
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{title}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{title}">'
        f"{html.escape(frame.words())}</title>{''.join(parts)}</svg>"
    )


def _operation(op: Operation, scale: float) -> str:
    from kernelwright.draw import palette

    x, y = _LEFT + op.start_ms * scale, _LANES[op.lane]
    width = (op.stop_ms - op.start_ms) * scale
    if op.kind == "mark":
        return (
            f'<line class="kw-mark" x1="{x:g}" y1="{y - 6}" x2="{x:g}" '
            f'y2="{y + _ROW + 6}"/>'
        )
    if op.kind == "wait":
        shape = (
            f'<rect class="kw-wait" x="{x:g}" y="{y + 4}" width="{width:g}" '
            f'height="{_ROW - 8}"/>'
        )
    else:
        colour = palette.series(_COLOURS[op.kind])
        shape = (
            f'<rect style="--c: {colour}" x="{x:g}" y="{y + 4}" width="{width:g}" '
            f'height="{_ROW - 8}"/>'
        )
    label = op.name if op.kind in ("kernel", "flush") else op.kind
    if width < 11 * len(label):
        return shape
    return shape + palette.text(
        x + width / 2, y + _ROW / 2 + 6, label, text_anchor="middle"
    )


def _style() -> str:
    from kernelwright.draw.palette import BAD, INK, LINE, MUTED

    return f"""
.kw-timer {{ margin: .5rem 0; max-width: 46rem; color: {INK}; }}
.kw-timer svg {{ width: 100%; height: auto; display: block; }}
.kw-timer text {{ fill: {INK}; font: 18px system-ui, sans-serif; }}
.kw-timer .kw-small {{ fill: {MUTED}; font-size: 17px; }}
.kw-timer rect {{ fill: var(--c); fill-opacity: .35; stroke: var(--c); }}
.kw-timer .kw-wait {{ fill: none; stroke: {LINE}; stroke-dasharray: 4 3; }}
.kw-timer .kw-stretch {{ fill: {BAD}; fill-opacity: .12; stroke: {BAD}; }}
.kw-timer .kw-counted {{ fill: {BAD}; }}
.kw-timer .kw-lane {{ stroke: {LINE}; }}
.kw-timer .kw-mark {{ stroke: {INK}; stroke-width: 2.5; }}
.kw-timer .kw-control {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem;
  align-items: center; margin: .4rem 0; }}
.kw-timer input {{ flex: 1 1 12rem; min-width: 0; }}
.kw-timer output {{ flex: 1 1 100%; min-height: 2.6em; }}
.kw-timer figcaption {{ color: {MUTED}; text-align: left; }}
"""


_SCRIPT = """
function (id, words) {
  const root = document.getElementById(id);
  if (!root) return;
  const slider = root.querySelector("input");
  const frames = root.querySelectorAll(".kw-frame");
  const show = () => {
    const at = Number(slider.value);
    frames.forEach((frame, i) => { frame.hidden = i !== at; });
    root.querySelector("output").textContent = words[at];
  };
  slider.addEventListener("input", show);
  show();
}
""".strip()
