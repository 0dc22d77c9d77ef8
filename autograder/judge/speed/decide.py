"""From what was measured to the verdict: what is believed, flagged or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autograder.judge.speed.bands import band_of
from autograder.judge.speed.rounds import LEAST_ROUNDS, Trial
from autograder.judge.speed.verdict import SHARES, SpeedVerdict
from kernelwright.measure.interval import Interval, median_interval

IMPLAUSIBLE = 1.10
"""Over this multiple of the measured copy bandwidth a result is an error."""

_CLOCKS_AGREE = 0.10


@dataclass(frozen=True)
class Facts:
    """What is known of the machine and the work.

    Args:
        device: the GPU's name.
        peer: the peer's name.
        bytes_moved: least bytes that one call moves.
        calls: calls in a turn.
        copy_gbps: copy bandwidth measured in this run, in GB/s.
        peak_gbps: the data sheet's memory bandwidth, where known.
        flops: operations of one call, where the exercise counts them.
        peak_tflops: the data sheet's rate of the units that may do them.
        overhead_ms: what was taken off each of the learner's turns.
        flags: what the supervisor noted.
        reads_only: whether next to nothing of the bytes is written.
    """

    device: str
    peer: str
    bytes_moved: int
    calls: int
    copy_gbps: float
    peak_gbps: float | None = None
    flops: int | None = None
    peak_tflops: float | None = None
    overhead_ms: float | None = None
    flags: tuple[str, ...] = ()
    reads_only: bool = False


def decide(trial: Trial, facts: Facts, bands: Mapping[str, float]) -> SpeedVerdict:
    """Weigh a trial.

    Args:
        trial: the rounds.
        facts: the machine and the work.
        bands: the ratios that earn bronze, silver and gold.
    """
    lost = _undecidable(trial, facts)
    if lost is not None:
        return lost
    ratio = trial.interval
    time = median_interval([one.turn.seconds / facts.calls for one in trial.kept])
    peers = [(one.before + one.after) / 2 / facts.calls for one in trial.kept]
    peer_s = median_interval(peers).median
    band = band_of(ratio.high, bands)
    flags = [*facts.flags, *_flags(trial, ratio, bands)]
    common = SpeedVerdict(
        status="passed",
        message="",
        ratio=ratio.median,
        low=ratio.low,
        high=ratio.high,
        peer=facts.peer,
        gbps=facts.bytes_moved / time.median / 1e9,
        peer_gbps=facts.bytes_moved / peer_s / 1e9,
        tflops=facts.flops / time.median / 1e12 if facts.flops else None,
        peer_tflops=facts.flops / peer_s / 1e12 if facts.flops else None,
        time_ms=time.median * 1e3,
        events_ms=_events_ms(trial, facts.calls),
        rounds=len(trial.kept),
        voided=len(trial.voided),
        calls=facts.calls,
        overhead_ms=facts.overhead_ms,
        device=facts.device,
    )
    # What even the slow end of the interval claims is what must be possible.
    claimed = facts.bytes_moved / time.high / 1e9
    impossible = _impossible(claimed, facts) or _too_many(time.high, facts)
    if impossible is not None:
        return replace(common, status="failed", message=impossible, flags=tuple(flags))
    if claimed > facts.copy_gbps:
        flags.append(
            f"{claimed:,.0f} GB/s is above the copy bandwidth measured in this run, "
            f"{facts.copy_gbps:,.0f} GB/s: possible where more is read than written"
        )
    return replace(
        common,
        message=_sentence(ratio, facts, bands),
        share=SHARES[band],
        band=band,
        flags=tuple(flags),
    )


def _events_ms(trial: Trial, calls: int) -> float | None:
    """Return the median time of a call by the learner's own device events."""
    said = [
        one.turn.events_s / calls * 1e3
        for one in trial.kept
        if one.turn.events_s is not None
    ]
    return median_interval(said).median if said else None


