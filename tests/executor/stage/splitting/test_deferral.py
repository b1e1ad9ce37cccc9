"""Weight gradients that are put off are those of a whole backward, whatever the stage is made of."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from executor.model.split_ways import Split
from executor.profiling.footprint import LiveBytes
from executor.stage.gradients import Gradients
from executor.stage.record import Record, differentiate, entries_of
from executor.stage.splitting.deferral import put_off
from executor.stage.splitting.graph_walk import waiting_in
from executor.stage.splitting.splitting import Splitter
from tests.executor.small.split_stages import EMBEDDINGS, LAYERS, LENGTH, assert_same, input_of, layer_names, record_of, stage_of


def halves(record: Record) -> Gradients:
    """Return the input's and the weights' gradients by I and W."""
    inputs, deferred = put_off(record)
    return (*inputs, *deferred.finish())


def both(names: Sequence[str], *, needs_grad: bool) -> tuple[Gradients, Gradients]:
    """Return the gradients of a stage by halves and by a whole backward."""
    stage, x = stage_of(names), input_of(names)
    whole = differentiate(record_of(stage, x, needs_grad=needs_grad), inputs=True, parameters=True)
    return halves(record_of(stage, x, needs_grad=needs_grad)), whole


@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("name", [*LAYERS, *EMBEDDINGS])
def test_every_kind_of_layer_gives_the_gradients_of_a_whole_backward(name: str, needs_grad: bool) -> None:
    found, whole = both([name], needs_grad=needs_grad)

    assert_same(found, whole)


@settings(deadline=None, max_examples=100)
@given(layer_names(), st.booleans())
def test_any_stage_gives_the_gradients_of_a_whole_backward(names: list[str], needs_grad: bool) -> None:
    found, whole = both(names, needs_grad=needs_grad)

    assert_same(found, whole)


@settings(deadline=None, max_examples=20)
@given(layer_names())
def test_two_runs_give_the_same_bits(names: list[str]) -> None:
    first, second = (both(names, needs_grad=True)[0] for _ in range(2))

    assert_same(first, second, tolerance=0.0)


PUT_OFF = {
    "linear": ["weight", "bias"],
    "linear without bias": ["weight"],
    "convolution": ["weight", "bias"],
    "transposed convolution": ["weight", "bias"],
    "images": ["plane.weight", "plane.bias", "space.weight"],
    "embedding": ["weight"],
    "embedding by frequency": ["weight"],
    "sparse embedding": ["weight"],
    "tied embedding": ["table.weight"],
    "tied sparse embedding": ["table.weight"],
    "residual": ["linear.weight", "linear.bias"],
    "weight used twice": ["linear.weight", "linear.bias"],
    "chunk": ["wide.weight", "wide.bias", "narrow.weight"],  # on a part of a tensor torch adds a bias apart: cheap
    "computed weight": ["weight"],
    "weight norm": ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"],
    "experts": ["weights", "bias", "mix"],
    "made weight": ["maker.weight", "maker.bias"],
    "frozen weight": ["bias"],
    "in place": ["linear.weight", "linear.bias"],
    # Cheap, or read by an operation without a rule: made with the input's gradient.
    "layer norm": [],
    "batch norm": [],
    "PReLU": [],
    "weight read by others": [],
    "frozen layer": [],
    "tanh": [],
}
"""By layer: which of its weights wait for W."""


@pytest.mark.parametrize("name", PUT_OFF)
def test_weights_of_linear_convolution_and_embedding_wait(name: str) -> None:
    """Without this all gradients could be made in I, and every other test of this file would still pass."""
    stage = stage_of([name])
    record = record_of(stage, input_of([name]), needs_grad=True)
    waiting, _ = waiting_in(record, entries_of(record))
    bits = [each.weights for each in waiting]
    trained = [key.removeprefix("0.") for key, parameter in stage.named_parameters() if parameter.requires_grad]

    assert sorted(PUT_OFF[name]) == sorted(key for number, key in enumerate(trained) if any(bit >> number & 1 for bit in bits))


def test_on_the_first_stage_the_input_gradient_goes_down_to_the_first_layer_that_waits() -> None:
    """Table, norm's weight and bias, Linear's weight and bias are leaves 0 to 4: the norm's are made on the way."""
    names = ["embedding", "layer norm", "linear"]
    record = record_of(stage_of(names), input_of(names), needs_grad=False)
    waiting, at_once = waiting_in(record, entries_of(record))

    assert [(each.weights, each.seed) for each in waiting] == [(0b00001, None), (0b11000, None)]
    assert [type(each.operands).__name__ for each in waiting] == ["Lookup", "Product"]
    assert at_once == [1, 2]


