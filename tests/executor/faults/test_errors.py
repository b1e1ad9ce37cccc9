"""What goes wrong in a stage comes out as it is, the other devices stop, and no thread stays behind."""

import _thread
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from executor.training import train
from executor.workers import threads
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError, RefusedError, RunError
from tests.executor.small.models import batches, compiled, mlp, pipeline_of
from tests.left_threads import left_since


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    before = threading.enumerate()
    yield
    assert left_since(before) == []  # behind an interrupt a thread ends its task first


class Broken(nn.Module):
    """Raises in the chosen call."""

    def __init__(self, call: int, error: BaseException) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()
        self.calls, self.error = call, error

    def forward(self, x: Tensor) -> Tensor:
        self.calls -= 1
        if self.calls < 0:
            raise self.error
        output: Tensor = self.layer(x)
        return output


class BrokenBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        raise ZeroDivisionError("in backward")


class FailsInBackward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = BrokenBackward.apply(x)
        return output


@pytest.mark.parametrize("stage", range(3))
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "pipedream"])
def test_an_error_in_any_stage_is_raised_with_its_own_traceback(schedule: str, stage: int) -> None:
    stages = mlp(3)
    stages[stage] = Broken(1, KeyError("lost"))
    options = {"num_mini_batches": 3} if schedule == "pipedream" else {}

    with pytest.raises(KeyError, match="lost") as caught:
        train(compiled(schedule, 3, 4, **options), pipeline_of(stages), batches(3))

    assert "forward" in [entry.name for entry in caught.traceback]
    assert any(f"in {stage}F1 on device {stage}" in note for note in caught.value.__notes__)


class Checkpointing(nn.Module):
    """Computes its layer again in backward, in torch's older way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.layer, x, use_reentrant=True)


class Fading(nn.Module):
    """Multiplies by a buffer that every forward changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()
        self.register_buffer("share", torch.ones(4, dtype=torch.float64))
        self.share: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.share *= 0.9
        output: Tensor = self.layer(x) * self.share
        return output


class Late(nn.Module):
    """Makes a parameter when it first runs."""

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "weight"):
            self.weight = nn.Parameter(torch.ones_like(x[0]))
        return x * self.weight


@pytest.mark.parametrize(
    ("schedule", "module", "line"),
    [
        ("gpipe", Checkpointing, r"^stage 1 checkpoints with use_reentrant=True, .*: give use_reentrant=False, or leave"),
        ("zb-h1", Checkpointing, r"^stage 1 checkpoints with use_reentrant=True"),
        ("xpipe", Checkpointing, r"^stage 1 checkpoints with use_reentrant=True"),
        (
            "gpipe",
            Fading,
            r"^stage 1 changes a tensor of shape \[4\] in place \(a buffer, or an activation\) that a backward still",
        ),
        (
            "xpipe",
            Fading,
            r"^stage 1 changes a tensor of shape \[4\] in place \(a buffer, or an activation\) that the backward of Mul still",
        ),
        (
            "gpipe",
            Late,
            r"^stage 1 makes its parameter weight in its forward, when its optimizer is there already: make it in __in",
        ),
        ("xpipe", Late, r"^stage 1 makes its parameter weight in its forward"),
    ],
)
def test_what_autograd_cannot_do_with_a_stage_is_said_in_one_line(schedule: str, module: type[nn.Module], line: str) -> None:
    stages = mlp(3)
    stages[1] = module()
    options = {"num_mini_batches": 6} if schedule == "xpipe" else {}

    with pytest.raises(RefusedError, match=line) as caught:
        train(compiled(schedule, 3, 4, **options), pipeline_of(stages), batches(options.get("num_mini_batches", 1)))
    assert "\n" not in str(caught.value)


def test_the_remedies_for_such_stages_work() -> None:
    stages = mlp(3)
    stages[1] = Fading()
    run = train(compiled("gpipe", 3, 4, recompute="always"), pipeline_of(stages), batches(1))
    assert len(run.losses) == 1

    late = Late()
    late(torch.zeros(1, 4, dtype=torch.float64))
    train(compiled("gpipe", 2, 4), pipeline_of([*mlp(1), late]), batches(1))
    assert not torch.equal(late.weight, torch.ones(4, dtype=torch.float64))


def test_an_error_in_backward_is_raised() -> None:
    stages = mlp(2)
    stages[1] = nn.Sequential(FailsInBackward(), stages[1])

    with pytest.raises(ZeroDivisionError, match="in backward"):
        train(compiled("1f1b", 2, 4), pipeline_of(stages), batches(1))


