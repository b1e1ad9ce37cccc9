"""Skip connections over stages: gradients are those of the whole model, whatever way the values go."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from executor.emulation import emulate
from executor.model.cutting.split import split
from executor.model.pipeline import Pipeline
from executor.model.skips import Skip
from executor.model.stages import Stages
from executor.trainer.trainer import Trainer
from executor.training import Run, train
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.shape import Shape
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.serial.serial_versions import train_serially
from tests.executor.small.models import WIDTH, assert_dependencies_kept, batches, compiled, mlp, sgd
from tests.executor.small.skipping import CUTS, UNet, Whole, compiled_with, fan, pipeline_with, train_whole, unet

GRID = [
    (name, devices, micro_batches)
    for name, schedule in SCHEDULES.items()
    if not schedule.continuous
    for devices in range(1, 5)
    for micro_batches in range(1, 6)
    if schedule.accepts(Shape(devices, micro_batches, 1, schedule.stages_per_device)) is None
]
FAST = [
    ("gpipe", 3, 2),
    ("1f1b", 4, 3),
    ("zb-h1", 3, 3),
    ("interleaved-1f1b", 2, 3),
    ("zb-v", 2, 4),
    ("dualpipev", 2, 4),
    ("chimera", 4, 4),
]
MODELS = {"unet": unet, "fan": fan}
Make = Callable[[int], Stages]
Case = tuple[str, int, int]
"""(schedule, devices, micro-batches)."""


def trained(make: Make, case: Case, **options: object) -> Run:
    name, devices, micro_batches = case
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches)
    made = pipeline_with(make(program.num_stages))
    graph = compiled_with(made, name, (devices, micro_batches), **options)
    return train(graph, made, batches(3), workers="threads", timeout=60)


def assert_trains_as_a_whole(make: Make, run: Run) -> None:
    losses, weights = train_whole(make(len(run.pipeline.stages)), batches(3))
    found = run.state_dict()
    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert found.keys() == weights.keys()
    assert max(float((found[key] - value).abs().max()) for key, value in weights.items()) < 1e-10


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", FAST, ids=str)
def test_a_model_with_skips_trains_as_one_that_is_not_cut(model: str, case: Case) -> None:
    run = trained(MODELS[model], case)

    assert_trains_as_a_whole(MODELS[model], run)
    assert_dependencies_kept(run.timeline)


@pytest.mark.parametrize("start", ["early", "on-gradient"])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_stages_with_skips_are_computed_again_on_what_arrived(name: str, start: str) -> None:
    assert_trains_as_a_whole(unet, trained(unet, (name, 4, 3), recompute="always", recompute_start=start))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", GRID, ids=str)
def test_skips_train_right_on_every_schedule(model: str, case: Case) -> None:
    for recompute in ("never", "except-last"):
        assert_trains_as_a_whole(MODELS[model], trained(MODELS[model], case, recompute=recompute))


# ---------------------------------------------------------------- without a flush

Continuous = tuple[str, tuple[int, int], dict[str, object]]
"""(schedule, (devices, micro-batches), options)."""

VERSIONS: dict[str, Continuous] = {
    "pipedream": ("pipedream", (4, 1), {}),
    "accumulating": ("pipedream", (4, 2), {}),
    "vertical sync": ("pipedream", (4, 1), {"weights": "vertical-sync"}),
    "replicas": ("pipedream", (5, 1), {"replicas": (2, 1, 1, 1)}),
    "double buffer": ("pipedream-2bw", (4, 4), {}),
    "predicted": ("xpipe", (4, 2), {"backward_weights": "stash"}),
    "computed again": ("pipedream", (4, 2), {"recompute": "always"}),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_continuous_schedules_train_as_a_serial_execution_of_the_versions(case: str) -> None:
    """What goes over a skip was made with the version that its source's forward read; its gradient is taken with the same."""
    name, shape, options = VERSIONS[case]
    made = pipeline_with(unet(4))
    graph = compiled_with(made, name, shape, num_mini_batches=8, **options)
    run = train(graph, made, batches(8), workers="threads", timeout=60)
    losses, weights = train_serially(graph, unet(4), batches(8))

    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert max(float((run.state_dict()[key] - value).abs().max()) for key, value in weights.items()) < 1e-10


