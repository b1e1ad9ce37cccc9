"""What a pipeline takes, refuses and gives back."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from executor.emulation import emulate
from executor.model.pipeline import Pipeline
from executor.training import train
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from tests.executor.small.models import batches, compiled, layers_of, mlp, pipeline_of, reference, sgd


def layers(count: int = 8) -> nn.Sequential:
    return nn.Sequential(*layers_of(mlp(count // 4)))


def test_keys_are_those_of_the_stages_in_a_row() -> None:
    stages = mlp(3)
    run = train(compiled("gpipe", 3, 2), pipeline_of(stages), batches(1), timeout=60)

    assert run.state_dict().keys() == nn.Sequential(*stages).state_dict().keys()


def test_keys_of_a_model_that_was_cut_are_the_models() -> None:
    model = layers()
    run = train(compiled("gpipe", 3, 2), pipeline_of(model, balance=(2, 4, 2)), batches(1), timeout=60)

    assert list(run.state_dict()) == list(model.state_dict())
    assert run.gradients.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(run.state_dict()[key], value) for key, value in model.state_dict().items())


def test_the_layers_of_a_sequential_model_are_the_stages_if_no_balance_is_given() -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Linear(4, 4))
    model.add_module("second", nn.Linear(4, 4))
    pipeline = pipeline_of(model)

    assert len(pipeline.stages) == 2
    assert list(pipeline.state_dict()) == ["first.weight", "first.bias", "second.weight", "second.bias"]


def test_the_modules_have_the_new_weights_afterwards() -> None:
    stages = mlp(2)
    parameters = list(nn.Sequential(*stages).parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    run = train(compiled("pipedream", 2, 1, num_mini_batches=4), pipeline_of(stages), batches(4), timeout=60)

    assert all(ours is theirs for ours, theirs in zip(nn.Sequential(*stages).parameters(), parameters, strict=True))
    assert not any(torch.equal(ours, was) for ours, was in zip(parameters, before, strict=True))
    assert all(torch.equal(run.state_dict()[key], value) for key, value in nn.Sequential(*stages).state_dict().items())
    assert all(parameter.grad is None for parameter in parameters)


def test_training_goes_on_where_the_last_run_ended() -> None:
    data = batches(6)
    losses, _ = reference(mlp(2), data)
    pipeline = pipeline_of(mlp(2))
    graph = compiled("1f1b", 2, 4)

    first, then = (train(graph, pipeline, part, timeout=60).losses for part in (data[:2], data[2:]))
    assert first + then == pytest.approx(losses, abs=1e-12)


def test_one_optimizer_is_made_for_every_stage_that_has_something_to_train() -> None:
    made: list[int] = []

    def optimizer(parameters: list[nn.Parameter]) -> SGD:
        made.append(len(parameters))
        return SGD(parameters, lr=0.1)

    frozen = nn.Linear(4, 4).double().requires_grad_(False)
    stages = [nn.Linear(4, 4).double(), nn.ReLU(), frozen, nn.Linear(4, 4, bias=False).double()]
    before = frozen.weight.clone()
    train(compiled("1f1b", 4, 2), pipeline_of(stages, optimizer=optimizer), batches(2), timeout=60)

    assert sorted(made) == [1, 2]
    assert torch.equal(frozen.weight, before)


def test_update_v_uses_the_rate_of_its_number() -> None:
    """C10 of the scalar cases; the scheduler steps behind every update."""
    rates = [0.1, 0.5, 0.02, 0.3]

    def schedule(optimizer: torch.optim.Optimizer) -> LambdaLR:
        return LambdaLR(optimizer, lambda update: rates[update] if update < len(rates) else 0.0)

    model = nn.Sequential(*mlp(2))
    plain = SGD(model.parameters(), lr=1.0)
    steps = schedule(plain)
    for inputs, target in batches(4):
        plain.zero_grad()
        nn.functional.mse_loss(model(inputs), target).backward()
        plain.step()
        steps.step()
    pipeline = pipeline_of(mlp(2), optimizer=lambda parameters: SGD(parameters, lr=1.0), scheduler=schedule)
    run = train(compiled("gpipe", 2, 2), pipeline, batches(4), timeout=60)

    for key, value in model.state_dict().items():
        assert torch.allclose(run.state_dict()[key], value, rtol=0, atol=1e-12)


def test_a_prediction_uses_the_rate_of_the_next_update() -> None:
    """C6: one stage, m = 1, horizon 1: F of mini-batch 1 reads w1 - lr(1) g0, with w1 = w0 - lr(0) g0."""
    stage = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(stage.weight)
    pipeline = Pipeline(
        [stage],
        loss=lambda output, _: output.mean(),
        optimizer=lambda parameters: SGD(parameters, lr=1.0),
        scheduler=lambda optimizer: LambdaLR(optimizer, lambda update: [0.5, 0.25, 0.0][update]),
    )
    x = torch.ones(1, 1, dtype=torch.float64)
    run = train(compiled("xpipe", 1, 1, num_mini_batches=2, horizon=1), pipeline, [(x, x), (x, x)], timeout=60)

    assert run.losses == pytest.approx([1.0, 1 - 0.5 - 0.25])
    assert stage.weight.item() == pytest.approx(1 - 0.5 - 0.25)


def test_the_next_run_predicts_from_the_last_update_of_the_one_before() -> None:
    """Gradients of 1 at a rate of 1: w = 0, -1 after the first run; the next reads -2 first."""

    class Falls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return self.w + 0 * x

    pipeline = Pipeline([Falls()], loss=lambda output, _: output.mean(), optimizer=lambda parameters: SGD(parameters, lr=1.0))
    graph = compiled("xpipe", 1, 1, num_mini_batches=1, horizon=1)

    assert train(graph, pipeline, batches(1), timeout=60).losses == [0.0]
    assert train(graph, pipeline, batches(1), timeout=60).losses == [-2.0]
    train(compiled("gpipe", 1, 1), pipeline, batches(1), timeout=60)
    assert pipeline.copy(0, 0).predictor(None) is None


def test_weights_that_several_layers_of_a_stage_share_are_one() -> None:
    def stage() -> nn.Sequential:
        first, second = mlp(1, seed=4)[0], nn.Linear(4, 4).double()
        second.weight = next(first.parameters())
        return nn.Sequential(first, second)

    torch.manual_seed(0)
    whole = [stage(), *mlp(1)]
    torch.manual_seed(0)
    cut = [stage(), *mlp(1)]
    losses, _ = reference(whole, batches(3))

    assert train(compiled("1f1b", 2, 2), pipeline_of(cut), batches(3), timeout=60).losses == pytest.approx(losses, abs=1e-12)


def test_recurrent_layers_see_the_versions_that_are_bound() -> None:
    """They keep a flat list of their weights beside the attributes."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(4, 4, batch_first=True).double()

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.cells(x.unsqueeze(1))[0].squeeze(1)
            return output

    def stages() -> list[nn.Module]:
        torch.manual_seed(0)
        return [Recurrent(), Recurrent()]

    losses, _ = reference(stages(), batches(3))
    one_by_one = train(compiled("gpipe", 2, 2), pipeline_of(stages()), batches(3), timeout=60)
    stashed = train(compiled("pipedream", 2, 1, num_mini_batches=3), pipeline_of(stages()), batches(3), timeout=60)

    assert one_by_one.losses == pytest.approx(losses, abs=1e-12)
    assert stashed.losses[0] == pytest.approx(losses[0], abs=1e-12)
    assert stashed.losses[2] != pytest.approx(losses[2], abs=1e-9)