def test_a_first_stage_without_such_layers_leaves_all_to_the_weight_gradient() -> None:
    record = record_of(stage_of(["layer norm", "PReLU"]), input_of([]), needs_grad=False)
    waiting, at_once = waiting_in(record, entries_of(record))

    assert [(each.weights, each.output) for each in waiting] == [(0b111, None)]
    assert at_once == []


def test_the_products_are_made_in_the_second_half_only() -> None:
    """x (2, 3), y = x w^T + b, g = 1: dw = g^T x, db = sum of g."""
    linear = nn.Linear(3, 2).double()
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    record = record_of(linear, x, needs_grad=True)
    record.seeds = (torch.ones(2, 2, dtype=torch.float64),)
    with torch.no_grad():
        (input_gradient,), deferred = put_off(record)

    assert [tensor.tolist() for tensor in deferred.tensors[:1]] == [x.tolist()]
    assert input_gradient is not None
    assert input_gradient.tolist() == linear.weight.sum(0).expand(2, 3).tolist()
    assert [None if each is None else each.tolist() for each in deferred.finish()] == [[[5, 7, 9], [5, 7, 9]], [2, 2]]
    assert deferred.tensors == []


def test_the_graph_is_gone_after_the_input_gradient() -> None:
    """What is kept: x and g of each of two Linears; the tanh between them is not."""
    stage = nn.Sequential(nn.Linear(LENGTH, LENGTH), nn.Tanh(), nn.Linear(LENGTH, LENGTH), nn.Tanh()).double()
    x = input_of([])
    record = record_of(stage, x, needs_grad=True)
    _, deferred = put_off(record)

    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in deferred.tensors}
    assert list(kept.values()) == [x.nbytes] * 4
    assert (record.roots, record.inputs, record.seeds) == ((), (), None)
    assert all(tensor.grad_fn is None for tensor in deferred.tensors)


