"""What holds for the weights of every registered schedule: versions by the rule, shared predictions, facts as a walk counts."""

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.ir.action import Direction, Kind
from schedir.ir.facts import facts
from schedir.ir.graph import Task, TaskGraph
from schedir.ir.horizons import constant_horizons
from schedir.ir.weights import BackwardWeights, Rule
from schedir.schedules.registry import SCHEDULES
from tests.made_up import RULES, made_up_programs
from tests.strategies import any_graphs, graphs
from tests.walks import halves

pytestmark = pytest.mark.law

FLUSHED = tuple(name for name, schedule in SCHEDULES.items() if not schedule.continuous)
READERS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.RECOMPUTE)


@dataclass
class Walk:
    """Every device's tasks one after the other, with the updates counted as they pass."""

    graph: TaskGraph
    current: dict[tuple[int, int], int] = field(default_factory=dict)
    """(task, stage) -> updates of the stage that stand before the task on its device."""
    forward: dict[tuple[int, int], Task] = field(default_factory=dict)
    """(stage, micro-batch) -> its F."""
    backward: dict[tuple[int, int], Task] = field(default_factory=dict)
    """(stage, micro-batch) -> what its backward begins with: R if there is one, else B or I."""

    def __post_init__(self) -> None:
        for device in range(self.graph.program.num_devices):
            made: dict[int, int] = defaultdict(int)
            for task in halves(self.graph, device):
                self.current[task.index, task.stage] = made[task.stage]
                made[task.stage] += task.kind is Kind.UPDATE
                if task.kind in READERS:
                    side = self.forward if task.kind is Kind.FORWARD else self.backward
                    side.setdefault((task.stage, task.micro_batch), task)

    def updates_before(self, task: Task) -> int:
        return self.current[task.index, task.stage]

    def bellwether(self, task: Task) -> Task:
        """Return what the first micro-batch of a task's mini-batch reads weights first by, in the task's direction."""
        side = self.forward if task.direction is Direction.FORWARD else self.backward
        return side[task.stage, task.mini_batch * self.graph.program.num_micro_batches]

    def expected(self, task: Task) -> int:
        """Return the version that a reader of weights reads, or is predicted from, by the rule's definition."""
        rule = self.graph.program.weights
        match rule.rule:
            case Rule.LATEST:
                return self.updates_before(task)
            case Rule.CURRENT if task.kind is not Kind.FORWARD:
                return self.updates_before(self.backward[task.stage, task.micro_batch])
            case Rule.CURRENT:
                return self.updates_before(task)
            case Rule.STASH:
                return self.updates_before(self.forward[task.stage, task.micro_batch])
            case Rule.VERTICAL_SYNC:
                first = task.mini_batch * self.graph.program.num_micro_batches
                return self.updates_before(self.forward[0, first])
            case Rule.PREDICT if rule.backward is BackwardWeights.STASH:
                return self.updates_before(self.forward[task.stage, task.mini_batch * self.graph.program.num_micro_batches])
            case Rule.PREDICT:
                return self.updates_before(self.bellwether(task))
            case _:
                return max(task.mini_batch - 1, 0)

    def own_update(self, task: Task) -> int:
        """Return the version that sequential training reads for a task's micro-batch."""
        return task.micro_batch // (int(self.graph.round_size[task.stage]) * self.graph.program.num_micro_batches)

    def readers(self) -> list[Task]:
        tasks = (task for device in range(self.graph.program.num_devices) for task in halves(self.graph, device))
        return [task for task in tasks if task.kind in READERS]


@given(any_graphs())
def test_every_action_reads_the_version_that_its_rule_says(graph: TaskGraph) -> None:
    walk = Walk(graph)

    for task in walk.readers():
        assert task.version == walk.expected(task)


@pytest.mark.parametrize("rule", RULES)
@given(data=st.data())
def test_made_up_orders_read_what_every_rule_says(rule: Rule, data: st.DataObject) -> None:
    walk = Walk(compile_program(data.draw(made_up_programs(rule, recomputed=True))))

    for task in walk.readers():
        assert task.version == walk.expected(task)


@given(graphs(names=FLUSHED))
def test_synchronous_schedules_read_what_sequential_training_reads(graph: TaskGraph) -> None:
    walk = Walk(graph)

    assert [task.version for task in walk.readers()] == [walk.own_update(task) for task in walk.readers()]


@given(any_graphs())
def test_horizons_are_those_of_the_policy(graph: TaskGraph) -> None:
    program, walk = graph.program, Walk(graph)
    policy = program.weights.horizon if program.weights.rule is Rule.PREDICT else 0
    assert policy is not None
    constant = constant_horizons(policy, program.num_stages, program.num_micro_batches) if policy != "exact" else ([], [])

    for task in walk.readers():
        forwards = task.direction is Direction.FORWARD or program.weights.backward is BackwardWeights.STASH
        exact = walk.own_update(task) - task.version if forwards else 0
        wanted = exact if policy == "exact" else constant[not forwards][task.stage]
        assert task.horizon == (wanted if program.weights.rule is Rule.PREDICT else 0)


