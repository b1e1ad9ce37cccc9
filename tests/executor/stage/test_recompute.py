"""A forward that runs twice finds and leaves everything as one that runs once."""

import pytest
import torch
from torch import Tensor, nn

from executor.randomness import StageGenerator, may_draw, seed_of
from executor.stage.recompute import Buffers
from executor.training import train
from tests.executor.small.models import batches, compiled, pipeline_of


class Counts(nn.Module):
    """Uses a buffer that every forward changes, and keeps one that none does."""

    def __init__(self, *, replace: bool) -> None:
        super().__init__()
        self.replace = replace
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("table", torch.ones(3))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.replace:
            self.calls = self.calls + 1
        else:
            self.calls.add_(1)
        return x * self.calls


@pytest.mark.parametrize("replace", [False, True])
def test_the_second_run_finds_the_buffers_of_the_first(*, replace: bool) -> None:
    module = Counts(replace=replace)
    buffers = Buffers(module)
    first = buffers.snapshot()
    assert module(torch.ones(1)).item() == 1
    second = buffers.snapshot()
    assert module(torch.ones(1)).item() == 2

    with buffers.replayed(first):
        assert module(torch.ones(1)).item() == 1
    with buffers.replayed(second):
        assert module(torch.ones(1)).item() == 2
    assert module.calls.item() == 2


def test_values_that_do_not_change_are_kept_once() -> None:
    module = Counts(replace=False)
    buffers = Buffers(module)
    first = buffers.snapshot()
    module(torch.ones(1))
    second = buffers.snapshot()

    assert [first[number] is second[number] for number in range(2)] == [False, True]
    assert (first[0].item(), second[0].item()) == (0, 1)


def test_a_forward_on_untouched_buffers_leaves_them() -> None:
    module = nn.BatchNorm1d(2)
    with Buffers(module).untouched():
        module(torch.randn(4, 2))

    assert module.num_batches_tracked == 0
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [0, 0]


class SpectralStage(nn.Module):
    """Its forward changes buffers on which its output depends."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4).double())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


def test_a_recomputed_forward_on_changing_buffers_gives_the_same_gradients() -> None:
    def gradients(recompute: str) -> dict[str, Tensor]:
        stages = [SpectralStage(), SpectralStage()]
        return dict(train(compiled("gpipe", 2, 4, recompute=recompute), pipeline_of(stages), batches(1), timeout=60).gradients)

    plain, again = gradients("never"), gradients("always")
    assert all(torch.allclose(again[key], plain[key], rtol=0, atol=1e-12) for key in plain)


def test_seeds_differ_for_every_place() -> None:
    places = [(seed, t, j, k) for seed in range(3) for t in range(4) for j in range(4) for k in range(4)]

    assert len({seed_of(*place) for place in places}) == len(places)
    assert all(0 <= seed_of(*place) < 2**63 for place in places)


DRAWS = {
    "dropout": lambda: nn.functional.dropout(torch.ones(16), 0.5),
    "randn": lambda: torch.randn(4),
    "randn_like": lambda: torch.randn_like(torch.ones(4)),
    "randint": lambda: torch.randint(0, 1000, (4,)),
    "randperm": lambda: torch.randperm(16),
    "normal_": lambda: torch.empty(4).normal_(),
    "multinomial": lambda: torch.multinomial(torch.ones(16), 4),
    "bernoulli": lambda: torch.bernoulli(torch.full((16,), 0.5)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_comes_from_the_stages_own_generator(name: str) -> None:
    """The same seed gives the same draw, whatever was drawn elsewhere; torch's own generator is left as it is."""
    generator = StageGenerator(torch.device("cpu"))
    torch.manual_seed(7)
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        generator.seed(3)
        with generator:
            draws.append((DRAWS[name](), DRAWS[name]()))
    unchanged = torch.equal(torch.get_rng_state(), state)
    torch.rand(5)

    assert unchanged
    assert all(torch.equal(ours, again) for ours, again in zip(*draws, strict=True))
    assert not torch.equal(*draws[0])


def test_only_known_layers_and_losses_are_taken_never_to_draw() -> None:
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda *_: None)

    assert not may_draw(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    assert not may_draw(nn.functional.mse_loss)
    assert may_draw(nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
    assert may_draw(hooked)
    assert may_draw(lambda output, _: output.sum())


class EveryThird(nn.Module):
    """Changes its buffer in every third forward only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4).double()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.calls: Tensor
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if int(self.calls) % 3 == 0:
            self.scale *= 1.5
        result: Tensor = self.layer(x) * self.scale.clone()
        return result


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("recompute", ["always", "except-last"])
def test_a_buffer_that_some_forwards_leave_alone_is_still_kept_for_the_others(schedule: str, recompute: str) -> None:
    def gradients(recompute: str) -> dict[str, Tensor]:
        program = compiled(schedule, 2, 4, recompute=recompute)
        return dict(train(program, pipeline_of([EveryThird(), EveryThird()]), batches(2), timeout=60).gradients)

    plain, again = gradients("never"), gradients(recompute)
    assert all(torch.equal(again[key], plain[key]) for key in plain)


class Watched(nn.Module):
    """Draws, keeps statistics, counts its calls, and writes down what it gives for every input."""

    def __init__(self) -> None:
        super().__init__()
        spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4).double())
        self.layers = nn.Sequential(nn.Linear(4, 4).double(), nn.BatchNorm1d(4).double(), nn.Dropout(0.5), spectral)
        self.counts = Counts(replace=False)
        self.given: dict[bytes, list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x) * (1 + 0.1 * self.counts(torch.ones(1)).double())
        self.given.setdefault(x.detach().numpy().tobytes(), []).append(result.detach().clone())
        return result


@pytest.mark.parametrize(
    ("schedule", "recompute", "again"),
    [("gpipe", "always", 4), ("1f1b", "always", 4), ("1f1b", "except-last", 3), ("pipedream", "always", 4), ("zb-h1", "always", 4)],
)
def test_what_is_computed_again_is_what_was_computed_first_to_the_bit(*, schedule: str, recompute: str, again: int) -> None:
    """By stage, each of the 3 x 4 micro-batches; pipedream computes them again on old weights, behind updates."""
    torch.manual_seed(0)
    stages = [Watched(), Watched()]
    mini_batches = 3
    options = {"num_mini_batches": mini_batches} if schedule == "pipedream" else {}
    train(compiled(schedule, 2, 4, recompute=recompute, **options), pipeline_of(stages), batches(mini_batches), timeout=60)

    for stage in stages:
        assert sorted(map(len, stage.given.values())) == [1] * ((4 - again) * mini_batches) + [2] * (again * mini_batches)
        assert all(torch.equal(given[0], given[-1]) for given in stage.given.values())
        assert len({given[0].numpy().tobytes() for given in stage.given.values()}) == 4 * mini_batches
