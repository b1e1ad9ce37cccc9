"""Split backwards in training: every schedule that has them, both ways, beside the unpartitioned model; who may not put off."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from executor.model.split_ways import Split
from executor.profiling.rehearsal import split_backwards
from executor.stage.gradients import Gradients
from executor.stage.record import differentiate
from executor.stage.splitting import splitting
from executor.stage.splitting.splitting import Splitter
from executor.training import Run, train
from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.action import Action, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.small.models import batches, compiled, mlp, pipeline_of
from tests.executor.small.split_stages import EMBEDDINGS, LENGTH, assert_same, dense, input_of, layer_names, record_of, stage_of
from tests.programs import accepted_shape


def splits(name: str) -> bool:
    devices, micro_batches = accepted_shape(name, 2, 4)
    kinds = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=1).kind
    return Kind.INPUT_GRAD in kinds.tolist()


SPLITTING = tuple(name for name in SCHEDULES if splits(name))


def test_the_zero_bubble_schedules_are_among_those_that_split() -> None:
    assert {"zb-h1", "zb-h2", "zb-v", "v-half", "interleaved-zb"} <= set(SPLITTING)


def run_of(graph: TaskGraph, stages: Sequence[nn.Module], data: Sequence[Any], *, split: str) -> Run:
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.01)  # noqa: E731 - one of sparse gradients, too
    return train(graph, pipeline_of(stages, split=split, optimizer=optimizer), data, timeout=60)


def as_tuple(run: Run) -> Gradients:
    return tuple(run.gradients[key] for key in sorted(run.gradients))


def images(count: int, samples: int, *, codes: bool) -> list[tuple[Tensor, Tensor]]:
    """Mini-batches for the layers of `split_stages`."""
    generator = torch.Generator().manual_seed(5)
    shape = (samples, 4, LENGTH)
    made = []
    for _ in range(count):
        inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
        indices = torch.randint(LENGTH, shape[:2], generator=generator)
        made.append((indices if codes else inputs, torch.randn(shape, generator=generator, dtype=torch.float64)))
    return made


def trained(name: str, devices: int, *, layers: Sequence[Sequence[str]], split: str, recompute: str) -> Run:
    """Train two mini-batches of random stages; micro-batches of two samples."""
    devices, micro_batches = accepted_shape(name, devices, 3)
    graph = compiled(name, devices, micro_batches, recompute=recompute)
    names = [layers[number % len(layers)] for number in range(graph.program.num_stages)]
    inner = [[one for one in stage if one not in EMBEDDINGS] for stage in names[1:]]  # codes go into stage 0 only
    stages = [stage_of(stage, seed=number) for number, stage in enumerate([names[0], *inner])]
    return run_of(graph, stages, images(2, 2 * micro_batches, codes=names[0][0] in EMBEDDINGS), split=split)


CASES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(SPLITTING),
        "devices": st.integers(1, 4),
        "layers": st.lists(layer_names(), min_size=1, max_size=4),
        "recompute": st.sampled_from(["never", "except-last", "always"]),
    }
)


@settings(deadline=None, max_examples=5)
@given(CASES)
def test_both_ways_train_alike(case: dict[str, Any]) -> None:
    assert_trained_alike(**case)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(CASES)
def test_both_ways_train_alike_in_more_cases(case: dict[str, Any]) -> None:
    assert_trained_alike(**case)


def assert_trained_alike(**case: Any) -> None:
    """Dropout and the statistics of BatchNorm are the same in both ways; two runs of one way give the same bits.

    A stack of layers that diverges shows nothing: then the reference is not finite either.
    """
    first, again, reference = (trained(**case, split=split) for split in ("deferred", "deferred", "differentiate"))
    assume(all(map(math.isfinite, reference.losses)))
    found = [dense(gradient) for gradient in as_tuple(reference)]
    assume(all(gradient is None or bool(gradient.isfinite().all()) for gradient in found))

    assert_same(as_tuple(first), as_tuple(again), tolerance=0.0)
    assert first.losses == again.losses
    assert_same(as_tuple(first), as_tuple(reference))


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SPLITTING)
def test_gradients_are_those_of_a_whole_backward(name: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unpartitioned model in float64 to 1e-12, and no stage has gone back to differentiating twice."""
    devices, micro_batches = accepted_shape(name, devices, 4)
    graph = compiled(name, devices, micro_batches)
    layers = ["residual", "convolution", "chunk", "layer norm", "weight used twice"]
    stages = [stage_of(layers[number % 5 :][:2], seed=number) for number in range(graph.program.num_stages)]
    data = images(1, 2 * micro_batches, codes=False)
    made: list[Splitter] = []

    def splitter(split: Split) -> Splitter:
        made.append(Splitter(split))
        return made[-1]

    monkeypatch.setattr("executor.stage.stage.Splitter", splitter)
    run = run_of(graph, stages, data, split="deferred")
    model = nn.Sequential(*(stage_of(layers[number % 5 :][:2], seed=number) for number in range(graph.program.num_stages)))
    nn.functional.mse_loss(model(data[0][0]), data[0][1]).backward()
    expected = {key: parameter.grad for key, parameter in model.named_parameters()}

    assert_same(as_tuple(run), tuple(expected[key] for key in sorted(run.gradients)))
    assert made
    assert all(splitter.puts_off for splitter in made)


