"""Step by step a trainer trains as `train` does on the whole program, whatever the schedule and however long."""

import gc
import threading
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import schedir
from executor.trainer.step_result import Step
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RunError
from schedir.ir.action import Kind
from tests.executor.small.models import WIDTH, batches, compiled, layers_of, mlp, pipeline_of, reference, sgd
from tests.executor.small.trainers import alive, assert_bit_equal, train_step_by_step, trainer
from tests.strategies import Build, builds


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def assert_trains_as_the_program(build: Build, **options: object) -> None:
    program = build.program()
    data = batches(program.num_mini_batches, samples=program.num_micro_batches + 1)
    graph = compile_program(program, **options)  # type: ignore[arg-type]  # options of any type
    run = train(graph, pipeline_of(mlp(program.num_stages), optimizer=adam), data, timeout=60)
    made = trainer(
        program.num_stages,
        build.name,
        build.num_micro_batches,
        num_devices=build.num_devices,
        optimizer=adam,
        **build.options,
        **options,
    )
    losses, weights = train_step_by_step(made, data)
    assert losses == run.losses
    assert_bit_equal(weights, run.state_dict())


@pytest.mark.law
@given(builds(most_devices=4, most_tasks=120), st.sampled_from(["never", "always", "except-last"]))
def test_every_schedule_trains_bit_for_bit_as_its_whole_program(build: Build, recompute: str) -> None:
    assert_trains_as_the_program(build, recompute=recompute)


FAR = [
    *((name, (2, 2)) for name in ("pipedream", "xpipe")),
    *(
        pytest.param(name, shape, marks=pytest.mark.slow)
        for name in ("pipedream", "pipedream-2bw", "xpipe", "spectrain", "pipeoptim")
        for shape in ((2, 3), (3, 3))
    ),
]


@pytest.mark.parametrize(("name", "shape"), FAR)
def test_a_continuous_schedule_goes_on_far_beyond_what_was_compiled(name: str, shape: tuple[int, int]) -> None:
    assert_trains_as_the_program(Build(name, *shape, 40))


@pytest.mark.parametrize("count", [33, pytest.param(34, marks=pytest.mark.slow)])
def test_replicas_go_on_and_the_last_round_may_be_incomplete(count: int) -> None:
    assert_trains_as_the_program(Build("pipedream", 3, 2, count, {"replicas": (2, 1)}))


def reads_of(made: Trainer, steps: range) -> dict[tuple[Kind, int, int], tuple[int, int] | None]:
    """(version, horizon) that the tasks of some steps read."""
    engine, found = made._engine, {}
    for step in steps:
        table, place, move = engine.endless.locate(step)
        for task in (task for tasks in table.device_tasks[place] for task in tasks):
            action = table.moved(table.plan.tasks[task][0], move)
            found[action.kind, action.stage, action.micro_batch] = engine.log.read(action.task)
    return found


def test_what_is_read_is_what_the_program_names_far_from_its_beginning() -> None:
    made = trainer(3, "xpipe", 2)
    with made:
        for mini_batch in batches(50):
            made.step(*mini_batch)
        made.drain()
    found = reads_of(made, range(45, 50))
    tasks = compiled("xpipe", 3, 2, num_mini_batches=50).tasks()
    named = {(task.kind, task.stage, task.micro_batch): (task.version, task.horizon) for task in tasks}
    assert len(found) > 60
    assert found == {key: named[key] for key in found}


def test_a_synchronous_step_has_the_loss_of_the_unpartitioned_model_at_once() -> None:
    data = batches(4)
    losses, _ = reference(mlp(2), data)
    with trainer(2, "1f1b", 4) as made:
        steps = [made.step(*mini_batch) for mini_batch in data]
        assert [step.mini_batch for step in steps] == [0, 1, 2, 3]
        assert [step.loss for step in steps] == pytest.approx(losses, abs=1e-10)
        assert [step.finished for step in steps] == [(0,), (1,), (2,), (3,)]
        assert all(step.seconds > 0 for step in steps)
        assert made.drain() == ()


def test_a_continuous_step_says_whose_update_is_done_and_a_drain_makes_the_rest() -> None:
    """PipeDream with p = 3: the update of mini-batch t on stage 0 stands before the forward of t + 3."""
    with trainer(3, "pipedream", 1) as made:
        steps = [made.step(*mini_batch) for mini_batch in batches(6)]
        assert [step.finished for step in steps] == [(), (), (), (0,), (1,), (2,)]
        assert made.drain() == (3, 4, 5)
        assert made.drain() == ()
        assert made.mini_batch == 6