@pytest.mark.parametrize(
    ("stages", "options", "message"),
    [
        ([], {}, "give at least one stage, each an nn.Module"),
        ([nn.ReLU(), "text"], {}, "stages hold str: give at least one stage"),
        (nn.Linear(1, 1), {}, r"Linear is neither nn.Sequential nor a list of stages"),
        (3, {}, r"int is neither nn.Sequential nor a list of stages"),
        (layers(), {"balance": (4, 3)}, "balance sums to 7 layers, but the model has 8"),
        (layers(), {"balance": (8, 0)}, r"balance \[8, 0\] leaves a stage without layers"),
        ([nn.ReLU()], {"balance": (1,)}, "balance cuts an nn.Sequential"),
        ([nn.ReLU()], {"loss_reduction": "max"}, "loss_reduction 'max' is unknown: use mean or sum"),
        ([nn.ReLU()], {"adam_prediction": "exact"}, "adam_prediction 'exact' is unknown: use bias-corrected or literal"),
        ([nn.ReLU()], {"loss_reduction": "sum", "loss_weight": len}, 'loss_weight weighs means, but loss_reduction is "sum"'),
    ],
)
def test_what_is_no_pipeline_is_named(stages: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        pipeline_of(stages, **options)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": [4.5, 3.5]}, "balance 4.5 is of type float, not Integral: give whole numbers of layers"),
        ({"balance": 2}, "balance 2 is of type int, not Iterable: give a list"),
        ({"balance": "44"}, "balance '4' is of type str"),
        ({"balance": []}, "makes no stage"),
        ({"loss": None}, "loss None is of type NoneType, which cannot be called"),
        ({"optimizer": None}, "optimizer None is of type NoneType, which cannot be called"),
        ({"optimizer": SGD([torch.zeros(1)])}, "optimizer SGD .* is of type SGD, which cannot be called: give a function"),
    ],
)
def test_an_option_of_another_type_is_refused_when_the_pipeline_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Pipeline(layers(), **{"loss": nn.functional.mse_loss, "optimizer": sgd, **options})


