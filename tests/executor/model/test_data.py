"""Mini-batches are cut and weighted so that the parts add up to the whole."""

from collections import UserDict

import pytest
import torch
from torch import Tensor, nn

from executor.model.data import LossReduction, cut, loss_scales
from executor.model.pipeline import Pipeline
from executor.training import train
from schedir.errors import ArgumentError
from tests.executor.small.models import batches, compiled, mlp, pipeline_of


def equal(targets: list[object]) -> list[float]:
    return [1.0] * len(targets)


def test_a_mini_batch_is_cut_along_dim_0_in_sizes_that_differ_by_one() -> None:
    parts = cut((torch.arange(8), torch.arange(8)), 3, equal)

    assert [part.inputs.tensors[0].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [part.target.tolist() for part in parts if isinstance(part.target, Tensor)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_inputs_and_targets_may_be_several_tensors() -> None:
    first, second = cut(((torch.arange(4), torch.ones(4, 2)), [torch.zeros(4)]), 2, equal)

    assert [list(tensor.shape) for tensor in first.inputs.tensors] == [[2], [2, 2]]
    assert isinstance(first.inputs.value(first.inputs.tensors), tuple)
    assert isinstance(second.target, tuple)


def test_a_dict_is_cut_in_every_tensor_and_the_rest_goes_to_every_micro_batch() -> None:
    inputs = {"ids": torch.arange(5), "more": [torch.ones(5, 2), None], "scale": 0.5, "temperature": torch.tensor(2.0)}
    first, second = cut((inputs, {"labels": torch.arange(5), "kind": "mean"}), 2, equal)
    one, two = (part.inputs.value(part.inputs.tensors) for part in (first, second))

    assert [one["ids"].tolist(), two["ids"].tolist()] == [[0, 1, 2], [3, 4]]
    assert [list(part["more"][0].shape) for part in (one, two)] == [[3, 2], [2, 2]]
    assert [(part["more"][1], part["scale"], part["temperature"].item()) for part in (one, two)] == [(None, 0.5, 2.0)] * 2
    assert [first.samples, second.samples] == [3, 2]
    assert second.target["labels"].tolist() == [3, 4]
    assert second.target["kind"] == "mean"


def test_what_tokenizers_of_hugging_face_give_is_a_dict() -> None:
    (part,) = cut((UserDict(input_ids=torch.arange(2)), torch.arange(2)), 1, equal)

    assert part.inputs.value(part.inputs.tensors)["input_ids"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("mini_batch", "message"),
    [
        (torch.ones(4), r"a mini-batch is a Tensor, not a pair: give \(input, target\)"),
        ((torch.ones(4),), r"a mini-batch is a tuple, not a pair"),
        ((torch.ones(4), torch.ones(3)), r"a mini-batch has 4 inputs, but 3 targets: give one per sample"),
        ((torch.ones(1), torch.ones(1)), r"the model's input has 1 samples for 2 micro-batches"),
        (((torch.ones(4), torch.ones(3)), torch.ones(4)), r"the model's input has tensors of \[3, 4\] samples"),
        ((torch.tensor(1.0), torch.ones(4)), r"the model's input has 0 samples for 2 micro-batches"),
        (({"a": torch.ones(4), "b": torch.ones(3)}, torch.ones(4)), r"the model's input has tensors of \[3, 4\] samples"),
        (({"a": torch.ones(4), "b": {1, 2}}, torch.ones(4)), r"the model's input is or holds a set at \['b'\]: give tensors"),
        (("text", torch.ones(4)), r"the model's input is a str without a tensor: give at least one tensor"),
        ((torch.ones(4), None), r"the target is None without a tensor"),
    ],
)
def test_what_cannot_be_cut_is_named(mini_batch: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        cut(mini_batch, 2, equal)


def targets(*sizes: int) -> list[Tensor | tuple[Tensor, ...]]:
    return [torch.zeros(size) for size in sizes]


def test_a_mean_weighs_by_samples_a_sum_does_not() -> None:
    assert loss_scales(targets(3, 3, 2), LossReduction.MEAN, None) == [0.375, 0.375, 0.25]
    assert loss_scales(targets(3, 3, 2), LossReduction.SUM, None) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_must_be_finite_and_not_negative(weight: float) -> None:
    with pytest.raises(ArgumentError, match=f"loss_weight gives {weight} for micro-batch 0: give a finite number of at least 0"):
        loss_scales(targets(1, 1), LossReduction.MEAN, lambda _: weight)


def test_weights_must_have_a_finite_sum() -> None:
    with pytest.raises(ArgumentError, match=r"loss_weight gives weights up to 1e\+308, whose sum is not finite: give smaller ones"):
        loss_scales(targets(1, 1), LossReduction.MEAN, lambda _: 1e308)


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean over the tokens that count; NaN where none does."""
    return nn.functional.cross_entropy(output, target, ignore_index=-100)


def valid_tokens(target: Tensor) -> Tensor:
    return (target != -100).sum()


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("masked", [[4], [0, 1], [0, 1, 2, 3, 6]])
def test_d5_losses_of_unequal_weight_add_up_to_the_mini_batchs(masked: list[int], recompute: str) -> None:
    """A micro-batch without any valid token counts nothing: zero gradients, no NaN."""
    inputs = batches(1)[0][0]
    target = torch.arange(8) % 4
    target[masked] = -100
    model = nn.Sequential(*mlp(2))
    whole = token_loss(model(inputs), target)
    whole.backward()
    pipeline = Pipeline(
        mlp(2), loss=token_loss, loss_weight=valid_tokens, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0)
    )
    run = train(compiled("1f1b", 2, 4, recompute=recompute), pipeline, [(inputs, target)], timeout=60)

    assert run.losses == pytest.approx([whole.item()], abs=1e-12)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(run.gradients[name], parameter.grad, rtol=0, atol=1e-12)


def test_d5_one_token_of_loss_4_and_three_of_loss_0_have_the_mean_1() -> None:
    class Table(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1.0

    pipeline = Pipeline(
        [Table()],
        loss=lambda output, target: output[target > 0].mean(),
        loss_weight=lambda target: (target > 0).sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
    )
    output = torch.tensor([4.0, 9.0, 9.0, 0.0, 0.0, 0.0])
    counts = torch.tensor([1, 0, 0, 1, 1, 1])

    assert train(compiled("gpipe", 1, 2), pipeline, [(output, counts)], timeout=60).losses == [1.0]


def test_a_mini_batch_that_counts_nothing_has_loss_0_and_moves_nothing() -> None:
    stages = mlp(2)
    before = [parameter.detach().clone() for parameter in nn.Sequential(*stages).parameters()]
    run = train(compiled("gpipe", 2, 2), pipeline_of(stages, loss_weight=lambda _: 0.0), batches(1), timeout=60)

    assert run.losses == [0.0]
    assert all(torch.equal(ours, was) for ours, was in zip(nn.Sequential(*stages).parameters(), before, strict=True))


def test_sums_are_added() -> None:
    model = nn.Sequential(*mlp(2))
    inputs, target = batches(1)[0]
    whole = nn.functional.mse_loss(model(inputs), target, reduction="sum")
    whole.backward()
    pipeline = pipeline_of(mlp(2), loss_reduction="sum")
    pipeline.loss = nn.MSELoss(reduction="sum")
    run = train(compiled("1f1b", 2, 3), pipeline, [(inputs, target)], timeout=60)

    assert run.losses == pytest.approx([whole.item()])
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(run.gradients[name], parameter.grad)
