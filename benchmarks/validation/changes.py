"""Is a change predicted? One stage made half as slow again, and 20 ms on every link, without profiling the change.

    a round:   profile   plain   last stage x 1.5   plain   20 ms on links   (the next round's plain)

A change is measured against the mean of the plain runs on either side of it, since a machine's speed drifts, and predicted from the
round's own profile. The slower stage waits half of what the profile says in every forward and backward, as a slower device would:
it does not take the core away from the others. How long the same computing takes with the change as without, by stage, is kept too:
where it differs, it is the machine that answers to the change (an idle neighbour, caches gone cold in a wait), not the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.changed_training import ChangedRun, ChangedTrainer
from benchmarks.validation.configurations import Configuration
from executor.profiling.options import ProfileOptions
from executor.profiling.profiling import Profiler
from executor.recipe.recipe import Recipe
from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.files import replaced_whole
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.timeline.metrics.steady import step_seconds
from simulator import simulate

SLOWER = 1.5
LINK_S = 0.02
DRAWS = 11
WARM_UP, REPEATS = 2, 4
ROUNDS, MINI_BATCHES = 6, 3
"""Of every change: so few that all configurations take a minute or two."""

LAST_STAGE = f"last stage x {SLOWER}"
LINKS = f"{LINK_S * 1e3:.0f} ms on every link"

CHANGED = (
    Configuration("mlp", "1f1b", 4, "never"),
    Configuration("convolutions", "gpipe", 4, "never"),
    Configuration("transformer", "1f1b", 4, "never"),
    Configuration("transformer", "xpipe", 4, "never"),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """One fraction over all rounds."""

    median: float
    error: float
    """Standard error of the median, as of normal values."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Take the value of every round."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.median(values)), float(np.sqrt(np.pi / 2 / len(values))) * deviation)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one configuration: how much longer a step takes, as a fraction."""

    what: str
    configuration: Configuration
    predicted: Spread
    measured: Spread
    on_measured_speeds: Spread
    """Predicted for stages that compute as much faster or slower as they did with the change."""
    speeds: tuple[float, float]
    """First and last stage: seconds of the same computing with the change over those without, medians."""

    @property
    def without_communication(self) -> Spread:
        """Predicted if links take no time: nothing for slower links, and the same for slower stages, since threads share memory."""
        return Spread(0.0, 0.0) if self.what == LINKS else self.predicted


def save_changes(found: Sequence[Change], path: Path) -> None:
    """Write changes beside the spans."""
    with replaced_whole(path) as partial:
        partial.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")


def load_changes(path: Path) -> list[Change]:
    """Return what was written."""
    return [_change(stored) for stored in json.loads(path.read_text(encoding="utf-8"))]


def _change(stored: dict[str, Any]) -> Change:
    spreads = {name: Spread(**stored[name]) for name in ("predicted", "measured", "on_measured_speeds")}
    return Change(stored["what"], Configuration(**stored["configuration"]), **spreads, speeds=tuple(stored["speeds"]))


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRound:
    """A profile, and one run with the change."""

    costs: TableCosts
    run: ChangedRun


def changes(configuration: Configuration, *, rounds: int = ROUNDS, mini_batches: int = MINI_BATCHES) -> Iterator[Change]:
    """Yield the predicted and measured changes of one configuration."""
    recipe, graph = configuration.recipe(), compile_program(configuration.program(mini_batches))
    profiler = _profiler(recipe, configuration)
    plain, slower, links = (ChangedTrainer(recipe, graph, link_s=seconds) for seconds in (0.0, 0.0, LINK_S))
    for trainer in (plain, slower, links):
        trainer.run()  # warms up
    without: list[ChangedRun] = []
    found: dict[str, list[ChangedRound]] = {LAST_STAGE: [], LINKS: []}
    for _ in range(rounds):
        costs = profiler.measure()
        without.append(plain.run())
        found[LAST_STAGE].append(ChangedRound(costs, slower.run(_waits(costs.rows[-1]))))
        without.append(plain.run())
        found[LINKS].append(ChangedRound(costs, links.run()))
    without.append(plain.run())
    for first, (what, with_change) in enumerate(found.items()):
        beside = [Beside(*without[place : place + 2]) for place in range(first, 2 * rounds, 2)]
        yield _judged(what, configuration, graph, rounds=list(zip(with_change, beside, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """The two runs without the change around one with it."""

    before: ChangedRun
    after: ChangedRun

    @property
    def step_s(self) -> float:
        return (self.before.step_s + self.after.step_s) / 2

    @property
    def computed_s(self) -> Floats:
        return (self.before.computed_s + self.after.computed_s) / 2


def _judged(what: str, configuration: Configuration, graph: TaskGraph, *, rounds: Sequence[tuple[ChangedRound, Beside]]) -> Change:
    speeds = [one.run.computed_s / beside.computed_s for one, beside in rounds]
    as_profiled = np.ones(graph.program.num_stages)
    measured = [one.run.step_s / beside.step_s - 1 for one, beside in rounds]
    predicted = [_predicted(what, graph, one.costs, speeds=as_profiled) for one, _ in rounds]
    on_speeds = [_predicted(what, graph, one.costs, speeds=speed) for (one, _), speed in zip(rounds, speeds, strict=True)]
    first, *_, last = np.median(speeds, axis=0).tolist()
    return Change(
        what,
        configuration,
        predicted=Spread.of(predicted),
        measured=Spread.of(measured),
        on_measured_speeds=Spread.of(on_speeds),
        speeds=(first, last),
    )


def _profiler(recipe: Recipe, configuration: Configuration) -> Profiler:
    program = configuration.program(2)
    options = ProfileOptions(
        num_stages=program.num_stages,
        num_micro_batches=program.num_micro_batches,
        schedule="xpipe" if configuration.schedule == "xpipe" else "1f1b",
        recompute=False,
        predict=False,
        warm_up=WARM_UP,
        repeats=REPEATS,
    )
    return Profiler(recipe, options)


def _predicted(what: str, graph: TaskGraph, costs: TableCosts, *, speeds: Floats) -> float:
    """Return the predicted change, where with it stages compute `speeds` times as long as profiled."""
    with_change = [1.0] * len(speeds)
    if what == LAST_STAGE:
        with_change[-1] = SLOWER
    # what is waited is a part of what was profiled, however fast the stage computes meanwhile
    rows = tuple(row.scaled(speed + more - 1) for row, speed, more in zip(costs.rows, speeds.tolist(), with_change, strict=True))
    changed = replace(costs, rows=rows, transfer=LINK_S if what == LINKS else costs.transfer)
    return _step(graph, changed) / _step(graph, costs) - 1


def _step(graph: TaskGraph, costs: TableCosts) -> float:
    return float(np.median([step_seconds(simulate(graph, costs, seed=seed)) for seed in range(DRAWS)]))


def _waits(row: PieceCosts) -> tuple[float, float]:
    """Return the seconds that a slower stage waits in forward and in backward."""
    assert isinstance(row.forward, WorkTime)
    assert isinstance(row.backward, WorkTime)
    return (SLOWER - 1) * row.forward.median, (SLOWER - 1) * row.backward.median
