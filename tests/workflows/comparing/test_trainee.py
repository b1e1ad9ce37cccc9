from __future__ import annotations

from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

import pytest
import torch

import executor.workers.waking
import schedir.workflows.comparing.trainee as trainee_module
from executor.global_random import same_random_everywhere
from executor.profiling.profiling import Profiler
from executor.recipe.ready_made import mlp
from executor.recipe.recipe import Recipe
from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError
from schedir.schedules.registry import build_program
from schedir.workflows.comparing.drift import DriftSoFar
from schedir.workflows.comparing.trainee import Trainee, endless, full_sized
from schedir.workflows.comparing.training_files import notes
from schedir.workflows.comparing.training_results import TrainedSchedule, TrainingSetting

QUICK = TrainingSetting(rounds=1, repeats=1, draws=3)
MINI_BATCHES = 5


def tiny() -> Recipe:
    return mlp(num_layers=2, width=8, mini_batch_size=6)


def trainee(name: str, *, recipe: Recipe, num_micro_batches: int) -> Trainee:
    program = build_program(name, num_devices=2, num_micro_batches=num_micro_batches, num_mini_batches=MINI_BATCHES)
    return Trainee(program, recipe, QUICK, before=DriftSoFar())


def trained_one(name: str, *, recipe: Recipe | None = None, num_micro_batches: int = 2) -> TrainedSchedule:
    """Let one schedule warm up and be measured once."""
    with same_random_everywhere():  # as compare_training lets it run
        one = trainee(name, recipe=recipe or tiny(), num_micro_batches=num_micro_batches)
        for number in (0, 1):
            one.train(number, *one.predict(number))
        return one.result()


def test_the_warm_up_trains_but_is_no_round() -> None:
    trained = trained_one("gpipe")
    assert [one.number for one in trained.rounds] == [1]
    assert len(trained.losses) == 2 * MINI_BATCHES


def test_endless_data_repeat_no_seed() -> None:
    recipe = replace(tiny(), data=lambda seed: [(seed, "first"), (seed, "second")])
    assert list(islice(endless(recipe, 7), 5)) == [(7, "first"), (7, "second"), (8, "first"), (8, "second"), (9, "first")]


def of_sizes(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.zeros(size, 2), torch.zeros(size)) for size in sizes]


def test_the_smaller_rest_of_an_epoch_is_left_out() -> None:
    """It is not what was predicted, and may have fewer samples than there are micro-batches."""
    found = full_sized(of_sizes(4, 4, 1, 4, 5, 3))
    assert [len(inputs) for inputs, _ in found] == [4, 4, 4, 5]


def test_where_no_mini_batch_is_of_full_size_any_more_nobody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainee_module, "MOST_LEFT_OUT", 3)
    found = full_sized(chain(of_sizes(4), cycle(of_sizes(3))))
    assert len(next(found)[0]) == 4
    with pytest.raises(ArgumentError, match="no mini-batch has the 4 samples of the first one any more: give data of one size"):
        next(found)


def test_a_mini_batch_with_too_few_samples_is_refused() -> None:
    with pytest.raises(ArgumentError, match="gives 6 samples for 7 micro-batches: give more, or cut less"):
        trainee("gpipe", recipe=tiny(), num_micro_batches=7)


def test_finite_data_goes_on_with_another_epoch() -> None:
    recipe = tiny()
    seeds: list[int] = []

    def two_mini_batches(seed: int) -> Any:
        seeds.append(seed)
        return islice(recipe.data(seed), 2)

    trained = trained_one("gpipe", recipe=replace(recipe, data=two_mini_batches))
    assert len(trained.losses) == 2 * MINI_BATCHES
    assert set(seeds) == {0, 1, 2, 3, 4}  # 10 mini-batches


def test_micro_batches_of_unequal_size_are_trained_and_predicted() -> None:
    trained = trained_one("1f1b", num_micro_batches=4)  # of 6 samples: 2, 2, 1, 1
    assert trained.mini_batch_size == 6
    assert trained.costs.micro_batch_sizes == (2, 2, 1, 1)


def test_the_profile_uses_another_number_of_micro_batches_than_is_judged() -> None:
    trained = trained_one("gpipe")
    assert trained.costs.source["num_micro_batches"] == 3


def test_devices_that_share_cores_are_profiled_alone_and_predicted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Profiler.measure

    def evened(profiler: Profiler) -> TableCosts:
        """Take the times as known: where these small tasks took less than the gaps before them, none would wait for another."""
        costs = measure(profiler)
        return replace(costs, rows=tuple(replace(row, forward=1.0, backward=2.0) for row in costs.rows), dispatch_gap_s=0.0)

    monkeypatch.setattr(executor.workers.waking, "usable_cores", lambda: 1)
    monkeypatch.setattr(Profiler, "measure", evened)
    trained = trained_one("1f1b")
    predicted = trained.judged.predicted.timeline
    busy = (predicted.end - predicted.start)[: predicted.graph.num_compute_tasks].sum()
    assert trained.costs.source["own_core"]
    assert predicted.meta["cores"] == 1
    assert predicted.meta["engine"] == "simpy"
    assert busy > predicted.makespan_s  # of two devices at once each waits for the other
    (line,) = [line for line in notes([trained], QUICK) if "share the 1 cores" in line]
    assert line.startswith("1f1b: 2 devices share")


def test_devices_with_a_core_each_share_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor.workers.waking, "usable_cores", lambda: 2)
    trained = trained_one("1f1b")
    assert not trained.costs.source["own_core"]
    assert "cores" not in trained.judged.predicted.timeline.meta
