"""From a task graph and costs to a predicted timeline: which engine, under which conditions, with how much memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.errors import RefusedError
from schedir.expect import expect
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import Spans, evaluate
from schedir.timeline.timeline import Source, Timeline
from simulator.checks import choose, memory_limits
from simulator.engine import SimpyEngine
from simulator.memory import ledger
from simulator.noise import check_jitter, check_seed
from simulator.rendezvous import RendezvousEngine
from simulator.sampling import Draws, has_samples
from simulator.setting import Setting, setting_of


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


def simulate(  # noqa: PLR0913 - every condition of a run has its name here
    graph: TaskGraph,
    costs: CostModel,
    *,
    cluster: Cluster | None = None,
    engine: str = "auto",
    seed: int | None = None,
    sends: str = "buffered",
    jitter: float = 0.0,
    memory_limit: float | Sequence[float] | None = None,
    cores: int | None = None,
) -> Timeline:
    """Predict when every task of a graph starts and ends, and what memory every device holds.

    `engine` is auto, in-order or simpy. `sends` is buffered or rendezvous. `jitter` is the standard deviation of the logarithm
    of every duration; with a `seed` but no jitter, costs that keep measured samples draw from them. `memory_limit` in bytes,
    one or one per device, replaces the cluster's. `cores`: all devices are threads on one host with so many; durations are for
    a core of one's own, and of n devices that compute each works at min(1, cores / n) of its speed. Raises ArgumentError,
    RefusedError where the engine cannot do what is asked, DeadlockError naming the sends that block each other.
    """
    # all that a caller can get wrong is refused before anything is computed
    sending, asked = choose(Sends, "sends", sends), choose(EngineChoice, "engine", engine)
    sigma, seed = check_jitter(jitter), check_seed(seed)
    expect(graph, TaskGraph, "graph", remedy="give what compile_program returns")
    limits = memory_limits(memory_limit, graph.program.num_devices)
    setting = setting_of(graph, costs, cluster, cores=cores)
    unit_bytes = costs.unit_bytes(graph)
    if limits is not None and unit_bytes is None:
        raise RefusedError(
            f"memory_limit {memory_limit} is compared with the memory that is held, but these costs carry no bytes: "
            "give a costs file with bytes, or leave it out"
        )
    notes = setting.notes()
    if sigma or (seed is not None and has_samples(costs)):
        seed = 0 if seed is None else seed
        setting = _drawn(setting, sigma, seed)
    elif seed is not None:
        notes.append(f"seed {seed} draws nothing: there is neither jitter nor a cost with measured samples")
    chosen = _choose_engine(asked, setting, sending, jitter=sigma)
    spans = _spans(chosen, setting, sending)
    return Timeline(
        graph=graph,
        start=spans.start,
        end=spans.end,
        source=Source.SIMULATED,
        # without latency it is the end, which the timeline has already
        release=None if setting.times.latency is None else spans.release,
        memory=None if unit_bytes is None else ledger(graph, spans, unit_bytes),
        meta=setting.describe()
        | {"engine": chosen.value, "seed": seed, "jitter": sigma, "sends": sending.value, "notes": notes}
        | ({} if cores is None else {"cores": cores})
        | ({} if limits is None else {"limit_bytes": limits, "reserved_bytes": None}),
    )


def _drawn(setting: Setting, jitter: float, seed: int) -> Setting:
    """Return the setting with the durations that a seed draws first."""
    draws = Draws.of(setting.graph, setting.costs, setting.times.duration, jitter=jitter, seed=seed)
    return replace(setting, times=replace(setting.times, duration=draws.next()))


def _choose_engine(asked: EngineChoice, setting: Setting, sends: Sends, *, jitter: float) -> EngineChoice:
    """Return in-order or simpy; raise RefusedError where the one asked for cannot do it.

    Jitter is drawn beforehand, so both engines can do it; auto leaves it to simpy.
    """
    reason = ""
    if sends is Sends.RENDEZVOUS:
        reason = "rendezvous sends, where a device waits for its receiver"
    elif setting.conditions.shared:
        reason = "contention: devices or links that share something"
    elif setting.conditions.speeds:
        reason = "speeds that change during the run"
    if asked is EngineChoice.IN_ORDER and reason:
        raise RefusedError(f"engine {asked.value!r} cannot do {reason}: use simpy or auto")
    if asked is EngineChoice.AUTO:
        return EngineChoice.SIMPY if reason or (jitter and setting.graph.edge_lag is None) else EngineChoice.IN_ORDER
    return asked


def _spans(engine: EngineChoice, setting: Setting, sends: Sends) -> Spans:
    if engine is EngineChoice.IN_ORDER:
        return evaluate(setting.graph, setting.times)
    run = RendezvousEngine if sends is Sends.RENDEZVOUS else SimpyEngine
    return run(setting.graph, setting.times, setting.conditions).run()
