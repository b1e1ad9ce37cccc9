"""The executor against torch.distributed.pipelining: the same model, schedule, micro-batches and loss, by turns in one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from statistics import median

import numpy as np

from benchmarks.executor.contestants import Contest, Laps, Match, Part, Way, compete
from benchmarks.executor.models import large, small
from benchmarks.executor.paths import forward_seconds, longest_path_s, most_tasks
from benchmarks.sections import machine, table
from executor.workers.distributed.meeting.launch import launch
from schedir.errors import RunError
from schedir.ir.arrays import Floats

MATCHES = (
    Match("gpipe", large),
    Match("1f1b", large),
    Match("interleaved-1f1b", large),
    Match("interleaved-zb", large),
    Match("zb-v", large),
    Match("1f1b", small),
    Match("1f1b", large, num_devices=4),
)

LARGEST_DIFFERENCE = 1e-4
"""Of float32 gradients, relative to the largest of their stage; sums are taken in another order."""
TIMEOUT_S = 900.0
"""How long all processes of a match may take."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one way."""

    round_s: list[float]
    """Median step of every round."""
    step_s: list[float]
    """Every step."""
    path_s: list[float]
    """By step: the longest path of the durations measured in it."""
    forward_s: float
    """Median duration of a forward."""


def play(match: Match, rounds: int, *, steps: int, timeout_s: float = TIMEOUT_S) -> dict[Way, Result]:
    """Let all ways compete in new processes; raise RunError if they do not train the same."""
    parts = launch(compete, Contest(match, rounds, steps), num_processes=match.num_devices, timeout_s=timeout_s)
    check_equal(parts, match, LARGEST_DIFFERENCE)
    return {way: result_of(match, way, parts) for way in Way}


def check_equal(parts: list[Part], match: Match, largest: float) -> None:
    """Raise RunError if losses or gradients of both differ."""
    difference = float(np.max([(part.loss_difference, part.gradient_difference) for part in parts]))  # NaN stays NaN
    if not difference <= largest:
        raise RunError(f"{match.schedule}: losses or gradients differ by {difference:.1e} between both: compare them first")


def result_of(match: Match, way: Way, parts: list[Part]) -> Result:
    """Put together what all processes know of one way."""
    graph = match.graph()
    rounds: list[list[Laps]] = [[part.rounds[number][way] for part in parts] for number in range(len(parts[0].rounds))]
    steps = [merged for laps in rounds for merged in zip(*(lap.durations for lap in laps if lap.durations), strict=True)]
    durations = [reduce(_known, step) for step in steps]
    return Result(
        round_s=[median(laps[0].seconds) for laps in rounds],
        step_s=[second for laps in rounds for second in laps[0].seconds],
        path_s=[longest_path_s(graph, duration) for duration in durations],
        forward_s=median(forward_seconds(graph, duration) for duration in durations),
    )


def _known(one: Floats, other: Floats) -> Floats:
    return np.where(np.isnan(one), other, one)


HEAD = (
    *("schedule", "devices", "trained by", "forward", "step, median", "quartiles", "step / torch's"),
    *("longest path", "step over it", "a task"),
)


def rows(match: Match, found: dict[Way, Result]) -> list[tuple[str, ...]]:
    """Return the lines of one match."""
    return [_row(match, way, found) for way in Way]


def _row(match: Match, way: Way, found: dict[Way, Result]) -> tuple[str, ...]:
    result, torchs = found[way], found[Way.TORCH]
    low, high = (float(np.quantile(result.step_s, share)) for share in (0.25, 0.75))
    ratios = [own / other for own, other in zip(result.round_s, torchs.round_s, strict=True)]
    beyond = [step - path for step, path in zip(result.step_s, result.path_s, strict=True)]
    over = median(step / path for step, path in zip(result.step_s, result.path_s, strict=True)) - 1.0
    return (
        match.schedule,
        str(match.num_devices),
        way.value,
        f"{1e3 * result.forward_s:.1f} ms",
        f"{1e3 * median(result.step_s):.1f} ms",
        f"{1e3 * low:.1f} – {1e3 * high:.1f}",
        f"{median(ratios):.3f}",
        f"{1e3 * median(result.path_s):.1f} ms",
        f"{100 * over:+z.1f} %",
        f"{1e6 * median(beyond) / most_tasks(match.graph()):.0f} µs",
    )


def body(lines: list[tuple[str, ...]], rounds: int, steps: int) -> str:
    """Return the section of docs/performance.md."""
    introduction = (
        f"`python -m benchmarks.executor --write`, on {machine('torch')}; 8 micro-batches, one thread per device.\n"
        f"The ways take turns in each of {rounds} rounds of {steps} steps; a first round, and the first step of each, warm up.\n"
        "`schedir, processes` and `torch, processes` are alike: a gloo process for each device; torch has its own schedule of\n"
        "that name (GPipe with its backwards in order). Losses and gradients of the first mini-batch were equal, to float32's\n"
        "precision. A step lies between asking for one mini-batch and for the next. The ratio is the median over the rounds."
    )
    about = (
        "The longest path is that of the durations measured in the same step, transfers taken as free; torch's were measured\n"
        "where its runtime calls the stage. What a step takes beyond it, by task of the device with most, is the runtime's own\n"
        "doing, and whatever a busy machine adds. Four devices take turns on two cores, so their path means little."
    )
    return f"{introduction}\n\n{table(HEAD, lines)}\n\n{about}\n\n{verdict(lines)}"


def verdict(lines: list[tuple[str, ...]]) -> str:
    """Say by how much the goal is met, or missed, by each of our ways."""
    ratio = HEAD.index("step / torch's")
    words = []
    for way in (Way.PROCESSES, Way.THREADS):
        found = [float(line[ratio]) for line in lines if line[HEAD.index("trained by")] == way.value]
        missed = sum(value > 1.0 for value in found)
        words.append(f"{way.value}: missed in {missed} of {len(found)} ({min(found):.3f} to {max(found):.3f})")
    return f"The goal is a step of at most torch's. {'; '.join(words)}."
