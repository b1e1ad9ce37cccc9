"""XPipe's predicted backwards on models of transformers, held against a serial execution of the version table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from executor.model.cutting.split import split
from executor.model.pipeline import Pipeline
from executor.training import train
from tests.executor.model.test_hugging_face import ARCHITECTURES, Architecture
from tests.executor.serial.serial_mixed import Mixed
from tests.executor.serial.serial_versions import follow
from tests.executor.small.models import compiled, sgd

pytest.importorskip("transformers", reason="the extra `hf` is not installed")

MICRO_BATCHES, MINI_BATCHES = 2, 5


def parts_of(architecture: Architecture, data: list[tuple[Any, Tensor]]) -> list[tuple[dict[str, Tensor], Tensor, float]]:
    """Cut mini-batches into micro-batches, each with its share of the samples or of the tokens that count."""
    parts = []
    for inputs, target in data:
        cut = [{name: value.tensor_split(MICRO_BATCHES)[j] for name, value in inputs.items()} for j in range(MICRO_BATCHES)]
        targets = target.tensor_split(MICRO_BATCHES)
        weigh = architecture.loss_weight or (lambda part: torch.tensor(len(part)))
        counts = [int(weigh(part)) for part in targets]
        parts += [(each, part, n / sum(counts)) for each, part, n in zip(cut, targets, counts, strict=True)]
    return parts


ALL = [(name, horizon) for name in ("gpt2", "bert", "vit") for horizon in ("xpipe-paper", "round-trip", "pipeoptim")]


@pytest.mark.parametrize(("name", "horizon"), [ALL[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL[1:])])
def test_forwards_and_backwards_read_what_each_of_them_has_predicted(name: str, horizon: str) -> None:
    """Losses and final weights to 1e-10, in float64: activations of the forward's weights, derivatives by the backward's."""
    architecture = ARCHITECTURES[name]
    graph = compiled("xpipe", 3, MICRO_BATCHES, num_mini_batches=MINI_BATCHES, horizon=horizon)
    data, stages = architecture.data(MINI_BATCHES), split(architecture.model(), 3)
    run = Mixed(graph, stages, model=architecture.model().train(), parts=parts_of(architecture, data), loss=architecture.loss)
    losses, versions = follow(run)
    assert any(not torch.equal(run.read[key][own], value) for key, read in run.behind.items() for own, value in read.items())

    found = train(
        graph,
        Pipeline(stages, loss=architecture.loss, loss_weight=architecture.loss_weight, optimizer=sgd),
        data,
        timeout=60,
    )
    assert found.losses == pytest.approx(losses, abs=1e-10)
    state, expected = found.state_dict(), {name: value for own in versions for name, value in own.items()}
    assert {key for key, _ in architecture.model().named_parameters()} == expected.keys()
    for key, value in expected.items():
        assert torch.allclose(state[key], value, rtol=0, atol=1e-10), key
