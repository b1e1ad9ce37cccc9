from __future__ import annotations

from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

import executor.profiling.profiling
import executor.training
import schedir.workflows.comparing.compare_training as compare_training_module
from executor.profiling.rehearsal import rehearse
from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from executor.recipe.short_passes import decides_together
from executor.trainer.updating.clipping import Clip
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES, build_program
from schedir.timeline.metrics.shown import shown_bubble
from schedir.workflows.comparing.compare_training import compare_training
from schedir.workflows.comparing.training_files import notes
from schedir.workflows.comparing.training_results import ComparisonProgress, TrainedSchedule, TrainingSetting
from tests.programs import accepted_shape

QUICK = TrainingSetting(rounds=1, repeats=1, draws=3)
MINI_BATCHES = 5


def tiny() -> Recipe:
    return mlp(num_layers=2, width=8, mini_batch_size=6)


def program(name: str, **options: Any) -> Program:
    shape = {"num_devices": 2, "num_micro_batches": 2, "num_mini_batches": MINI_BATCHES} | options
    return build_program(name, **shape)


def run(*names: str, setting: TrainingSetting = QUICK, **hooks: Any) -> tuple[TrainedSchedule, ...]:
    return compare_training([program(name) for name in names], tiny(), setting, **hooks)


def losses_of_plain_training(steps: int) -> list[float]:
    recipe = tiny()
    (model,) = recipe.cut()
    optimizer = recipe.optimizer(list(model.parameters()))
    losses = []
    for inputs, target in islice(recipe.data(QUICK.seed), steps):
        optimizer.zero_grad()
        loss = recipe.loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_synchronous_schedules_train_like_the_whole_model() -> None:
    plain = losses_of_plain_training(2 * MINI_BATCHES)  # one run warms up, one is measured
    for trained in run("gpipe", "1f1b"):
        assert trained.losses == pytest.approx(plain, rel=1e-4)


def test_every_schedule_starts_from_the_same_weights_and_data() -> None:
    firsts = [trained.losses[0] for trained in run("gpipe", "pipedream", "xpipe")]
    assert firsts == pytest.approx([firsts[0]] * 3, rel=1e-6)


def test_the_recipes_own_model_is_left_as_it_is() -> None:
    recipe = tiny()
    before = [parameter.detach().clone() for parameter in recipe.cut()[0].parameters()]
    compare_training([program("gpipe")], recipe, QUICK)
    assert all(torch.equal(*pair) for pair in zip(before, recipe.cut()[0].parameters(), strict=True))


def test_the_callers_random_numbers_are_not_used_up() -> None:
    before = torch.random.get_rng_state()
    run("gpipe")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_predictions_are_written_down_before_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    train = executor.training.train

    def watched(graph: Any, *arguments: Any, **options: Any) -> Any:
        happened.append(f"train {graph.program.name}")
        return train(graph, *arguments, **options)

    monkeypatch.setattr(executor.training, "train", watched)
    run("gpipe", "xpipe", write_down=lambda notes: happened.append(f"write {notes[-1]['schedule']}"))
    assert happened == [
        *("train gpipe", "train xpipe"),  # warm-up
        *("write gpipe", "train gpipe", "write xpipe", "train xpipe"),
    ]


