"""Kernels of ranks that reach each other's memory, on the emulator."""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelwright as kw
from kernelwright.trace.report import TraceReport
from solutions import ring_allreduce
from solutions.ring_allreduce import gpu_transport, on_gpus
from solutions.ring_allreduce.headers import Header
from solutions.ring_allreduce.schedules import in_order

TEXT = (Path(ring_allreduce.__file__).parent / "peers.cu").read_text(encoding="utf-8")
# Chunks so small that few numbers take many rounds.
SMALL = TEXT.replace("THREADS = 512, UNROLL = 4", "THREADS = 64, UNROLL = 2")
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
CPP = {
    torch.float32: "float", torch.float64: "double", torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16", torch.int32: "int", torch.int64: "long long",
    torch.int8: "signed char", torch.uint8: "unsigned char",
}  # fmt: skip
BOTH, REDUCES, GATHERS = 3, 1, 2
LIMIT = 60 * 10**9
SLOTS, PART, THREADS = 4, 128, 64
PARTS = 3


@cache
def kernel(name: str, text: str = SMALL) -> kw.cuda.Kernel:
    return kw.cuda.compile(text, name="peers.cu", backend="emulator")[name]


class Boxes:
    """What ranks of one machine hold for each other, as before a first call."""

    def __init__(self, ranks: int, blocks: int, room: int, parts: int = 1) -> None:
        self.half = max(ranks * room, blocks * SLOTS * ranks * parts * PART)
        packs = 2 * self.half
        self.boxes = [torch.zeros(16 * packs, dtype=torch.uint8) for _ in range(ranks)]
        self.signs = [
            torch.zeros(2 * ranks * blocks, dtype=torch.int64) for _ in range(ranks)
        ]
        self.trouble = [torch.zeros(2, dtype=torch.int64) for _ in range(ranks)]

    def given(self, r: int, x: Any, out: Any, n: int, *more: int) -> tuple[Any, ...]:
        return (self.boxes, self.signs, self.trouble[r], x, out, n, *more)


