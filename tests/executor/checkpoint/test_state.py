"""The state of a pipeline, taken down and given to another one, without a trainer around them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, CyclicLR, ExponentialLR, LRScheduler, MultiStepLR, SequentialLR, StepLR

from executor.checkpoint.state import read_state, write_state
from executor.checkpoint.training_state import TrainingState
from executor.model.pipeline import Pipeline
from executor.model.predictors import AdamPrediction
from schedir.errors import FormatError
from tests.executor.small.models import pipeline_of

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def momentum(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def linears(count: int = 2) -> list[nn.Module]:
    return [nn.Linear(2, 2, bias=False).double() for _ in range(count)]


def made(stages: Sequence[nn.Module] | None = None, optimizer: MakeOptimizer = momentum, **more: Any) -> Pipeline:
    return pipeline_of(stages or linears(), optimizer=optimizer, **more)


def stepped(pipeline: Pipeline, gradient: float = 1.0) -> Pipeline:
    """Let every stage's optimizer, and its scheduler, make a step of its own."""
    for stage in range(len(pipeline.stages)):
        copy = pipeline.copy(stage, 0)
        if copy.optimizer is not None:
            for parameter in copy.parameters:
                parameter.grad = torch.full_like(parameter, gradient)
            copy.optimizer.step()
        if copy.scheduler is not None:
            copy.scheduler.step()
    return pipeline


def state_of(pipeline: Pipeline) -> TrainingState:
    model, tensors, plain = read_state(pipeline)
    return TrainingState.of(model, tensors, plain, source="here")


def optimizer_of(pipeline: Pipeline, stage: int = 0) -> Optimizer:
    found = pipeline.copy(stage, 0).optimizer
    assert found is not None
    return found


def buffers_of(pipeline: Pipeline) -> list[Tensor]:
    return [known["momentum_buffer"] for stage in (0, 1) for known in optimizer_of(pipeline, stage).state.values()]


def test_what_is_read_stays_as_it_was_while_training_goes_on() -> None:
    pipeline = stepped(made())
    state = state_of(pipeline)
    before = {name: value.clone() for name, value in (*state.model.items(), *state.optimizer.items())}
    stepped(pipeline)

    assert all(torch.equal(before[name], value) for name, value in (*state.model.items(), *state.optimizer.items()))


def test_what_is_written_stays_as_it_was_in_the_state() -> None:
    """One state may be given to several pipelines."""
    state = state_of(stepped(made()))
    first, second = made(), made()
    write_state(first, state, "here")
    stepped(first)
    write_state(second, state, "here")

    assert [buffer.tolist() for buffer in buffers_of(second)] == [[[1.0, 1.0], [1.0, 1.0]]] * 2


def test_what_an_optimizer_knew_before_is_forgotten() -> None:
    fresh, trained = state_of(made()), stepped(made())
    write_state(trained, fresh, "here")

    assert [len(optimizer_of(trained, stage).state) for stage in (0, 1)] == [0, 0]


def test_the_class_of_the_optimizers_is_noted_though_the_last_stage_has_none() -> None:
    assert state_of(made([*linears(1), nn.Tanh()])).optimizer_kind == "SGD"


def test_what_optimizers_know_of_tied_weights_stands_once_under_the_name_of_their_owner() -> None:
    stages = linears(3)
    stages[2].weight = stages[0].weight
    state = state_of(stepped(made(stages)))

    assert sorted(state.model) == ["0.weight", "1.weight", "2.weight"]
    assert sorted(state.optimizer) == ["0.weight/momentum_buffer", "1.weight/momentum_buffer"]
    assert [group.parameters for group in state.groups] == [("0.weight",), ("1.weight",), ()]


