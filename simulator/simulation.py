"""From a task graph and costs to a predicted timeline: which engine, under which conditions, with how much memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from schedir.costs.model import CostModel, transfers
from schedir.errors import RefusedError
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import Spans, TaskTimes, evaluate
from schedir.timeline.timeline import Source, Timeline
from simulator.checks import check_times, choose, memory_limits
from simulator.engine import Engine
from simulator.memory import ledger
from simulator.network import Conditions
from simulator.noise import check_noise, check_seed
from simulator.rendezvous import RendezvousEngine
from simulator.sampling import draw, has_samples


class EngineChoice(StrEnum):
    """Who evaluates a graph."""

    AUTO = "auto"
    """in-order where nothing but the graph and the costs decides, else simpy."""
    IN_ORDER = "in-order"
    """The longest-path pass over arrays; both engines agree to the last bit where it applies."""
    SIMPY = "simpy"
    """Discrete events: sharing, changing speeds, blocking sends."""


class Sends(StrEnum):
    """How a device sends."""

    BUFFERED = "buffered"
    """It goes on at once, as our executors do."""
    RENDEZVOUS = "rendezvous"
    """It waits until the receiver takes it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One simulation, its arguments checked."""

    graph: TaskGraph
    times: TaskTimes
    conditions: Conditions
    sends: Sends
    noise: float

    def choose(self, engine: EngineChoice) -> EngineChoice:
        """Return in-order or simpy; raise RefusedError where the one asked for cannot do it."""
        reason = self._needs_simpy()
        if engine is EngineChoice.IN_ORDER and reason:
            raise RefusedError(f"engine in-order cannot do {reason}: use engine simpy or auto")
        if engine is EngineChoice.AUTO:
            return EngineChoice.SIMPY if reason or self.noise else EngineChoice.IN_ORDER
        return engine

    def _needs_simpy(self) -> str:
        if self.sends is Sends.RENDEZVOUS:
            return "rendezvous sends, where a device waits for its receiver"
        if self.conditions.shared:
            return "contention (devices or links that share something)"
        return "speeds that change during the run" if self.conditions.speeds else ""

    def spans(self, engine: EngineChoice) -> Spans:
        if engine is EngineChoice.IN_ORDER:
            return evaluate(self.graph, self.times)
        simpy_engine = RendezvousEngine if self.sends is Sends.RENDEZVOUS else Engine
        return simpy_engine(self.graph, self.times, self.conditions).run()


def simulate(  # noqa: PLR0913 - every condition of a run has its name here
    graph: TaskGraph,
    costs: CostModel,
    *,
    engine: str = "auto",
    seed: int | None = None,
    sends: str = "buffered",
    noise: float = 0.0,
    memory_limit: float | Sequence[float] | None = None,
) -> Timeline:
    """Predict when every task of a graph starts and ends, and what memory every device holds.

    `engine` is auto, in-order or simpy. `sends` is buffered or rendezvous. `noise` is the standard deviation of the logarithm of
    every duration; with a `seed` but no noise, costs that keep measured samples draw from them. `memory_limit` is in bytes, one
    or one per device. Raises ArgumentError, RefusedError where the engine cannot do what is asked, DeadlockError naming the
    sends that block each other.
    """
    sigma, seed = check_noise(noise), check_seed(seed)
    times = check_times(graph, costs.times(graph))
    drawn = sigma > 0 or (seed is not None and has_samples(costs))
    if drawn:
        seed = 0 if seed is None else seed
        times = draw(graph, costs, times, noise=sigma, seed=seed, sample=0)
    run = _Run(graph, times, Conditions(), sends=choose(Sends, "sends", sends), noise=sigma)
    chosen = run.choose(choose(EngineChoice, "engine", engine))
    spans = run.spans(chosen)
    unit_bytes = costs.unit_bytes(graph)
    notes = [] if drawn or seed is None else [f"seed {seed} draws nothing: neither noise nor measured samples were given"]
    return Timeline(
        graph=graph,
        start=spans.start,
        end=spans.end,
        source=Source.SIMULATED,
        release=None if times.latency is None else spans.release,
        memory=None if unit_bytes is None else ledger(graph, spans, unit_bytes),
        meta={
            "engine": chosen.value,
            "seed": seed,
            "noise": sigma,
            "sends": run.sends.value,
            "limit_bytes": memory_limits(memory_limit, graph.program.num_devices),
            "notes": [*costs.notes(graph), *notes],
            **_of_costs(graph, costs),
        },
    )


def _of_costs(graph: TaskGraph, costs: CostModel) -> dict[str, Any]:
    """Return what a timeline says of its costs, as plain JSON values; None for what they do not state."""
    samples = costs.micro_batch_samples(graph)
    described = dict(costs.describe(graph))
    return {
        "costs": described,
        "cluster": None,
        "layers": described.get("layers"),
        "micro_batch_size": samples[0] if samples and len(set(samples)) == 1 else None,
        "mini_batch_size": sum(samples) if samples else None,
        "link_bytes": _link_bytes(graph, costs),
    }


def _link_bytes(graph: TaskGraph, costs: CostModel) -> dict[str, int] | None:
    """Return the bytes that cross each link in the whole run."""
    size = costs.bytes_of_transfers(graph)
    if size is None:
        return None
    lane = graph.lane[transfers(graph)]
    total = np.bincount(lane, weights=size, minlength=len(graph.lanes))
    return {str(graph.lanes[link]): round(total[link]) for link in np.unique(lane).tolist()}
