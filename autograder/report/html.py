"""The report as one HTML file: nothing is fetched, nothing in it runs.

Whatever a learner's code or a notebook said is text here: it is escaped, and the
page's own policy forbids scripts besides.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

from autograder.judge.picture import svg
from autograder.judge.results import Gate, Record, Result
from autograder.judge.words import clean
from autograder.languages import code_of
from autograder.report import margin
from autograder.report.points import MARKS, UNTRIED, correct_words, out_of, part_words
from autograder.report.table import chapters, summary

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LONGEST_OUTPUT = 20_000


def html_report(record: Record) -> str:
    """Return the whole page."""
    sheet = files("autograder.report").joinpath("report.css")
    style = sheet.read_text(encoding="utf-8")
    points = out_of(record.earned, record.possible, record.points)
    state = "" if record.finished else '<p class="warn">Grading is not finished.</p>'
    trust = ""
    if not record.sandbox["trusted"]:
        trust = '<p class="warn">Not trusted: this machine offers no sandbox.</p>'
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary(record)[1:])
    body = "".join(_chapter(stem, results) for stem, results in chapters(record))
    details = "".join(_details(result) for result in record.results)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Grade: {escape(clean(record.submission))}</title>"
        f"<style>{style}</style></head><body><main>"
        f"<h1>GPU Kernels from Scratch</h1>"
        f'<p class="sum">{escape(points)} points</p>'
        f"{_bar(record.earned, record.possible)}{state}{trust}"
        f"<p>{escape(clean(record.submission))}, {escape(record.started)}</p>"
        f"<ul>{lines}</ul>{body}{_roof(record)}{details}</main></body></html>\n"
    )


def _chapter(stem: str, results: list[Result]) -> str:
    rows = "".join(
        f'<tr class="{_class(r)}"><td><a href="#{escape(r.exercise)}">'
        f"{escape(r.exercise)}</a><br><small>{escape(r.title)}</small></td>"
        f"<td>{MARKS[r.status]} {escape(correct_words(r))}</td>"
        f"<td>{escape(part_words(r, 'counts'))}</td>"
        f"<td>{escape(part_words(r, 'speed'))}</td>"
        f'<td class="n">{escape(out_of(r.earned, r.possible, r.points))}</td></tr>'
        for r in results
    )
    return (
        f'<h2>{escape(stem)}</h2><div class="scroll"><table><thead><tr>'
        "<th>Exercise</th><th>Result</th><th>Counts</th><th>Speed</th>"
        f'<th class="n">Points</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _details(result: Result) -> str:
    gates = "".join(gate_html(gate, result.source) for gate in result.gates)
    cases = "".join(
        f"<li>{'✓' if right else '✗'} {escape(clean(name, 200))}</li>"
        for name, right in result.cases
    )
    parts = [f'<section id="{escape(result.exercise)}" class="{_class(result)}">']
    parts.append(
        f"<h3>{escape(result.title)} <code>{escape(result.exercise)}</code></h3>"
        f"<p><strong>{MARKS[result.status]} {escape(result.words)}</strong>, "
        f"{escape(out_of(result.earned, result.possible, result.points))} points, "
        f"{result.seconds:.1f} s</p>"
    )
    if result.message:
        parts.append(message_html(result.message))
    if result.words not in UNTRIED:
        parts.append(f'<ul class="gates">{gates}</ul>')
    if cases:
        noun = "case" if len(result.cases) == 1 else "cases"
        parts.append(_folded(f"{len(result.cases)} {noun}", f"<ul>{cases}</ul>"))
    if result.printed.strip():
        text = escape(clean(result.printed, _LONGEST_OUTPUT))
        parts.append(_folded("What it printed", f"<pre>{text}</pre>"))
    if result.source:
        parts.append(_folded("The answer", _code(result.source)))
    return "".join(parts) + "</section>"


def gate_html(gate: Gate, source: str = "") -> str:
    """Draw one gate: its name, what came of it, where it is wrong."""
    inner = f"<strong>{escape(gate.name)}</strong> {escape(gate.status)}"
    if gate.status == "passed" and gate.message:
        inner += f": {escape(clean(gate.message))}"
    elif gate.status in ("not checked", "not measured"):
        inner += f" ({escape(clean(gate.message))})"
    inner += margin.as_html(source, gate.detail)
    rows = gate.detail.get("picture")
    if isinstance(rows, list) and rows:
        drawn = [str(row) for row in rows]
        inner += f"<div>{svg(drawn)}</div>{_legend()}"
    diagnostics = gate.detail.get("diagnostics")
    for found in diagnostics if isinstance(diagnostics, list) else ():
        inner += (
            f"<br><code>line {escape(str(found.get('line')))}</code> "
            f"{escape(clean(found.get('severity')))}: "
            f"{escape(clean(found.get('message')))}"
        )
    return f'<li class="gate-{escape(gate.status.replace(" ", "-"))}">{inner}</li>'


def _roof(record: Record) -> str:
    """Draw each timed kernel's rate below what it was measured against."""
    timed: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    for result in record.results:
        gate = result.gate("fast")
        detail = gate.detail if gate else {}
        counted = isinstance(detail.get("tflops"), float)
        rate, unit = ("tflops", "TFLOP/s") if counted else ("gbps", "GB/s")
        own, peer = detail.get(rate), detail.get(f"peer_{rate}")
        if isinstance(own, float) and isinstance(peer, float) and own and peer:
            name = str(detail.get("peer") or "copy") if counted else "copy"
            timed.setdefault((name, unit), []).append((result.exercise, own, peer))
    if not timed:
        return ""
    drawn = (_bars(peer, unit, kernels) for (peer, unit), kernels in timed.items())
    return "<h2>Under the roof</h2>" + "".join(drawn)


