"""The Triton tracer: what kernels do to memory, under Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright as kw
from kernelwright.errors import ArgumentError, LaunchError, TraceProblem
from kernelwright.trace.triton import TritonReport
from tests.kernelwright.trace.triton import kernels

HERE = Path(kernels.__file__)


def line(mark: str) -> int:
    """Return the line of the kernels' file that ends in a comment."""
    return next(
        number
        for number, text in enumerate(HERE.read_text().splitlines(), 1)
        if text.endswith(f"# {mark}")
    )


def traced(n: int = 30, programs: int = 2, **options: Any) -> TritonReport:
    x, out = torch.arange(30.0), torch.empty(30)
    tracer = kw.trace_triton(kernels.twice)
    if options:
        tracer = tracer.options(**options)
    return tracer[(programs,)](x, out, n, BLOCK=16)


def test_a_right_kernel_is_clean_and_counted() -> None:
    x, out = torch.arange(30.0), torch.empty(30)
    report = kw.trace_triton(kernels.twice)[(2,)](x, out, 30, BLOCK=16)
    report.assert_clean()
    assert torch.equal(out, 2 * x)
    load, store = report.lines
    assert (load.line, load.op, load.buffer) == (line("twice loads"), "load", "x_ptr")
    assert (store.line, store.op) == (line("twice stores"), "store")
    for access in (load, store):
        assert (access.requests, access.lanes, access.masked) == (2, 30, 2)
        assert (access.bytes, access.sectors, access.ideal_sectors) == (120, 4, 4)
    assert report.bytes_requested == 240
    assert report.programs == 2 and report.launches[0].grid == (2, 1, 1)
    assert "tl.store" in store.source and report.notes == ()


def test_products_are_counted_by_the_bits_of_their_operands() -> None:
    x, out = torch.ones(16, 16, dtype=torch.float16), torch.empty(16, 16)
    report = kw.trace_triton(kernels.multiplied)[(3,)](x, x, out, N=16)
    assert report.products == {16: 3 * 16**3, 32: 3 * 16**3}
    assert traced().products == {}


def test_the_busiest_program_is_told_beside_the_average_one() -> None:
    report = kw.trace_triton(kernels.first_alone)[(4,)](torch.empty(8), PROGRAMS=4)
    assert report.busiest == (16, 28, 4) and report.busiest.average == 7


def test_a_maximum_drops_nan_as_on_a_gpu() -> None:
    x, out = torch.tensor([torch.nan, -2.0, 0.5, 7.0]), torch.empty(4)
    kw.trace_triton(kernels.cut_off)[(1,)](x, out, 4, BLOCK=4)
    assert out.tolist() == [0.0, 0.0, 0.5, 1.0]


def test_who_touched_what() -> None:
    touched = traced().touched_by("out_ptr", "store")
    assert list(touched) == list(range(30))
    assert touched[15] == ((0, 0, 0),) and touched[16] == ((1, 0, 0),)


def test_out_of_bounds_is_caught_before_it_happens() -> None:
    report = traced(n=32)
    wild_load, wild_store = report.problems
    assert wild_load.kind == wild_store.kind == "out of bounds"
    assert wild_store.lines == (line("twice stores"),)
    assert (wild_store.block, wild_store.buffer) == ((1, 0, 0), "out_ptr")
    assert (wild_store.index, wild_store.count) == (30, 2)
    assert report.lines[1].outside == 2 and report.lines[1].lanes == 30
    with pytest.raises(TraceProblem, match=r"program \(1, 0, 0\) writes out_ptr\[30\]"):
        report.assert_clean()


def test_memory_of_a_neighbour_is_no_place_to_read_from() -> None:
    both = torch.arange(32.0)
    x, neighbour = both[:16], both[16:]
    kernel = kw.trace_triton(kernels.far_past)
    # The kernel is given the neighbour too: it is somebody else's all the same.
    report = kernel[(1,)](x.clone(), neighbour, 16, BLOCK=16)
    (problem,) = report.problems
    assert problem.lines == (line("far_past loads"),)
    assert (problem.buffer, problem.index, problem.count) == ("x_ptr", 16, 16)


