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


OPTIONS: dict[str, Callable[[Shape], SearchStrategy[dict[str, Any]]]] = {
    "gpipe": lambda _: st.fixed_dictionaries({"order": st.sampled_from(["reverse", "fifo"])}),
    "pipedream": _pipedream,
    "xpipe": lambda _: st.fixed_dictionaries(
        {
            "horizon": st.sampled_from([*POLICIES, 0, 1, 2]),
            "backward_weights": st.sampled_from(["predict", "stash"]),
        }
    ),
}
"""Options of the schedules that have any, given the shape."""


@st.composite
def builds(draw: DrawFn, *, names: tuple[str, ...] = (), most_devices: int = 5, most_tasks: int = 400) -> Build:
    """Draw a schedule (of all, or of `names`), a shape that it accepts and its options."""
    name = draw(st.sampled_from(names or tuple(SCHEDULES)))
    schedule = SCHEDULES[name]
    devices = draw(st.integers(1, most_devices))
    micro_batches = draw(st.integers(1, 8))
    most_mini_batches = max(1, most_tasks // (2 * devices * micro_batches))
    mini_batches = draw(st.integers(1, min(most_mini_batches, 2 * devices + 3 if schedule.continuous else 3)))
    shape = Shape(devices, micro_batches, mini_batches, schedule.stages_per_device)
    if schedule.accepts(shape) is not None:  # a schedule that is choosy about devices accepts a power of two
        shape = replace(shape, num_devices=2, num_micro_batches=4)
        assert schedule.accepts(shape) is None, f"{name} accepts neither {devices} x {micro_batches} nor 2 x 4"
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
    return {
        "recompute": draw(mode | st.lists(mode, min_size=stages, max_size=stages)),
        "recompute_start": draw(st.sampled_from(["early", "on-gradient"])),
        "skips": draw(st.lists(st.sampled_from(cuts), max_size=2, unique=True)) if skips and cuts else (),
    }


@st.composite
def graphs(draw: DrawFn, *, skips: bool = True, modes: tuple[str, ...] = MODES, **limits: Any) -> TaskGraph:
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


# ---------------------------------------------------------------- programs that no schedule of the table makes


@dataclass(frozen=True)
class _Cast:
    """What a made-up program is drawn for."""

    stages: int
    m: int
    n: int
    homes: tuple[int, ...]
    """Device of each stage."""
    mirrored: bool
    """Odd micro-batches run the other way: stage s of them stands where stage -1 - s of the others does."""
    split: tuple[bool, ...]
    """By stage: backwards are split into I and W."""

    def home(self, stage: int, micro_batch: int) -> int:
        return self.homes[-1 - stage if self.mirrored and micro_batch % 2 else stage]

    def gradient(self, stage: int) -> Kind:
        return Kind.INPUT_GRAD if self.split[stage] else Kind.BACKWARD

    def needs(self, action: Action) -> list[Action]:
        """Return what an action waits for."""
        stage, kind, j = action.stage, action.kind, action.micro_batch
        if kind is Kind.FORWARD:
            return [Action(stage - 1, kind, j)] if stage else []
        above = [Action(stage + 1, self.gradient(stage + 1), j)] if stage + 1 < self.stages else []
        needs = [Action(stage, Kind.INPUT_GRAD, j)] if kind is Kind.WEIGHT_GRAD else [Action(stage, Kind.FORWARD, j), *above]
        first = (j // self.m - 1) * self.m  # updates come in the order of mini-batches
        before = range(max(first, 0), first + self.m) if kind is not Kind.INPUT_GRAD else ()
        return [*needs, *(Action(stage, kind, i) for i in before)]

    def actions(self) -> list[Action]:
        kinds = [(Kind.FORWARD, self.gradient(s), *([Kind.WEIGHT_GRAD] if self.split[s] else [])) for s in range(self.stages)]
        return [Action(s, kind, j) for s in range(self.stages) for kind in kinds[s] for j in range(self.m * self.n)]


@st.composite
def made_up_programs(draw: DrawFn) -> Program:
    """Draw a valid program that follows no pattern: a random order of what can run.

    Devices host any stages, backwards may be split, a forward and a backward that can both run may become an overlapped pair.
    A program of one mini-batch may run in two directions (then stages are replicated); longer ones do not flush.
    """
    stages, m = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    n = draw(st.integers(1, 3))
    mirrored = n == 1 and m > 1 and draw(st.booleans())
    homes = draw(st.lists(st.integers(0, 3), min_size=stages, max_size=stages))
    used = sorted(set(homes))
    split = draw(st.lists(st.booleans(), min_size=stages, max_size=stages))
    cast = _Cast(stages, m, n, tuple(used.index(home) for home in homes), mirrored, tuple(split))
    dice = draw(st.randoms(use_true_random=False))
    waiting, done = cast.actions(), set[Action]()
    orders: list[list[Entry]] = [[] for _ in used]
    while waiting:
        ready = [action for action in waiting if all(need in done for need in cast.needs(action))]
        action = dice.choice(ready)
        device = cast.home(action.stage, action.micro_batch)
        partners = [
            other
            for other in ready
            if action.kind is Kind.FORWARD
            and other.kind in (Kind.BACKWARD, Kind.INPUT_GRAD)
            and cast.home(other.stage, other.micro_batch) == device
        ]
        entry: Entry = Overlapped(action, dice.choice(partners)) if partners and dice.random() < 0.5 else action
        orders[device].append(entry)
        for finished in (entry.forward, entry.backward) if isinstance(entry, Overlapped) else (entry,):
            done.add(finished)
            waiting.remove(finished)
    weights = WeightRule(draw(st.sampled_from([Rule.STASH, Rule.CURRENT])) if n > 1 else Rule.LATEST)
    return Program.from_orders("made up", orders, num_stages=stages, num_micro_batches=m, num_mini_batches=n, weights=weights)


@st.composite
def any_graphs(draw: DrawFn) -> TaskGraph:
    """Draw a compiled program, of a registered schedule or made up."""
    program = draw(programs() | made_up_programs())
    return compile_program(program, **draw(compile_options(program)))