# ---------------------------------------------------------------- through or direct

WAYS: list[Continuous] = [(name, (4, 2), {}) for name in ("1f1b", "pipedream", "pipedream-2bw", "xpipe", "spectrain", "pipeoptim")]
WAYS[2] = ("pipedream-2bw", (4, 4), {})
WAYS += [("pipedream", (4, 2), {"weights": "current"}), ("xpipe", (4, 2), {"recompute": "always"})]


def cut_unet(skips: str) -> Pipeline:
    return pipeline_with(split(UNet().double(), at=CUTS, skips=skips))


@pytest.mark.parametrize(("name", "shape", "options"), WAYS, ids=str)
def test_both_ways_of_split_train_the_same(name: str, shape: tuple[int, int], options: dict[str, object]) -> None:
    """Also where a backward reads other weights than its forward: values and their gradients are made by the same stages."""
    runs = []
    for way in ("through", "direct"):
        made = cut_unet(way)
        graph = compiled_with(made, name, shape, num_mini_batches=6, **options)
        runs.append(train(graph, made, batches(graph.program.num_mini_batches), workers="threads", timeout=60))

    assert [len(run.timeline.graph.options.skips) for run in runs] == [0, 2]
    assert runs[0].losses == pytest.approx(runs[1].losses, abs=1e-12)
    states = [run.state_dict() for run in runs]
    assert states[0].keys() == UNet().state_dict().keys()
    assert max(float((states[0][key] - value).abs().max()) for key, value in states[1].items()) < 1e-12


def test_split_finds_what_later_stages_need() -> None:
    stages = split(UNet().double(), at=CUTS, skips="direct")

    assert [(skip.source, skip.target) for skip in stages.skips] == [(0, 2), (1, 3)]
    x = batches(1)[0][0]
    assert torch.equal(Whole(stages)(x), UNet().double()(x))
    assert split(UNet().double(), at=CUTS).skips == ()


def test_a_tuple_that_a_module_returns_goes_to_a_stage_as_it_is() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.pair, self.last = nn.Linear(2, 2), Pair(), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            first = self.first(x)
            pair = self.pair(first)
            output: Tensor = self.last(pair[0] + pair[1]) + first
            return output

    stages = split(Model(), at=["pair", "last"], skips="direct")
    x = torch.ones(3, 2)
    assert [(skip.source, skip.target) for skip in stages.skips] == [(0, 2)]
    with Trainer(stages, schedule="1f1b", num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60) as trainer:
        expected = nn.functional.mse_loss(Whole(stages)(x), x).item()
        assert trainer.step(x, x).loss == pytest.approx(expected, abs=1e-12)


def test_a_cut_that_only_skips_lead_over_is_refused() -> None:
    with pytest.raises(RefusedError, match=r'stage 2 uses nothing that stage 1 makes, .*: give skips="through"'):
        split(_Chainless(), at=["b", "c"], skips="direct")


class _Chainless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(2, 2) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        first = self.a(x)
        self.b(first)
        output: Tensor = self.c(first)
        return output


# ---------------------------------------------------------------- trainer, emulation, refusals


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "zb-v"])
def test_a_trainer_steps_and_evaluates_with_skips(schedule: str) -> None:
    data = batches(6)
    made = Trainer(unet(4), schedule=schedule, num_micro_batches=4, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60)
    with made:
        losses = [step.loss for step in [made.step(*pair) for pair in data]]
        made.drain()
        found = made.evaluate(data[:2])["loss"]
        weights = made.state_dict()
    whole = Whole(unet(4))
    whole.load_state_dict({f"stages.{key}": value for key, value in weights.items()})
    expected = sum(nn.functional.mse_loss(whole(x), y).item() for x, y in data[:2]) / 2
    assert found == pytest.approx(expected, abs=1e-12)
    if schedule != "pipedream":
        assert losses == pytest.approx(train_whole(unet(4), data)[0], abs=1e-10)


