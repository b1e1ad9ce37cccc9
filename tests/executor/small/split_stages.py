"""Small stages of every kind of layer that a split backward has to get right, and the records of their forwards."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from executor.boundary import Message
from executor.stage.gradients import Gradients
from executor.stage.record import Record

SAMPLES, CHANNELS, LENGTH = 3, 4, 6
"""float64 (3, 4, 6) goes into and comes out of every layer; an embedding takes int64 (3, 4)."""


class Residual(nn.Module):
    """Its input goes two ways, and so does the gradient of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.linear(torch.tanh(x))
        return output


class Twice(nn.Module):
    """One weight in two Linears, transposed in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.linear(x)), self.linear.weight.T)


class Chunked(nn.Module):
    """An operation with two outputs, whose gradients differ."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(LENGTH, 2 * LENGTH), nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.wide(x).chunk(2, dim=-1)
        output: Tensor = torch.sigmoid(gate) * self.narrow(value)
        return output


class Shared(nn.Module):
    """A weight that a Linear and an operation without a rule read."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x) * (1 + self.linear.weight.pow(2).sum()) + self.linear.bias
        return output


class Scaled(nn.Module):
    """A weight that is computed from a parameter, for two Linears."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LENGTH, LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        half = 0.5 * self.weight
        return torch.tanh(x @ half) + functional.linear(x, half)


class Experts(nn.Module):
    """A weight for each channel: bmm; the factors of addmm differ from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(CHANNELS, LENGTH, LENGTH) / LENGTH)  # so that eight in a row do not diverge
        self.bias, self.mix = nn.Parameter(torch.randn(LENGTH)), nn.Parameter(torch.randn(LENGTH, LENGTH) / LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.bmm(x.transpose(0, 1), self.weights).transpose(0, 1)
        return torch.addmm(self.bias, mixed.reshape(-1, LENGTH), self.mix, alpha=2.0, beta=3.0).view(x.shape)


class Made(nn.Module):
    """A Linear whose weight another Linear makes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, torch.tanh(self.maker(x.mean((0, 1)).expand(LENGTH, LENGTH))))


class Attention(nn.Module):
    """Self-attention with torch's own layer, which keeps three weights in one."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(LENGTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, x, x)[0]
        return mixed


class Recurrent(nn.Module):
    """Every weight is used once for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(LENGTH, LENGTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.recurrent(x)[0]
        return states


class InPlace(nn.Module):
    """What it returns is changed in place, and so is a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y[:, 0] *= 2.0
        output: Tensor = y.add_(x)
        return output


class Tied(nn.Module):
    """An embedding and the output layer that shares its weight; takes codes."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(LENGTH, LENGTH, padding_idx=1, sparse=sparse)

    def forward(self, codes: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.table(codes)), self.table.weight)


def frozen() -> nn.Module:
    layer = nn.Linear(LENGTH, LENGTH)
    layer.weight.requires_grad_(False)
    return layer


def frozen_whole() -> nn.Module:
    return nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1).requires_grad_(False)


class Images(nn.Module):
    """Convolutions over two and three dimensions, the second in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv2d(CHANNELS, CHANNELS, 3, padding="same", groups=2)
        self.space = nn.Conv3d(CHANNELS, CHANNELS, (1, 3, 3), padding=(0, 1, 1), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        plane = self.plane(x.view(-1, CHANNELS, 2, LENGTH // 2))
        space: Tensor = self.space(plane.unsqueeze(2))
        return space.reshape(x.shape)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(LENGTH, LENGTH),
    "linear without bias": lambda: nn.Linear(LENGTH, LENGTH, bias=False),
    "convolution": lambda: nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1),
    "transposed convolution": lambda: nn.ConvTranspose1d(CHANNELS, CHANNELS, 3, padding=1),
    "images": Images,
    "layer norm": lambda: nn.LayerNorm(LENGTH),
    "batch norm": lambda: nn.BatchNorm1d(CHANNELS),
    "PReLU": nn.PReLU,
    "tanh": nn.Tanh,
    "dropout": lambda: nn.Dropout(0.25),
    "residual": Residual,
    "weight used twice": Twice,
    "chunk": Chunked,
    "weight read by others": Shared,
    "computed weight": Scaled,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(LENGTH, LENGTH)),
    "experts": Experts,
    "made weight": Made,
    "attention": Attention,
    "recurrent": Recurrent,
    "in place": InPlace,
    "frozen weight": frozen,
    "frozen layer": frozen_whole,
}

EMBEDDINGS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: nn.Embedding(LENGTH, LENGTH),
    "embedding by frequency": lambda: nn.Embedding(LENGTH, LENGTH, padding_idx=2, scale_grad_by_freq=True),
    "sparse embedding": lambda: nn.Embedding(LENGTH, LENGTH, sparse=True),
    "tied embedding": Tied,
    "tied sparse embedding": lambda: Tied(sparse=True),
}


def stage_of(names: Sequence[str], *, seed: int = 0) -> nn.Module:
    """Return a stage in float64 of layers by name."""
    torch.manual_seed(seed)
    return nn.Sequential(*((LAYERS | EMBEDDINGS)[name]() for name in names)).double()


def input_of(names: Sequence[str], *, seed: int = 1) -> Tensor:
    """Return what a stage of these layers takes."""
    generator = torch.Generator().manual_seed(seed)
    if names and names[0] in EMBEDDINGS:
        return torch.randint(LENGTH, (SAMPLES, CHANNELS), generator=generator)
    return torch.randn(SAMPLES, CHANNELS, LENGTH, generator=generator, dtype=torch.float64)


@st.composite
def layer_names(draw: DrawFn, *, without: Sequence[str] = ()) -> list[str]:
    """Draw the layers of a stage; an embedding may stand first."""
    names = st.lists(st.sampled_from([name for name in LAYERS if name not in without]), min_size=1, max_size=4)
    first = draw(st.none() | st.sampled_from([name for name in EMBEDDINGS if name not in without]))
    return draw(names) if first is None else [first, *draw(names)]


def record_of(module: nn.Module, x: Tensor, *, needs_grad: bool, seed: int = 2) -> Record:
    """Run a stage forward and record it, with gradients of its output drawn from a seed."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    record = Record(Message((x,), (needs_grad and x.is_floating_point(),)))
    record.weights = SimpleNamespace(leaves=tuple(parameters))  # type: ignore[assignment]  # leaves are all that is read
    record.inputs = record.message.with_gradients()
    torch.manual_seed(3)
    output = module(record.inputs[0])
    record.take_roots([output])
    generator = torch.Generator().manual_seed(seed)
    record.seeds = (torch.randn(output.shape, generator=generator, dtype=torch.float64),)
    return record


def assert_same(found: Gradients, expected: Gradients, tolerance: float = 1e-12) -> None:
    """Compare gradients; nothing must be None on one side only."""
    assert [gradient is None for gradient in found] == [gradient is None for gradient in expected]
    for ours, theirs in zip(map(dense, found), map(dense, expected), strict=True):
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(theirs.abs().max())))


def dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
