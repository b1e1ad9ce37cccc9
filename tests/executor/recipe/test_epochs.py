"""Epochs, and the place in them."""

from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from executor.checkpoint.plain_values import from_json, to_json
from executor.recipe.epochs import EpochPlace, Epochs, resized
from schedir.errors import ArgumentError


def numbers(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    """Mini-batches of 0, 1, 2, … with their tenfold."""
    values = torch.arange(float(sum(sizes))).reshape(-1, 1).split(sizes)
    return [(value, value * 10) for value in values]


def shown(data: object) -> list[list[float]]:
    return [inputs.flatten().tolist() for inputs, _ in data]  # type: ignore[attr-defined]  # pairs


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [
        ((2, 2, 2), 3, [[0, 1, 2], [3, 4, 5]]),
        ((5,), 2, [[0, 1], [2, 3], [4]]),
        ((1, 1, 1, 1, 1), 4, [[0, 1, 2, 3], [4]]),
        ((3, 3), 3, [[0, 1, 2], [3, 4, 5]]),
        ((), 3, []),
    ],
)
def test_samples_keep_their_order_in_mini_batches_of_another_size(
    sizes: tuple[int, ...], size: int, expected: list[list[float]]
) -> None:
    found = list(resized(numbers(*sizes), size))
    assert shown(found) == expected
    assert all(torch.equal(targets, inputs * 10) for inputs, targets in found)


def test_tuples_of_tensors_are_cut_alike() -> None:
    data = [((torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])), torch.tensor([7, 8, 9]))]
    (first, first_target), (second, _) = resized(data, 2)
    assert [part.tolist() for part in first] == [[1, 2], [4, 5]]
    assert first_target.tolist() == [7, 8]
    assert [part.tolist() for part in second] == [[3], [6]]


def test_dicts_are_cut_and_joined_alike_and_what_is_no_tensor_stays() -> None:
    data = [({"ids": torch.arange(low, low + 3), "kind": "text"}, {"labels": torch.arange(low, low + 3)}) for low in (0, 3)]
    found = list(resized(data, 4))

    assert [(inputs["ids"].tolist(), inputs["kind"]) for inputs, _ in found] == [([0, 1, 2, 3], "text"), ([4, 5], "text")]
    assert [targets["labels"].tolist() for _, targets in found] == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"ids": torch.ones(3, 2), "kind": "code"}, "two mini-batches are made of different parts"),
        ({"ids": torch.ones(3, 2)}, "two mini-batches are made of different parts"),
        ({"ids": torch.ones(3, 5), "kind": "text"}, r"two mini-batches cannot be joined \(.*\): give samples of one shape"),
    ],
)
def test_mini_batches_that_do_not_fit_together_are_not_joined(second: object, message: str) -> None:
    data = [({"ids": torch.ones(3, 2), "kind": "text"}, torch.ones(3)), (second, torch.ones(3))]
    with pytest.raises(ArgumentError, match=message):
        list(resized(data, 4))


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((torch.ones(6, 1), torch.ones(5, 1)), "a mini-batch has 6 inputs, but 5 targets: give one per sample"),
        (((torch.ones(6, 1), torch.ones(4, 1)), torch.ones(6, 1)), r"the model's input has tensors of \[4, 6\] samples"),
    ],
)
def test_samples_are_never_paired_with_targets_of_others(pair: object, message: str) -> None:
    # both mini-batches together have as many inputs as targets: only each by itself shows the fault
    with pytest.raises(ArgumentError, match=message):
        list(resized([pair, (torch.ones(4, 1), torch.ones(5, 1))], 5))


def test_tensors_without_samples_that_differ_are_not_joined() -> None:
    def data(second: float) -> list[object]:
        return [((torch.ones(3, 1), torch.tensor(scale)), torch.ones(3)) for scale in (1.0, second)]

    assert [inputs[1].item() for inputs, _ in resized(data(1.0), 4)] == [1, 1]
    with pytest.raises(ArgumentError, match="two mini-batches are made of different parts"):
        list(resized(data(1000.0), 4))


@pytest.mark.parametrize(
    ("made", "name"), [(None, "None, of type NoneType"), (5, "5, of type int"), ("x", "'x', of type str"), ({}, "{}, of type dict")]
)
def test_data_that_are_none_are_named(made: object, name: str) -> None:
    epochs = Epochs(lambda _: made, seed=0, num_epochs=1)  # type: ignore[arg-type, return-value]  # a mistake
    with pytest.raises(ArgumentError, match=rf"data returns {name}: return an iterable of \(input, target\)"):
        next(iter(epochs))


