"""From a trial to a verdict: bands, doubt, flags, and what is not believed."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from made_up import SETTLED, MadeUpSupervisor

from autograder.exercise import Case, Speed
from autograder.judge.speed.bands import against_copy, band_of, bands_for, straddles
from autograder.judge.speed.decide import Facts, decide
from autograder.judge.speed.gpu_process import operations, peak_tflops
from autograder.judge.speed.rounds import run_trial
from autograder.judge.speed.verdict import SHARES, not_measured
from kernelwright.measure.datasheet import find_sheet

BANDS = {"bronze": 0.5, "silver": 0.75, "gold": 0.9}
# 10 calls of 40 MB in 10 ms are 40 GB/s; the memory copies just that.
FACTS = Facts(
    device="GPU",
    peer="copy bandwidth",
    bytes_moved=40_000_000,
    calls=10,
    copy_gbps=40.0,
    peak_gbps=50.0,
)


def verdict(ratio, facts=FACTS, bands=BANDS, **supervisor):
    trial = run_trial(
        MadeUpSupervisor(learner_s=lambda turn: 0.010 / ratio, **supervisor),
        bands,
        budget_s=2,
    )
    return decide(trial, facts, bands)


@pytest.mark.parametrize(
    ("ratio", "band"),
    [(0.4, "none"), (0.5, "bronze"), (0.76, "silver"), (0.91, "gold"), (0.99, "gold")],
)
def test_each_ratio_earns_its_band(ratio, band):
    found = verdict(ratio)
    assert found.status == "passed"
    assert found.band == band
    assert found.share == SHARES[band]
    assert found.ratio == pytest.approx(ratio)
    assert found.gbps == pytest.approx(40 * ratio)
    assert found.peer_gbps == pytest.approx(40)
    assert found.time_ms == pytest.approx(1 / ratio)
    assert found.flags == ()


def test_the_sentence_names_the_next_band():
    assert verdict(0.8).message == (
        "0.80 of copy bandwidth: silver. Gold begins at 0.90."
    )
    assert verdict(0.3).message == (
        "0.30 of copy bandwidth, below bronze. Bronze begins at 0.50."
    )
    assert verdict(0.95).message == "0.95 of copy bandwidth: gold."


def test_an_interval_across_a_band_gets_the_benefit_of_the_doubt():
    draw = random.Random(5)
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.010 / (0.895 * draw.uniform(0.97, 1.03))
    )
    found = decide(
        run_trial(supervisor, BANDS, budget_s=0.3, extended_s=0.6), FACTS, BANDS
    )
    assert found.low < 0.9 < found.high
    assert found.band == "gold"
    assert any("benefit of the doubt" in flag for flag in found.flags)


def test_above_the_copy_bandwidth_is_flagged():
    found = verdict(1.05)
    assert found.status == "passed" and found.band == "gold"
    assert any("above the copy bandwidth" in flag for flag in found.flags)


def test_over_one_tenth_above_it_is_refused():
    found = verdict(1.12)
    assert (found.status, found.share, found.band) == ("failed", 0.0, "none")
    assert "1.10 times the copy bandwidth" in found.message


def test_who_only_reads_may_be_that_fast_and_no_faster_than_the_data_sheet():
    reads = replace(FACTS, reads_only=True)
    assert verdict(1.14, reads).band == "gold"
    assert "data sheet" in verdict(1.26, reads).message
    assert verdict(1.14, replace(reads, peak_gbps=None)).status == "failed"


def test_over_the_data_sheet_is_refused_even_below_that():
    found = verdict(1.05, replace(FACTS, peak_gbps=41.0))
    assert found.status == "failed"
    assert "data sheet" in found.message


def test_without_a_data_sheet_the_measured_copy_is_the_only_limit():
    assert verdict(1.05, replace(FACTS, peak_gbps=None)).status == "passed"


# 10 calls of 0.5 GFLOP in 10 ms are 0.5 TFLOP/s.
COUNTED = replace(FACTS, peer="cuBLAS", flops=500_000_000, peak_tflops=0.6)


def test_operations_are_rated_where_they_are_counted():
    found = verdict(0.9, COUNTED)
    assert found.status == "passed"
    assert found.tflops == pytest.approx(0.45)
    assert found.peer_tflops == pytest.approx(0.5)
    assert found.to_json()["tflops"] == found.tflops
    assert verdict(0.9).tflops is None and verdict(0.9).peer_tflops is None


def test_more_operations_than_the_data_sheet_allows_are_refused():
    # The bandwidth is far below the copy's: operations alone give it away.
    slow = replace(COUNTED, bytes_moved=4_000_000)
    assert verdict(1.15, slow).status == "passed"
    found = verdict(1.25, slow)
    assert (found.status, found.share, found.band) == ("failed", 0.0, "none")
    assert "0.6 TFLOP/s is more than the data sheet's peak" in found.message


def test_without_a_data_sheet_operations_have_no_peak():
    slow = replace(COUNTED, bytes_moved=4_000_000, peak_tflops=None)
    assert verdict(1.25, slow).status == "passed"


def test_noise_alone_is_not_called_impossible():
    # The median is over the limit, the slow end of the interval is not.
    draw = random.Random(1)
    supervisor = MadeUpSupervisor(
        learner_s=lambda turn: 0.010 / draw.uniform(0.9, 1.32)
    )
    found = decide(run_trial(supervisor, BANDS, budget_s=0.4), FACTS, BANDS)
    assert found.status == "passed"


def test_work_left_running_is_the_learners_fault():
    found = verdict(0.9, slowed=1.2)
    assert (found.status, found.share) == ("failed", 0.0)
    assert "after your code had returned" in found.message
    assert found.voided > 0


def test_a_gpu_that_slows_by_itself_is_nobodys_fault():
    found = verdict(0.9, peer_s=lambda turn: 0.010 if turn < SETTLED + 1 else 0.013)
    assert found.status == "infrastructure error"
    assert not found.counts
    assert "took 10.0 ms a turn before it, 13.0 ms after" in found.message


def test_noise_from_elsewhere_is_not_the_learners_fault():
    def peer_s(turn: int) -> float:
        return 0.010 if turn < SETTLED else 0.0097 if turn % 2 else 0.0103

    found = verdict(0.9, peer_s=peer_s)
    assert found.status == "infrastructure error"
    assert "up and down" in found.message


def test_noise_that_comes_with_the_process_is_the_learners():
    supervisor = MadeUpSupervisor()
    supervisor.peer_s = lambda turn: 0.0106 if supervisor.alive and turn % 2 else 0.010
    found = decide(run_trial(supervisor, BANDS, budget_s=2), FACTS, BANDS)
    assert found.status == "failed"


def test_too_slow_for_a_verdict_is_a_timeout():
    found = verdict(0.005)
    assert found.status == "timeout"
    assert found.counts and found.share == 0.0


def test_clocks_that_disagree_are_flagged_and_ours_decides():
    found = verdict(0.8, events=0.1)
    assert found.ratio == pytest.approx(0.8)
    assert any("the grader's clock decides" in flag for flag in found.flags)
    assert not any("events" in flag for flag in verdict(0.8, events=0.95).flags)


def test_void_rounds_are_counted_and_told():
    found = verdict(0.8, peer_s=lambda turn: 0.012 if turn == SETTLED + 2 else 0.010)
    assert found.voided == 2
    assert any("2 rounds were thrown away" in flag for flag in found.flags)


def test_a_verdict_is_plain_json():
    told = json.loads(json.dumps(verdict(0.8).to_json()))
    assert told["band"] == "silver"
    assert told["flags"] == []
    assert not_measured("why").counts is False


def speed(**changes):
    plain = Speed(
        peer="library",
        case=Case("n", {"n": 1}),
        bytes_moved=lambda case: 1,
        bands=BANDS,
        run_peer=lambda arguments: None,
    )
    return replace(plain, **changes)


def test_bands_follow_the_family():
    ada = {"gold": 0.7}
    assert bands_for(speed(families={"ada": ada}), "ada", known=True) is ada
    assert bands_for(speed(families={"ada": ada}), "hopper", known=True) is BANDS


def test_an_unknown_gpu_is_measured_against_its_own_copy():
    unknown = {"gold": 0.6}
    one = speed(unknown=unknown)
    assert bands_for(one, "ada", known=False) is unknown
    assert against_copy(one, known=False)
    assert not against_copy(one, known=True)
    assert bands_for(speed(), "ada", known=False) is BANDS
    assert not against_copy(speed(), known=False)


def test_no_peer_of_its_own_means_the_copy():
    assert against_copy(speed(run_peer=None), known=True)


def test_counted_operations_keep_their_peer_on_an_unknown_gpu():
    one = speed(flops=lambda case: 1, unknown={"gold": 0.6})
    assert not against_copy(one, known=False)
    assert bands_for(one, "ada", known=False) == {"gold": 0.6}
    assert operations(one) == 1 and operations(speed()) is None


def test_the_unit_chooses_the_peak():
    sheet = find_sheet("NVIDIA H200")
    assert peak_tflops(speed(unit="fp32"), sheet) == 67
    assert peak_tflops(speed(unit="half"), sheet) == 989.5
    assert peak_tflops(speed(), None) is None


def test_bands_may_be_fewer_than_three():
    assert band_of(0.8, {"gold": 0.9}) == "none"
    assert band_of(0.95, {"gold": 0.9}) == "gold"
    assert straddles(0.89, 0.91, {"gold": 0.9})
    assert not straddles(0.91, 0.95, {"gold": 0.9})