def test_training_between_drains_is_training_of_several_programs() -> None:
    data = batches(11)
    pipeline = pipeline_of(mlp(3), optimizer=adam)
    first = train(compiled("xpipe", 3, 2, num_mini_batches=5), pipeline, data[:5], timeout=60)
    second = train(compiled("xpipe", 3, 2, num_mini_batches=6), pipeline, data[5:], timeout=60)
    with trainer(3, "xpipe", 2, optimizer=adam) as made:
        steps = [made.step(*mini_batch) for mini_batch in data[:5]]
        made.drain()
        steps += [made.step(*mini_batch) for mini_batch in data[5:]]
        assert [step.loss for step in steps] == first.losses + second.losses
        assert [step.mini_batch for step in steps] == list(range(11))
        made.drain()
        assert_bit_equal(made.state_dict(), pipeline.state_dict())


def test_steps_of_a_continuous_schedule_return_before_they_are_done() -> None:
    """The last stage holds its first forward back until step 1 was asked for, so step 0 cannot wait for it."""
    asked = threading.Event()

    class Held(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert asked.wait(60)
            return x * 1.0

    made = Trainer(
        [*mlp(2), Held()], schedule="pipedream", num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60
    )
    with made:
        step = made.step(*batches(1)[0])
        assert "on its way" in repr(step)
        asked.set()
        assert step.loss > 0
        assert "loss" in repr(step)


def test_no_more_mini_batches_are_on_their_way_than_the_schedule_has_under_way() -> None:
    def on_their_way(steps: list[Step]) -> int:
        return sum("on its way" in repr(step) for step in steps)

    with trainer(3, "pipedream", 1) as made:
        steps = []
        for mini_batch in batches(20):
            steps.append(made.step(*mini_batch))
            assert on_their_way(steps) <= 3


def test_data_is_let_go_and_nothing_grows_with_the_number_of_steps() -> None:
    with trainer(3, "xpipe", 2) as made:
        seen = []
        for mini_batch in batches(60):
            step = made.step(*mini_batch)
            seen.append(weakref.ref(mini_batch[0]))
            assert step.loss > 0
        del mini_batch
        engine = made._engine
        assert len(engine.feed._held) <= 2 * 6
        assert len(engine._binder.ports) <= 3 * 2 * 2
        assert not made._on_way
        assert len(engine.stream._ends) == 0
    gc.collect()
    assert sum(reference() is not None for reference in seen) <= 6


def test_mini_batches_may_have_any_number_of_samples_from_one_per_micro_batch_on() -> None:
    sizes = [8, 5, 2, 3]
    data = [batches(1, samples=size, seed=size)[0] for size in sizes]
    losses, _ = reference(mlp(2), data)
    with trainer(2, "1f1b", 2) as made:
        assert [made.step(*mini_batch).loss for mini_batch in data] == pytest.approx(losses, abs=1e-10)
        with pytest.raises(ArgumentError, match="the model's input has 1 samples for 2 micro-batches: give larger mini-batches"):
            made.step(*batches(1, samples=1)[0])
        assert made.step(*data[0]).mini_batch == 4


def test_d31_shapes_may_change_from_step_to_step() -> None:
    """Inputs (4, 16), (4, 24), (2, 16) over a mean, p = 3, one stage without parameters."""

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=1, keepdim=True)

    torch.manual_seed(0)
    stages = [Mean(), nn.Sequential(nn.Linear(1, 3), nn.ReLU()), nn.Linear(3, 1)]
    plain = [Mean(), nn.Sequential(nn.Linear(1, 3), nn.ReLU()), nn.Linear(3, 1)]
    for ours, theirs in zip(stages, plain, strict=True):
        theirs.load_state_dict(ours.state_dict())
    data = [(torch.randn(*shape), torch.randn(shape[0], 1)) for shape in ((4, 16), (4, 24), (2, 16))]
    losses, _ = reference(plain, data)
    made = Trainer(stages, schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    assert train_step_by_step(made, data)[0] == pytest.approx(losses, rel=1e-5)


def test_d12_the_number_of_stages_changes_no_bit_and_that_of_micro_batches_only_the_rounding() -> None:
    data = batches(5)
    layers = layers_of(mlp(4))

    def losses(num_stages: int, num_micro_batches: int) -> list[float]:
        copies = layers_of(mlp(4))
        size = len(layers) // num_stages
        stages = [nn.Sequential(*copies[k * size : (k + 1) * size]) for k in range(num_stages)]
        return train_step_by_step(
            Trainer(stages, schedule="1f1b", num_micro_batches=num_micro_batches, loss=nn.functional.mse_loss, optimizer=sgd), data
        )[0]

    whole = losses(1, 1)
    assert [losses(p, 1) for p in (2, 4)] == [whole, whole]
    assert [losses(p, m) for p in (1, 4) for m in (2, 4)] == [pytest.approx(whole, abs=1e-12)] * 4


def test_d12_dropout_is_the_same_for_the_same_seed_and_differs_from_mini_batch_to_mini_batch() -> None:
    def losses(seed: int, schedule: str, recompute: str = "never") -> list[float]:
        torch.manual_seed(0)
        stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)).double() for _ in range(2)]
        made = Trainer(
            stages,
            schedule=schedule,
            num_micro_batches=2,
            loss=nn.functional.mse_loss,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
            seed=seed,
            recompute=recompute,
        )
        return train_step_by_step(made, batches(1) * 3)[0]

    first = losses(1, "1f1b")
    assert losses(1, "1f1b") == losses(1, "gpipe") == losses(1, "1f1b", "always") == losses(1, "pipedream") == first
    assert losses(2, "1f1b") != first
    assert len(set(first)) == 3