def test_a_sequential_without_layers_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no layers: give at least one stage"):
        pipeline_of(nn.Sequential())


def any_type(value: object) -> Any:
    """Return a value as what nothing is known of: people have no type checker."""
    return value


def test_train_and_emulate_name_an_argument_of_another_type() -> None:
    graph, pipeline, costs = compiled("gpipe", 2, 2), pipeline_of(mlp(2)), UniformCosts()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: train(any_type(graph.program), pipeline, batches(1)), "graph <Program .* is of type Program, not TaskGraph"),
        (lambda: train(graph, any_type(mlp(2)), batches(1)), r"pipeline .* not Pipeline: give executor.Pipeline"),
        (lambda: train(graph, pipeline, any_type(None)), "mini_batches None cannot be iterated over"),
        (lambda: train(graph, pipeline, batches(1), seed=any_type("x")), "seed 'x' is of type str"),
        (lambda: train(graph, pipeline, batches(1), seed=any_type(1.5)), "seed 1.5 is of type float"),
        (lambda: emulate(any_type(None), costs), "graph None is of type NoneType, not TaskGraph"),
        (lambda: emulate(graph, any_type({})), r"costs \{\} is of type dict, not CostModel"),
    ]
    for call, message in calls:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    with pytest.raises(RefusedError, match="loss Bilinear has trainable parameters, which no stage would train"):
        Pipeline([nn.ReLU()], loss=nn.Bilinear(1, 1, 1), optimizer=sgd)


def test_hooks_on_parameters_are_refused_because_nobody_would_call_them() -> None:
    stage = nn.Linear(1, 1)
    stage.bias.register_hook(lambda gradient: gradient * 2)

    with pytest.raises(RefusedError, match=r"parameter 0\.bias has hooks, which training would not call"):
        pipeline_of([stage])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad], ids=["formula", "extrapolation"])
def test_a_replica_that_comes_later_predicts_as_the_first_does(optimizer: type[torch.optim.Optimizer]) -> None:
    """It starts with what the first copy of its stage has learnt from the last update, not from nothing."""
    pipeline = pipeline_of(mlp(2), optimizer=lambda parameters: optimizer(parameters, lr=0.1))  # type: ignore[call-arg]  # both have one
    train(compiled("xpipe", 2, 2, num_mini_batches=5), pipeline, batches(5))
    copies = [pipeline.copy(0, replica) for replica in range(2)]
    predictions = []
    for copy in copies:
        predictor = copy.predictor(pipeline.adam_prediction)
        assert predictor is not None
        predictions.append(predictor.predict(copy.parameters, 2))

    assert all(torch.equal(one, other) for one, other in zip(*predictions, strict=True))
    assert not torch.equal(predictions[0][0], copies[0].parameters[0])


class Keeping(nn.Linear):
    """Keeps a tensor that it computed, as nn.utils.weight_norm of old lets a module do."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.computed = 2 * self.weight


def test_a_stage_that_torch_cannot_copy_for_a_replica_is_named_with_the_way_out() -> None:
    pipeline = pipeline_of([nn.Linear(2, 2), Keeping()])
    message = (
        r"^stage 1 cannot be copied for a replica \(Only Tensors created explicitly .*\): take "
        r"nn\.utils\.parametrizations\.weight_norm for nn\.utils\.weight_norm, or a schedule without replicas$"
    )
    assert pipeline.copy(1, 0).module is pipeline.stages[1]
    with pytest.raises(RefusedError, match=message):
        pipeline.copy(1, 1)