@pytest.mark.parametrize("taken", [0.86, 0.2])
def test_a_busy_machine_is_told_before_anything_is_measured(taken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    measure = executor.profiling.profiling.Profiler.measure

    def busy(profiler: Any) -> Any:
        costs = measure(profiler)
        return replace(costs, source={**costs.source, "preempted_fraction": taken})

    monkeypatch.setattr(executor.profiling.profiling.Profiler, "measure", busy)
    run("gpipe", progress=lambda step: happened.extend(filter(None, (step.note, step.text))))
    line = (
        "the machine is busy: the system took the core away in 86.0 % of the tasks of the warm-up; what is measured now has it, "
        "too: end other work for figures of the schedules alone"
    )
    assert happened[2:3] == ([line] if taken > 0.25 else ["gpipe: profile and predict (round 1 of 1)"])
    assert happened.count(line) == (taken > 0.25)


def test_what_is_written_down_is_what_is_reported() -> None:
    notes: list[dict[str, Any]] = []
    (trained,) = run("1f1b", setting=replace(QUICK, rounds=3), write_down=lambda so_far: notes.__setitem__(slice(None), so_far))
    assert [note["round"] for note in notes] == [1, 2, 3]
    assert [note["seconds_low"] for note in notes] == [one.predicted.step_interval.low for one in trained.rounds]
    assert all(note["seconds_low"] <= note["seconds_per_mini_batch"] <= note["seconds_high"] for note in notes)
    steps = [note["seconds_per_mini_batch"] for note in notes]
    assert steps == [one.predicted_step_s for one in trained.rounds]
    assert trained.predicted_step_s == sorted(steps)[1]


@pytest.mark.parametrize("rounds", [3, 4])
def test_one_round_is_judged_by_its_own_profile_and_prediction(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = []
    measure = executor.profiling.profiling.Profiler.measure

    def kept(self: Any) -> Any:
        profiles.append(measure(self))
        return profiles[-1]

    monkeypatch.setattr(executor.profiling.profiling.Profiler, "measure", kept)
    (trained,) = run("pipedream", setting=replace(QUICK, rounds=rounds))
    assert [one.number for one in trained.rounds] == list(range(1, rounds + 1))
    assert len(trained.losses) == (rounds + 1) * MINI_BATCHES  # the warm-up is no round
    assert trained.measured_step_s == pytest.approx(median(one.measured_step_s for one in trained.rounds))
    assert trained.step_error_fraction == pytest.approx(median(one.step_error_fraction for one in trained.rounds))
    assert trained.judged is trained.rounds[trained.judged.number - 1]
    assert trained.costs.rows == profiles[trained.judged.number].rows  # number 0 belongs to the warm-up
    predicted, measured = trained.comparison.timelines
    assert (predicted, measured) == (trained.judged.predicted.timeline, trained.judged.measured)
    assert predicted.meta["round"] == measured.meta["round"] == trained.judged.number
    assert trained.comparison.step_error_fraction == pytest.approx(trained.judged.step_error_fraction)
    assert predicted.meta["which_round"].startswith(f"round {trained.judged.number} of {rounds}, nearest the median error ")


def test_the_comparison_belongs_to_the_judged_round_and_figures_to_all() -> None:
    (trained,) = run("pipedream", setting=replace(QUICK, rounds=3))
    assert trained.comparison.predicted.step_s == pytest.approx(trained.judged.predicted_step_s)
    assert trained.comparison.measured.step_s == pytest.approx(trained.judged.measured_step_s)
    assert trained.judged.step_error_fraction == pytest.approx(trained.step_error_fraction)  # of an odd number it is the median
    assert trained.bubbles[1] == pytest.approx(median(shown_bubble(one.figures) for one in trained.rounds))
    assert trained.samples_per_s == pytest.approx(6 / trained.measured_step_s)
    assert trained.noise_floor_fraction is not None


def test_progress_counts_every_step_of_the_job() -> None:
    heard: list[ComparisonProgress] = []
    run("gpipe", "1f1b", progress=heard.append)
    assert [(step.done, step.total) for step in heard] == [(done, 8) for done in range(8)]
    assert heard[5].text == "gpipe: train 5 mini-batches (round 1 of 1)"


@pytest.mark.parametrize(("limit", "rounds"), [(1.0, 1), (45.0, 3), (50.0, 4)])
def test_no_round_begins_that_would_end_behind_the_time_limit(limit: float, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # every run takes 10 s of this clock: round 4 is the fifth run and would end at 50 s
    now = 0.0
    train = executor.training.train

    def ten_seconds(*arguments: Any, **options: Any) -> Any:
        nonlocal now
        now += 10.0
        return train(*arguments, **options)

    monkeypatch.setattr(executor.training, "train", ten_seconds)
    monkeypatch.setattr(compare_training_module, "monotonic", lambda: now)
    (trained,) = run("gpipe", setting=replace(QUICK, rounds=4, time_limit_s=limit))
    assert len(trained.rounds) == rounds


def test_recomputation_is_predicted_and_measured() -> None:
    (trained,) = run("gpipe", setting=replace(QUICK, recompute="always"))
    assert trained.comparison.predicted.recompute_share > 0
    assert trained.comparison.measured.recompute_share > 0


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([], "no schedule to train: name at least one"),
        ([program("gpipe"), program("gpipe")], "schedule gpipe is named twice"),
        ([program("gpipe", num_mini_batches=1)], "gpipe has 1 mini-batches, but its steady state needs 2: give --mini-batches 2"),
        ([program("xpipe", num_mini_batches=4)], "xpipe has 4 mini-batches, but its steady state needs 5"),
        ([program("gpipe", num_micro_batches=7)], "gives 6 samples for 7 micro-batches: give more, or cut less"),
    ],
)
def test_what_does_not_fit_together_is_refused(programs: list[Program], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        compare_training(programs, tiny(), QUICK)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "rounds 0 must be an integer of at least 1"),
        ({"draws": 2.5}, "draws 2.5 must be an integer of at least 1"),
        ({"time_limit_s": 0.0}, "time_limit_s 0.0 must be a number of seconds above 0"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        TrainingSetting(**wrong)


KINDS = {
    "interleaved-1f1b": {"forward", "backward", "update"},
    "zb-v": {"forward", "input_grad", "weight_grad", "update"},
    "chimera": {"forward", "backward", "update"},
    "zb-h1": {"forward", "input_grad", "weight_grad", "update"},
    "dualpipe": {"forward", "backward", "input_grad", "weight_grad", "update"},
}
"""What is profiled: the kinds that run, halves by themselves."""


@pytest.mark.parametrize("name", KINDS)
def test_stages_that_share_devices_and_halves_are_profiled_as_they_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(program: Any, *arguments: Any, **options: Any) -> Any:
        threads.append(program.num_devices)
        return rehearse(program, *arguments, **options)

    monkeypatch.setattr(executor.profiling.profiling, "rehearse", watched)
    devices, micro_batches = accepted_shape(name, 2, 2)
    judged = program(name, num_devices=devices, num_micro_batches=micro_batches)
    (trained,) = compare_training([judged], mlp(num_layers=4, width=8, mini_batch_size=8), QUICK)
    times = {kind.word for kind in Kind if isinstance(getattr(trained.costs.rows[0], kind.word, None), WorkTime)}
    assert times == KINDS[name]
    assert len(trained.costs.rows) == judged.num_stages
    assert set(threads) == {2}
    assert all(timeline.recorded.all() for timeline in trained.comparison.timelines)


TRANSFORMER = character_transformer(num_blocks=2, width=32, length=16)
CONVOLUTION = conv_net(channels=8, size=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "recompute"),
    [(TRANSFORMER, "never"), (TRANSFORMER, "by stage"), (CONVOLUTION, "except-last")],
    ids=["transformer-never", "transformer-by-stage", "convolution-except-last"],
)
def test_every_schedule_is_predicted_and_trained_with_every_way_to_recompute(recipe: Recipe, recompute: str) -> None:
    for name in SCHEDULES:
        devices, micro_batches = accepted_shape(name, 2, 2)
        judged = program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=6)
        modes = ",".join(("always", "never") * (judged.num_stages // 2)) if recompute == "by stage" else recompute
        (trained,) = compare_training([judged], recipe, replace(QUICK, recompute=modes))
        assert np.isfinite(trained.losses).all()
        assert np.mean(trained.losses[-4:]) < np.mean(trained.losses[:4])
        for timeline in trained.comparison.timelines:
            assert timeline.recorded.all()
        assert (trained.comparison.predicted.recompute_share > 0) == (recompute != "never")
        assert (trained.comparison.measured.recompute_share > 0) == (recompute != "never")


def target_weight(target: torch.Tensor) -> float:
    """Count the samples above 0, and one, so that micro-batches of equal size weigh differently."""
    return 1.0 + float((target.flatten(1).sum(1) > 0).sum())


def test_micro_batches_weigh_what_the_recipe_says() -> None:
    """Loss and gradients of a mini-batch are the mean over its micro-batches, each with its own weight (docs/training.md)."""
    recipe = replace(tiny(), loss_weight=target_weight)
    (model,) = tiny().cut()
    optimizer = recipe.optimizer(list(model.parameters()))
    plain, weights = [], []
    for inputs, target in islice(recipe.data(QUICK.seed), 2 * MINI_BATCHES):
        pairs = list(zip(inputs.tensor_split(2), target.tensor_split(2), strict=True))
        weights += [[target_weight(part) for _, part in pairs]]
        parts = [weight * recipe.loss(model(x), y) for weight, (x, y) in zip(weights[-1], pairs, strict=True)]
        loss = torch.stack(parts).sum() / sum(weights[-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plain.append(loss.item())
    assert any(first != second for first, second in weights)  # otherwise samples would do
    (trained,) = compare_training([program("1f1b")], recipe, QUICK)
    assert trained.losses == pytest.approx(plain, rel=1e-4)


def test_schedules_are_profiled_and_trained_in_the_recipes_precision() -> None:
    plain, types, drawn = tiny(), set(), set()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        types.add(output.dtype)
        return plain.loss(output.float(), target)

    def data(seed: int) -> Any:
        for inputs, target in plain.data(seed):
            drawn.add((inputs @ inputs.T).dtype)
            yield inputs, target

    compare_training([program("xpipe")], replace(plain, loss=loss, data=data, autocast=torch.bfloat16), QUICK)
    assert types == {torch.bfloat16}
    assert drawn == {torch.float32}  # data are the user's own
    assert not torch.is_autocast_enabled("cpu")


def test_what_of_a_recipe_is_not_trained_is_said() -> None:
    recipe = replace(tiny(), clip=1.0, lr_scheduler=lambda made: torch.optim.lr_scheduler.StepLR(made, 1))
    trained = compare_training([program("gpipe")], recipe, QUICK)
    left_out = "left out of the recipe: clip, lr_scheduler; schedir train and executor.Trainer follow the whole recipe"
    assert left_out in notes(trained, QUICK)
    assert not [line for line in notes(run("gpipe"), QUICK) if "left out" in line]


def test_what_all_stages_decide_together_is_waited_for_in_training_and_prediction() -> None:
    """A norm over the model needs all gradients before any update; one of each stage, and a schedule without a flush, do not."""
    over_model, of_stages = replace(tiny(), clip=1.0), replace(tiny(), clip=Clip(1.0, per="stage"))
    trained = [compare_training([program("gpipe")], recipe, QUICK)[0] for recipe in (over_model, of_stages)]
    rounds = [(one.predicted.timeline.graph, one.measured.graph) for each in trained for one in each.rounds]

    assert [tuple(graph.options.common_update for graph in both) for both in rounds] == [(True, True), (False, False)]
    assert not decides_together(over_model, build_program("xpipe", num_devices=2, num_micro_batches=2))
