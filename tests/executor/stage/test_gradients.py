"""Sums of gradients: right, and made in memory that nobody else holds."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from executor.stage.gradients import GradientSums, added, mean_over_members


def of(*values: float) -> Tensor:
    return torch.tensor(values)


def sparse(*values: float) -> Tensor:
    return of(*values).to_sparse()


def plain(gradients: Sequence[Tensor | None]) -> list[list[float] | None]:
    return [None if each is None else each.to_dense().tolist() for each in gradients]


def test_every_update_has_a_sum_of_its_own_until_it_is_taken() -> None:
    sums = GradientSums()
    sums.add(1, [of(1.0)])
    sums.add(2, [of(10.0)])
    sums.add(1, [of(2.0)])

    assert plain(sums.peek(1)) == [[3.0]]
    assert plain(sums.take(1)) == [[3.0]]
    assert plain(sums.take(2)) == [[10.0]]
    sums.add(1, [of(4.0)])
    assert plain(sums.take(1)) == [[4.0]]
    sums.add(3, [of(1.0)])
    sums.clear()
    with pytest.raises(KeyError):
        sums.take(3)


GIVEN: list[list[Tensor | None]] = [
    [of(1.0, 2.0), of(3.0)],
    [of(10.0, 20.0), of(30.0)],
    [of(100.0, 200.0), of(300.0)],
    [of(1000.0, 2000.0), of(3000.0)],
]


@pytest.mark.parametrize("holes", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 3), (0, 1, 2, 3)])
def test_what_is_given_stays_as_it_was_whoever_has_no_gradient(holes: tuple[int, ...]) -> None:
    """Gradients may be shared with other tensors of their graph. The second parameter has none in some micro-batches."""
    given = [[first, None if number in holes else second] for number, (first, second) in enumerate(GIVEN)]
    before = [plain(gradients) for gradients in given]
    sums = GradientSums()
    for gradients in given:
        sums.add(1, gradients)

    present = [value for number, value in enumerate((3.0, 30.0, 300.0, 3000.0)) if number not in holes]
    assert plain(sums.take(1)) == [[1111.0, 2222.0], [sum(present)] if present else None]
    assert [plain(gradients) for gradients in given] == before


@pytest.mark.parametrize("kinds", ["sss", "sds", "dsd", "ssd", "sdd", "dds", "dss", "dddd", "ssss"])
def test_sparse_and_dense_gradients_add_up_and_stay_as_they_were(kinds: str) -> None:
    """An embedding's are sparse, those of the head that it is tied to dense; a sum stays sparse as long as all are."""
    make = {"s": sparse, "d": of}
    given = [make[kind](0.0, 10.0**number) for number, kind in enumerate(kinds)]
    sums = GradientSums()
    for gradient in given:
        sums.add(1, [gradient])
    (found,) = sums.take(1)

    assert found is not None
    assert found.to_dense().tolist() == [0.0, sum(10.0**number for number in range(len(kinds)))]
    assert found.is_sparse == ("d" not in kinds)
    assert [each.to_dense().tolist() for each in given] == [[0.0, 10.0**number] for number in range(len(kinds))]


def test_a_dense_gradient_is_added_to_a_sparse_one_too() -> None:
    for pair in ((sparse(1.0, 0.0), of(2.0, 3.0)), (of(2.0, 3.0), sparse(1.0, 0.0)), (of(1.0, 0.0), of(2.0, 3.0))):
        assert added(*pair).tolist() == [3.0, 3.0]


def test_members_are_added_and_divided_by_the_mini_batches_that_they_are_of() -> None:
    """C11: the mean over a round's mini-batches; of one mini-batch with two directions it is the sum."""
    members = [[of(1.0), None, of(2.0)], [of(3.0), None, None]]

    assert plain(mean_over_members(members, 2)) == [[2.0], None, [1.0]]
    assert plain(mean_over_members(members, 1)) == [[4.0], None, [2.0]]
    assert plain(mean_over_members(members[:1], 1)) == [[1.0], None, [2.0]]
    assert plain(members[0]) == [[1.0], None, [2.0]]