def drawn(dtype: torch.dtype, n: int, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(n, generator=made).to(dtype)
    return torch.randint(0, 5, (n,), generator=made).to(dtype)


def combined(xs: list[torch.Tensor], op: str) -> torch.Tensor:
    out = torch.empty_like(xs[0])
    in_order(xs, op, out)
    return out


def one_shot(
    xs: list[torch.Tensor], op: str, text: str = SMALL, trace: bool = False
) -> tuple[list[torch.Tensor], TraceReport | None]:
    ranks, n, blocks = len(xs), xs[0].numel(), 2
    room = n * xs[0].itemsize // 16 + 1
    boxes = Boxes(ranks, blocks, room)
    outs = [x.clone() for x in xs]
    made = kernel(f"one_shot<{CPP[xs[0].dtype]}, {OPS.index(op)}>", text)
    launch = made.trace.on_ranks if trace else made.on_ranks
    report = launch[blocks, THREADS](
        *(
            boxes.given(r, outs[r], outs[r], n, room, r, ranks, 7, 1, LIMIT)
            for r in range(ranks)
        )
    )
    assert not any(int(each[0]) for each in boxes.trouble)
    return outs, report


def segment_of(n: int, ranks: int, dtype: torch.dtype) -> int:
    width = 16 // dtype.itemsize
    return -(-n // (ranks * width)) * width


def two_shot(
    xs: list[torch.Tensor],
    op: str,
    text: str = SMALL,
    trace: bool = False,
    parts: int = 2,
) -> tuple[list[torch.Tensor], TraceReport | None]:
    ranks, n, blocks = len(xs), xs[0].numel(), 2
    boxes = Boxes(ranks, blocks, 0, parts)
    outs = [x.clone() for x in xs]
    made = kernel(f"two_shot<{CPP[xs[0].dtype]}, {OPS.index(op)}, {BOTH}>", text)
    launch = made.trace.on_ranks if trace else made.on_ranks
    segment = segment_of(n, ranks, xs[0].dtype)
    report = launch[blocks, THREADS](
        *(
            boxes.given(
                r, outs[r], outs[r], n, segment, boxes.half, parts, -1, r, ranks, 7, 0,
                LIMIT,
            )
            for r in range(ranks)
        )
    )  # fmt: skip
    assert not any(int(each[0]) for each in boxes.trouble)
    return outs, report


BY_NAME = {"one_shot": one_shot, "two_shot": two_shot}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", CPP, ids=str)
def test_sums_have_the_bits_of_a_sum_in_order(name: str, dtype: torch.dtype) -> None:
    for ranks, n in ((1, 5), (2, 1), (2, 4099), (3, 1000), (5, 77)):
        xs = [drawn(dtype, n, r) for r in range(ranks)]
        outs, _ = BY_NAME[name](xs, "SUM")
        for out in outs:
            assert torch.equal(out, combined(xs, "SUM")), (ranks, n)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("op", OPS[1:])
def test_other_ops(name: str, op: str) -> None:
    xs = [drawn(torch.float32, 3001, r) for r in range(3)]
    xs[1][5] = torch.nan
    for out in BY_NAME[name](xs, op)[0]:
        torch.testing.assert_close(
            out, combined(xs, op), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("parts", [1, 3])
def test_many_rounds_between_four_ranks(parts: int) -> None:
    xs = [drawn(torch.float32, 30_011, r) for r in range(4)]
    for out in two_shot(xs, "SUM", parts=parts)[0]:
        assert torch.equal(out, combined(xs, "SUM"))


@pytest.mark.parametrize("n", [1, 64, 1001])
def test_the_halves(n: int) -> None:
    ranks, blocks, counts = 3, 2, count(0, 1000)
    boxes = Boxes(ranks, blocks, 0)
    xs = [drawn(torch.float32, ranks * n, r) for r in range(ranks)]
    parts = [torch.zeros(n) for _ in range(ranks)]
    whole = [torch.zeros(ranks * n) for _ in range(ranks)]

    def run(does: int, x: Any, out: Any, n: int, segment: int, root: int) -> None:
        base = next(counts)
        kernel(f"two_shot<float, 0, {does}>").on_ranks[blocks, THREADS](
            *(
                boxes.given(
                    r, x[r], out[r], n, segment, boxes.half, 1, root, r, ranks, does,
                    base, LIMIT,
                )
                for r in range(ranks)
            )
        )  # fmt: skip

    run(REDUCES, xs, parts, ranks * n, n, -1)
    run(GATHERS, parts, whole, ranks * n, n, -1)
    for r in range(ranks):
        assert torch.equal(whole[r], combined(xs, "SUM")), r
    run(GATHERS, xs, xs, ranks * n, ranks * n, 1)
    assert torch.equal(xs[0], xs[1]) and torch.equal(xs[2], xs[1])
    assert not any(int(each[0]) for each in boxes.trouble)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_trace_finds_nothing(name: str) -> None:
    xs = [drawn(torch.float32, 1500, r) for r in range(2)]
    outs, report = BY_NAME[name](xs, "SUM", trace=True)
    assert report is not None
    report.assert_clean()
    assert torch.equal(outs[0], combined(xs, "SUM"))


TELL = "        __threadfence_system();\n        atomicExch_system("


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (TELL, TELL.replace("        __threadfence_system();\n", "")),
        (TELL, TELL.replace("fence_system", "fence")),
        ("atomicExch_system(", "atomicExch("),
    ],
    ids=["no_release", "release_to_the_gpu", "sign_to_the_gpu"],
)
def test_a_trace_finds_what_is_missing(name: str, good: str, bad: str) -> None:
    assert SMALL.count(good) == 1
    xs = [drawn(torch.float32, 1500, r) for r in range(2)]
    _, report = BY_NAME[name](xs, "SUM", SMALL.replace(good, bad), trace=True)
    assert report is not None
    assert {problem.kind for problem in report.problems} == {"race"}


@pytest.mark.parametrize("end", ["differs", "late", "ended"])
def test_who_calls_something_else_or_never_comes_is_told(end: str) -> None:
    ranks, n = 3, 40
    boxes = Boxes(ranks, 1, n)
    xs = [drawn(torch.float32, n, r) for r in range(ranks)]
    kinds = (7, 7, 9) if end == "differs" else (7, 7)
    if end == "ended":
        for each in boxes.trouble:
            each[1] = 1  # what the host says
    # Long enough for the ranks that come to have begun, on a busy machine too.
    limit = 10**9 if end == "late" else LIMIT
    kernel("one_shot<float, 0>").on_ranks[1, THREADS](
        *(
            boxes.given(r, xs[r], xs[r], n, n, r, ranks, kind, 1, limit)
            for r, kind in enumerate(kinds)
        )
    )
    what = 2 if end == "differs" else 1
    for told in boxes.trouble[:2]:
        assert int(told[0]) == what << 56 | 2 << 32 | 7
    if end == "differs":
        assert int(boxes.trouble[2][0]) >> 56 == 2


def test_nothing_spills_on_a_gpu() -> None:
    module = kw.cuda.compile(TEXT, name="peers.cu", backend="emulator")
    for name in ("one_shot<float, 0>", "two_shot<float, 0, 3>",
                 "two_shot<__nv_bfloat16, 1, 3>"):  # fmt: skip
        found = module[name].resources("sm_90")
        assert not found.spill_bytes, (name, found)


class Launches:
    """Callers of several ranks whose launches are kept, then made all at once."""

    def __init__(self, ranks: int, patch: pytest.MonkeyPatch) -> None:
        self.kept: list[tuple[str, int, Any]] = []
        self.memory: dict[int, list[torch.Tensor]] = {}
        for module in (on_gpus, gpu_transport):
            patch.setattr(module, "BLOCKS", 2)
        patch.setattr(on_gpus, "_load", lambda *_: None)
        patch.setattr(on_gpus, "agree", lambda *_: None)
        patch.setattr(on_gpus.Caller, "_follow", lambda _: None)
        patch.setattr(
            on_gpus,
            "_launch",
            lambda name, n, _, given: self.kept.append((name, n, given)),
        )
        signs = [torch.int64, 2 * ranks * 2]
        half, room = 2 * SLOTS * ranks * PARTS * gpu_transport.PART, 2**14
        slots, once = [torch.uint8, 2 * half * 16], [torch.uint8, ranks * room]
        for at, (dtype, size) in enumerate((once, once, slots, signs, signs, signs), 1):
            self.memory[at] = [torch.zeros(size, dtype=dtype) for _ in range(ranks)]
        self.trouble = [torch.zeros(2, dtype=torch.int64) for _ in range(ranks)]
        self.callers = []
        for r in range(ranks):
            peers = SimpleNamespace(
                device=SimpleNamespace(index=0), once=((1, 4), (2, 5)), chunks=(3, 6),
                trouble_at=r, room=room, half=half, parts=PARTS,
                limit=LIMIT, check=lambda _: None,
            )  # fmt: skip
            patch.setattr(on_gpus, "Peers", lambda *_, peers=peers: peers)
            mesh = SimpleNamespace(rank=r, size=ranks)
            self.callers.append(on_gpus.Caller(mesh, None))

    def run(self, header: Header, xs: Any, outs: Any) -> str:
        """Let all ranks call, then run what they would have launched."""
        self.kept.clear()
        for caller, x, out in zip(self.callers, xs, outs, strict=True):
            caller.call(header, x, out)
        ((name, blocks),) = {(name, blocks) for name, blocks, _ in self.kept}
        given = []
        for (_, _, made), x, out in zip(self.kept, xs, outs, strict=True):
            fields = [getattr(made, field) for field, _ in made._fields_]
            # A null pointer reads as None.
            places = [fields[3] or 0, fields[4] or 0]
            assert places == [x.data_ptr(), out.data_ptr()]
            trouble = self.trouble[fields[2] or 0]
            boxes, signs = self.memory[fields[0]], self.memory[fields[1]]
            given.append((boxes, signs, trouble, x, out, *fields[5:]))
        kernel(name, TEXT).on_ranks[blocks, gpu_transport.THREADS](*given)
        assert not any(int(each[0]) for each in self.trouble)
        return name


def test_what_ranks_launch_call_after_call(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = 3
    launches = Launches(ranks, monkeypatch)
    names = set()
    for n in (5, 4096, 100_000, 1, 30_011, 4097, 0, 2, 99_999):
        xs = [drawn(torch.float32, n, r) for r in range(ranks)]
        outs = [x.clone() for x in xs]
        header = Header("all_reduce", "AVG", torch.float32, (n,), "cuda")
        names.add(launches.run(header, outs, outs))
        for out in outs:
            assert torch.equal(out, combined(xs, "AVG")), n
        m = n % 1000 + 1
        wide = [drawn(torch.bfloat16, ranks * m, r) for r in range(ranks)]
        parts = [torch.empty(m, dtype=torch.bfloat16) for _ in wide]
        header = Header("reduce_scatter", "SUM", torch.bfloat16, (ranks * m,), "cuda")
        names.add(launches.run(header, wide, parts))
        assert torch.equal(torch.cat(parts), combined(wide, "SUM"))
        header = Header("all_gather", "", torch.bfloat16, (m,), "cuda")
        names.add(launches.run(header, parts, wide))
        assert all(torch.equal(each, torch.cat(parts)) for each in wide)
        header = Header("broadcast", "", torch.float32, (n,), "cuda", 2)
        names.add(launches.run(header, xs, xs))
        assert all(torch.equal(x, xs[2]) for x in xs)
    assert {name.split("<")[0] for name in names} == {"one_shot", "two_shot"}


def test_parameters_stand_where_the_kernels_read_them() -> None:
    for name, arguments in (
        ("one_shot<float, 0>", on_gpus.OnceArguments),
        ("two_shot<float, 0, 3>", on_gpus.ChunkArguments),
    ):
        wanted = kernel(name).signature.parameters
        for (_, kind), parameter in zip(arguments._fields_, wanted, strict=True):
            wide = parameter.pointer or parameter.ctype == "long long"
            assert ctypes.sizeof(kind) == (8 if wide else 4), parameter
    assert f"THREADS = {gpu_transport.THREADS}," in TEXT
    assert f"SLOTS = {gpu_transport.SLOTS};" in TEXT
    assert gpu_transport.PART == 4 * gpu_transport.THREADS and "UNROLL = 4," in TEXT