def test_emulated_devices_wait_for_skips() -> None:
    graph = compiled_with(pipeline_with(unet(4)), "1f1b", (4, 2))
    timeline = emulate(graph, UniformCosts(forward=0.002, backward=0.004, transfer=0.001))

    assert timeline.recorded.all()
    assert_dependencies_kept(timeline)
    assert [str(lane) for lane in graph.lanes if "0->3" in str(lane)] == ["link 0->3"]
    assert int((graph.kind == Kind.TRANSFER).sum()) == (3 + 1) * 2 * 2


def test_a_graph_with_other_skips_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"skip connections \[\(0, 3\)\], but the graph \[\]: compile it with compile_program\(.*skips="
    ):
        train(compiled("1f1b", 4, 2), pipeline_with(unet(4)), batches(1), workers="threads")
    graph = compiled_with(pipeline_with(unet(4)), "1f1b", (4, 2))
    with pytest.raises(RefusedError, match=r"the pipeline has skip connections \[\], but the graph \[\(0, 3\)\]"):
        train(graph, pipeline_with(Stages(mlp(4))), batches(1), workers="threads")


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Skip(0, 1), "skip from stage 0 to 1 leads over no stage: leave it out"),
    (lambda: Skip(-1, 2), "skip: source -1 is no number of one"),
    (lambda: Skip(0, 2, (1, 1)), r"skip: outputs \(1, 1\) name none, or one twice"),
    (lambda: Skip(0, 2, ()), r"skip: outputs \(\) name none, or one twice"),
    (lambda: Stages(mlp(3), skips=[Skip(0, 3)]), r"leads to no stage of 0\.\.2"),
    (lambda: Stages(mlp(3), skips=[Skip(0, 2), Skip(0, 2, 2)]), "two skips lead from one stage to the same other"),
    (lambda: Stages(mlp(3), skips=[(0, 2)]), r"skips hold \(0, 2\) \(tuple\): give executor\.Skip"),  # type: ignore[list-item]  # so
    (lambda: Stages([]), "stages hold nothing: give at least one stage"),
    (lambda: split(UNet(), at=CUTS, skips="around"), "skips 'around' is unknown: use through or direct"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message[:25] for _, message in WRONG])
def test_a_skip_that_is_none_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


OUTPUTS = {
    "no tuple": (lambda x: x, "is a Tensor, of which .* takes output 1: return a tuple"),
    "too few": (lambda x: (x,), "has 1 parts, but a skip connection takes number 1, counted from 0"),
}


class Giver(nn.Module):
    def __init__(self, give: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.give, self.weight = give, nn.Parameter(torch.ones(WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor) -> object:
        return self.give(x * self.weight)


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_without_what_a_skip_takes_is_refused(case: str) -> None:
    give, message = OUTPUTS[case]
    made = pipeline_with(Stages([Giver(give), *mlp(2)], skips=[Skip(0, 2)]))
    with pytest.raises(ArgumentError, match=rf"the output of stage 0 for micro-batch 0 of mini-batch 0 {message}"):
        train(compiled_with(made, "1f1b", (3, 1)), made, batches(1), workers="threads")


def test_a_stage_that_gives_all_it_has_to_skips_is_refused() -> None:
    made = pipeline_with(Stages([Giver(lambda x: (x,)), *mlp(2)], skips=[Skip(0, 2, 0)]))
    with pytest.raises(ArgumentError, match=r"goes over skip connections as a whole: return something for the next stage, too"):
        train(compiled_with(made, "1f1b", (3, 1)), made, batches(1), workers="threads")
