"""Programs that no schedule of the table makes: valid, but in a random order."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.horizons import POLICIES
from schedir.ir.program import Program
from schedir.ir.repetition import repeat_program
from schedir.ir.weights import BackwardWeights, Rule, WeightRule


@dataclass(frozen=True)
class _Cast:
    """What a made-up program is drawn for."""

    stages: int
    m: int
    n: int
    homes: tuple[int, ...]
    """Device of each stage."""
    odd_homes: tuple[int, ...]
    """The same for odd micro-batches: other devices hold replicas, in the other direction or anywhere."""
    split: tuple[bool, ...]
    """By stage: backwards are split into I and W."""
    again: frozenset[tuple[int, int]]
    """(stage, micro-batch) of the recomputations that the program places itself, anywhere between forward and backward."""
    weights: WeightRule

    def home(self, stage: int, micro_batch: int) -> int:
        return (self.odd_homes if micro_batch % 2 else self.homes)[stage]

    def gradient(self, stage: int) -> Kind:
        return Kind.INPUT_GRAD if self.split[stage] else Kind.BACKWARD

    def begins(self, stage: int, micro_batch: int) -> Action:
        """Return the action with which a backward begins."""
        kind = Kind.RECOMPUTE if (stage, micro_batch) in self.again else self.gradient(stage)
        return Action(stage, kind, micro_batch)

    def last_gradient(self, stage: int) -> Kind:
        """Return the kind behind which the stage updates."""
        return Kind.WEIGHT_GRAD if self.split[stage] else Kind.BACKWARD

    def members(self, action: Action) -> list[Action]:
        """Return the actions of this stage and kind in the same mini-batch."""
        first = action.micro_batch // self.m * self.m
        return [replace(action, micro_batch=j) for j in range(first, first + self.m)]

    def needs(self, action: Action) -> list[Action]:
        """Return what an action waits for."""
        stage, kind, j = action.stage, action.kind, action.micro_batch
        needs = [bellwether] if (bellwether := self.bellwether(action)) != action and self.follows_bellwether(action) else []
        if kind is Kind.FORWARD:
            return [*needs, Action(stage - 1, kind, j)] if stage else needs
        if kind is Kind.RECOMPUTE:
            return [*needs, Action(stage, Kind.FORWARD, j)]
        above = [Action(stage + 1, self.gradient(stage + 1), j)] if stage + 1 < self.stages else []
        if kind is Kind.WEIGHT_GRAD:
            return [*needs, Action(stage, Kind.INPUT_GRAD, j)]
        again = [Action(stage, Kind.RECOMPUTE, j)] if (stage, j) in self.again else []
        return [*needs, Action(stage, Kind.FORWARD, j), *again, *above]

    def bellwether(self, action: Action) -> Action:
        """Return what a mini-batch's first micro-batch reads weights first by, in the direction of an action."""
        first = action.micro_batch // self.m * self.m
        return replace(action, micro_batch=first) if action.kind is Kind.FORWARD else self.begins(action.stage, first)

    def follows_bellwether(self, action: Action) -> bool:
        """Say whether the mini-batch's first micro-batch runs first: it reads (or predicts) weights for the others."""
        match self.weights.rule:
            case Rule.VERTICAL_SYNC:
                return action.kind is Kind.FORWARD and action.stage == 0
            case Rule.PREDICT:
                on_stash = self.weights.backward is BackwardWeights.STASH
                return action.kind is Kind.FORWARD or (action.kind is not Kind.WEIGHT_GRAD and not on_stash)
            case _:
                return False

    def actions(self) -> list[Action]:
        kinds = [(Kind.FORWARD, self.gradient(s), *([Kind.WEIGHT_GRAD] if self.split[s] else [])) for s in range(self.stages)]
        once = [Action(s, kind, j) for s in range(self.stages) for kind in kinds[s] for j in range(self.m * self.n)]
        return once + [Action(stage, Kind.RECOMPUTE, j) for stage, j in sorted(self.again)]