@given(any_graphs())
def test_a_mini_batch_reads_one_prediction_a_stage_and_direction_made_right_before_its_bellwether(graph: TaskGraph) -> None:
    on_stash = graph.program.weights.backward is BackwardWeights.STASH
    walk = Walk(graph)
    made: dict[tuple[int, int, Direction], int] = {}
    for task in walk.readers():
        if task.horizon == 0:
            assert task.predicted_by == -1
            continue
        direction = Direction.FORWARD if on_stash else task.direction
        prediction = graph.task(task.predicted_by)
        assert made.setdefault((task.stage, task.mini_batch, direction), prediction.index) == prediction.index
        assert (prediction.kind, prediction.direction, prediction.device) == (Kind.PREDICT, direction, task.device)
        assert (prediction.version, prediction.horizon) == (task.version, task.horizon)
        assert prediction.micro_batch == task.mini_batch * graph.program.num_micro_batches
        assert prediction.index < task.index
    assert sorted(made.values()) == [task.index for task in graph.tasks() if task.kind is Kind.PREDICT]


# ---------------------------------------------------------------- facts


@given(any_graphs())
def test_facts_are_what_a_walk_over_the_lanes_counts(graph: TaskGraph) -> None:
    found, walk = facts(graph), Walk(graph)
    stages, devices = range(graph.program.num_stages), range(graph.program.num_devices)
    lag = [(task, walk.own_update(task) - task.version) for task in walk.readers()]

    def most_on_a_device(stage: int, *, predicted: bool) -> int:
        return max(most_sets(graph, device, stage, predicted=predicted) for device in devices)

    assert found.peak_live_activations == tuple(peak_alive(halves(graph, device)) for device in devices)
    assert found.weight_versions == tuple(most_on_a_device(stage, predicted=True) for stage in stages)
    assert found.true_versions == tuple(most_on_a_device(stage, predicted=False) for stage in stages)
    assert found.staleness == tuple(max(updates for task, updates in lag if task.stage == stage) for stage in stages)
    assert found.drift == tuple(max(drift(walk, task) for task in walk.readers() if task.stage == stage) for stage in stages)


@given(any_graphs())
def test_facts_are_in_their_bounds(graph: TaskGraph) -> None:
    found, program = facts(graph), graph.program

    for device, peak in enumerate(found.peak_live_activations):
        hosted = {task.stage for task in halves(graph, device)}
        assert 1 <= peak <= len(hosted) * program.total_micro_batches
    for all_sets, true_sets in zip(found.weight_versions, found.true_versions, strict=True):
        assert 1 <= true_sets <= all_sets
    assert all(0 <= lag <= program.num_mini_batches for lag in found.staleness)
    assert all(horizon >= 0 for horizons in (found.horizon_forward, found.horizon_backward) for horizon in horizons or ())


def peak_alive(tasks: list[Task]) -> int:
    alive: set[tuple[int, int]] = set()
    peak = 0
    for task in tasks:
        if task.kind is Kind.FORWARD:
            alive.add((task.stage, task.micro_batch))
        peak = max(peak, len(alive))
        if task.kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD):
            alive.remove((task.stage, task.micro_batch))
    return peak


def most_sets(graph: TaskGraph, device: int, stage: int, *, predicted: bool) -> int:
    """Walk a device's tasks with the sets of one stage's weights: versions as "v", predictions as their task."""
    tasks = [task for task in halves(graph, device) if task.stage == stage]
    reads = [(task.index, read_set(task)) for task in tasks if task.kind is not Kind.UPDATE]
    last = {name: index for index, name in reads}  # of the readers of a set the last one
    made, current, most = {("true", 0)}, ("true", 0), 0
    for task in tasks:
        alive = {name for name in made if name == current or last.get(name, -1) >= task.index}
        most = max(most, len([name for name in alive if predicted or name[0] == "true"]))
        if task.kind is Kind.UPDATE:
            current = ("true", task.version)
            made.add(current)
        if task.kind is Kind.PREDICT:
            made.add(("predicted", task.index))
    return most


def read_set(task: Task) -> tuple[str, int]:
    return ("true", task.version) if task.predicted_by < 0 else ("predicted", task.predicted_by)


def drift(walk: Walk, task: Task) -> int:
    forward = walk.forward[task.stage, task.micro_batch]
    return abs(task.version + task.horizon - forward.version - forward.horizon)