def test_data_that_raise_stop_iteration_are_named() -> None:
    """Inside a generator of ours Python makes another error of it, which would pass for a fault of ours."""

    def stops(seed: int) -> list[tuple[Tensor, Tensor]]:
        raise StopIteration(seed)

    with pytest.raises(ArgumentError, match="data raised StopIteration: return an iterable"):
        next(iter(Epochs(stops, seed=0, num_epochs=1)))


def test_what_is_no_pair_is_named() -> None:
    with pytest.raises(ArgumentError, match="a mini-batch is a Tensor, not a pair"):
        list(resized([torch.ones(3)], 2))


def test_every_epoch_has_its_own_seed() -> None:
    seen = []

    def make(seed: int) -> list[tuple[Tensor, Tensor]]:
        seen.append(seed)
        return numbers(1, 1)

    assert len(list(Epochs(make, seed=5, num_epochs=3))) == 6
    assert seen == [5, 6, 7]


def shuffled(seed: int) -> DataLoader[tuple[Tensor, ...]]:  # noqa: ARG001 - it draws from the process's numbers
    return DataLoader(TensorDataset(*(torch.arange(12.0).reshape(12, 1),) * 2), batch_size=2, shuffle=True)


@pytest.mark.parametrize("stop", [1, 4, 6, 7, 11])
@pytest.mark.parametrize("size", [None, 5])
def test_what_follows_a_place_follows_it_again_with_its_random_numbers(stop: int, size: int | None) -> None:
    """A checkpoint keeps the place, and the random numbers of its moment; the loader shuffles by those of the process."""
    stop = min(stop, 4) if size else stop
    torch.manual_seed(3)
    epochs = Epochs(shuffled, seed=0, num_epochs=2, mini_batch_size=size)
    stream = iter(epochs)
    for _ in range(stop):
        next(stream)
        torch.rand(())  # as dropout in the step does
    assert epochs.place is not None
    kept = to_json(epochs.place.plain(), "the place")
    state = torch.get_rng_state()
    rest = [(inputs.flatten().tolist(), float(torch.rand(()))) for inputs, _ in stream]

    torch.manual_seed(99)
    torch.set_rng_state(state)
    again = Epochs(shuffled, seed=0, num_epochs=2, mini_batch_size=size)
    again.go_on_from(EpochPlace.of(from_json(kept)))
    assert [(inputs.flatten().tolist(), float(torch.rand(()))) for inputs, _ in again] == rest
    assert rest


def test_endless_data_are_one_epoch_that_never_ends() -> None:
    def endless(seed: int) -> object:
        return (pair for _ in iter(int, 1) for pair in numbers(1)) if seed == 0 else []

    stream = iter(Epochs(endless, seed=0, num_epochs=1))  # type: ignore[arg-type]  # an iterator
    assert len([next(stream) for _ in range(50)]) == 50


def test_an_epoch_of_endless_data_is_as_long_as_is_asked_for() -> None:
    """Every epoch begins its data anew, and no mini-batch is drawn that is not given."""
    drawn = []

    def endless(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for number in count(100 * seed):
            drawn.append(number)
            yield (torch.tensor([[float(number)]]),) * 2

    assert shown(Epochs(endless, seed=0, num_epochs=2, epoch_size=3)) == [[0], [1], [2], [100], [101], [102]]
    assert drawn == [0, 1, 2, 100, 101, 102]


def test_data_that_end_sooner_end_the_epoch() -> None:
    assert shown(Epochs(lambda _: numbers(1, 1), seed=0, num_epochs=2, epoch_size=5)) == [[0], [1], [0], [1]]


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_training_goes_on_in_the_middle_of_such_an_epoch(stop: int) -> None:
    def endless(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        return ((torch.tensor([[float(number)]]),) * 2 for number in count(100 * seed))

    epochs = Epochs(endless, seed=0, num_epochs=2, epoch_size=3)
    before = shown(islice(epochs, stop))
    assert epochs.place is not None
    again = Epochs(endless, seed=0, num_epochs=2, epoch_size=3)
    again.go_on_from(epochs.place)
    assert before + shown(again) == [[0], [1], [2], [100], [101], [102]]


def test_data_that_can_be_taken_once_only_are_named() -> None:
    once = iter(numbers(1, 1))
    with pytest.raises(ArgumentError, match="epoch 1 has no mini-batches: let data give new ones every time it is called"):
        list(Epochs(lambda _: once, seed=0, num_epochs=2))
