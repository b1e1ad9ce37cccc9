"""Forward and backward on different weights: right, or refused with stage and operation named."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.stage.swap import Tape, cast_of
from executor.stage.weights import WeightSet
from executor.training import Run, train
from schedir.errors import RefusedError
from tests.executor.small.models import batches, compiled, pipeline_of

WIDTH = 4


class ScaledWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, 0.5 * self.weight)


class JoinedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.upper, self.lower = (nn.Parameter(torch.randn(WIDTH // 2, WIDTH)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, torch.cat([self.upper, self.lower]))


class CopiedTranspose(ScaledWeight):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t().contiguous()


class KeepsWeight(torch.autograd.Function):
    """Hides the weight from the saved-tensor hooks."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight  # type: ignore[attr-defined]  # what this test is about
        ctx.save_for_backward(x)
        return x @ weight

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]  # torch leaves it untyped
        return gradients[0] @ ctx.weight.t(), x.t() @ gradients[0]  # type: ignore[attr-defined]


class KeepsProduct(KeepsWeight):
    """Hides something computed from the weight."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
        return KeepsWeight.forward(ctx, x, weight * 1.0)


class Custom(ScaledWeight):
    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function.apply(x, self.weight)
        return result


def weight_norm() -> nn.Module:
    output: nn.Module = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
    return output


def spectral_norm() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))


def stages_with(layer: Callable[[], nn.Module]) -> list[nn.Module]:
    """Make two stages; the layer stands behind another, so that backward needs its weights for the gradient of its input."""
    torch.manual_seed(0)
    stages = (nn.Sequential(nn.Linear(WIDTH, WIDTH), layer(), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(2))
    return [stage.double() for stage in stages]


def train_predicting(stages: list[nn.Module], **options: object) -> Run:
    """Train with forwards on predicted weights and backwards on current ones."""
    graph = compiled("xpipe", 2, 2, num_mini_batches=4, horizon="pipeoptim", **options)
    return train(graph, pipeline_of(stages), batches(4), timeout=60)


REFUSED: list[tuple[Callable[[], nn.Module], str]] = [
    (ScaledWeight, "aten.mul computed from weights in ScaledWeight"),
    (JoinedWeights, "aten.cat computed from weights in JoinedWeights"),
    (CopiedTranspose, "aten.clone computed from weights in CopiedTranspose"),
    (weight_norm, "aten._weight_norm_interface computed from weights in _WeightNorm"),
    (spectral_norm, "computed from weights in _SpectralNorm"),
    (lambda: Custom(KeepsWeight), "the weights themselves, past autograd"),
    (lambda: Custom(KeepsProduct), "aten.mul computed from weights in Custom"),
]


@pytest.mark.parametrize(("layer", "culprit"), REFUSED, ids=[culprit for _, culprit in REFUSED])
def test_a_stage_that_saves_what_it_computed_from_weights_is_refused(layer: Callable[[], nn.Module], culprit: str) -> None:
    with pytest.raises(
        RefusedError, match=f"backward of stage 0 reads other weights than its forward, but needs .*{culprit}: compile"
    ):
        train_predicting(stages_with(layer))


@pytest.mark.parametrize(("layer", "culprit"), REFUSED, ids=[culprit for _, culprit in REFUSED])
def test_the_remedies_that_a_refusal_names_work(layer: Callable[[], nn.Module], culprit: str) -> None:  # noqa: ARG001 - the id
    recomputed = train_predicting(stages_with(layer), recompute="always")
    stashed = train_predicting(stages_with(layer), backward_weights="stash")

    assert len(recomputed.losses) == len(stashed.losses) == 4


class OnlyBiasScaled(nn.Module):
    """Computes from a weight what backward does not need."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x) + 0.5 * self.bias
        return output


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.cells(x.unsqueeze(1))[0].squeeze(1)
        return output


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.unsqueeze(1)).squeeze(1)
        return output


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.unsqueeze(1)).squeeze(1)
        return output


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Linear(WIDTH, WIDTH),
        lambda: nn.LayerNorm(WIDTH),
        lambda: nn.BatchNorm1d(WIDTH),
        nn.PReLU,
        OnlyBiasScaled,
        Recurrent,
        Attention,
        Convolution,
    ],
)
def test_a_stage_that_saves_weights_as_they_are_is_taken(layer: Callable[[], nn.Module]) -> None:
    assert len(train_predicting(stages_with(layer)).losses) == 4