def test_a_masked_lane_may_have_any_address() -> None:
    x, out = torch.arange(10.0), torch.zeros(10)
    report = kw.trace_triton(kernels.wild_when_off)[(1,)](x, out, 10, BLOCK=16)
    report.assert_clean()
    assert torch.equal(out, x)
    assert [access.masked for access in report.lines] == [6, 6]


def test_a_helpers_line_is_its_own() -> None:
    x, out = torch.arange(30.0), torch.empty(30)
    report = kw.trace_triton(kernels.through_helper)[(2,)](x, out, 30, BLOCK=16)
    report.assert_clean()
    assert report.lines[0].line == line("pick loads")
    assert torch.equal(out, 2 * x)


def test_pointers_in_two_dimensions() -> None:
    x, out = torch.randn(5, 7), torch.empty(7, 5)
    report = kw.trace_triton(kernels.transposed)[(2, 2)](x, out, 5, 7, R=4, C=4)
    report.assert_clean()
    assert torch.equal(out, x.T)
    store = next(access for access in report.lines if access.op == "store")
    assert (store.requests, store.lanes, store.masked) == (4, 35, 29)
    assert report.touched_by("out_ptr")[5 * 6 + 4] == ((1, 1, 0),)


def test_rows_with_a_gap_between_them() -> None:
    wide = torch.zeros(4, 8)
    x = wide[:, :5]
    report = kw.trace_triton(kernels.twice)[(1,)](x, x, 29, BLOCK=32)
    report.assert_clean()  # the gaps are memory of the same tensor
    assert report.lines[0].masked == 3
    report = kw.trace_triton(kernels.twice)[(1,)](x, x, 30, BLOCK=32)
    assert report.problems[0].index == 29


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_block_pointers() -> None:
    x, out = torch.randn(7, 13), torch.zeros(7, 13)
    report = kw.trace_triton(kernels.block_pointers)[(1,)](x, out, 7, 13, B=8)
    report.assert_clean()
    assert torch.equal(out, x + 1)
    assert [(a.lanes, a.masked) for a in report.lines] == [(91, 37), (91, 37)]
    report = kw.trace_triton(kernels.unchecked_block)[(1,)](x, out, 7, 13, B=8)
    assert report.problems[0].lines == (line("unchecked_block stores"),)


def test_descriptors() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(7, 12), torch.zeros(7, 12)
    report = kw.trace_triton(kernels.own_descriptors)[(2,)](x, out, 7, 12, B=8)
    report.assert_clean()
    assert torch.equal(out, x + 1)
    out.zero_()
    descriptors = [TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, out)]
    report = kw.trace_triton(kernels.given_descriptors)[(2,)](*descriptors, B=8)
    report.assert_clean()
    assert torch.equal(out, x + 1)
    assert {access.buffer for access in report.lines} == {"x", "y"}


def test_atomics() -> None:
    x = torch.tensor([0, 1, 1, 3, 3, 3, 9])
    counts = torch.zeros(4, dtype=torch.int32)
    report = kw.trace_triton(kernels.histogram)[(1,)](x, counts, 7, BLOCK=8)
    assert counts.tolist() == [1, 2, 0, 3]
    (problem,) = report.problems
    assert problem.lines == (line("histogram updates"),)
    assert (problem.buffer, problem.index, problem.count) == ("count_ptr", 9, 1)
    locks = torch.zeros(5, dtype=torch.int32)
    report = kw.trace_triton(kernels.lock_all)[(1,)](locks, BLOCK=8)
    assert locks.tolist() == [1] * 5
    assert (report.problems[0].index, report.problems[0].count) == (5, 3)


