from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import executor.profiling.profiling
from executor.profiling.footprint import footprints
from executor.profiling.options import ProfileOptions
from executor.profiling.profiling import profile, seconds_of_all
from executor.profiling.rehearsal import CpuRecorder, rehearse
from executor.recipe.recipe import Recipe
from schedir.compiler import compile_program
from schedir.costs.files.costs_file import load_costs, save_costs
from schedir.costs.table.meaning import Granularity
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.schedules.registry import build_program

QUICK = ProfileOptions(repeats=2, warm_up=1, num_micro_batches=2)


def first_stage() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))


def recipe(*, fail_at: int | None = None) -> Recipe:
    """Two stages with everything that a profile could change; the loss fails at one of its calls."""
    torch.manual_seed(1)
    last = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 3))
    last[0].bias.requires_grad_(False)
    calls = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise KeyError("the loss fails")
        return nn.functional.cross_entropy(output, target)

    return Recipe(
        stages=[first_stage(), last],
        loss=loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        data=samples,
        name="two stages",
    )


def samples(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        yield torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)


@contextmanager
def unchanged(recipe: Recipe) -> Iterator[None]:
    """Assert that nothing of a recipe's stages, and no generator, is different afterwards, to the bit."""
    assert recipe.stages is not None
    model = nn.Sequential(*recipe.stages)
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.1 * index) if parameter.requires_grad else None
    for stage in recipe.stages:
        stage.register_forward_hook(lambda *_: None)
    before = everything(model)
    yield
    after = everything(model)
    assert before.keys() == after.keys()
    for name, value in before.items():
        now = after[name]
        same = torch.equal(value, now) if isinstance(value, Tensor) and isinstance(now, Tensor) else value == now
        assert same, f"{name} has changed"


def everything(model: nn.Module) -> dict[str, object]:
    found: dict[str, object] = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        found[f"{name} itself"] = (id(parameter), parameter.data_ptr(), parameter.requires_grad, parameter._version)
        found[f"{name} gradient"] = None if parameter.grad is None else parameter.grad.clone()
        found[f"{name} gradient itself"] = None if parameter.grad is None else id(parameter.grad)
    for name, module in model.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        found[f"{name} flags and hooks"] = (module.training, *(list(hook.values()) for hook in hooks))
    found["torch's generator"] = torch.random.get_rng_state()
    found["NumPy's generator"] = str(np.random.get_state())  # noqa: NPY002 - the one that others may use
    found["Python's generator"] = random.getstate()
    found["threads"] = torch.get_num_threads()
    found["gradients are recorded"] = torch.is_grad_enabled()
    return found


@pytest.mark.parametrize("by", list(Granularity))
def test_a_profile_changes_nothing(by: Granularity) -> None:
    two_stages = recipe()
    with unchanged(two_stages):
        profile(two_stages, replace(QUICK, by=by, split_backward=True))


@pytest.mark.parametrize("fail_at", [1, 3, 9])
def test_a_profile_that_raises_changes_nothing(fail_at: int) -> None:
    two_stages = recipe(fail_at=fail_at)  # in a memory pass, in the warm-up, while measuring
    with unchanged(two_stages), pytest.raises(KeyError, match="the loss fails"):
        profile(two_stages, QUICK)


def measured_kinds(costs: TableCosts) -> list[set[str]]:
    return [{kind.word for kind in Kind if isinstance(getattr(row, kind.word, None), WorkTime)} for row in costs.rows]


def test_every_stage_has_a_row_with_all_kinds_but_the_halves() -> None:
    costs = profile(recipe(), QUICK)
    assert measured_kinds(costs) == [{"forward", "backward", "recompute", "update", "predict"}] * 2
    assert (costs.granularity, costs.micro_batch_size, costs.basis) == ("stage", 4, "measured")


def test_halves_are_measured_when_asked_for() -> None:
    costs = profile(recipe(), replace(QUICK, split_backward=True, recompute=False, predict=False))
    assert measured_kinds(costs) == [{"forward", "backward", "input_grad", "weight_grad", "update"}] * 2


def test_halves_alone_are_measured_where_no_backward_is_whole() -> None:
    costs = profile(recipe(), replace(QUICK, whole_backward=False, split_backward=True, recompute=False, predict=False))
    assert measured_kinds(costs) == [{"forward", "input_grad", "weight_grad", "update"}] * 2
    assert costs.source["noise_floor_fraction"] > 0


def test_stages_on_one_device_are_rehearsed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[int] = []

    def watched(program: Program, *arguments: Any, **options: Any) -> Any:
        devices.append(program.num_devices)
        return rehearse(program, *arguments, **options)

    monkeypatch.setattr(executor.profiling.profiling, "rehearse", watched)
    assert len(profile(recipe(), replace(QUICK, devices=(0, 0))).rows) == 2
    assert set(devices) == {1}


def test_the_first_of_a_mini_batch_stands_apart_from_the_samples() -> None:
    forward = profile(recipe(), replace(QUICK, repeats=8)).rows[0].forward
    assert isinstance(forward, WorkTime)
    assert forward.first is not None
    assert 1 <= len(forward.samples) <= 8  # of 2 micro-batches in 8 mini-batches the second; some may have been preempted
    assert min(forward.samples) <= forward.median <= max(forward.samples)


def test_layers_have_a_row_each_and_know_their_stages() -> None:
    costs = profile(recipe(), replace(QUICK, by=Granularity.LAYER))
    assert [row.name for row in costs.rows] == ["0.0", "0.1", "0.2", "0.3", "1.0", "1.1", "1.2"]
    assert costs.layers_per_stage == (4, 3)


