"""The order of turns, when to stop, and which rounds are void."""

from __future__ import annotations

import random

import pytest
from made_up import SETTLED, MadeUpSupervisor

from autograder.judge.speed.rounds import LEAST_ROUNDS, MOST_ROUNDS, run_trial

BANDS = {"bronze": 0.5, "silver": 0.75, "gold": 0.9}


def test_the_peer_goes_before_between_and_after():
    supervisor = MadeUpSupervisor(learner_s=lambda turn: 0.0125)
    run_trial(supervisor, BANDS, budget_s=10)
    assert supervisor.turns[: SETTLED + 1] == ["peer"] * SETTLED + ["admit"]
    assert supervisor.turns[-SETTLED - 1 :] == ["dismiss"] + ["peer"] * SETTLED
    middle = supervisor.turns[SETTLED + 1 : -SETTLED - 1]
    assert middle[0] == middle[-1] == "peer"
    assert middle[1::2] == ["learner"] * (len(middle) // 2)
    assert middle[0::2] == ["peer"] * (len(middle) // 2 + 1)


def test_a_steady_ratio_needs_no_more_than_the_fewest_rounds():
    supervisor = MadeUpSupervisor(learner_s=lambda turn: 0.0125)
    trial = run_trial(supervisor, BANDS, budget_s=10)
    assert len(trial.kept) == LEAST_ROUNDS
    assert trial.interval.median == pytest.approx(0.8)
    assert not trial.voided and not trial.unsettled and not trial.disturbed


def test_noise_is_met_with_more_rounds_until_two_percent():
    draw = random.Random(3)
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.0125 * draw.uniform(0.96, 1.04)
    )
    trial = run_trial(supervisor, BANDS, budget_s=10)
    assert LEAST_ROUNDS < len(trial.kept) < MOST_ROUNDS
    assert trial.interval.half_width <= 0.02


def test_the_budget_ends_what_does_not_settle():
    draw = random.Random(3)
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.0125 * draw.uniform(0.8, 1.2)
    )
    trial = run_trial(supervisor, {"bronze": 0.1}, budget_s=0.4, extended_s=5)
    assert supervisor.clock < 1
    assert trial.interval.half_width > 0.02


def test_an_open_band_extends_the_hearing():
    draw = random.Random(3)

    def learner(turn: int) -> float:
        return 0.010 / (0.9 * draw.uniform(0.985, 1.015))

    closed = MadeUpSupervisor(learner_s=learner)
    run_trial(closed, {"bronze": 0.5}, budget_s=1, extended_s=3)
    opened = MadeUpSupervisor(learner_s=learner)
    trial = run_trial(opened, BANDS, budget_s=0.2, extended_s=1)
    assert opened.turns.count("learner") > closed.turns.count("learner")
    # What the rounds may take, and the peer's turns before and after them.
    assert opened.clock < 1.2 + 2 * SETTLED * 0.010
    assert trial.interval.low < 0.9 < trial.interval.high


def test_the_number_of_rounds_is_bounded():
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.010 / (0.8 if turn % 2 else 0.95)
    )
    run_trial(supervisor, BANDS, budget_s=1e6)
    assert supervisor.turns.count("learner") == MOST_ROUNDS


def test_a_round_across_which_the_peer_drifts_is_void():
    # The peer's turns SETTLED and the next stand around the learner's first.
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.0125,
        peer_s=lambda turn: 0.012 if turn == SETTLED + 1 else 0.01,
    )
    trial = run_trial(supervisor, BANDS, budget_s=10)
    assert len(trial.voided) == 2  # before and after that peer
    assert len(trial.kept) == LEAST_ROUNDS
    assert trial.interval.median == pytest.approx(0.8)


def test_less_than_five_percent_is_no_drift():
    supervisor = MadeUpSupervisor(peer_s=lambda turn: 0.0104 if turn % 2 else 0.01)
    assert not run_trial(supervisor, BANDS, budget_s=10).voided


def test_a_peer_slowed_while_the_process_lives_voids_every_round():
    supervisor = MadeUpSupervisor(slowed=1.3)
    trial = run_trial(supervisor, BANDS, budget_s=10)
    assert not trial.kept
    assert len(trial.voided) == MOST_ROUNDS
    assert trial.disturbed and not trial.noisy and not trial.unsettled
    # Without the process it is asked again whether the GPU is calm.
    after = SETTLED + 20
    assert supervisor.turns[-after - 1 :] == ["dismiss"] + ["peer"] * after
    assert len(trial.control) == 20


def test_a_peer_that_is_never_calm_is_noisy():
    supervisor = MadeUpSupervisor(peer_s=lambda turn: 0.0097 if turn % 2 else 0.0103)
    trial = run_trial(supervisor, BANDS, budget_s=2)
    assert trial.disturbed and trial.noisy


def test_a_gpu_that_changes_by_itself_is_unsettled():
    supervisor = MadeUpSupervisor(
        peer_s=lambda turn: 0.010 if turn < SETTLED + 3 else 0.012
    )
    trial = run_trial(supervisor, BANDS, budget_s=2)
    assert trial.unsettled


def test_the_process_is_ended_whatever_happens():
    class Failing(MadeUpSupervisor):
        def learner(self):
            raise RuntimeError("crash")

    supervisor = Failing()
    with pytest.raises(RuntimeError, match="crash"):
        run_trial(supervisor, BANDS, budget_s=1)
    assert supervisor.turns[-1] == "dismiss"
    assert not supervisor.alive


def test_slow_answers_give_fewer_rounds_than_a_verdict_needs():
    supervisor = MadeUpSupervisor(learner_s=lambda turn: 1.0)
    trial = run_trial(supervisor, BANDS, budget_s=2, extended_s=4)
    assert 0 < len(trial.kept) < LEAST_ROUNDS