def test_a_read_of_what_nobody_wrote() -> None:
    x, out = torch.ones(30), torch.empty(30)
    kernel = kw.trace_triton(kernels.accumulate)
    kernel[(2,)](x, out, 30, BLOCK=16).assert_clean()
    for tracer, target in (
        (kernel.options(unwritten=["out_ptr"]), out),
        (kernel.options(unwritten=[1]), out),
        (kernel, kw.unwritten_like(out)),
    ):
        report = tracer[(2,)](x, target, 30, BLOCK=16)
        (problem,) = report.problems  # the last line reads what the one before wrote
        assert problem.kind == "uninitialised read"
        assert problem.lines == (line("accumulate loads"),)
        assert (problem.buffer, problem.index, problem.count) == ("out_ptr", 0, 30)
        assert target.isnan().all()


def test_no_value_raises_a_warning_as_none_does_on_a_gpu() -> None:
    signalling = torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32)
    x, out = torch.full((30,), torch.inf), signalling.repeat(30)
    kw.trace_triton(kernels.accumulate)[(2,)](x, out, 30, BLOCK=16).assert_clean()
    assert out.isnan().all()


def test_what_one_launch_wrote_the_next_may_read() -> None:
    x = torch.ones(30)
    out = kw.unwritten_like(x)
    report = kw.trace_triton(kernels.launch_twice)(x, out, 30)
    report.assert_clean()
    assert torch.equal(out, 3 * x)
    assert [made.kernel for made in report.launches] == ["twice", "accumulate"]
    assert report.programs == 4 and report.kernel == "launch_twice"


def test_triton_s_own_functions() -> None:
    x, out = torch.randn(16), torch.empty(17)
    report = kw.trace_triton(kernels.reductions)[(1,)](x, out, BLOCK=16)
    report.assert_clean()
    torch.testing.assert_close(out[0], x.sum() + x.max())
    torch.testing.assert_close(out[1:], x.softmax(0))


def test_what_the_interpreter_gets_wrong_is_said() -> None:
    x = torch.randn(16).bfloat16()
    out = torch.zeros_like(x)
    report = kw.trace_triton(kernels.bf16_sum)[(1,)](x, out, BLOCK=16)
    assert not torch.equal(out, x + x), "the interpreter's bf16 is right: drop the note"
    (note,) = report.notes
    assert note.startswith(f"line {line('bf16_sum computes')}: Triton's interpreter")
    assert "Convert to fp32 first" in note and note in str(report)
    report.assert_clean()
    report = kw.trace_triton(kernels.bf16_through_fp32)[(1,)](x, out, BLOCK=16)
    assert torch.equal(out, x + x)
    (note,) = report.notes
    assert note.startswith(f"line {line('bf16_through_fp32 rounds')}:")
    assert "a GPU rounds to the nearest" in note


def test_an_autotuned_kernel_takes_its_first_configuration() -> None:
    triton = pytest.importorskip("triton")
    configs = [triton.Config({"BLOCK": block}) for block in (64, 32, 16)]
    tuned = triton.autotune(configs, key=["n"])(kernels.twice)
    x, out = torch.randn(100), torch.empty(100)
    report = kw.trace_triton(tuned)[lambda of: (kw.cdiv(100, of["BLOCK"]),)](
        x, out, 100
    )
    assert [launch.grid for launch in report.launches] == [(2, 1, 1)]
    assert tuned.configs == configs
    assert not tuned.cache


def test_nothing_is_left_behind() -> None:
    import triton.language as tl
    from triton.runtime import interpreter, jit

    owners = [
        *(tl, tl.core, tl.math, tl.core.tensor, tl.core.tensor_descriptor_base),
        *(interpreter.GridExecutor, interpreter.interpreter_builder, jit.JITFunction),
    ]
    ignored = {"grid_dim", "grid_idx"}  # where the interpreter's last launch stood

    def state() -> list[dict[str, object]]:
        return [
            {k: v for k, v in vars(owner).items() if k not in ignored}
            for owner in owners
        ]

    before = state()
    x, out = torch.arange(30.0), torch.empty(30)
    kw.trace_triton(kernels.through_helper)[(2,)](x, out, 32, BLOCK=16)
    with pytest.raises(Exception, match="no"):
        kw.trace_triton(kernels.fails)[(1,)](x)
    assert state() == before
    first, second = traced(), traced()
    assert first == second and second.programs == 2


