"""``pytest autograder --submission PATH``: the judge as a developer sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autograder.grade import select
from autograder.judge.judge import Judge
from autograder.submission.submitted import REFERENCES, Submission, open_submission
from autograder.supervisor.workers import warm_toolchain

# What a new chapter is made of is no test here.
collect_ignore = ["authoring/template"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is graded, and from which seed."""
    group = parser.getgroup("autograder")
    group.addoption("--submission", default=REFERENCES, help="what is graded")
    group.addoption("--only", action="append", default=[], help="exercise or chapter")
    group.addoption("--seed", type=int, default=None, help="replay a seed")


def _submission(config: pytest.Config) -> Submission:
    return open_submission(config.getoption("--submission"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each exercise that is asked for."""
    if "exercise" in metafunc.fixturenames:
        try:
            submission = _submission(metafunc.config)
            chosen = select(metafunc.config.getoption("--only"), submission)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        metafunc.parametrize("exercise", chosen, ids=lambda exercise: exercise.id)


@pytest.fixture(scope="session")
def submission(pytestconfig: pytest.Config) -> Submission:
    """What is graded."""
    return _submission(pytestconfig)


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Iterator[Judge]:
    """One judge for all exercises; its seed is printed with each failure."""
    with Judge(seed=pytestconfig.getoption("--seed")) as made:
        warm_toolchain(made.device)
        yield made
