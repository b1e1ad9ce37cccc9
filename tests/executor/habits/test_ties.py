"""Weights that several stages hold train as in the model that was not cut, and stay one parameter."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.model.cutting.split import split
from executor.model.pipeline import Pipeline
from executor.model.stages import Stages
from executor.trainer.trainer import Trainer
from executor.trainer.updating.clipping import Clip
from executor.training import train
from schedir.compiler import compile_program
from schedir.errors import RefusedError, RunError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.shape import Shape
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.small.models import MakeOptimizer, compiled
from tests.executor.small.tied import WIDTH, WORDS, Scale, adam, d8, gpt, loss, texts, tied_pipeline, train_tied, trained_whole

GRID = [
    (name, devices, micro_batches)
    for name, schedule in SCHEDULES.items()
    if not schedule.continuous
    for devices in range(1, 5)
    for micro_batches in range(1, 6)
    if schedule.accepts(Shape(devices, micro_batches, 1, schedule.stages_per_device)) is None
]
FAST = [("gpipe", 2, 3), ("1f1b", 3, 4), ("zb-h1", 2, 3), ("interleaved-1f1b", 2, 2), ("zb-v", 2, 4), ("chimera", 2, 2)]


def assert_trains_as_a_whole(name: str, devices: int, micro_batches: int) -> None:
    run = train_tied(name, devices, micro_batches)
    stages = gpt(len(run.pipeline.stages))
    losses, weights = trained_whole(stages, texts(3))
    found = run.state_dict()

    assert run.losses == pytest.approx(losses, abs=1e-10)
    # cut by a list, a stage's own keys come first; the order of the keys is the unpartitioned model's
    assert [tensor.shape for tensor in found.values()] == [tensor.shape for tensor in weights.values()]
    differences = [float((ours - theirs).abs().max()) for ours, theirs in zip(found.values(), weights.values(), strict=True)]
    assert max(differences) < 1e-10


@pytest.mark.parametrize(("name", "devices", "micro_batches"), FAST)
def test_a_tied_model_trains_as_one_that_is_not_cut(name: str, devices: int, micro_batches: int) -> None:
    assert_trains_as_a_whole(name, devices, micro_batches)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "devices", "micro_batches"), GRID)
def test_a_tied_model_trains_as_one_that_is_not_cut_on_every_schedule(name: str, devices: int, micro_batches: int) -> None:
    assert_trains_as_a_whole(name, devices, micro_batches)


def test_d8_both_stages_get_the_sum_of_both_gradients() -> None:
    """y = w (w x): dy/dw = 2 w x = 12, of which each stage has 6; a step of 0.1 leaves 0.8 in both."""
    run, (first, second) = d8(workers="threads")

    assert run.losses == [12.0]
    assert {key: gradient.item() for key, gradient in run.gradients.items()} == {"0.w": 12.0, "1.w": 12.0}
    assert {key: value.item() for key, value in run.state_dict().items()} == {"0.w": pytest.approx(0.8), "1.w": pytest.approx(0.8)}
    assert first.w is second.w


class Watched:
    """Makes Adams that note, at every step, the address, gradient and values of the tied weights, of what shape they are."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.steps: list[tuple[int, Tensor | None, Tensor]] = []

    def __call__(self, parameters: list[nn.Parameter]) -> Optimizer:
        made = adam(parameters)
        tied = [parameter for parameter in parameters if parameter.shape == self._shape]
        made.register_step_post_hook(lambda *_: self.steps.extend(self._note(parameter) for parameter in tied))
        return made

    def _note(self, parameter: nn.Parameter) -> tuple[int, Tensor | None, Tensor]:
        return parameter.data_ptr(), None if parameter.grad is None else parameter.grad.clone(), parameter.detach().clone()


def test_d8_on_one_device_there_is_one_copy_and_no_exchange() -> None:
    run, (first, second) = d8(workers="threads", local=True)
    graph = run.timeline.graph

    assert graph.stage_devices()[0] == graph.stage_devices()[3]
    assert not (graph.kind == Kind.REDUCE).any()
    assert [gradient.item() for gradient in run.gradients.values()] == [12.0, 12.0]
    assert first.w.item() == pytest.approx(0.8)
    assert first.w is second.w


def test_on_one_device_one_optimizer_updates_the_one_copy() -> None:
    watched = Watched((WORDS, WIDTH))
    train_tied("zb-v", 2, 4, optimizer=watched)

    assert len({address for address, _, _ in watched.steps}) == 1
    assert sorted(gradient is None for _, gradient, _ in watched.steps) == [False] * 3 + [True] * 3


