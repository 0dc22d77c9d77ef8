"""The order of turns, when to stop, and which rounds are void."""

from __future__ import annotations

import random

import pytest
from made_up import SETTLED, MadeUpCourt

from autograder.speed.rounds import LEAST_ROUNDS, MOST_ROUNDS, hear

BANDS = {"bronze": 0.5, "silver": 0.75, "gold": 0.9}


def test_the_peer_goes_before_between_and_after():
    court = MadeUpCourt(learner_s=lambda turn: 0.0125)
    hear(court, BANDS, budget_s=10)
    assert court.turns[: SETTLED + 1] == ["peer"] * SETTLED + ["admit"]
    assert court.turns[-SETTLED - 1 :] == ["dismiss"] + ["peer"] * SETTLED
    middle = court.turns[SETTLED + 1 : -SETTLED - 1]
    assert middle[0] == middle[-1] == "peer"
    assert middle[1::2] == ["learner"] * (len(middle) // 2)
    assert middle[0::2] == ["peer"] * (len(middle) // 2 + 1)


def test_a_steady_ratio_needs_no_more_than_the_fewest_rounds():
    court = MadeUpCourt(learner_s=lambda turn: 0.0125)
    hearing = hear(court, BANDS, budget_s=10)
    assert len(hearing.kept) == LEAST_ROUNDS
    assert hearing.interval.median == pytest.approx(0.8)
    assert not hearing.voided and not hearing.unsettled and not hearing.disturbed


def test_noise_is_met_with_more_rounds_until_two_percent():
    draw = random.Random(3)
    court = MadeUpCourt(learner_s=lambda turn: 0.0125 * draw.uniform(0.96, 1.04))
    hearing = hear(court, BANDS, budget_s=10)
    assert LEAST_ROUNDS < len(hearing.kept) < MOST_ROUNDS
    assert hearing.interval.half_width <= 0.02


def test_the_budget_ends_what_does_not_settle():
    draw = random.Random(3)
    court = MadeUpCourt(learner_s=lambda turn: 0.0125 * draw.uniform(0.8, 1.2))
    hearing = hear(court, {"bronze": 0.1}, budget_s=0.4, extended_s=5)
    assert court.clock < 1
    assert hearing.interval.half_width > 0.02


def test_an_open_band_extends_the_hearing():
    draw = random.Random(3)

    def learner(turn: int) -> float:
        return 0.010 / (0.9 * draw.uniform(0.985, 1.015))

    closed = MadeUpCourt(learner_s=learner)
    hear(closed, {"bronze": 0.5}, budget_s=1, extended_s=3)
    opened = MadeUpCourt(learner_s=learner)
    hearing = hear(opened, BANDS, budget_s=0.2, extended_s=1)
    assert opened.turns.count("learner") > closed.turns.count("learner")
    # What the rounds may take, and the peer's turns before and after them.
    assert opened.clock < 1.2 + 2 * SETTLED * 0.010
    assert hearing.interval.low < 0.9 < hearing.interval.high


def test_the_number_of_rounds_is_bounded():
    court = MadeUpCourt(learner_s=lambda turn: 0.010 / (0.8 if turn % 2 else 0.95))
    hear(court, BANDS, budget_s=1e6)
    assert court.turns.count("learner") == MOST_ROUNDS


def test_a_round_across_which_the_peer_drifts_is_void():
    # The peer's turns SETTLED and the next stand around the learner's first.
    court = MadeUpCourt(
        learner_s=lambda turn: 0.0125,
        peer_s=lambda turn: 0.012 if turn == SETTLED + 1 else 0.01,
    )
    hearing = hear(court, BANDS, budget_s=10)
    assert len(hearing.voided) == 2  # before and after that peer
    assert len(hearing.kept) == LEAST_ROUNDS
    assert hearing.interval.median == pytest.approx(0.8)


def test_less_than_five_percent_is_no_drift():
    court = MadeUpCourt(peer_s=lambda turn: 0.0104 if turn % 2 else 0.01)
    assert not hear(court, BANDS, budget_s=10).voided


def test_a_peer_slowed_while_the_process_lives_voids_every_round():
    court = MadeUpCourt(slowed=1.3)
    hearing = hear(court, BANDS, budget_s=10)
    assert not hearing.kept
    assert len(hearing.voided) == MOST_ROUNDS
    assert hearing.disturbed and not hearing.noisy and not hearing.unsettled
    # Without the process it is asked again whether the GPU is calm.
    after = SETTLED + 20
    assert court.turns[-after - 1 :] == ["dismiss"] + ["peer"] * after
    assert len(hearing.control) == 20


def test_a_peer_that_is_never_calm_is_noisy():
    court = MadeUpCourt(peer_s=lambda turn: 0.0097 if turn % 2 else 0.0103)
    hearing = hear(court, BANDS, budget_s=2)
    assert hearing.disturbed and hearing.noisy


def test_a_gpu_that_changes_by_itself_is_unsettled():
    court = MadeUpCourt(peer_s=lambda turn: 0.010 if turn < SETTLED + 3 else 0.012)
    hearing = hear(court, BANDS, budget_s=2)
    assert hearing.unsettled


def test_the_process_is_ended_whatever_happens():
    class Failing(MadeUpCourt):
        def learner(self):
            raise RuntimeError("crash")

    court = Failing()
    with pytest.raises(RuntimeError, match="crash"):
        hear(court, BANDS, budget_s=1)
    assert court.turns[-1] == "dismiss"
    assert not court.alive


def test_slow_answers_give_fewer_rounds_than_a_verdict_needs():
    court = MadeUpCourt(learner_s=lambda turn: 1.0)
    hearing = hear(court, BANDS, budget_s=2, extended_s=4)
    assert 0 < len(hearing.kept) < LEAST_ROUNDS