def test_the_first_cause_is_raised_not_what_follows_from_it() -> None:
    """Device 1 never gets its input, but it does not say so."""
    stages = mlp(3)
    stages[0] = Broken(0, RuntimeError("first cause"))

    with pytest.raises(RuntimeError, match="first cause"):
        train(compiled("gpipe", 3, 2), pipeline_of(stages), batches(1), timeout=60)


def test_an_interrupt_ends_all_devices() -> None:
    stages = mlp(2)
    stages[1] = Broken(2, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        train(compiled("1f1b", 2, 4), pipeline_of(stages), batches(1))


class Interrupts(nn.Module):
    """Does what Ctrl-C does, in the middle of a task."""

    def forward(self, x: Tensor) -> Tensor:
        _thread.interrupt_main()
        threading.Event().wait(1)  # longer than the caller takes to look
        return x


def test_an_interrupt_of_the_caller_ends_all_devices() -> None:
    with pytest.raises(KeyboardInterrupt):
        train(compiled("1f1b", 2, 4), pipeline_of([Interrupts(), *mlp(1)]), batches(3))


class InterruptsAndRests(nn.Module):
    """Does what Ctrl-C does, and goes on computing until it is let go."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        if not self.gate.is_set():
            _thread.interrupt_main()
        self.gate.wait(600)
        return x


def test_an_interrupt_of_the_caller_does_not_wait_for_what_a_stage_computes() -> None:
    gate = threading.Event()
    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        train(compiled("1f1b", 2, 4), pipeline_of([InterruptsAndRests(gate), *mlp(1)]), batches(3))
    [resting] = [thread for thread in threading.enumerate() if thread not in before and thread.name == "device 0"]
    others = left_since([*before, resting])  # they were halted, too, and have to come to their next look
    rests = resting.is_alive()
    gate.set()

    assert others == []
    assert rests
    assert resting.daemon


class Blocked(nn.Module):
    """Waits until it is let go."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        self.gate.wait(600)
        return x


def test_nobody_waits_for_ever_and_the_error_names_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 0 goes on when device 1 has given up; the caller has more patience than a busy machine takes to come so far."""
    gate = threading.Event()
    fail = ThreadWorkers.fail

    def fail_and_let_go(workers: ThreadWorkers, error: BaseException) -> None:
        fail(workers, error)
        gate.set()

    monkeypatch.setattr(ThreadWorkers, "fail", fail_and_let_go)
    monkeypatch.setattr(threads, "GRACE_S", 300.0)

    with pytest.raises(RunError, match=r"device 1 waited 0.2 s for the output of stage 0 for micro-batch 0 \(link 0->1\)"):
        train(compiled("gpipe", 2, 2), pipeline_of([Blocked(gate), *mlp(1)]), batches(1), timeout=0.2)


def test_a_failed_run_gives_the_modules_their_own_parameters_back() -> None:
    stages = mlp(2)
    stages[1] = Broken(3, ValueError("late"))
    parameters = list(nn.Sequential(*stages).parameters())

    with pytest.raises(ValueError, match="late"):
        train(compiled("1f1b", 2, 2), pipeline_of(stages), batches(4))

    assert all(ours is theirs for ours, theirs in zip(nn.Sequential(*stages).parameters(), parameters, strict=True))


def test_the_number_of_threads_that_torch_uses_is_what_it_was() -> None:
    before = torch.get_num_threads()
    train(compiled("1f1b", 2, 2), pipeline_of(mlp(2)), batches(1))

    assert torch.get_num_threads() == before


def test_a_stage_that_does_not_take_its_input_is_named_with_both_shapes() -> None:
    stages = [*mlp(1), nn.Linear(8, 4).double()]

    with pytest.raises(
        RefusedError,
        match=r"stage 1 does not take what stage 0 gives, float64 \[4, 4\]: "
        r"mat1 and mat2 shapes cannot be multiplied \(4x4 and 8x4\), "
        r"in Linear\(in_features=8, out_features=4, bias=True\): make both fit",
    ):
        train(compiled("gpipe", 2, 2), pipeline_of(stages), batches(1))


def test_an_input_of_another_type_is_named() -> None:
    data = [(inputs.float(), target) for inputs, target in batches(1)]

    with pytest.raises(RefusedError, match=r"stage 0 does not take the model's input, float32 \[4, 4\]: .*dtype"):
        train(compiled("gpipe", 2, 2), pipeline_of(mlp(2)), data)


def test_an_output_that_does_not_fit_the_target_is_named() -> None:
    data = [(inputs, target[:, :3]) for inputs, target in batches(1)]
    pipeline = pipeline_of(mlp(2))
    pipeline.loss = lambda output, target: (output - target).square().mean()

    with pytest.raises(RefusedError, match=r"loss does not take output float64 \[4, 4\] and target float64 \[4, 3\]"):
        train(compiled("gpipe", 2, 2), pipeline, data)


def test_a_loss_per_sample_is_refused() -> None:
    pipeline = pipeline_of(mlp(1))
    pipeline.loss = nn.MSELoss(reduction="none")

    with pytest.raises(ArgumentError, match=r"loss returns float64 \[8, 4\]: give a function that returns a micro-batch's mean"):
        train(compiled("gpipe", 1, 1), pipeline, batches(1))


def test_a_complex_loss_is_refused() -> None:
    pipeline = pipeline_of(mlp(1))
    pipeline.loss = lambda output, target: torch.complex(output - target, output).mean()

    with pytest.raises(ArgumentError, match=r"loss returns complex128 \[\]: give a function that returns a micro-batch's mean"):
        train(compiled("gpipe", 1, 1), pipeline, batches(1))


class Gives(nn.Module):
    """Returns the same value for any input."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> object:  # noqa: ARG002 - a stage takes an input
        return self.value


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "is None without a tensor: give at least one"),
        ("text", "is a str without a tensor"),
        ({"hidden": 1}, "is a dict without a tensor"),
        ((), "is a tuple without a tensor"),
        ({"hidden": torch.ones(9), "cache": [object()]}, r"is or holds an object at \['cache'\]\[0\]: give tensors, None, numbers"),
        ((torch.ones(9), {1, 2}), r"is or holds a set at \[1\]"),
        (Gives, "is or holds a type: give"),
    ],
)
@pytest.mark.parametrize("schedule", ["gpipe", "pipedream"])
def test_what_no_stage_can_hand_on_is_named_with_stage_and_micro_batch(value: object, found: str, schedule: str) -> None:
    """By its kind: a large value is not shown."""
    graph = compiled(schedule, 2, 1, **({} if schedule == "gpipe" else {"num_mini_batches": 5}))
    with pytest.raises(ArgumentError, match=f"^the output of stage 0 for micro-batch 0 of mini-batch 0 {found}") as caught:
        train(graph, pipeline_of([Gives(value), *mlp(1)]), batches(5))
    assert "tensor(" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_stages_must_be_as_many_as_the_graph_has() -> None:
    with pytest.raises(ArgumentError, match="the pipeline has 3 stages, but the graph 2"):
        train(compiled("gpipe", 2, 2), pipeline_of(mlp(3)), batches(1))


