"""A trainer, step after step and without end, gives the numbers of the scalar cases: its graphs are not those of `train`."""

import pytest

from tests.executor.serial.scalar_cases import TRAINED, load

TOLERANCE = 1e-9


@pytest.mark.parametrize("name", TRAINED)
def test_step_by_step_losses_and_final_weights_are_those_worked_out(name: str) -> None:
    case = load(name)
    with case.trainer() as trainer:
        steps = [trainer.step(*mini_batch) for mini_batch in case.data]
        trainer.drain()
        losses = [step.loss for step in steps]

    assert losses == pytest.approx([float(loss) for loss in case.values["losses"]], abs=TOLERANCE)
    assert case.distance() < TOLERANCE


def test_there_are_42_cases() -> None:
    assert len(TRAINED) == 42