def test_layers_without_parameters_are_updated_in_no_time_and_hold_no_weights() -> None:
    relu = profile(recipe(), replace(QUICK, by=Granularity.LAYER)).rows[2]
    assert (relu.bytes.weights, relu.bytes.gradients, relu.bytes.optimizer) == (0, 0, 0)


def test_the_layers_bytes_add_up_to_their_stages() -> None:
    by_stage, by_layer = (profile(recipe(), replace(QUICK, by=by)) for by in Granularity)
    for whole, joined in zip(by_stage.stages(2), by_layer.stages(2), strict=True):
        for name in ("weights", "gradients", "optimizer", "activations", "boundary", "output"):
            assert getattr(whole.bytes, name) == getattr(joined.bytes, name), name


def test_how_far_the_layers_times_add_up_to_their_stages_is_stated() -> None:
    by_layer = profile(recipe(), replace(QUICK, by=Granularity.LAYER))
    assert by_layer.source["layers_over_stages"] > 0
    assert "layers_over_stages" not in profile(recipe(), QUICK).source


def test_all_rows_are_added_up() -> None:
    rows = (PieceCosts(forward=1.0, backward=2.0), PieceCosts(forward=WorkTime(4.0, first=9.0), backward=8.0))
    assert seconds_of_all(TableCosts(rows=rows)) == 15.0


def test_sizes_follow_from_the_micro_batch_size_asked_for() -> None:
    costs = profile(recipe(), replace(QUICK, micro_batch_size=3, recompute=False, predict=False))
    assert costs.micro_batch_size == 3
    assert costs.rows[0].bytes.boundary == 3 * 6 * 4
    assert costs.rows[0].bytes.output == 3 * 8 * 4


def test_nothing_is_timed_while_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = False
    begin = CpuRecorder.begin

    def counted(*arguments: Any) -> Any:
        nonlocal counting
        counting = True
        try:
            return footprints(*arguments)
        finally:
            counting = False

    def watched(self: CpuRecorder, task: int) -> None:
        assert not counting
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
        begin(self, task)

    monkeypatch.setattr(executor.profiling.profiling, "footprints", counted)
    monkeypatch.setattr(CpuRecorder, "begin", watched)
    profile(recipe(), QUICK)


def test_measured_costs_survive_their_file(tmp_path: Path) -> None:
    costs = profile(recipe(), replace(QUICK, by=Granularity.LAYER))
    file = tmp_path / "costs.json"
    save_costs(costs, file)
    loaded = load_costs(file, layers_per_stage=(4, 3))
    assert loaded.rows == costs.rows
    assert loaded.basis == "measured"
    assert json.loads(file.read_text())["source"]["repeats"] == 2


def test_measured_costs_fit_a_graph_of_the_same_stages() -> None:
    graph = compile_program(build_program("xpipe", num_devices=2, num_micro_batches=3), recompute="always")
    times = profile(recipe(), QUICK).times(graph)
    assert (times.duration[: graph.num_compute_tasks] > 0).all()
    assert times.gap > 0


def test_what_was_measured_is_stated() -> None:
    source = profile(recipe(), QUICK).source
    assert (source["kind"], source["model"], source["repeats"], source["warm_up"]) == ("measured", "two stages", 2, 1)
    assert source["noise_floor_fraction"] >= 0
    assert 0 <= source["preempted_fraction"] <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"repeats": 0}, "repeats 0 must be an integer of at least 1"),
        ({"warm_up": -1}, "warm_up -1 must be an integer of at least 0"),
        ({"num_micro_batches": 2.5}, "num_micro_batches 2.5 must be an integer of at least 1"),
        ({"micro_batch_size": 0}, "micro_batch_size 0 must be an integer of at least 1"),
        ({"by": "block"}, "by 'block' is unknown: use stage or layer"),
        ({"whole_backward": False}, "a rehearsal needs backwards: ask for whole_backward or split_backward"),
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ProfileOptions(**wrong)


def test_more_stages_than_the_recipe_has_are_refused() -> None:
    with pytest.raises(ArgumentError, match="cut into 2 stages, but 3 are asked for"):
        profile(recipe(), replace(QUICK, num_stages=3))


def test_a_profile_weighs_and_computes_as_the_recipe_says_and_states_what_it_leaves_out() -> None:
    plain, types, weighed = recipe(), set(), []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        types.add(output.dtype)
        return plain.loss(output.float(), target)

    def weight(target: Tensor) -> float:
        weighed.append(len(target))
        return 1.0

    found = profile(replace(plain, loss=loss, loss_weight=weight, autocast=torch.bfloat16, loss_scaling=2.0), QUICK)
    assert types == {torch.bfloat16}
    assert set(weighed) == {4}  # two micro-batches of the data's eight samples
    assert found.source["left_out"] == (
        "left out of the recipe: loss_scaling; schedir train and executor.Trainer follow the whole recipe"
    )
    assert "left_out" not in profile(plain, QUICK).source


def test_what_is_measured_is_said_while_it_is() -> None:
    heard: list[str] = []
    profile(recipe(), QUICK, hear=heard.append)

    assert heard == [
        "copying the model and counting its bytes",
        "training by 1f1b: 2 mini-batches after 1 of warm-up",
        "recomputing: 2 mini-batches after 1 of warm-up",
        "predicting weights: 2 mini-batches after 1 of warm-up",
    ]