def test_unknown_workers_are_named() -> None:
    with pytest.raises(
        ArgumentError, match="workers 'gpus' is unknown: use auto or distributed or threads or cuda or cuda-partitions"
    ):
        train(compiled("gpipe", 1, 1), pipeline_of(mlp(1)), batches(1), workers="gpus")


def test_a_mini_batch_of_fewer_samples_than_micro_batches_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="the model's input has 3 samples for 4 micro-batches: give larger mini-batches, or fewer"
    ):
        train(compiled("gpipe", 2, 4), pipeline_of(mlp(2)), batches(1, samples=3))


def test_a_continuous_graph_must_cover_the_data() -> None:
    graph = compiled("pipedream", 2, 1, num_mini_batches=3)

    with pytest.raises(ArgumentError, match="the data ends after 2 mini-batches of a graph of 3: give more data"):
        train(graph, pipeline_of(mlp(2)), batches(2))
    with pytest.raises(ArgumentError, match="the data has more mini-batches than the graph's 3"):
        train(graph, pipeline_of(mlp(2)), batches(4))


def test_no_data_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="there are no mini-batches"):
        train(compiled("gpipe", 1, 1), pipeline_of(mlp(1)), [])


def test_an_optimizer_must_be_one() -> None:
    with pytest.raises(ArgumentError, match=r"optimizer returns list: give a function that returns a torch\.optim\.Optimizer"):
        train(compiled("gpipe", 1, 1), pipeline_of(mlp(1), optimizer=list), batches(1))  # type: ignore[arg-type]


def test_the_error_of_an_optimizer_is_raised() -> None:
    class Fails(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]  # noqa: ARG002 - torch's signature
            raise OverflowError("step")

    with pytest.raises(OverflowError, match="step"):
        train(compiled("1f1b", 2, 2), pipeline_of(mlp(2), optimizer=lambda parameters: Fails(parameters, lr=0.1)), batches(1))