def differentiations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with what the stages differentiate by autograd."""
    calls: list[str] = []

    def watched(record: Any, *, inputs: bool, parameters: bool, keep_graph: bool = False) -> Gradients:
        calls.append("I" * inputs + "W" * parameters)
        return differentiate(record, inputs=inputs, parameters=parameters, keep_graph=keep_graph)

    monkeypatch.setattr(splitting, "differentiate", watched)
    return calls


def test_after_its_first_micro_batch_a_stage_differentiates_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = differentiations(monkeypatch)
    run_of(compiled("zb-h1", 2, 4), mlp(2), batches(3), split="deferred")

    assert calls == ["IW", "IW"]


def test_the_reference_differentiates_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = differentiations(monkeypatch)
    run_of(compiled("zb-h1", 1, 2), mlp(1), batches(1), split="differentiate")

    assert calls == ["I", "W", "I", "W"]


def test_a_stage_whose_gradients_a_hidden_hook_changes_differentiates_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook on an operation, which the graph does not show, doubles the weight's gradient."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4).double()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x)
            assert y.grad_fn is not None
            y.grad_fn.register_hook(lambda made, _: tuple(None if each is None else 2 * each for each in made))
            return y

    def gradients(name: str) -> Gradients:
        torch.manual_seed(0)
        return as_tuple(run_of(compiled(name, 2, 2), [*mlp(1), Hidden()], batches(2), split="deferred"))

    whole = gradients("1f1b")
    calls = differentiations(monkeypatch)
    found = gradients("zb-h1")

    assert_same(found, whole)
    assert sorted(calls) == sorted(["IW", "IW", *["I", "W"] * 3])  # one stage goes on putting off, the other does not


def test_gradients_of_zero_prove_nothing() -> None:
    splitter = Splitter(Split.DEFERRED)
    stage = nn.Linear(LENGTH, LENGTH).double()
    records = [record_of(stage, input_of([]), needs_grad=True) for _ in range(2)]
    records[0].seeds = (torch.zeros(3, 4, LENGTH, dtype=torch.float64),)
    proved = []
    for record in records:
        splitter.input_grad(record)
        proved.append(splitter._is_proved)

    assert proved == [False, True]


@pytest.mark.parametrize("name", ["xpipe", "spectrain", "pipeoptim", "pipedream", "pipedream-2bw"])
def test_halves_read_the_weights_that_their_schedule_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stashed sets, or sets predicted anew for the backward on the activations that forward saved."""
    program = build_program(name, num_devices=2, num_micro_batches=2, num_mini_batches=6)
    graph = compile_program(split_backwards(program))
    data = images(6, 4, codes=True)
    layers = ["embedding", "convolution", "layer norm"], ["images", "transposed convolution", "residual", "batch norm"]
    whole = run_of(compile_program(program), [stage_of(names) for names in layers], data, split="deferred")
    calls = differentiations(monkeypatch)
    found = run_of(graph, [stage_of(names) for names in layers], data, split="deferred")

    assert calls == ["IW", "IW"]
    assert_same(as_tuple(found), as_tuple(whole))
    assert found.losses == pytest.approx(whole.losses, abs=1e-12)


def with_an_update_between() -> Program:
    """One device, mini-batches of one micro-batch: W of mini-batch 0 stands behind its I, with an update in between."""
    order = [Action(0, kind, j) for kind, j in [
        (Kind.FORWARD, 0), (Kind.FORWARD, 1), (Kind.INPUT_GRAD, 1), (Kind.INPUT_GRAD, 0),
        (Kind.WEIGHT_GRAD, 0), (Kind.WEIGHT_GRAD, 1),
    ]]  # fmt: skip
    rule = WeightRule(Rule.CURRENT)
    return Program.from_orders("own", [order], num_stages=1, num_micro_batches=1, num_mini_batches=2, weights=rule)


def test_a_weight_gradient_behind_an_update_is_put_off_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """W of mini-batch 1 reads version 0, as its I did, though version 1 stands between them."""
    graph = compile_program(with_an_update_between())
    data = batches(2)
    calls = differentiations(monkeypatch)
    found, reference = (run_of(graph, mlp(1), data, split=split) for split in ("deferred", "differentiate"))

    assert calls == ["IW", "I", "I", "W", "W"]
    assert_same(as_tuple(found), as_tuple(reference))


def test_an_unknown_way_to_split_is_refused() -> None:
    with pytest.raises(ArgumentError, match="split 'halves' is unknown: use deferred or differentiate"):
        pipeline_of(mlp(1), split="halves")
