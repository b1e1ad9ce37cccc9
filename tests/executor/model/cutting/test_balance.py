import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.model.cutting.balance import balanced
from schedir.errors import ArgumentError


def parts(costs: list[int], num_parts: int) -> list[list[int]]:
    counts, rest = balanced(costs, num_parts), list(costs)
    return [[rest.pop(0) for _ in range(count)] for count in counts]


def test_d21_no_part_is_left_nearly_empty() -> None:
    """3 x 0, 42 x 1, 4 x 0 in 16: ten parts of 3, six of 2; the smallest maximum alone would also allow [0, 0, 3, 3, …]."""
    sums = [sum(part) for part in parts([0] * 3 + [1] * 42 + [0] * 4, 16)]
    assert sorted(sums) == [2] * 6 + [3] * 10


def test_equal_layers_are_cut_into_equal_parts() -> None:
    assert parts([5, 5, 5, 5, 5, 5], 3) == [[5, 5], [5, 5], [5, 5]]


def test_small_layers_at_the_ends_stay_with_their_neighbours() -> None:
    assert parts([1, 9, 9, 9, 9, 1], 2) == [[1, 9, 9], [9, 9, 1]]


def test_every_part_keeps_a_layer_even_where_one_outweighs_all() -> None:
    assert parts([1000, 1, 1], 3) == [[1000], [1], [1]]
    assert parts([1, 1, 1000], 3) == [[1], [1], [1000]]


def test_layers_that_cost_nothing_can_be_cut() -> None:
    assert sorted(balanced([0, 0, 0], 2)) == [1, 2]


@pytest.mark.parametrize("num_parts", [0, 4])
def test_more_parts_than_layers_are_refused(num_parts: int) -> None:
    with pytest.raises(ArgumentError, match=rf"a model of 3 layers does not cut into {num_parts} stages: ask for 1\.\.3"):
        balanced([1, 1, 1], num_parts)


def cuts(costs: list[int], num_parts: int) -> list[list[int]]:
    """All cuts, as the sums of their parts."""
    if num_parts == 1:
        return [[sum(costs)]]
    firsts = range(1, len(costs) - num_parts + 2)
    return [[sum(costs[:first]), *rest] for first in firsts for rest in cuts(costs[first:], num_parts - 1)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 8))
def test_no_cut_has_a_smaller_largest_part_nor_then_a_smaller_sum_of_squares(costs: list[int], num_parts: int) -> None:
    num_parts = min(num_parts, len(costs))
    found = [sum(part) for part in parts(costs, num_parts)]
    best = min((max(sums), sum(each**2 for each in sums)) for sums in cuts(costs, num_parts))
    assert (max(found), sum(each**2 for each in found)) == best
