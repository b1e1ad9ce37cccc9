"""The reads of every action, against tests/data/async_scalar.json: written by hand-made loops, not by this program."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ProgramError, RefusedError
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from tests import async_cases
from tests.programs import lane_of, written


def reads_of(graph: TaskGraph) -> list[tuple[str, int, int]]:
    """Return (action, version, horizon) of every F, B and U, device after device; `@q` marks replica q of a stage."""
    reads = []
    hosts = graph.stage_devices()
    for task in graph.tasks():
        if task.kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE):
            replicas = hosts[task.stage]
            mark = f"@{replicas.index(task.device)}" if len(replicas) > 1 else ""
            reads.append((f"{task}{mark}", task.version, task.horizon))
    return reads


def stored_reads(name: str) -> list[tuple[str, int, int]]:
    return [(action, version, horizon) for action, version, horizon, _ in async_cases.case(name)["reads"]]


@pytest.mark.parametrize("name", async_cases.ALL)
def test_schedule_gives_the_order_of_the_case(name: str) -> None:
    assert async_cases.program_of_schedule(name).orders() == async_cases.program_of_order(name).orders()


@pytest.mark.parametrize("name", async_cases.ALL)
def test_every_action_reads_the_version_and_horizon_of_the_case(name: str) -> None:
    graph = compile_program(async_cases.program_of_order(name), recompute=async_cases.recompute(name))

    assert reads_of(graph) == stored_reads(name)


@pytest.mark.parametrize("name", async_cases.ALL)
def test_the_schedule_reads_what_the_case_reads(name: str) -> None:
    graph = compile_program(async_cases.program_of_schedule(name), recompute=async_cases.recompute(name))

    assert reads_of(graph) == stored_reads(name)


@pytest.mark.parametrize("name", async_cases.ALL)
def test_predictions_are_those_of_the_case(name: str) -> None:
    graph = compile_program(async_cases.program_of_schedule(name))

    found = [
        [task.stage, "F" if task.direction is Direction.FORWARD else "B", task.mini_batch, task.version, task.horizon]
        for task in graph.tasks()
        if task.kind is Kind.PREDICT
    ]

    assert sorted(found) == sorted(async_cases.case(name)["predictions"])


def test_recomputation_reads_the_weights_of_its_backward() -> None:
    graph = compile_program(async_cases.program_of_schedule("tanh_pipeoptim_p3_sgdm_recompute"), recompute="always")

    again = {(task.stage, task.micro_batch): task for task in graph.tasks() if task.kind is Kind.RECOMPUTE}
    backward = {(task.stage, task.micro_batch): task for task in graph.tasks() if task.kind is Kind.BACKWARD}

    assert again.keys() == backward.keys()
    for key, task in again.items():
        assert (task.version, task.horizon) == (backward[key].version, backward[key].horizon)


def test_halves_of_a_split_backward_read_what_the_stash_holds() -> None:
    program = written("0F0 0I0 0F1 0W0 0I1 0W1", m=1, n=2, weights=Rule.STASH)

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 0I0 0F1 0W0 0U0 0I1 0W1 0U1"
    assert graph.version[:8].tolist() == [0, 0, 0, 0, 1, 0, 0, 2]


def test_without_a_stash_a_late_weight_gradient_reads_what_its_input_gradient_read() -> None:
    program = written("0F0 0F1 0I1 0I0 0W0 0W1", m=1, n=2, weights=Rule.CURRENT)

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 0F1 0I1 0I0 0W0 0U0 0W1 0U1"
    assert graph.version[:8].tolist() == [0, 0, 0, 0, 0, 1, 0, 2]


@pytest.mark.parametrize("rule", [WeightRule(Rule.CURRENT), WeightRule(Rule.PREDICT, 0)])
def test_a_backward_reads_what_is_current_where_it_begins(rule: WeightRule) -> None:
    """R2 begins it, behind update 1; I2 and W2 stand behind update 2 and read what R2 read. F2 stands before all updates."""
    program = written("0F0 0F1 0F2 0I0 0W0 0R2 0I1 0W1 0I2 0W2", m=1, n=3, weights=rule)

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 0F1 0F2 0I0 0W0 0U0 0R2 0I1 0W1 0U1 0I2 0W2 0U2"
    assert graph.version[:13].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 1, 1, 3]


def test_a_backward_is_predicted_where_it_begins() -> None:
    """Backwards of stage 2 of 3 are predicted over one update by SpecTrain: for R1 and I1 before R1, and update 1 stands behind."""
    order = "0F0 0F1 0R1 0I0 0W0 0I1 0W1"
    orders = [" ".join(f"{stage}{cell[1:]}" for cell in order.split()) for stage in range(3)]
    graph = compile_program(written(*orders, m=1, n=2, weights=WeightRule(Rule.PREDICT, "spectrain-paper")))

    assert lane_of(graph, 2) == "2P0 2F0 2P1 2F1 2P1 2R1 2P0 2I0 2W0 2U0 2I1 2W1 2U1"


def test_the_backward_half_of_a_pair_reads_by_its_own_micro_batch() -> None:
    program = written("0F0 (0F1;0B0)OVERLAP_F_B (0F2;0B1)OVERLAP_F_B 0B2", m=1, n=3, weights=Rule.STASH)

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 (0F1;0B0)OVERLAP_F_B 0U0 (0F2;0B1)OVERLAP_F_B 0U1 0B2 0U2"
    assert graph.version[:7].tolist() == [0, 0, 1, 1, 2, 1, 3]  # of a pair its forward's
    assert graph.pairs.version.tolist() == [0, 0]


def test_a_synchronous_program_that_does_not_flush_is_refused_with_the_remedy() -> None:
    program = written("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", m=1, n=2)

    with pytest.raises(ProgramError, match=r"^device 0: weights 'latest' need a flush, .*stash") as error:
        compile_program(program)

    assert "^^^ <-- this is wrong" in error.value.grid


def test_double_buffering_refuses_an_order_that_reads_weights_before_they_are_made() -> None:
    program = written("0F0 0F1 0F2 0B0 0B1 0B2", m=1, n=3, weights=Rule.DOUBLE_BUFFER)

    with pytest.raises(ProgramError, match=r"^device 0: 0F2 must read version 1 of stage 0 under double-buffer, but only 0"):
        compile_program(program)


def test_vertical_sync_hands_on_what_stage_0_read_at_the_first_micro_batch() -> None:
    """p=2, m=2: 0F2, the first of mini-batch 1, stands before update 0U1, so all of mini-batch 1 reads version 0, though 0F3
    and stage 1 stand behind an update."""
    program = written("0F0 0F1 0F2 0B0 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3", m=2, n=2, weights=Rule.VERTICAL_SYNC)

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 0F1 0F2 0B0 0B1 0U1 0F3 0B2 0B3 0U3"
    assert lane_of(graph, 1) == "1F0 1B0 1F1 1B1 1U1 1F2 1B2 1F3 1B3 1U3"
    assert graph.version[:10].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert graph.version[10:20].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2]


def test_vertical_sync_is_refused_with_replicas() -> None:
    program = written("0F0 0B0", "0F1 0B1", "1F0 1B0 1F1 1B1", m=1, n=2, stages=2, weights=Rule.VERTICAL_SYNC)

    with pytest.raises(RefusedError, match="vertical sync is not defined for replicated stages: use replicas of 1"):
        compile_program(program)


# ---------------------------------------------------------------- bellwethers


PREDICTED = WeightRule(Rule.PREDICT, 1)


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (
            ("0F1 0F0 0B0 0B1",),
            r"^device 0: 0F1 reads what micro-batch 0 predicts for its mini-batch on stage 0, which stands",
        ),
        (("0F0 0F1 0B1 0B0",), r"^device 0: 0B1 reads what micro-batch 0 predicts .*, which stands behind it: .* runs first"),
        (("0F0 0F1 0R1 0R0 0B0 0B1",), r"^device 0: 0R1 reads what micro-batch 0 predicts .*, which stands behind it"),
        (("0F0 0B0", "0F1 0B1"), r"^device 1: 0F1 reads what micro-batch 0 predicts .*, which stands on another device"),
        (("0F0 0F1 (0F2;0B1)OVERLAP_F_B 0B0 0F3 0B2 0B3",), r"^device 0: 0B1 reads what micro-batch 0 predicts"),
    ],
)
def test_a_reader_of_a_prediction_that_is_not_made_yet_is_refused(orders: tuple[str, ...], message: str) -> None:
    micro_batches = 2 * (1 + max(order.count("F3") for order in orders))

    with pytest.raises(ProgramError, match=message):
        compile_program(written(*orders, m=2, n=micro_batches // 2, stages=1, weights=PREDICTED))


def test_a_mini_batch_reads_the_version_that_stands_at_its_bellwether_not_at_its_last_micro_batch() -> None:
    """0F2 and 0B2, the bellwethers of mini-batch 1, stand before update 0U1; 0F3 and 0B3 behind it read what they read."""
    program = written("0F0 0F1 0F2 0B0 0B2 0B1 0F3 0B3", m=2, n=2, weights=PREDICTED)

    assert reads_of(compile_program(program)) == [
        ("0F0", 0, 1),
        ("0F1", 0, 1),
        ("0F2", 0, 1),
        ("0B0", 0, 0),
        ("0B2", 0, 0),
        ("0B1", 0, 0),
        ("0U1", 1, 0),
        ("0F3", 0, 1),
        ("0B3", 0, 0),
        ("0U3", 2, 0),
    ]


def test_with_backwards_on_the_stash_only_forwards_follow_the_bellwether() -> None:
    on_stash = WeightRule(Rule.PREDICT, 1, BackwardWeights.STASH)

    graph = compile_program(written("0F0 0F1 0B1 0B0", m=2, weights=on_stash))

    assert lane_of(graph, 0) == "0P0 0F0 0F1 0B1 0B0 0U1"
    assert graph.predicted_by[1:5].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("rule", [WeightRule(Rule.STASH), WeightRule(Rule.CURRENT), WeightRule(Rule.PREDICT, "exact")])
def test_updates_that_would_come_out_of_order_are_refused(rule: WeightRule) -> None:
    with pytest.raises(ProgramError, match=r"^device 0: update 2 of stage 0 would come before update 1: finish the backwards of"):
        compile_program(written("0F0 0F1 0B1 0B0", m=1, n=2, weights=rule))