def _bars(name: str, unit: str, timed: list[tuple[str, float, float]]) -> str:
    """Draw a bar for each kernel, and a line for what all are measured against."""
    roof = max(peer for _, _, peer in timed)
    most = max(roof, *(own for _, own, _ in timed))
    height = 26 * len(timed) + 30
    digits = 0 if unit == "GB/s" else 1
    bars = "".join(
        f'<text x="0" y="{26 * i + 41}">{escape(kernel)}</text>'
        f'<rect class="kw-bar" x="170" y="{26 * i + 28}" height="18" '
        f'width="{380 * own / most:.1f}"/>'
        f'<text x="{176 + 380 * own / most:.1f}" y="{26 * i + 41}">'
        f"{own:,.{digits}f} {unit}</text>"
        for i, (kernel, own, _) in enumerate(timed)
    )
    x = 170 + 380 * roof / most
    what = "Bandwidth" if unit == "GB/s" else "Arithmetic rate"
    against = "the measured copy bandwidth" if unit == "GB/s" else escape(name)
    return (
        '<div class="scroll"><svg class="kw-roof" role="img" '
        f'width="660" viewBox="0 0 660 {height}"><title>{what} of each kernel '
        f"against {against}</title>{bars}"
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height}"/>'
        f'<text x="{x:.1f}" y="14" text-anchor="end">{escape(name)}: '
        f"{roof:,.{digits}f} {unit} measured</text>"
        "</svg></div>"
    )


def _bar(earned: float, possible: float) -> str:
    share = earned / possible if possible else 0.0
    return (
        '<svg class="kw-sum" role="img" viewBox="0 0 100 4" preserveAspectRatio="none">'
        f"<title>{share:.0%} of what could be earned here</title>"
        '<rect width="100" height="4" class="kw-rest"/>'
        f'<rect width="{100 * share:.2f}" height="4" class="kw-right"/></svg>'
    )


def _legend() -> str:
    return (
        '<small class="legend"><span class="right">■</span> right '
        '<span class="wrong">■</span> wrong '
        '<span class="untouched">■</span> never written</small>'
    )


def _code(source: str) -> str:
    lines = code_of(source).rstrip("\n").split("\n")
    numbered = "".join(
        f"<span>{escape(clean(line, 400))}</span>\n" for line in lines[:2000]
    )
    return f'<pre class="code">{numbered}</pre>'


def _folded(summary_text: str, inner: str) -> str:
    return f"<details><summary>{escape(summary_text)}</summary>{inner}</details>"


def message_html(text: str) -> str:
    """Draw a message; a compiler's keeps its lines, whose carets point at columns."""
    shown = escape(clean(text))
    if "\n" in shown:
        return f'<pre class="message">{shown}</pre>'
    return f'<p class="message">{shown}</p>'


def _class(result: Result) -> str:
    if result.words in UNTRIED:
        return "untried"
    return result.status.replace(" ", "-")
