"""Which schedules a trainer takes, and what it says to others; errors of a stage."""

from pathlib import Path

import pytest
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.ir.action import Action, Kind
from schedir.ir.program import Program
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, reference, sgd
from tests.executor.small.trainers import alive, train_step_by_step, trainer


def test_a_program_of_ones_own_trains_over_and_over() -> None:
    """p = 2, m = 4, all forwards, then backwards in the order 2, 0, 3, 1."""
    orders = [
        [*(Action(stage, Kind.FORWARD, j) for j in range(4)), *(Action(stage, Kind.BACKWARD, j) for j in (2, 0, 3, 1))]
        for stage in range(2)
    ]
    program = Program.from_orders("own", orders, num_stages=2, num_micro_batches=4)
    data = batches(3)
    losses, _ = reference(mlp(2), data)
    assert train_step_by_step(trainer(2, program), data)[0] == pytest.approx(losses, abs=1e-10)


def test_a_synchronous_program_of_several_mini_batches_goes_on_with_its_first() -> None:
    program = compiled("1f1b", 2, 2, num_mini_batches=3).program
    data = batches(8)
    losses, _ = reference(mlp(2), data)
    with trainer(2, program) as made:
        assert [made.step(*mini_batch).loss for mini_batch in data] == pytest.approx(losses, abs=1e-10)
        assert made.timeline.graph.program.num_mini_batches == 3


def test_a_continuous_program_of_a_fixed_length_cannot_go_on() -> None:
    program = compiled("pipedream", 2, 1).program
    with pytest.raises(RefusedError, match="pipedream is a continuous program of 12 mini-batches, which cannot go on"):
        trainer(2, program)


def test_a_continuous_function_of_ones_own_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from schedir import build_program\n"
        "def mine(num_devices=2, num_micro_batches=2, num_mini_batches=12):\n"
        "    return build_program('pipedream', num_devices=num_devices, num_micro_batches=num_micro_batches,\n"
        "                         num_mini_batches=num_mini_batches)\n"
    )
    data = batches(30)
    run = train(compiled("pipedream", 2, 2, num_mini_batches=30), pipeline_of(mlp(2)), data, timeout=60)
    assert train_step_by_step(trainer(2, f"{file}:mine"), data)[0] == run.losses


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schedule": "1f1b"}, ArgumentError, "schedule 1f1b needs num_micro_batches: give it"),
        ({"schedule": "1f2b", "num_micro_batches": 2}, ArgumentError, "schedule '1f2b' is unknown"),
        ({"schedule": "1f1b", "num_micro_batches": 2, "waves": 2}, ArgumentError, "schedule 1f1b has no option 'waves'"),
        ({"schedule": "1f1b", "num_micro_batches": 2, "num_devices": 2}, ArgumentError, "wants 2 devices with 1 stages per device"),
        ({"schedule": "zb-v", "num_micro_batches": 2}, ArgumentError, "schedule zb-v wants 2 stages per device, which 3 stages"),
        (
            {"schedule": "1f1b", "num_micro_batches": 2, "workers": "boats"},
            ArgumentError,
            "workers 'boats' is unknown: use auto or",
        ),
        ({"schedule": "1f1b", "num_micro_batches": 2, "timeout": 0}, ArgumentError, "timeout 0 is no positive number of seconds"),
        ({"schedule": "1f1b", "num_micro_batches": 2, "timeout": "9"}, ArgumentError, "timeout '9' is no positive number"),
        (
            {"schedule": "1f1b", "num_micro_batches": 2, "timeout": 1e10},
            ArgumentError,
            "longer than the 1e.09 s that a wait may take",
        ),
        ({"schedule": "1f1b", "num_micro_batches": 2, "seed": 0.5}, ArgumentError, "seed 0.5 is of type float"),
        ({"schedule": 3, "num_micro_batches": 2}, ArgumentError, "schedule 3 is of type int, not str or Program"),
        ({"schedule": "1f1b", "num_micro_batches": 2, "recompute": "selective"}, RefusedError, "known to cost models only"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        Trainer(mlp(3), loss=nn.functional.mse_loss, optimizer=sgd, **options)  # type: ignore[arg-type]  # of any type
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_the_first_error_of_a_device_is_raised_with_where_it_was_and_no_thread_is_left(schedule: str) -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls > 9:
                raise KeyError("broken")
            return x * 1.0

    stages = [*mlp(1), Breaks(), *mlp(1)]
    made = Trainer(stages, schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60)
    with pytest.raises(KeyError, match="broken") as caught:
        train_step_by_step(made, batches(9))
    assert any("(stage 1, micro-batch 1 of mini-batch 4) on device 1" in note for note in caught.value.__notes__)
    with pytest.raises(RunError, match="this training has ended: make a new Trainer"):
        made.step(*batches(1)[0])
    assert alive() == []