@dataclass
class _Run:
    """How far a made-up program is written."""

    cast: _Cast
    waiting: list[Action]
    done: set[Action] = field(default_factory=set)
    read_first: dict[int, int] = field(default_factory=dict)
    """Under vertical sync, by mini-batch: the version that its first micro-batch read on stage 0."""

    def ready(self) -> list[Action]:
        return [action for action in self.waiting if self._can_run(action)]

    def finish(self, action: Action) -> None:
        if action.kind is Kind.FORWARD and action.stage == 0:
            self.read_first.setdefault(action.micro_batch // self.cast.m, self._updates(0))
        self.done.add(action)
        self.waiting.remove(action)

    def _can_run(self, action: Action) -> bool:
        if any(need not in self.done for need in self.cast.needs(action)):
            return False
        if action.kind is Kind.FORWARD:
            return self._updates(action.stage) >= self._least_version(action)
        return not self._updates_too_early(action)

    def _updates(self, stage: int) -> int:
        """Count the mini-batches whose gradients of a stage are complete."""
        kind, per_update = self.cast.last_gradient(stage), self.cast.m
        missing = (j for j in range(per_update * self.cast.n) if Action(stage, kind, j) not in self.done)
        return next(missing, per_update * self.cast.n) // per_update

    def _least_version(self, forward: Action) -> int:
        """Return the version that must be made before a forward."""
        mini_batch = forward.micro_batch // self.cast.m
        match self.cast.weights.rule:
            case Rule.DOUBLE_BUFFER:
                return mini_batch - 1
            case Rule.VERTICAL_SYNC:
                return self.read_first.get(mini_batch, 0)
            case _:
                return 0

    def _updates_too_early(self, action: Action) -> bool:
        """Say whether an action would update out of order: updates come by mini-batches, though their backwards need not."""
        if action.kind is not self.cast.last_gradient(action.stage):
            return False
        completes = all(member in self.done for member in self.cast.members(action) if member != action)
        return completes and self._updates(action.stage) < action.micro_batch // self.cast.m


RULES = (Rule.STASH, Rule.CURRENT, Rule.VERTICAL_SYNC, Rule.DOUBLE_BUFFER, Rule.PREDICT)
"""Rules under which mini-batches may overlap."""


def _options_of(rule: Rule) -> SearchStrategy[WeightRule]:
    if rule is not Rule.PREDICT:
        return st.just(WeightRule(rule))
    return st.builds(WeightRule, st.just(rule), st.sampled_from([*POLICIES, 0, 1, 2]), st.sampled_from(BackwardWeights))


@st.composite
def made_up_programs(draw: DrawFn, rule: Rule | None = None, *, recomputed: bool = False) -> Program:
    """Draw a valid program that follows no pattern: a random order of what can run.

    Devices host any stages, backwards may be split, a forward and a backward that can both run may become an overlapped pair. If
    `recomputed`, some programs place recomputations themselves.
    A program of one mini-batch (under `latest` it has one) may have replicas, such as two directions have; longer ones do not flush
    and have any weight rule that allows that (or `rule`): their order gives every reader the version that its rule wants.
    """
    stages, m = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    n = draw(st.integers(1 if rule in {None, Rule.LATEST} else 2, 1 if rule is Rule.LATEST else 3))
    places = st.lists(st.integers(0, 3), min_size=stages, max_size=stages)
    homes = draw(places)
    odd_homes = draw(st.sampled_from([homes, homes[::-1]]) | places) if n == 1 and m > 1 else homes
    used = sorted({*homes, *odd_homes})
    split = draw(st.lists(st.booleans(), min_size=stages, max_size=stages))
    keys = st.tuples(st.integers(0, stages - 1), st.integers(0, m * n - 1))
    again = draw(st.just(frozenset()) | st.frozensets(keys, max_size=stages * m * n)) if recomputed else frozenset()
    weights = draw(_options_of(rule or draw(st.sampled_from(RULES)))) if n > 1 else WeightRule(Rule.LATEST)
    numbered, odd_numbered = (tuple(used.index(home) for home in each) for each in (homes, odd_homes))
    cast = _Cast(stages, m, n, numbered, odd_numbered, tuple(split), again, weights)
    dice = draw(st.randoms(use_true_random=False))
    run = _Run(cast, cast.actions())
    orders: list[list[Entry]] = [[] for _ in used]
    while run.waiting:
        ready = run.ready()
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
            run.finish(finished)
    return Program.from_orders("made up", orders, num_stages=stages, num_micro_batches=m, num_mini_batches=n, weights=weights)


@st.composite
def flushed_programs(draw: DrawFn, *, recomputed: bool = False) -> Program:
    """Draw a made-up program of one mini-batch, repeated: one that flushes, also with replicas."""
    return repeat_program(draw(made_up_programs(Rule.LATEST, recomputed=recomputed)), draw(st.integers(1, 3)))