def sets(*tensors: Tensor) -> tuple[WeightSet, WeightSet]:
    """Return the weights of a forward, and other ones for its backward."""
    forward = WeightSet(tensors, version=0)
    return forward, WeightSet([tensor.detach() * 1.5 + 0.1 for tensor in tensors], version=1)


def test_backward_uses_its_own_weights_on_the_activations_that_forward_saved() -> None:
    """y = a W', a = tanh(x V'). With g from above: dW = g' a, dh = g W_B (1 - a^2), dV = dh' x, dx = dh V_B; a is forward's."""
    torch.manual_seed(0)
    forward, backward = sets(torch.randn(5, 3).double(), torch.randn(2, 5).double())
    x, g = torch.randn(4, 3).double().requires_grad_(), torch.randn(4, 2).double()
    a = torch.tanh(x @ forward.leaves[0].t()).detach()
    tape = Tape(forward, stage=0)
    with tape.recording():
        y = functional.linear(torch.tanh(functional.linear(x, forward.leaves[0])), forward.leaves[1])
    tape.use(backward)
    forward.drop()
    dx, dv, dw = torch.autograd.grad([y], [x, *forward.leaves], [g])

    v_b, w_b = backward.leaves
    dh = (g @ w_b) * (1 - a**2)
    assert torch.allclose(dw, g.t() @ a, rtol=0, atol=1e-14)
    assert torch.allclose(dv, dh.t() @ x, rtol=0, atol=1e-14)
    assert torch.allclose(dx, dh @ v_b, rtol=0, atol=1e-14)


def test_layer_norm_too() -> None:
    """y = c n + d, n the normalized input: dx = r (h - mean(h) - n mean(h n)), h = g c_B; r and n are forward's."""
    torch.manual_seed(1)
    forward, backward = sets(torch.rand(6).double() + 0.5, torch.randn(6).double())
    x, g = torch.randn(3, 6).double().requires_grad_(), torch.randn(3, 6).double()
    tape = Tape(forward, stage=0)
    with tape.recording():
        y = functional.layer_norm(x, (6,), forward.leaves[0], forward.leaves[1])
    tape.use(backward)
    dx, dc, dd = torch.autograd.grad([y], [x, *forward.leaves], [g])

    r = (x.var(dim=1, unbiased=False, keepdim=True) + 1e-5).rsqrt().detach()
    n = ((x - x.mean(dim=1, keepdim=True)) * r).detach()
    h = g * backward.leaves[0]
    expected = r * (h - h.mean(dim=1, keepdim=True) - n * (h * n).mean(dim=1, keepdim=True))
    assert torch.allclose(dx, expected, rtol=0, atol=1e-14)
    assert torch.allclose(dc, (g * n).sum(0), rtol=0, atol=1e-14)
    assert torch.equal(dd, g.sum(0))


@pytest.mark.parametrize("multiply", [functional.linear, lambda x, w: (w @ x.t()).t()])
def test_the_copies_that_autocast_makes_are_made_of_the_backwards_weights(multiply: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Be it the copy itself that an operation saves, or a view of it."""
    torch.manual_seed(2)
    forward, backward = sets(torch.randn(5, 3))
    x, g = torch.randn(4, 3, requires_grad=True), torch.randn(4, 5).bfloat16()
    tape = Tape(forward, stage=0)
    with tape.recording(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = multiply(x, forward.leaves[0])
    tape.use(backward)
    forward.drop()
    (dx,) = torch.autograd.grad([y], [x], [g])

    assert y.dtype is torch.bfloat16
    assert torch.equal(dx, (g @ backward.leaves[0].bfloat16()).float())


def test_a_parameter_that_lies_inside_of_a_larger_storage_is_found_in_the_backwards_own() -> None:
    """Its place counts from its own first number: the backward's weights begin elsewhere in their storage."""
    torch.manual_seed(4)
    held = torch.randn(21).double()
    forward, backward = sets(held[6:].view(5, 3))
    assert (forward.leaves[0].storage_offset(), backward.leaves[0].storage_offset()) == (6, 0)
    x, g = torch.randn(4, 2).double().requires_grad_(), torch.randn(4, 5).double()
    tape = Tape(forward, stage=0)
    with tape.recording():
        y = functional.linear(x, forward.leaves[0][:, 1:])  # a view that begins at the parameter's second number
    tape.use(backward)
    (dx,) = torch.autograd.grad([y], [x], [g])

    assert torch.allclose(dx, g @ backward.leaves[0][:, 1:], rtol=0, atol=1e-14)


def test_with_equal_weights_it_is_plain_differentiation_to_the_bit() -> None:
    torch.manual_seed(3)
    layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    parameters = list(layer.parameters())
    x = torch.randn(3, WIDTH)
    plain = torch.autograd.grad(layer(x).sum(), parameters)
    forward = WeightSet(parameters, version=0)
    tape = Tape(forward, stage=0)
    with tape.recording():
        y = layer(x)
    tape.use(WeightSet([parameter.detach().clone() for parameter in parameters], version=0))

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(torch.autograd.grad(y.sum(), parameters), plain, strict=True))


