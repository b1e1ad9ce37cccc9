"""The serial execution is right by itself: against the unpartitioned model, and against PipeDream's own formula."""

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.schedules.registry import build_program
from schedir.workflows.checking.serial import Array, Layers, Momentum, backward, forward, train_serially, train_unpartitioned

SGD = Momentum(rate=0.3, momentum=0.9)


def stages_of(num_stages: int, width: int = 3) -> list[Layers]:
    rng = np.random.default_rng(7)
    return [[(rng.normal(size=(width, width)), rng.normal(size=width))] for _ in range(num_stages)]


def mini_batches(count: int, samples: int = 5, width: int = 3) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(11)
    return [(rng.normal(size=(samples, width)), rng.normal(size=(samples, width))) for _ in range(count)]


def distance(one: list[Layers], other: list[Layers]) -> float:
    pairs = zip((layer for stage in one for layer in stage), (layer for stage in other for layer in stage), strict=True)
    return max(float(np.abs(left - right).max()) for layers in pairs for left, right in zip(*layers, strict=True))


def test_gradients_equal_finite_differences() -> None:
    layers, (inputs, targets) = stages_of(1)[0] + stages_of(2)[1], mini_batches(1)[0]

    def loss(changed: Layers) -> float:
        return float(((forward(changed, inputs)[-1][1] - targets) ** 2).mean())

    saved = forward(layers, inputs)
    gradients, _ = backward(layers, saved, 2 * (saved[-1][1] - targets) / targets.size)
    step = np.zeros((3, 3))
    step[1, 2] = 1e-6
    (weight, bias), last = layers
    slope = (loss([(weight + step, bias), last]) - loss([(weight - step, bias), last])) / 2e-6

    assert gradients[0][0][1, 2] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("recompute", ["never", "always"])
def test_a_synchronous_schedule_trains_the_unpartitioned_model(name: str, recompute: str) -> None:
    program = build_program(name, num_devices=3, num_micro_batches=2, num_mini_batches=4)
    data = mini_batches(4)
    whole = train_unpartitioned(stages_of(3), data, sgd=SGD)
    tasks = train_serially(compile_program(program, recompute=recompute), stages_of(3), data, sgd=SGD)

    assert tasks.losses == pytest.approx(whole.losses, abs=1e-12)
    assert distance(tasks.weights, whole.weights) < 1e-12


def test_pipedream_trains_by_its_formula() -> None:
    """w(t+1) = w(t) - lr * grad f(w1(t-n+1), w2(t-n+2), ..., wn(t)): stage s of n (from 1) lags by n - s updates."""
    program = build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=9)
    data, plain = mini_batches(9), Momentum(rate=0.3, momentum=0.0)
    found = train_serially(compile_program(program), stages_of(3), data, sgd=plain)

    history = [stages_of(3)]
    for t, (inputs, targets) in enumerate(data):
        layers = [history[max(0, t - (2 - k))][k][0] for k in range(3)]
        saved = forward(layers, inputs)
        gradients, _ = backward(layers, saved, 2 * (saved[-1][1] - targets) / targets.size)
        newest = [stage[0] for stage in history[-1]]
        history.append([[(w - 0.3 * dw, b - 0.3 * db)] for (w, b), (dw, db) in zip(newest, gradients, strict=True)])

    assert distance(found.weights, history[-1]) < 1e-12


def test_replicas_average_a_round() -> None:
    """Two replicas of the only stage train like one that accumulates both mini-batches."""
    replicated = build_program("pipedream", num_devices=2, num_micro_batches=1, num_mini_batches=6, replicas=(2,))
    data = mini_batches(6, samples=4)
    found = train_serially(compile_program(replicated), stages_of(1), data, sgd=SGD)
    joined = [(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1]))) for a, b in zip(data[::2], data[1::2], strict=True)]

    assert distance(found.weights, train_unpartitioned(stages_of(1), joined, sgd=SGD).weights) < 1e-12


def test_prediction_changes_what_is_read() -> None:
    data = mini_batches(14)
    final = [
        train_serially(
            compile_program(build_program("xpipe", num_devices=3, num_micro_batches=2, num_mini_batches=14, horizon=horizon)),
            stages_of(3),
            data,
            sgd=SGD,
        ).weights
        for horizon in (0, 1)
    ]

    assert distance(*final) > 1e-6
