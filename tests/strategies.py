"""What Hypothesis draws: shapes and programs of all registered schedules, ways to compile them, costs, written programs.

A new schedule is drawn as soon as it stands in the table; its options are drawn once they stand in `OPTIONS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.horizons import POLICIES
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules.registry import SCHEDULES, build_program
from tests.made_up import flushed_programs, made_up_programs
from tests.programs import accepted_shape


@dataclass(frozen=True)
class Build:
    """Arguments of `build_program`, so that a test can change one of them."""

    name: str
    num_devices: int
    num_micro_batches: int
    num_mini_batches: int
    options: dict[str, Any] = field(default_factory=dict)

    def program(self) -> Program:
        return build_program(
            self.name,
            num_devices=self.num_devices,
            num_micro_batches=self.num_micro_batches,
            num_mini_batches=self.num_mini_batches,
            **self.options,
        )

    def with_mini_batches(self, num_mini_batches: int) -> "Build":
        return replace(self, num_mini_batches=num_mini_batches)


@st.composite
def _pipedream(draw: DrawFn, shape: Shape) -> dict[str, Any]:
    weights = draw(st.sampled_from(["stash", "vertical-sync", "current"]))
    if weights == "vertical-sync" or draw(st.booleans()):
        return {"weights": weights}
    replicas: list[int] = []
    while (left := shape.num_devices - sum(replicas)) > 0:
        replicas.append(draw(st.integers(1, min(left, shape.num_mini_batches))))
    return {"weights": weights, "replicas": tuple(replicas)}


HORIZONS = st.sampled_from([*POLICIES, 0, 1, 2])
BACKWARD_WEIGHTS = st.sampled_from(["predict", "stash"])
LOOPED = st.fixed_dictionaries({"stages_per_device": st.integers(1, 3)})

OPTIONS: dict[str, Callable[[Shape], SearchStrategy[dict[str, Any]]]] = {
    "gpipe": lambda _: st.fixed_dictionaries({"order": st.sampled_from(["reverse", "fifo"])}),
    "interleaved-1f1b": lambda _: LOOPED,
    "looped-bfs": lambda _: LOOPED,
    "interleaved-zb": lambda _: LOOPED,
    "pipedream": _pipedream,
    "hanayo": lambda _: st.fixed_dictionaries({"waves": st.integers(1, 2), "split_backward": st.booleans()}),
    "xpipe": lambda _: st.fixed_dictionaries({"horizon": HORIZONS, "backward_weights": BACKWARD_WEIGHTS}),
    "spectrain": lambda _: st.fixed_dictionaries({"horizon": HORIZONS, "backward_weights": BACKWARD_WEIGHTS}),
    "pipeoptim": lambda _: st.fixed_dictionaries({"horizon": HORIZONS}),
}
"""Options of the schedules that have any, given the shape; stages per device where a schedule takes any number."""


@st.composite
def builds(draw: DrawFn, *, names: tuple[str, ...] = (), most_devices: int = 5, most_tasks: int = 400) -> Build:
    """Draw a schedule (of all, or of `names`), a shape that it accepts and its options."""
    name = draw(st.sampled_from(names or tuple(SCHEDULES)))
    schedule = SCHEDULES[name]
    devices, micro_batches = accepted_shape(name, draw(st.integers(1, most_devices)), draw(st.integers(1, 8)))
    most_mini_batches = max(1, most_tasks // (2 * devices * micro_batches))
    mini_batches = draw(st.integers(1, min(most_mini_batches, 2 * devices + 3 if schedule.continuous else 3)))
    shape = Shape(devices, micro_batches, mini_batches, schedule.stages_per_device)
    options = draw(OPTIONS[name](shape)) if name in OPTIONS else {}
    return Build(name, shape.num_devices, shape.num_micro_batches, shape.num_mini_batches, options)


def programs(**limits: Any) -> SearchStrategy[Program]:
    """Draw a program of a registered schedule."""
    return builds(**limits).map(Build.program)


MODES = ("never", "except-last", "always", "selective")


@st.composite
def compile_options(draw: DrawFn, program: Program, *, skips: bool = True, modes: tuple[str, ...] = MODES) -> dict[str, Any]:
    """Draw how a program is compiled; `modes` are those of recomputation (uniform costs refuse selective)."""
    mode = st.sampled_from(modes)
    stages = program.num_stages
    cuts = [(a, b) for a in range(stages) for b in range(a + 2, stages)]
    # recomputations that a program places itself may stand where they must not wait for the gradient: others wait for them
    starts = ["early"] if (program.kind == Kind.RECOMPUTE).any() else ["early", "on-gradient"]
    return {
        "recompute": draw(mode | st.lists(mode, min_size=stages, max_size=stages)),
        "recompute_start": draw(st.sampled_from(starts)),
        "skips": draw(st.lists(st.sampled_from(cuts), max_size=2, unique=True)) if skips and cuts else (),
        "common_update": program.weights.synchronous and draw(st.booleans()),
    }


@st.composite
def graphs(draw: DrawFn, /, *, skips: bool = True, modes: tuple[str, ...] = MODES, **limits: Any) -> TaskGraph:
    """Draw a compiled program of a registered schedule."""
    program = draw(programs(**limits))
    return compile_program(program, **draw(compile_options(program, skips=skips, modes=modes)))


SECONDS = st.sampled_from([0.0, 0.1, 0.25, 1.0, 1 / 3, 1.5, 2.0, 7.0])
"""Durations, among them such as no float holds exactly."""


@st.composite
def uniform_costs(draw: DrawFn, num_stages: int) -> UniformCosts:
    """Draw costs, of one value each or of one for each stage, with the halves of a split backward."""
    per_stage = st.lists(SECONDS, min_size=num_stages, max_size=num_stages)
    return UniformCosts(
        forward=draw(SECONDS | per_stage),
        input_grad=draw(SECONDS | per_stage),
        weight_grad=draw(SECONDS | per_stage),
        transfer=draw(SECONDS),
        update=draw(SECONDS),
        predict=draw(SECONDS),
    )


NAMES = st.text(max_size=12)
"""Names of programs: any text, with quotes, line ends and signs of all alphabets."""


@st.composite
def weight_rules(draw: DrawFn) -> WeightRule:
    """Draw any weight rule with options that it has."""
    rule = draw(st.sampled_from(Rule))
    if rule is not Rule.PREDICT:
        return WeightRule(rule)
    horizon = draw(st.none() | st.sampled_from(POLICIES) | st.integers(0, 9999))
    return WeightRule(rule, horizon, draw(st.sampled_from(BackwardWeights)))


@st.composite
def written_programs(draw: DrawFn) -> Program:
    """Draw a program that can be written down, whether or not it makes sense: every action at most once, anywhere.

    Pairs, split backwards, updates and recomputations are among its entries; devices may be empty.
    """
    stages, m, n = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cells = st.builds(Action, st.integers(0, stages - 1), st.sampled_from(list(Kind)[:7]), st.integers(0, m * n - 1))
    actions = draw(st.lists(cells.filter(lambda action: action.kind is not Kind.OVERLAPPED), unique=True, max_size=24))
    entries: list[Entry] = list(actions)
    forwards = [action for action in actions if action.kind is Kind.FORWARD]
    backwards = [action for action in actions if action.kind in (Kind.BACKWARD, Kind.INPUT_GRAD)]
    for forward, backward in zip(forwards, backwards, strict=False):
        if draw(st.booleans()):
            entries = [entry for entry in entries if entry not in (forward, backward)] + [Overlapped(forward, backward)]
    devices = draw(st.integers(1, 4))
    places = draw(st.lists(st.integers(0, devices - 1), min_size=len(entries), max_size=len(entries)))
    orders = [[entry for entry, place in zip(entries, places, strict=True) if place == device] for device in range(devices)]
    return Program.from_orders(
        draw(NAMES), orders, num_stages=stages, num_micro_batches=m, num_mini_batches=n, weights=draw(weight_rules())
    )


# ---------------------------------------------------------------- replicas, and anything that compiles


@st.composite
def incomplete_rounds(draw: DrawFn) -> Program:
    """Draw PipeDream with replicated stages and a number of mini-batches that leaves the last round of one incomplete."""
    replicas = draw(st.sampled_from([(2, 1), (1, 2), (3, 1), (2, 1, 1), (2, 3)]))
    rounds, most = draw(st.integers(1, 2)), max(replicas)
    return build_program(
        "pipedream",
        num_devices=sum(replicas),
        num_micro_batches=draw(st.integers(1, 3)),
        num_mini_batches=rounds * most + draw(st.integers(1, most - 1)),
        weights=draw(st.sampled_from(["stash", "current"])),
        replicas=replicas,
    )


@st.composite
def any_graphs(draw: DrawFn) -> TaskGraph:
    """Draw a compiled program, of a registered schedule or made up; some of those that flush have stages with the same weights."""
    program = draw(programs() | made_up_programs(recomputed=True) | flushed_programs(recomputed=True) | incomplete_rounds())
    stages = range(program.num_stages)
    pairs = [(a, b) for a in stages for b in stages if a < b] if program.weights.synchronous else []
    ties = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    return compile_program(program, **draw(compile_options(program)), ties=ties)