def test_the_exchange_is_measured_and_both_copies_are_equal_to_the_bit() -> None:
    watched = Watched((WORDS, WIDTH))
    run = train_tied("1f1b", 2, 3, optimizer=watched)
    graph, timeline = run.timeline.graph, run.timeline
    copies = [[step[1:] for step in watched.steps if step[0] == address] for address in {step[0] for step in watched.steps}]

    assert [str(lane) for lane in graph.lanes[-1:]] == ["reduce tied stages 0, 1"]
    assert timeline.recorded[graph.kind == Kind.REDUCE].all()
    assert [len(copy) for copy in copies] == [3, 3]
    for one, other in zip(*copies, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_a_second_run_by_another_schedule_goes_on_with_the_same_optimizer_state() -> None:
    """First one copy on one device, then two on two devices, then one again: Adam's moments go along."""
    losses, weights = trained_whole(gpt(4), texts(6))
    pipeline = tied_pipeline(4)
    found = []
    for name, data in (("zb-v", texts(6)[:2]), ("1f1b", texts(6)[2:4]), ("zb-v", texts(6)[4:])):
        devices = 2 if name == "zb-v" else 4
        graph = compile_program(build_program(name, num_devices=devices, num_micro_batches=4), ties=pipeline.ties)
        found += train(graph, pipeline, data, workers="threads", timeout=60).losses

    assert found == pytest.approx(losses, abs=1e-10)
    assert max(float((pipeline.state_dict()[key] - value).abs().max()) for key, value in weights.items()) < 1e-10


@pytest.mark.parametrize("name", ["pipedream", "pipedream-2bw", "xpipe"])
def test_a_schedule_without_a_flush_is_refused_with_the_reason(name: str) -> None:
    """At no moment are there the gradients of both stages for the same weights."""
    message = (
        rf"^{name} updates every stage at a moment of its own, but stages 0 and 1 hold the same weights, which need the .*: give"
    )
    with pytest.raises(RefusedError, match=message):
        train_tied(name, 2, 2)
    with pytest.raises(RefusedError, match=message):
        train(compiled(name, 2, 2), tied_pipeline(2), texts(8), workers="threads")
    with pytest.raises(RefusedError, match=message):
        Trainer(gpt(2), schedule=name, num_micro_batches=2, loss=loss, optimizer=adam)


def test_a_graph_that_knows_nothing_of_the_ties_is_refused() -> None:
    message = (
        r"^stages 0 and 1 hold the same weights, of which the graph knows nothing: compile it with compile_program\(program, ties="
    )
    with pytest.raises(RefusedError, match=message):
        train(compiled("1f1b", 2, 2), tied_pipeline(2), texts(1), workers="threads")


def test_a_frozen_tied_parameter_is_no_tie() -> None:
    stages = gpt(2)
    frozen = stages[1].get_parameter("out.weight").requires_grad_(False)
    pipeline, before = Pipeline(stages, loss=loss, optimizer=adam), frozen.clone()
    assert pipeline.ties == ()

    losses, _ = trained_whole(_frozen(), texts(3))
    assert train(compiled("1f1b", 2, 3), pipeline, texts(3), workers="threads").losses == pytest.approx(losses, abs=1e-10)
    assert torch.equal(frozen, before)


def _frozen() -> list[nn.Module]:
    stages = gpt(2)
    stages[1].get_parameter("out.weight").requires_grad_(False)
    return stages


def test_a_sparse_gradient_and_a_dense_one_of_the_same_weights_are_added() -> None:
    def sparse(num_stages: int) -> list[nn.Module]:
        stages = gpt(num_stages)
        embedding = next(module for module in stages[0].modules() if isinstance(module, nn.Embedding))
        embedding.sparse = True
        return stages

    pipeline = Pipeline(sparse(2), loss=loss, optimizer=plain_sgd)
    run = train(compiled_with(pipeline, "1f1b"), pipeline, texts(3), workers="threads", timeout=60)
    assert run.losses == pytest.approx(trained_whole(gpt(2), texts(3), plain_sgd)[0], abs=1e-10)


def plain_sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def compiled_with(pipeline: Pipeline, name: str) -> TaskGraph:
    program = build_program(name, num_devices=len(pipeline.stages), num_micro_batches=3)
    return compile_program(program, ties=pipeline.ties)


def test_optimizers_that_treat_the_copies_differently_are_found_out() -> None:
    rates = iter([0.1, 0.2])

    def uneven(parameters: list[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD(parameters, lr=next(rates))

    with pytest.raises(
        RunError, match=r"1\.out\.weight has other values than 0\.0\.token\.weight, which is the same parameter: let"
    ):
        train_tied("1f1b", 2, 3, optimizer=uneven)


# ---------------------------------------------------------------- trainer


def trainer(num_stages: int, schedule: str = "1f1b", optimizer: MakeOptimizer = adam, **options: object) -> Trainer:
    return Trainer(gpt(num_stages), schedule=schedule, num_micro_batches=4, loss=loss, optimizer=optimizer, timeout=60, **options)  # type: ignore[arg-type]  # options of any type


@pytest.mark.parametrize(("schedule", "num_stages"), [("1f1b", 3), ("zb-v", 4)])
def test_a_trainer_trains_clips_and_evaluates_as_a_whole_model(schedule: str, num_stages: int) -> None:
    """The norm counts the tied weights once; a mean of two losses says that evaluation reads the newest of them."""
    data = texts(4)
    model = nn.Sequential(*gpt(num_stages))
    steps, losses = adam(list(model.parameters())), []
    for inputs, target in data:
        steps.zero_grad()
        found = loss(model(inputs), target)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        steps.step()
        losses.append(found.item())
    with trainer(num_stages, schedule, clip=0.5) as made:
        assert [made.step(*pair).loss for pair in data] == pytest.approx(losses, abs=1e-10)
        assert made.evaluate(data[:1])["loss"] == pytest.approx(loss(model(data[0][0]), data[0][1]).item(), abs=1e-10)
        weights = made.state_dict()
    assert max(float((weights[key] - value).abs().max()) for key, value in model.state_dict().items()) < 1e-10


def test_clipping_each_stage_by_its_own_norm_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"stages 0, 1 hold the same weights, which clipping by the norm of each stage would change"
    ):
        trainer(2, clip=Clip(1.0, per="stage"))


@pytest.mark.parametrize("num_stages", [1, 3, 4])
def test_a_checkpoint_fits_another_cut_and_goes_on_to_the_bit(tmp_path: Path, num_stages: int) -> None:
    """Both names of the weights are in it, as in the unpartitioned model; what Adam knows of them stands under the first."""
    data = texts(5)
    with trainer(4, "1f1b") as made:
        for pair in data[:2]:
            made.step(*pair)
        made.save(tmp_path)
        expected = [made.step(*pair).loss for pair in data[2:]]
    cut = _recut(num_stages)
    with Trainer(cut, schedule="1f1b", num_micro_batches=4, loss=loss, optimizer=adam, timeout=60) as again:
        again.load(tmp_path)
        assert [again.step(*pair).loss for pair in data[2:]] == pytest.approx(expected, abs=0 if num_stages == 4 else 1e-10)


def _recut(num_stages: int) -> Stages:
    return split(nn.Sequential(*gpt(4)), num_stages)


# ---------------------------------------------------------------- split


class Reader(nn.Module):
    """Reads the embedding's weights itself, and calls one layer on both sides of a cut."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed, self.mix, self.last = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Tanh()

    def forward(self, words: Tensor) -> Tensor:
        first = self.mix(self.embed(words))
        return nn.functional.linear(self.mix(self.last(first)), self.embed.weight)


def test_split_ties_what_both_sides_of_a_cut_use() -> None:
    """Nothing of the weights goes over the cut, and the keys are those of the model."""
    model = Reader().double()
    whole, data = Reader().double(), [(torch.arange(7), torch.arange(7).flip(0))] * 3
    steps, losses = plain_sgd(list(whole.parameters())), []
    for inputs, target in data:
        steps.zero_grad()
        found = nn.functional.cross_entropy(whole(inputs), target)
        found.backward()
        steps.step()
        losses.append(found.item())
    pipeline = Pipeline(split(model, at=["last"]), loss=nn.functional.cross_entropy, optimizer=plain_sgd)
    assert pipeline.ties == ((0, 1),)
    assert isinstance(pipeline.stages[0](torch.arange(2)), Tensor)

    run = train(compiled_with(pipeline, "1f1b"), pipeline, data, workers="threads", timeout=60)
    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert run.state_dict().keys() == whole.state_dict().keys()
    assert max(float((run.state_dict()[key] - value).abs().max()) for key, value in whole.state_dict().items()) < 1e-10
    assert torch.equal(model.mix.weight, run.state_dict()["mix.weight"])


def test_a_layer_that_a_sequential_calls_twice_is_cut_in_two_that_share_its_weights() -> None:
    scale = Scale(nn.Parameter(torch.tensor(2.0)))
    first, second = (next(stage.children()) for stage in split(nn.Sequential(scale, scale), 2))

    assert first is scale
    assert second is not scale
    assert isinstance(second, Scale)
    assert second.w is scale.w
