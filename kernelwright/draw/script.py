"""The style and the script of the launch map: nothing is fetched, no global name."""

from __future__ import annotations

from kernelwright.draw.palette import BAD, INK, LINE, MUTED

STYLE = f"""
.kw-launch {{ margin: 0.5rem 0; max-width: 46rem; color: {INK}; }}
.kw-launch svg {{ width: 100%; height: auto; display: block; background: transparent; }}
.kw-launch text {{ fill: {INK}; font: 21px system-ui, sans-serif; }}
.kw-launch .kw-head {{ fill: {MUTED}; font-size: 20px; }}
.kw-launch .kw-row {{ fill: {MUTED}; font-size: 19px; text-anchor: end; }}
.kw-launch .kw-cell text {{ text-anchor: middle; }}
.kw-launch .kw-cell rect {{ fill: var(--c); fill-opacity: .3; stroke: var(--c);
  stroke-width: 1.5; }}
.kw-launch .kw-idle rect, .kw-launch .kw-hole rect {{ fill: none; stroke: {LINE};
  stroke-dasharray: 4 3; }}
.kw-launch .kw-idle text {{ fill: {MUTED}; }}
.kw-launch .kw-hole rect, .kw-launch .kw-wrong rect {{ stroke: {BAD};
  stroke-width: 2.5; }}
.kw-launch .kw-hole text {{ fill: {BAD}; }}
.kw-launch .kw-off {{ opacity: .25; }}
.kw-launch .kw-on rect {{ fill-opacity: .75; stroke-width: 3; }}
.kw-launch [data-thread], .kw-launch [data-element] {{ cursor: pointer; }}
.kw-launch .kw-control {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem;
  align-items: center; margin: .4rem 0; }}
.kw-launch input {{ flex: 1 1 12rem; min-width: 0; }}
.kw-launch output {{ flex: 1 1 100%; min-height: 2.6em;
  font: 0.95em ui-monospace, monospace; }}
.kw-launch figcaption {{ color: {MUTED}; font-weight: 400; }}
"""

SCRIPT = """
function (id, data) {
  const root = document.getElementById(id);
  if (!root) return;
  const slider = root.querySelector("input");
  const words = root.querySelector("output");
  const cells = root.querySelectorAll(".kw-cell");
  const say = (thread) => {
    const block = Math.floor(thread / data.threads);
    const lane = thread % data.threads;
    const start = `blockIdx.x ${block} * blockDim.x ${data.threads} + ` +
      `threadIdx.x ${lane} = ${thread}`;
    const own = data.writes[thread];
    if (!own.length) return start + ": writes nothing";
    const names = own.slice(0, 12).map((i) => `out[${i}]` +
      (i < 0 || i >= data.elements ? " (outside!)" : ""));
    return start + ": writes " + names.join(", ") + (own.length > 12 ? ", …" : "");
  };
  const show = () => {
    const thread = Number(slider.value);
    const own = new Set(thread < 0 ? [] : data.writes[thread]);
    cells.forEach((cell) => {
      const t = cell.dataset.thread, e = cell.dataset.element;
      const on = t !== undefined ? Number(t) === thread :
        e !== undefined && own.has(Number(e));
      cell.classList.toggle("kw-on", thread >= 0 && on);
      cell.classList.toggle("kw-off", thread >= 0 && !on);
    });
    words.textContent = thread < 0 ? "all threads" : say(thread);
  };
  cells.forEach((cell) => cell.addEventListener("click", () => {
    const t = cell.dataset.thread, e = Number(cell.dataset.element);
    const found = t !== undefined ? Number(t) :
      data.writes.findIndex((own) => own.includes(e));
    slider.value = found === Number(slider.value) ? -1 : found;
    show();
  }));
  slider.addEventListener("input", show);
  show();
}
""".strip()