def test_d13_autocast_holds_in_the_stages() -> None:
    seen = []

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x)
            seen.append(y.dtype)
            return y.float()

    data = [(torch.randn(4, WIDTH), torch.randn(4, WIDTH))]
    made = Trainer(
        [Looks(), Looks()],
        schedule="xpipe",
        num_micro_batches=2,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        autocast=torch.bfloat16,
    )
    train_step_by_step(made, data * 3)
    assert set(seen) == {torch.bfloat16}


def test_the_rate_of_an_update_is_that_of_its_number_on_every_stage() -> None:
    """With gradients of 1 and rates 1, 1/2, 1/4, … every weight falls by their sum, however late its update comes."""

    class Falls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.w

    stages = [Falls() for _ in range(3)]
    made = Trainer(
        stages,
        schedule="pipedream",
        num_micro_batches=1,
        loss=lambda output, _: output.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    )
    with made:
        for mini_batch in batches(5):
            made.step(*mini_batch)
        made.drain()
    assert [stage.w.item() for stage in stages] == [-1.9375] * 3  # 1 + 1/2 + 1/4 + 1/8 + 1/16


def test_modules_have_the_newest_weights_while_training_and_afterwards() -> None:
    stages = mlp(2)
    before = [parameter for stage in stages for parameter in stage.parameters()]
    with Trainer(stages, schedule="xpipe", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd) as made:
        for mini_batch in batches(7):
            made.step(*mini_batch)
        made.drain()
        newest = made.state_dict()
        after = [parameter for stage in stages for parameter in stage.parameters()]
        assert [id(parameter) for parameter in after] == [id(parameter) for parameter in before]
        made.step(*batches(1)[0])
    assert newest.keys() == nn.Sequential(*stages).state_dict().keys()
    assert [id(parameter) for stage in stages for parameter in stage.parameters()] == [id(parameter) for parameter in before]


def test_several_trainers_in_one_process_do_not_disturb_each_other() -> None:
    data = batches(6)
    alone = [train_step_by_step(trainer(2, schedule, 2), data) for schedule in ("xpipe", "1f1b")]
    with trainer(2, "xpipe", 2) as first, trainer(2, "1f1b", 2) as second:
        steps = [(first.step(*mini_batch), second.step(*mini_batch)) for mini_batch in data]
        first.drain()
        assert [step.loss for step, _ in steps] == alone[0][0]
        assert [step.loss for _, step in steps] == alone[1][0]
        assert_bit_equal(first.state_dict(), alone[0][1])
    assert alive() == []


def test_the_trainer_is_public() -> None:
    assert schedir.Trainer is Trainer


@pytest.mark.parametrize("schedule", ["pipedream", "xpipe"])
def test_a_step_that_was_on_its_way_at_the_end_says_what_to_do_before_closing(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trainer(2, schedule, 2) as made, monkeypatch.context() as patch:
        patch.setattr(made._engine.stream, "has_done", lambda _: False)  # or the devices may be faster than the caller
        step = made.step(*batches(1)[0])
    with pytest.raises(RunError, match=r"mini-batch 0 was on its way when the training ended: call drain\(\) before closing"):
        _ = step.loss


@pytest.mark.parametrize("schedule", ["pipedream", "xpipe"])
def test_a_step_that_was_on_its_way_at_a_failure_says_what_failed(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step: Step | None = None

    def fails() -> None:
        nonlocal step
        with trainer(2, schedule, 2) as made:
            monkeypatch.setattr(made._engine.stream, "has_done", lambda _: False)  # or the devices may be faster than the caller
            step = made.step(*batches(1)[0])
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    assert step is not None
    with pytest.raises(RunError, match=r"mini-batch 0 was on its way when the training failed \(KeyError: 'mine'\): that is to be"):
        _ = step.loss


@pytest.mark.parametrize("autocast", ["bf16", torch.int32, 16])
def test_what_nothing_computes_in_is_no_autocast(autocast: object) -> None:
    with pytest.raises(ArgumentError, match=r"autocast .* is no type to compute in: give torch\.bfloat16"):
        trainer(2, "1f1b", 2, autocast=autocast)
