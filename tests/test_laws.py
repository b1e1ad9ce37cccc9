"""What holds for every registered schedule and every shape that it accepts.

Each law is stated against a plain walk over programs and lanes, one action after the other, never against the passes
themselves. The laws of simulators and of training stand with their packages; all draw from tests/strategies.py.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.interop.program_toml import parse_program_toml, print_program_toml
from schedir.interop.torch_csv import parse_torch_csv, print_torch_csv
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.header import Header
from schedir.ir.notation.printing import print_program
from schedir.ir.notation.text import parse_program
from schedir.ir.order.in_order import TaskTimes, evaluate, evaluate_samples
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES
from tests.made_up import made_up_programs
from tests.strategies import SECONDS, Build, any_graphs, builds, programs
from tests.walks import halves, lanes

pytestmark = pytest.mark.law

CONTINUOUS = tuple(name for name, schedule in SCHEDULES.items() if schedule.continuous)
FLUSHED = tuple(name for name, schedule in SCHEDULES.items() if not schedule.continuous)

GRADIENTS = (Kind.BACKWARD, Kind.WEIGHT_GRAD)


def parts(entry: Entry) -> tuple[Action, ...]:
    return (entry.forward, entry.backward) if isinstance(entry, Overlapped) else (entry,)


# ---------------------------------------------------------------- programs


@given(programs())
def test_every_action_stands_once_and_on_the_device_of_its_forward(program: Program) -> None:
    placed = [(action, device) for device, order in enumerate(program.orders()) for entry in order for action in parts(entry)]
    home = dict(placed)
    whole, split = {Kind.FORWARD, Kind.BACKWARD}, {Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD}

    assert len(placed) == len(home)
    for stage in range(program.num_stages):
        for j in range(program.total_micro_batches):
            found = {kind: home.pop(Action(stage, kind, j)) for kind in whole | split if Action(stage, kind, j) in home}
            assert set(found) in (whole, split)
            assert len(set(found.values())) == 1
    assert not home


@given(programs() | made_up_programs())
def test_every_device_runs_forwards_before_their_backwards(program: Program) -> None:
    for order in program.orders():
        seen: set[tuple[int, int]] = set()
        for action in (action for entry in order for action in parts(entry)):
            assert (action.kind is Kind.FORWARD) != ((action.stage, action.micro_batch) in seen)
            seen.add((action.stage, action.micro_batch))


@given(programs() | made_up_programs())
def test_written_forms_read_back_as_the_same_program(program: Program) -> None:
    m, n = program.num_micro_batches, program.num_mini_batches
    header = Header(program.name, num_micro_batches=m, num_mini_batches=n, weights=program.weights)

    assert parse_program(print_program(program)) == program
    assert parse_program_toml(print_program_toml(program), "another name") == program
    assert parse_torch_csv(print_torch_csv(program), header) == program


@given(builds(names=CONTINUOUS))
def test_a_continuous_program_without_its_drain_starts_the_next_longer_one(build: Build) -> None:
    program, longer = build.program(), build.with_mini_batches(build.num_mini_batches + 1).program()

    for order, goes_on in zip(program.orders(), longer.orders(), strict=True):
        forwards = [place for place, entry in enumerate(order) if parts(entry)[0].kind is Kind.FORWARD]
        without_drain = order[: forwards[-1] + 1]
        assert goes_on[: len(without_drain)] == without_drain


@given(builds(names=FLUSHED))
def test_a_flushed_program_repeats_its_first_mini_batch(build: Build) -> None:
    program, single = build.program(), build.with_mini_batches(1).program()

    for order, once in zip(program.orders(), single.orders(), strict=True):
        shifted = [
            Action(action.stage, action.kind, action.micro_batch + n * build.num_micro_batches)
            for n in range(build.num_mini_batches)
            for entry in once
            for action in parts(entry)
        ]
        assert [action for entry in order for action in parts(entry)] == shifted


# ---------------------------------------------------------------- graphs


@given(builds())
def test_the_same_arguments_give_the_same_graph(build: Build) -> None:
    first, second = compile_program(build.program()), compile_program(build.program())

    assert first.program == second.program
    for column in ("kind", "stage", "micro_batch", "device", "version", "horizon", "edge_start", "edge_source", "edge_kind"):
        assert getattr(first, column).tolist() == getattr(second, column).tolist()


@given(any_graphs())
def test_compiling_keeps_every_devices_order(graph: TaskGraph) -> None:
    added = (Kind.UPDATE, Kind.PREDICT, Kind.RECOMPUTE)

    for device, tasks in enumerate(lanes(graph)):
        order = [str(entry) for entry in graph.program.order(device)]
        # a program may place recomputations itself
        kept = [graph.label(task.index) for task in tasks if task.kind not in added or graph.label(task.index) in order]
        assert kept == order


@given(any_graphs())
def test_the_order_of_evaluation_puts_every_task_behind_all_that_it_waits_for(graph: TaskGraph) -> None:
    place = np.empty(graph.num_tasks, np.int64)
    place[graph.topology.order] = np.arange(graph.num_tasks)
    source, target, _ = graph.edges()

    assert sorted(graph.topology.order.tolist()) == list(range(graph.num_tasks))
    assert (place[source] < place[target]).all()


@given(any_graphs())
def test_every_stage_waits_for_its_neighbours(graph: TaskGraph) -> None:
    """F waits for F of the stage before, B (or I) for that of the stage behind: at once on one device, else over one transfer."""
    found: dict[tuple[int, bool, int], int] = {}
    for task in (task for tasks in lanes(graph) for task in tasks):
        if task.kind in (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.OVERLAPPED):
            found[task.stage, task.kind in (Kind.FORWARD, Kind.OVERLAPPED), task.micro_batch] = task.index
    for k, task in enumerate(graph.pairs.task.tolist()):
        found[int(graph.pairs.stage[k]), False, int(graph.pairs.micro_batch[k])] = task
    for (stage, is_forward, j), user in found.items():
        maker = found.get((stage - 1 if is_forward else stage + 1, is_forward, j))
        if maker is not None:
            assert maker in makers(graph, user) if graph.device[maker] != graph.device[user] else maker < user


def makers(graph: TaskGraph, user: int) -> list[int]:
    """Return the tasks whose results a task receives over links."""
    transfers = [source for source in graph.sources(user).tolist() if graph.kind[source] == Kind.TRANSFER]
    return [int(graph.sources(transfer)[0]) for transfer in transfers]


@given(any_graphs())
def test_updates_stand_right_behind_the_last_gradient_of_their_members(graph: TaskGraph) -> None:
    """Replicas that flush, ties, common updates: behind the last gradient of any stage on their device, to hold up no other."""
    hosts, flushes = graph.stage_devices(), graph.program.weights.synchronous
    tied = {stage for tie in graph.options.ties for stage in tie}
    for device, tasks in enumerate(lanes(graph)):
        gradients = [task for task in halves(graph, device) if task.kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD)]
        for stage in {task.stage for task in halves(graph, device)}:
            updates = [task for task in tasks if task.kind is Kind.UPDATE and task.stage == stage]
            rounds = -(-graph.program.num_mini_batches // int(graph.round_size[stage]))
            assert [task.version for task in updates] == list(range(1, rounds + 1))
            for update in updates:
                members = graph.members(update.index)
                any_stage = flushes and (len(hosts[stage]) > 1 or stage in tied or graph.options.common_update)
                share = [task for task in gradients if task.micro_batch in members and (any_stage or task.stage == stage)]
                between = [task.kind for task in tasks if share and share[-1].index < task.index < update.index]
                assert update.micro_batch == members[-1]
                assert all(task.index < update.index for task in share)
                assert set(between) <= {Kind.UPDATE}


@given(any_graphs())
def test_where_all_stages_decide_together_no_update_starts_before_the_last_gradient_of_any(graph: TaskGraph) -> None:
    spans = evaluate(graph, TaskTimes(np.where(graph.kind == Kind.UPDATE, 0.0, 1.0)))
    if not graph.options.common_update:
        return
    gradients = [task for device in range(graph.program.num_devices) for task in halves(graph, device)]
    for update in (task for tasks in lanes(graph) for task in tasks if task.kind is Kind.UPDATE):
        ends = [spans.end[task.index] for task in gradients if task.mini_batch == update.mini_batch and task.kind in GRADIENTS]
        assert spans.start[update.index] >= max(ends)


@given(any_graphs())
def test_every_micro_batch_is_a_member_of_one_update_of_each_stage(graph: TaskGraph) -> None:
    for stage, devices in enumerate(graph.stage_devices()):
        updates = [task for task in lanes(graph)[devices[0]] if task.kind is Kind.UPDATE and task.stage == stage]
        members = [j for update in updates for j in graph.members(update.index)]
        assert members == list(range(graph.program.total_micro_batches))


@given(any_graphs())
def test_recomputations_stand_as_asked_right_before_their_backward(graph: TaskGraph) -> None:
    program = graph.program
    entries = {str(entry) for device in range(program.num_devices) for entry in program.order(device)}
    found = {graph.label(task.index) for task in graph.tasks() if task.kind is Kind.RECOMPUTE}
    if found & entries:  # a program that places some itself says which and where, and no option adds to them
        assert found <= entries
        return
    last = program.num_micro_batches - 1
    for device, tasks in enumerate(lanes(graph)):
        gradients = {
            (task.stage, task.micro_batch): task.index
            for task in halves(graph, device)
            if task.kind in (Kind.BACKWARD, Kind.INPUT_GRAD)
        }
        for task in tasks:
            assert task.kind is not Kind.RECOMPUTE or gradients[task.stage, task.micro_batch] == task.index + 1
    for stage, mode in enumerate(graph.options.recompute):
        again = sorted(task.micro_batch for task in graph.tasks() if task.kind is Kind.RECOMPUTE and task.stage == stage)
        everything = range(graph.program.total_micro_batches)
        asked = {"never": [], "except-last": [j for j in everything if j % (last + 1) != last]}
        assert again == asked.get(mode, list(everything))


# ---------------------------------------------------------------- times in order


@given(graph=any_graphs(), data=st.data())
def test_times_in_order_are_the_longest_paths(graph: TaskGraph, data: st.DataObject) -> None:
    times = drawn_times(graph, data)

    found = evaluate(graph, times)

    assert times.latency is not None
    for task in graph.topology.order.tolist():
        lane = graph.task(task).lane
        before = [found.release[task - 1]] if task > graph.lane_range(lane).start else []
        ready = max([0.0, *before, *found.end[graph.sources(task)].tolist()])
        ready += times.gap if task < graph.num_compute_tasks and times.duration[task] > 0 else 0.0
        assert found.start[task] == ready
        assert found.release[task] == ready + times.duration[task]
        assert found.end[task] == found.release[task] + times.latency[task]


@given(graph=any_graphs(), data=st.data())
def test_samples_are_evaluated_as_single_runs_are(graph: TaskGraph, data: st.DataObject) -> None:
    first, second = drawn_times(graph, data), drawn_times(graph, data)
    assert first.latency is not None
    duration = np.stack((first.duration, second.duration), axis=1)

    start, end = evaluate_samples(graph, duration, latency=first.latency[:, None], gap=first.gap)

    for sample, times in enumerate((first, TaskTimes(second.duration, first.latency, first.gap))):
        alone = evaluate(graph, times)
        assert start[:, sample].tolist() == alone.start.tolist()
        assert end[:, sample].tolist() == alone.end.tolist()


def drawn_times(graph: TaskGraph, data: st.DataObject) -> TaskTimes:
    """Draw a duration for every task; of transfers, or of all between devices, at times a latency only, as without a cluster."""
    palette = np.array(data.draw(st.lists(SECONDS, min_size=6, max_size=6)))
    duration = palette[np.arange(graph.num_tasks) * 7 % 6]
    transfers = np.arange(graph.num_tasks) >= graph.num_compute_tasks
    instant = data.draw(st.sampled_from([None, transfers, graph.kind == Kind.TRANSFER]))
    if instant is not None:
        duration = np.where(instant, 0.0, duration)
    latency = np.where(transfers, data.draw(SECONDS), 0.0)
    return TaskTimes(duration, latency, data.draw(st.sampled_from([0.0, 0.1])))
