from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from executor.profiling.rehearsal_data import RehearsalData
from schedir.errors import ArgumentError


def numbered(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return mini-batches of these sizes, samples 0, 1, 2, …, targets ten times as large."""
    numbers = torch.arange(sum(sizes)).split(list(sizes))
    return [(part, 10 * part) for part in numbers]


def inputs(data: RehearsalData, count: int) -> list[list[int]]:
    return [mini_batch[0].tolist() for mini_batch in data.mini_batches(count)]


def test_the_datas_own_mini_batches_are_used_where_no_size_is_given() -> None:
    data = RehearsalData(numbered(4, 4, 4, 4, 4), 2, None)
    assert data.micro_batch_size == 2
    assert inputs(data, 5) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [0, 1, 2, 3]]


def test_samples_are_regrouped_to_the_size_asked_for() -> None:
    data = RehearsalData(numbered(3, 3, 3, 3), 2, 3)
    assert inputs(data, 2) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_few_samples_are_repeated() -> None:
    assert inputs(RehearsalData(numbered(3), 2, 2), 1) == [[0, 1, 2, 0]]


def test_targets_go_with_their_inputs() -> None:
    ((given, target),) = RehearsalData(numbered(3, 3), 1, 4).mini_batches(1)
    assert torch.equal(target, 10 * given)


def test_a_micro_batch_is_the_first_of_its_mini_batch() -> None:
    given, target = RehearsalData(numbered(6), 3, None).micro_batch()
    assert (given.tolist(), target.tolist()) == ([0, 1], [0, 10])


def test_tuples_of_tensors_are_kept() -> None:
    pair = torch.arange(4), torch.arange(4, 8)
    ((given, _),) = RehearsalData([(pair, torch.arange(4))], 2, None).mini_batches(1)
    assert [part.tolist() for part in given] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_dicts_are_kept() -> None:
    value = {"ids": torch.arange(4), "rest": [torch.arange(4, 8), None], "scale": 2.0}
    data = RehearsalData([(value, torch.arange(4)), (value, torch.arange(4))], 2, 3)
    ((given, _),) = data.mini_batches(1)
    part, _ = data.micro_batch()
    assert (given["ids"].tolist(), given["rest"][1], given["scale"]) == ([0, 1, 2, 3, 0, 1], None, 2.0)
    assert part["rest"][0].tolist() == [4, 5, 6]


def test_endless_data_is_not_exhausted() -> None:
    def endless() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield torch.zeros(4), torch.zeros(4)

    assert len(RehearsalData(endless(), 2, None).mini_batches(9)) == 9


def test_missing_data_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the recipe's data is empty"):
        RehearsalData([], 2, None)
    with pytest.raises(ArgumentError, match="3 samples do not make 4 micro-batches"):
        RehearsalData(numbered(3), 4, None)
