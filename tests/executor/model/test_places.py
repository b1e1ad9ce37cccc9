"""A model is put back where it was; what only a GPU can show stands in tests/gpu."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.home import Home
from executor.model.pipeline import Pipeline
from executor.model.places import Places
from schedir.errors import SchedirWarning


def copy_of(module: nn.Module) -> Any:
    return Pipeline([module], loss=nn.functional.mse_loss, optimizer=lambda given: torch.optim.SGD(given, lr=0.1)).copy(0, 0)


def test_places_are_those_of_parameters_and_buffers() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert set(Places.of(module).devices) == {*dict(module.named_parameters()), *dict(module.named_buffers())}


def test_everything_is_handed_back() -> None:
    module, handed = nn.Linear(2, 2), list[Tensor]()
    copy, places = copy_of(module), Places.of(module)
    copy.move_to(Home(torch.device("cpu"), hand_back=handed.append))
    places.restore(copy)
    assert handed == [module.weight, module.bias]
    assert copy.home == Home(torch.device("cpu"))


def test_a_gpu_that_gives_nothing_back_is_told_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an assertion in a kernel every call on a GPU fails; the first cause is what should be shown."""

    def failing(_: Home) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    copy = copy_of(nn.Linear(2, 2))
    places = Places.of(copy.module)
    monkeypatch.setattr(copy, "move_to", failing)
    with pytest.warns(SchedirWarning, match=r"a stage stays on cpu, .* \(CUDA error: device-side assert triggered\)"):
        places.restore(copy)