def test_only_what_autocast_makes_of_a_weight_counts_as_a_copy_of_it() -> None:
    """The same numbers in the same places: else backward would read other weights, or take an activation for one."""
    leaf = nn.Parameter(torch.arange(1.0, 7.0).reshape(3, 2))
    ones = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)

    assert cast_of(leaf.bfloat16()) is leaf
    assert cast_of(leaf.bfloat16()[1:]) is leaf
    assert cast_of(leaf.cumsum(0, dtype=torch.float64)) is None  # other values
    assert cast_of(leaf * ones) is None  # not of the leaf alone
    turned = nn.Parameter(torch.arange(1.0, 7.0).reshape(2, 3).t())
    assert cast_of(turned.bfloat16()) is turned
    assert cast_of(turned.to(torch.bfloat16, memory_format=torch.contiguous_format)) is None  # in other places
    assert cast_of(torch.ones(3, 2)) is None


def test_an_activation_that_is_changed_in_place_is_noticed() -> None:
    """Hooks switch torch's own check off."""
    x = torch.randn(4, 2, requires_grad=True)
    tape = Tape(WeightSet([], version=0), stage=3)
    with tape.recording():
        y = torch.sigmoid(x)
        y.relu_()

    with pytest.raises(
        RefusedError,
        match=r"^stage 3 changes a tensor of shape \[4, 2\] in place .* the backward of Sigmoid still needs: use inplace=False",
    ):
        torch.autograd.grad([y], [x], [torch.ones(4, 2)])


def test_autocast_reaches_the_stages_and_their_swapped_weights() -> None:
    seen: list[torch.dtype] = []

    class Notes(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            seen.append(y.dtype)
            return y

    stages = [stage.float() for stage in stages_with(lambda: Notes(WIDTH, WIDTH))]
    data = [(inputs.float(), target.float()) for inputs, target in batches(4)]
    graph = compiled("xpipe", 2, 2, num_mini_batches=4, horizon="pipeoptim")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run = train(graph, pipeline_of(stages), data, timeout=60)

    assert set(seen) == {torch.bfloat16}
    assert len(run.losses) == 4


class Transposed(ScaledWeight):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t()


def test_a_view_of_a_weight_that_autocast_has_copied_is_refused() -> None:
    """The copy is not one of the weight, so nobody could tell which of its numbers stand where."""
    stages = [stage.float() for stage in stages_with(Transposed)]
    data = [(inputs.float(), target.float()) for inputs, target in batches(4)]
    graph = compiled("xpipe", 2, 2, num_mini_batches=4, horizon="pipeoptim")
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(RefusedError, match=r"needs what aten\._to_copy computed from weights in Transposed: compile"),
    ):
        train(graph, pipeline_of(stages), data, timeout=60)


def test_the_probe_leaves_no_trace() -> None:
    """A run under a rule that needs the probe starts from the same state as one that does not."""
    stages = stages_with(lambda: nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Dropout(0.5)))
    state = torch.get_rng_state()
    train_predicting(stages)

    assert torch.equal(torch.get_rng_state(), state)
    assert stages[0][1][0].num_batches_tracked == 8  # type: ignore[index]  # 4 mini-batches of 2
