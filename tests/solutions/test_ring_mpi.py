"""The ring in MPI: Python and C++ give the same bits, and the naive one hangs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solutions.ring_allreduce.mpi import programs, ring

pytestmark = pytest.mark.skipif(
    not programs.installed(), reason="mpi4py and mpich are not installed"
)


@pytest.fixture(scope="module")
def in_cpp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs.build(tmp_path_factory.mktemp("mpi"))


@pytest.mark.parametrize(
    ("ranks", "count", "way"),
    [
        (1, 5, "sendrecv"), (2, 0, "sendrecv"), (3, 1, "ordered"), (4, 1000, "naive"),
        (4, 1_000_003, "sendrecv"), (4, 1_000_003, "ordered"), (5, 4099, "ordered"),
    ],
)  # fmt: skip
def test_both_give_the_same_bits(
    ranks: int, count: int, way: str, in_cpp: Path, tmp_path: Path
) -> None:
    found = [
        programs.run(program, ranks, count, way, tmp_path / "out")[1]
        for program in (programs.PYTHON, [str(in_cpp)])
    ]
    assert found[0] == found[1] and len(found[0]) == 4 * count
    wanted = sum(ring.given(r, count).astype(np.float64) for r in range(ranks))
    np.testing.assert_allclose(np.frombuffer(found[0], np.float32), wanted, rtol=1e-6)


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_all_who_send_first_wait_for_each_other(
    language: str, in_cpp: Path, tmp_path: Path
) -> None:
    program = programs.PYTHON if language == "python" else [str(in_cpp)]
    with pytest.raises(TimeoutError, match="each rank waits for another"):
        programs.run(program, 4, 4_000_000, "naive", tmp_path / "out", limit_s=8)


def test_what_cannot_be_run_is_said(in_cpp: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"naive\|ordered\|sendrecv"):
        programs.run([str(in_cpp)], 2, 10, "backwards", tmp_path / "out")