def test_a_trace_within_a_trace_is_refused() -> None:
    def outer() -> None:
        traced()

    with pytest.raises(LaunchError, match="another trace is running"):
        kw.trace_triton(outer)()
    traced().assert_clean()


def test_nothing_to_trace_is_said() -> None:
    for wrong in (3, torch.ones(2), kw):
        with pytest.raises(ArgumentError, match=r"wanted a @triton\.jit kernel"):
            kw.trace_triton(wrong)
    with pytest.raises(LaunchError, match=r"trace_triton\(twice\)\[\(programs,\)\]"):
        kw.trace_triton(kernels.twice)(torch.ones(3))
    with pytest.raises(LaunchError, match="chooses its grid itself"):
        kw.trace_triton(kernels.launch_twice)[(2,)]
    with pytest.raises(ArgumentError, match="unwritten names 'z', which is no param"):
        kw.trace_triton(kernels.twice).options(unwritten=["z"])[(2,)]


def test_the_report_reads_well_in_a_terminal() -> None:
    text = str(traced(n=31))
    assert text.splitlines()[0] == "twice: 2 programs"
    assert f"{line('twice loads'):>5}  load 4 B    x_ptr " in text
    assert "2 problem(s):" in text and "let the mask turn off the lanes" in text
    assert "no problems found" in str(traced())


def test_the_report_in_a_notebook_marks_the_line() -> None:
    page = traced(n=31)._repr_html_()
    row = page.split(f">{line('twice stores')}</td>")[1].split("</tr>")[0]
    assert "write out_ptr: 30 lanes, 1 off, 1 outside<" in row
    assert "out of bounds" in row and "tl.store(out_ptr" in row
    # Other kernels of the file are not shown.
    assert "make_block_ptr" not in page


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_compiled_kernels_are_interpreted_for_the_trace(interpret: str) -> None:
    """As on a GPU, where no kernel is made for the interpreter."""
    code = """
import torch, triton
import kernelwright as kw
from tests.kernelwright.trace.triton import kernels
from triton.runtime.jit import JITFunction
assert isinstance(kernels.twice, JITFunction) is (INTERPRET == "0")
names = set(vars(kernels))
x, out = torch.arange(30.0), torch.empty(30)
for kernel in (kernels.twice, kernels.through_helper):
    report = kw.trace_triton(kernel)[(2,)](x, out, 30, BLOCK=16)
    report.assert_clean()
    assert torch.equal(out, 2 * x) and report.lines[0].masked == 2
y = torch.empty(17)
kw.trace_triton(kernels.reductions)[(1,)](x[:16], y, BLOCK=16).assert_clean()
torch.testing.assert_close(y[1:], x[:16].softmax(0))
kw.trace_triton(kernels.launch_twice)(x, out, 30).assert_clean()
if INTERPRET == "0":
    assert set(vars(kernels)) == names
""".replace("INTERPRET", repr(interpret), 1).replace("INTERPRET", repr(interpret))
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": interpret},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_what_another_program_stored_is_a_race() -> None:
    x = torch.arange(48.0)
    report = kw.trace_triton(kernels.lost_update)[(3,)](x, torch.zeros(16), BLOCK=16)
    (race,) = report.problems
    assert (race.kind, race.lines) == ("race", (line("lost_update loads"),))
    assert (race.block, race.index, race.count) == ((1, 0, 0), 0, 2)
    assert "out_ptr[0], which program (0, 0, 0) of the same launch" in race.message
    # One program alone has nobody to race with.
    kw.trace_triton(kernels.lost_update)[(1,)](x, x[:16], BLOCK=16).assert_clean()


def test_a_program_that_used_an_atomic_may_know_that_another_is_done() -> None:
    x, done = torch.arange(48.0), torch.zeros(1, dtype=torch.int32)
    out = torch.zeros(16)
    kw.trace_triton(kernels.in_turn)[(3,)](x, out, done, BLOCK=16).assert_clean()
    assert torch.equal(out, x.view(3, 16).sum(0))