def test_gradients_of_a_weight_that_is_used_often_are_added_one_by_one() -> None:
    """Eight uses, one sample: beside the sum only the next one is alive, and the new sum of both."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 64, bias=False).double()
    record = record_of(nn.Sequential(*[linear] * 8), torch.ones(1, 64, dtype=torch.float64), needs_grad=True)
    record.weights.leaves = (linear.weight,)  # type: ignore[union-attr]  # a stand-in
    record.seeds = (torch.ones(1, 64, dtype=torch.float64),)
    _, deferred = put_off(record)
    with LiveBytes() as live:
        deferred.finish()

    assert live.peak <= 3 * linear.weight.nbytes


class Bare(nn.Module):
    """A stage whose second output is computed from weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(LENGTH, LENGTH), nn.LayerNorm(LENGTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.norm(self.linear.weight)


def test_an_output_that_no_input_reaches_waits_too() -> None:
    found: list[Tensor | None] = []
    whole: list[Tensor | None] = []
    for target in (found, whole):
        torch.manual_seed(0)
        stage = Bare().double()
        record = record_of(nn.Sequential(stage.linear), input_of([]), needs_grad=True)
        record.weights.leaves = tuple(stage.parameters())  # type: ignore[union-attr]  # a stand-in
        outputs = stage(record.inputs[0])
        record.take_roots(outputs)
        record.seeds = tuple(torch.full_like(output, 2.0) for output in outputs)
        target.extend(halves(record) if target is found else differentiate(record, inputs=True, parameters=True))

    assert_same(tuple(found), tuple(whole))


def test_a_hook_on_an_output_counts() -> None:
    def gradients(by_halves: bool) -> Gradients:
        class Hooked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(LENGTH, LENGTH)

            def forward(self, x: Tensor) -> Tensor:
                y: Tensor = self.linear(x)
                y.register_hook(lambda gradient: 3 * gradient.clamp(-0.1, 0.1))
                return torch.tanh(y)

        torch.manual_seed(0)
        record = record_of(Hooked().double(), input_of([]), needs_grad=True)
        return halves(record) if by_halves else differentiate(record, inputs=True, parameters=True)

    assert_same(gradients(True), gradients(False))


def test_a_hook_that_a_forward_hangs_on_a_weight_sees_its_whole_gradient() -> None:
    """The weight is used twice, so a hook on each part would clamp twice."""

    def gradients(by_halves: bool) -> Gradients:
        torch.manual_seed(0)
        linear = nn.Linear(LENGTH, LENGTH).double()
        record = record_of(nn.Sequential(linear, nn.Tanh(), linear), input_of([]), needs_grad=True)
        linear.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        return halves(record) if by_halves else differentiate(record, inputs=True, parameters=True)

    assert_same(gradients(True), gradients(False))


def test_a_stage_may_recompute_a_part_of_itself() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = stage_of(["residual", "convolution", "layer norm"])

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return found

    stage, x = Checkpointed(), input_of([])
    whole = differentiate(record_of(stage, x, needs_grad=True), inputs=True, parameters=True)
    splitter, record = Splitter(Split.DEFERRED), record_of(stage, x, needs_grad=True)
    beside_a_whole_backward = (*splitter.input_grad(record), *splitter.weight_grad(record))

    assert_same(halves(record_of(stage, x, needs_grad=True)), whole)
    assert_same(beside_a_whole_backward, whole)
    assert splitter.puts_off


@pytest.mark.parametrize("needs_grad", [True, False])
def test_under_autocast_gradients_are_those_of_a_whole_backward(needs_grad: bool) -> None:
    """The same kernels in bfloat16 on the same numbers: the same bits."""
    stage, x = stage_of(["residual", "weight used twice", "layer norm", "chunk"]).float(), input_of([]).float()
    found: list[Gradients] = []
    for by_halves in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            record = record_of(stage, x, needs_grad=needs_grad)
        record.seeds = tuple(seed.to(torch.bfloat16) for seed in record.seeds or () if seed is not None)
        found.append(halves(record) if by_halves else differentiate(record, inputs=True, parameters=True))

    assert_same(found[0], found[1], tolerance=0.0)


def test_an_activation_changed_in_place_is_an_error_as_in_a_whole_backward() -> None:
    linear = nn.Linear(LENGTH, LENGTH).double()
    record = record_of(linear, input_of([]), needs_grad=True)
    with torch.no_grad():
        record.inputs[0].add_(1.0)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        put_off(record)


class Own(Tensor):
    """A subclass, which may have rules of its own."""


class OwnRows(nn.Module):
    """A Linear that sees a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x.flatten(0, 1).as_subclass(Own)).as_subclass(Tensor).view(x.shape)
        return output


class Ragged(nn.Module):
    """A weight for each sample, of which 2, 4 and 1 rows count: bmm of nested tensors."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.weights, self.layout = nn.Parameter(torch.randn(3, LENGTH, LENGTH)), layout

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.nested.as_nested_tensor([x[0, :2], x[1, :4], x[2, :1]], layout=self.layout)
        weights: Tensor = self.weights
        if self.layout is torch.strided:
            weights = torch.nested.as_nested_tensor(list(weights.unbind()))
        output: Tensor = torch.nested.to_padded_tensor(torch.bmm(rows, weights), 0.0)
        return output


NOT_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "subclass": OwnRows,
    "nested": lambda: Ragged(torch.strided),
    "jagged": lambda: Ragged(torch.jagged),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("name", NOT_PLAIN)
def test_weights_beside_tensors_with_rules_of_their_own_do_not_wait(name: str) -> None:
    """Products of plain tensors are not what such a tensor's gradient is made of: I makes it, by autograd."""
    torch.manual_seed(0)
    stage = NOT_PLAIN[name]().double()
    record = record_of(stage, input_of([]), needs_grad=True)
    waiting, at_once = waiting_in(record, entries_of(record))
    whole = differentiate(record_of(stage, input_of([]), needs_grad=True), inputs=True, parameters=True)

    assert (waiting, at_once) == ([], list(range(len(list(stage.parameters())))))
    assert_same(halves(record), whole)


def test_nothing_enters_nothing_comes_out() -> None:
    record = record_of(nn.Linear(LENGTH, LENGTH).double(), input_of([]), needs_grad=True)
    record.seeds = (None,)

    assert halves(record) == (None, None, None)


def test_complex_weights() -> None:
    """dw is the conjugate of x times g, as autograd has it."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(LENGTH, LENGTH, dtype=torch.complex128))

    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(x.to(torch.complex128) * 1j, self.weight).abs()

    whole = differentiate(record_of(Complex(), input_of([]), needs_grad=True), inputs=True, parameters=True)

    assert_same(halves(record_of(Complex(), input_of([]), needs_grad=True)), whole)