def _undecidable(trial: Trial, facts: Facts) -> SpeedVerdict | None:
    """Say why there is no verdict on the speed, if there is none."""
    counts = {
        "rounds": len(trial.kept),
        "voided": len(trial.voided),
        "peer": facts.peer,
        "device": facts.device,
        "flags": facts.flags,
    }
    if trial.unsettled:
        return SpeedVerdict(
            status="infrastructure error",
            message=f"The GPU changed its own speed by "
            f"{abs(trial.end / trial.calm - 1):.0%} while this was measured "
            f"({facts.peer} took {trial.calm * 1e3:.1f} ms a turn before it, "
            f"{trial.end * 1e3:.1f} ms after): another program uses it, or it "
            "throttles. Grade again on a quiet GPU.",
            **counts,  # type: ignore[arg-type]
        )
    if trial.disturbed and trial.noisy:
        return SpeedVerdict(
            status="infrastructure error",
            message="The GPU's speed went up and down while this was measured: "
            "another program uses it. Grade again on a quiet GPU.",
            **counts,  # type: ignore[arg-type]
        )
    if trial.disturbed:
        # Calm without the learner's process, and not with it.
        return SpeedVerdict(
            status="failed",
            message="Work went on on the GPU after your code had returned, and "
            "disturbed what it was measured against. Finish what you start before "
            "you return.",
            **counts,  # type: ignore[arg-type]
        )
    if len(trial.kept) < LEAST_ROUNDS:
        return SpeedVerdict(
            status="timeout",
            message=f"Only {len(trial.kept)} of the {LEAST_ROUNDS} rounds that a "
            "verdict needs fitted into the time: a turn takes far longer than the "
            f"peer's ({facts.peer}).",
            **counts,  # type: ignore[arg-type]
        )
    return None


def _impossible(claimed: float, facts: Facts) -> str | None:
    """Name the limit that a claimed bandwidth breaks, if it breaks one."""
    limit, what = IMPLAUSIBLE * facts.copy_gbps, "1.10 times the copy bandwidth"
    peak = facts.peak_gbps
    # Who only reads leaves a copy behind: 1.14 of it on an H200, 0.97 of the peak.
    if peak is not None and (peak < limit or facts.reads_only):
        limit, what = peak, "the data sheet's peak"
    if claimed <= limit:
        return None
    return (
        f"{claimed:,.0f} GB/s is more than {what}, {limit:,.0f} GB/s: not all of the "
        "work was done while the clock ran."
    )


def _too_many(seconds: float, facts: Facts) -> str | None:
    """Say that no chip of this kind does so many operations in the time."""
    if facts.flops is None or facts.peak_tflops is None:
        return None
    claimed = facts.flops / seconds / 1e12
    if claimed <= facts.peak_tflops:
        return None
    return (
        f"{claimed:,.1f} TFLOP/s is more than the data sheet's peak, "
        f"{facts.peak_tflops:,.1f} TFLOP/s: not all of the work was done while the "
        "clock ran, or on other units than the exercise is about."
    )


def _flags(trial: Trial, ratio: Interval, bands: Mapping[str, float]) -> list[str]:
    """Note what a reader of the result should know."""
    flags = []
    if trial.voided:
        flags.append(
            f"{len(trial.voided)} rounds were thrown away: the peer's speed drifted"
        )
    low, high = band_of(ratio.low, bands), band_of(ratio.high, bands)
    if low != high:
        flags.append(f"between {low} and {high}: given the benefit of the doubt")
    events = [
        one.turn.events_s / one.turn.seconds
        for one in trial.kept
        if one.turn.events_s is not None
    ]
    if events:
        said = median_interval(events).median
        if abs(said - 1) > _CLOCKS_AGREE:
            flags.append(
                f"device events in your process say {said:.2f} times what the "
                "grader's clock says; the grader's clock decides"
            )
    return flags


def _sentence(ratio: Interval, facts: Facts, bands: Mapping[str, float]) -> str:
    """Say where the learner stands, and what the next band asks for."""
    band = band_of(ratio.high, bands)
    text = f"{ratio.median:.2f} of {facts.peer}"
    if band == "none":
        text += ", below bronze"
    else:
        text += f": {band}"
    above = sorted(value for value in bands.values() if value > ratio.high)
    if above:
        name = next(name for name, value in bands.items() if value == above[0])
        text += f". {name.capitalize()} begins at {above[0]:.2f}"
    return text + "."
