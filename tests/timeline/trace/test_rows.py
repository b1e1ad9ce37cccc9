import numpy as np

from schedir.timeline.trace.rows import nanoseconds, rows_without_overlap


def rows(*slices: tuple[float, float]) -> list[int]:
    """Return the rows of slices given in microseconds as (start, duration)."""
    start = nanoseconds(np.array([start for start, _ in slices]) * 1e-6, 0.0)
    end = nanoseconds(np.array([start + duration for start, duration in slices]) * 1e-6, 0.0)
    return list(rows_without_overlap(start, end).tolist())


def test_slices_that_overlap_without_nesting_get_rows_of_their_own() -> None:
    """D26, case A: ts=3 dur=3.776 and ts=5 dur=2."""
    assert rows((3.0, 3.776), (5.0, 2.0)) == [0, 1]


def test_float_noise_is_no_overlap() -> None:
    """D26: an end of 0.1 + 0.2 (0.30000000000000004) before a start of 0.3."""
    start, end = np.array([0.1, 0.3]), np.array([0.1 + 0.2, 0.4])

    assert rows_without_overlap(nanoseconds(start, 0.0), nanoseconds(end, 0.0)).tolist() == [0, 0]


def test_a_row_is_used_again_when_it_is_free() -> None:
    assert rows((0.0, 10.0), (2.0, 10.0), (4.0, 4.0), (10.0, 5.0), (12.0, 5.0)) == [0, 1, 2, 0, 1]


def test_slices_keep_their_numbers_whatever_their_order() -> None:
    assert rows((5.0, 2.0), (3.0, 3.776)) == [1, 0]


def test_slices_of_no_length_need_no_row() -> None:
    assert rows((0.0, 2.0), (2.0, 0.0), (2.0, 3.0)) == [0, 0, 0]


def test_times_count_from_the_origin_in_whole_nanoseconds() -> None:
    assert nanoseconds(np.array([100.0, 100.0000000014, 100.000001]), 100.0).tolist() == [0, 1, 1000]
