"""The gate *structure*: what the compiled code must hold, and what it must not."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from autograder.exercise import Structure
from autograder.judge.compiled import compiled_kernels
from autograder.judge.results import Gate
from autograder.judge.traces import Trace
from autograder.judge.words import trouble_message
from autograder.supervisor.workers import WorkerEnded
from autograder.worker.wire import Header
from kernelwright.emulator.operations import COUNTED

if TYPE_CHECKING:
    from autograder.judge.run import Run


def check_machine_code(run: Run, trace: Trace | None) -> Gate:
    """Read the machine code that the real compiler makes of the answer.

    What stands in it must also have run: in the first case, as the trace saw it.
    """
    asked = run.exercise.structure or (Structure(),)
    for wanted in asked:
        request: Header = {
            "op": "sass",
            "source": run.cells[-1].source,
            "name": run.exercise.name,
            "arch": wanted.arch,
            # To disassemble takes longer than to compile.
            "read": bool(wanted.holds or wanted.lacks),
        }
        with run.server.spawn() as worker:
            try:
                answer, blobs = worker.ask(
                    request, deadline_s=run.deadlines.prepare, most_bytes=64 << 20
                )
            except WorkerEnded as ended:
                return Gate("structure", ended.status, ended.message)
        if answer.get("ok") is not True:
            message = trouble_message(answer, run.exercise)
            message = f"compiled for {wanted.arch}: {message}"
            if "without execution space annotations" in message:
                message += _NO_SPACE
            detail = {
                "words": "does not compile for a GPU",
                "toolchain": answer.get("kind") == "toolchain",
            }
            return Gate("structure", "failed", message, detail)
        code = instructions(blobs[0].decode("utf-8", "replace") if blobs else "")
        missing = [h for h in wanted.holds if not any(c.startswith(h) for c in code)]
        present = [h for h in wanted.lacks if any(c.startswith(h) for c in code)]
        if missing or present or (request["read"] and not code):
            message = _structure_words(missing, present, wanted.arch)
            if wanted.message:
                # Of several the message names all.
                some = 0 < len(missing) < len(wanted.holds)
                message = wanted.message
                if some:
                    message += f" What is missing is {' and '.join(missing)}."
            return Gate(
                "structure",
                "failed",
                message,
                {"missing": missing, "present": present, "arch": wanted.arch},
            )
        idle = [h for h in wanted.holds if not _was_reached(h, trace)]
        if idle:
            return Gate(
                "structure",
                "failed",
                f"The machine code for {wanted.arch} holds {idle[0]}, and no thread "
                f"came to it. {wanted.message}".rstrip(),
                {"missing": idle, "present": [], "arch": wanted.arch},
            )
    arches = ", ".join(dict.fromkeys(s.arch for s in asked))
    return Gate("structure", "passed", f"machine code for {arches}")


# What a trace counts of a block, by the instruction that does it.
_COUNTED = {op.instruction: name for name, op in COUNTED.items()}


def _was_reached(mnemonic: str, trace: Trace | None) -> bool:
    """Say whether an instruction ran, as far as a trace can tell."""
    counted = _COUNTED.get(mnemonic.split(".")[0])
    return trace is None or counted is None or trace.by_block.get(counted, 0.0) > 0


# The emulator runs a host function like any other; a GPU has none.
_NO_SPACE = (
    " Write __device__ in front of a function that a kernel calls, and __constant__ "
    "or constexpr in front of a table that it reads."
)


_NO_LAUNCH = (
    "The values are right, and of no Triton kernel is it known that it was launched: "
    "call yours with its grid, kernel[(programs,)](...)."
)


def check_names(run: Run) -> Gate:
    """Read which names a Python answer uses: a kernel is to be written, not avoided.

    This is for a learner who took a short cut; it is no wall against a cheat.
    """
    try:
        tree = ast.parse(run.cells[-1].source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Gate("structure", "failed", "the cell cannot be read as Python")
    used = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    }
    gate = check_used(run, used | _as_chapters_write(used, tree))
    if gate.status != "passed":
        return gate
    if run.exercise.wants_triton and not run.kernels:
        return Gate("structure", "failed", _NO_LAUNCH)
    if run.device == "cpu" and run.kernels:
        # Triton's interpreter takes more of Python than its compiler does.
        return compiled_kernels(run)
    return gate


def _as_chapters_write(used: set[str], tree: ast.Module) -> set[str]:
    """Return the names that a cell has imported as another than the chapters'."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {n.asname: n.name for n in node.names if n.asname}
        elif isinstance(node, ast.ImportFrom):
            known |= {n.asname or n.name: f"{node.module}.{n.name}" for n in node.names}
    found = set()
    for name in used:
        first, dot, rest = name.partition(".")
        if first in known:
            whole = f"{known[first]}{dot}{rest}"
            found.add(re.sub(r"^triton\.language\b", "tl", whole))
    return found


def check_used(run: Run, used: set[str]) -> Gate:
    """Hold the names that an answer uses to what the exercise asks for."""
    for wanted in run.exercise.structure:
        missing = [name for name in wanted.holds if name not in used]
        present = [name for name in wanted.lacks if name in used]
        if missing or present:
            parts = [f"uses no {m}" for m in missing] + [f"uses {p}" for p in present]
            return Gate(
                "structure",
                "failed",
                wanted.message or f"The cell {' and '.join(parts)}.",
                {"missing": missing, "present": present},
            )
    return Gate("structure", "passed", "the names that it uses")


def instructions(sass: str) -> set[str]:
    """Return the mnemonics of a disassembly: ``LDG.E.128`` and the like."""
    found: set[str] = set()
    for line in sass.splitlines():
        # /*0070*/  @!P0 LDG.E.128 R4, [R2.64] ;
        code = line.split("*/", 1)[1] if line.lstrip().startswith("/*") else ""
        words = code.strip().rstrip(";").split()
        if words and words[0].startswith("@"):
            words = words[1:]
        if words:
            found.add(words[0].rstrip(";"))
    return found


def _structure_words(missing: list[str], present: list[str], arch: str) -> str:
    parts = [f"holds no {m}" for m in missing] + [f"holds {p}" for p in present]
    return f"The machine code for {arch} {' and '.join(parts) or 'is empty'}."