def test_the_holder_of_a_tied_weight_gets_what_its_owner_knew() -> None:
    stages, others = linears(3), linears(3)
    stages[2].weight, others[2].weight = stages[0].weight, others[0].weight
    state, pipeline = state_of(stepped(made(stages), 3.0)), made(others)
    pipeline.copy(2, 0).follow_owner(0, pipeline.copy(0, 0), 0, apart=True)  # as where both are trained on devices of their own
    write_state(pipeline, state, "here")

    (known,) = optimizer_of(pipeline, 2).state.values()
    assert known["momentum_buffer"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert torch.equal(pipeline.copy(2, 0).parameters[0], state.model["0.weight"])


def test_what_predicts_goes_on_beside_the_optimizer_and_is_none_of_its_states() -> None:
    def predicting(pipeline: Pipeline) -> Pipeline:
        for stage in (0, 1):
            predictor = pipeline.copy(stage, 0).predictor(AdamPrediction.BIAS_CORRECTED)
            assert predictor is not None
            for parameter in pipeline.copy(stage, 0).parameters:
                parameter.grad = torch.full_like(parameter, 2.0)
            predictor.before_update()
        return pipeline

    def plain(parameters: list[nn.Parameter]) -> Optimizer:
        return torch.optim.RMSprop(parameters, lr=0.1)

    first = stepped(predicting(made(optimizer=plain)), 2.0)
    state, second = state_of(first), predicting(made(optimizer=plain))
    write_state(second, state, "here")

    assert "0.weight/prediction" in state.optimizer
    for stage in (0, 1):
        expected, found = (each.copy(stage, 0).prediction_state() for each in (first, second))
        assert all(
            one is not None and other is not None and torch.equal(one, other) for one, other in zip(expected, found, strict=True)
        )
        assert all("prediction" not in known for known in optimizer_of(second, stage).state.values())


def test_a_rate_that_is_a_tensor_is_noted_as_a_number_and_stays_the_same_tensor() -> None:
    def with_tensor(parameters: list[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD(parameters, lr=torch.tensor(0.5), momentum=0.9)

    pipeline = made(optimizer=with_tensor)
    rate = optimizer_of(pipeline).param_groups[0]["lr"]
    state = state_of(pipeline)
    rate.fill_(0.25)
    write_state(pipeline, state, "here")

    assert [group.options["lr"] for group in state.groups] == [0.5, 0.5]
    assert optimizer_of(pipeline).param_groups[0]["lr"] is rate
    assert rate.item() == 0.5


def test_schedulers_take_the_rates_of_their_own_groups_and_keep_a_state_of_their_own() -> None:
    def falls(optimizer: Optimizer) -> LRScheduler:
        return ExponentialLR(optimizer, 0.5)

    state = state_of(stepped(stepped(made(scheduler=falls))))
    pipeline = made(scheduler=falls)
    write_state(pipeline, state, "here")

    for stage in (0, 1):
        scheduler = pipeline.copy(stage, 0).scheduler
        assert scheduler is not None
        assert (scheduler.base_lrs, scheduler.get_last_lr(), scheduler.last_epoch) == ([0.1], [0.025], 2)
        assert optimizer_of(pipeline, stage).param_groups[0]["lr"] == 0.025
    assert state.schedulers[0] is not None
    stepped(pipeline)
    assert state.schedulers[0]["last_epoch"] == 2


class _Counting(ExponentialLR):
    """Adds to a list at every step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.steps: list[int] = []
        super().__init__(optimizer, 0.5)

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        self.steps.append(self.last_epoch)


def test_schedulers_of_two_stages_share_nothing_of_the_state_that_both_were_given() -> None:
    state, pipeline = state_of(stepped(made(scheduler=_Counting))), made(scheduler=_Counting)
    write_state(pipeline, state, "here")
    schedulers: list[Any] = [pipeline.copy(stage, 0).scheduler for stage in (0, 1)]
    optimizer_of(pipeline).step()
    schedulers[0].step()

    assert [scheduler.steps for scheduler in schedulers] == [[0, 1, 2], [0, 1]]
    assert state.schedulers[0] is not None
    assert state.schedulers[0]["steps"] == [0, 1]


def test_what_an_optimizer_keeps_of_sparse_gradients_comes_back_in_full() -> None:
    def embedding() -> list[nn.Module]:
        return [nn.Embedding(3, 1, sparse=True)]

    pipeline = made(embedding())
    (parameter,) = pipeline.copy(0, 0).parameters
    parameter.grad = torch.sparse_coo_tensor(torch.tensor([[2]]), torch.tensor([[4.0]]), (3, 1), check_invariants=True)
    optimizer_of(pipeline).step()
    state, other = state_of(pipeline), made(embedding())
    write_state(other, state, "here")

    (known,) = optimizer_of(other).state.values()
    assert known["momentum_buffer"].tolist() == [[0.0], [0.0], [4.0]]


def test_schedulers_inside_others_take_the_rates_of_the_groups_that_their_own_stage_has() -> None:
    def by_parameter(parameters: list[nn.Parameter]) -> Optimizer:
        rates = {2: 0.1, 3: 0.2}  # by outputs
        return torch.optim.SGD([{"params": [each], "lr": rates[len(each)]} for each in parameters])

    def nested(optimizer: Optimizer) -> LRScheduler:
        return ChainedScheduler([ExponentialLR(optimizer, 0.5)])

    def cut(balance: list[int]) -> Pipeline:
        model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 3, bias=False))
        return pipeline_of(model, optimizer=by_parameter, scheduler=nested, balance=balance)

    pipeline = cut([2])
    write_state(pipeline, state_of(stepped(cut([1, 1]))), "here")
    scheduler: Any = pipeline.copy(0, 0).scheduler

    (inner,) = scheduler._schedulers
    assert (inner.base_lrs, inner.get_last_lr()) == ([0.1, 0.2], [0.05, 0.1])


class _Refusing(StepLR):
    """Takes no state, and has begun to, where it was told so."""

    refuses = False

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.refuses:
            self.half_read = state_dict
            raise ValueError("no")
        super().load_state_dict(state_dict)


def test_where_one_scheduler_takes_no_state_all_have_what_they_knew_also_those_inside_others() -> None:
    def nested(optimizer: Optimizer) -> LRScheduler:
        return ChainedScheduler([ChainedScheduler([ExponentialLR(optimizer, 0.5), _Refusing(optimizer, 1)])])

    state = state_of(stepped(stepped(stepped(made(scheduler=nested)))))
    pipeline = made(scheduler=nested)
    schedulers: list[Any] = [pipeline.copy(stage, 0).scheduler for stage in (0, 1)]
    inner = [each for scheduler in schedulers for each in scheduler._schedulers[0]._schedulers]
    inner[3].refuses = True
    before = [dict(each.__dict__) for each in inner]
    weights = {name: value.clone() for name, value in pipeline.state_dict().items()}

    with pytest.raises(FormatError, match=r"^here: the lr_scheduler ChainedScheduler.* does not take its state \(ValueError: no\)"):
        write_state(pipeline, state, "here")
    assert [each.__dict__ for each in inner] == before
    assert all(torch.equal(value, weights[name]) for name, value in pipeline.state_dict().items())


def by_outputs(parameters: list[nn.Parameter]) -> Optimizer:
    """Make a group per parameter, with a weight decay of as many tenths as the parameter has rows."""
    return torch.optim.SGD([{"params": [each], "weight_decay": len(each) / 10} for each in parameters], lr=0.01)


def cyclic(optimizer: Optimizer) -> LRScheduler:
    """Let the highest rate of each group be its weight decay."""
    highest = [group["weight_decay"] for group in optimizer.param_groups]
    return CyclicLR(optimizer, 0.01, highest, step_size_up=2, cycle_momentum=False)


def growing(scheduler: Callable[[Optimizer], LRScheduler], balance: list[int]) -> Pipeline:
    """Layers of 2, 3 and 4 outputs, each in a group of its own."""
    layers = [nn.Linear(size, size + 1, bias=False) for size in (1, 2, 3)]
    return pipeline_of(nn.Sequential(*layers), optimizer=by_outputs, scheduler=scheduler, balance=balance)


def rates_of(pipeline: Pipeline) -> list[float]:
    return [group["lr"] for stage in range(len(pipeline.stages)) for group in optimizer_of(pipeline, stage).param_groups]


@pytest.mark.parametrize("cut", [[3], [2, 1], [1, 1, 1], [1, 2]])
@pytest.mark.parametrize("saved", [[3], [1, 2], [1, 1, 1]])
def test_what_a_scheduler_keeps_for_each_group_goes_with_the_group(saved: list[int], cut: list[int]) -> None:
    """Half the way up is (0.01 + highest) / 2 behind the first step, and the top behind the second one."""
    pipeline = growing(cyclic, cut)
    write_state(pipeline, state_of(stepped(growing(cyclic, saved))), "here")

    assert rates_of(pipeline) == pytest.approx([0.105, 0.155, 0.205])
    assert rates_of(stepped(pipeline)) == pytest.approx([0.2, 0.3, 0.4])


def test_what_schedulers_inside_others_keep_for_each_group_goes_with_the_group() -> None:
    def nested(optimizer: Optimizer) -> LRScheduler:
        return ChainedScheduler([cyclic(optimizer)])

    pipeline = growing(nested, [3])
    write_state(pipeline, state_of(stepped(growing(nested, [1, 2]))), "here")

    assert rates_of(stepped(pipeline)) == pytest.approx([0.2, 0.3, 0.4])


def test_milestones_stay_as_they_are_though_they_are_as_many_as_the_groups() -> None:
    def in_turn(optimizer: Optimizer) -> LRScheduler:
        return SequentialLR(optimizer, [ExponentialLR(optimizer, 0.5), MultiStepLR(optimizer, [1])], [5])

    pipeline = growing(in_turn, [1, 1, 1])
    write_state(pipeline, state_of(stepped(growing(in_turn, [1, 1, 1]))), "here")
    scheduler: Any = pipeline.copy(2, 0).scheduler

    assert scheduler._milestones == [5]


class _OfUnknownGroups(StepLR):
    """Keeps a value per group, but tells nobody how many groups there are."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer, 1)
        self.highest = [group["weight_decay"] for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        hidden = {"base_lrs", "_last_lr"}
        return {name: value for name, value in super().state_dict().items() if name not in hidden}


def test_what_cannot_be_moved_is_refused_with_nothing_changed() -> None:
    pipeline = growing(_OfUnknownGroups, [3])
    before = {name: value.clone() for name, value in pipeline.state_dict().items()}
    message = "^here: the lr_scheduler _OfUnknownGroups does not take its state .*highest has a value for each parameter group"
    with pytest.raises(FormatError, match=message):
        write_state(pipeline, state_of(stepped(growing(_OfUnknownGroups, [1, 2]))), "here")

    scheduler: Any = pipeline.copy(0, 0).scheduler
    assert scheduler.highest == [0.2, 0.3, 0.4]
    assert all(torch.equal(value, before[name]) for name, value in pipeline.state_dict().items())
