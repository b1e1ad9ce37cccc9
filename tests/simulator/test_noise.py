"""Seeded jitter."""

import numpy as np
import pytest

from schedir.errors import ArgumentError
from simulator.noise import check_jitter, check_seed, exponential, jittered, stream


def test_the_exponential_is_right_to_nine_digits_and_to_thirteen_where_jitter_is_usual() -> None:
    far, usual = np.linspace(-20, 20, 2001), np.linspace(-5, 5, 2001)

    assert np.abs(exponential(far) / np.exp(far) - 1).max() < 1e-9
    assert np.abs(exponential(usual) / np.exp(usual) - 1).max() < 1e-13


def test_the_logarithm_of_jitter_is_normal_with_the_sigma_asked_for() -> None:
    logarithm = np.log(jittered(np.full(100_000, 2.0), 0.1, stream(0)) / 2.0)

    assert logarithm.mean() == pytest.approx(0.0, abs=0.002)
    assert logarithm.std() == pytest.approx(0.1, abs=0.002)
    assert np.median(logarithm) == pytest.approx(0.0, abs=0.002)


def test_one_seed_gives_the_same_bits_every_time_and_another_gives_others() -> None:
    first = jittered(np.ones(100), 0.1, stream(5))

    assert first.tobytes() == jittered(np.ones(100), 0.1, stream(5)).tobytes()
    assert (first != jittered(np.ones(100), 0.1, stream(6))).all()


def test_jitter_is_made_of_the_first_normals_of_numpys_stream() -> None:
    normals = [0.1257302210933933, -0.1321048632913019]  # numpy.random.Generator(PCG64(0))

    assert jittered(np.array([1.0, 3.0]), 0.5, stream(0)) == pytest.approx([1, 3] * np.exp(0.5 * np.array(normals)), rel=1e-6)


def test_normals_lie_on_a_grid_so_that_no_last_bit_of_a_library_matters() -> None:
    steps = np.log(jittered(np.ones(1000), 1.0, stream(0))) * 2**20

    assert np.abs(steps - np.rint(steps)).max() < 1e-5


def test_no_jitter_leaves_durations_as_they_are() -> None:
    durations = np.random.default_rng(0).random(1000)

    assert (jittered(durations, 0.0, stream(0)) == durations).all()


@pytest.mark.parametrize("jitter", [-0.1, float("nan"), float("inf"), "0.1", True, 3.0])
def test_jitter_must_be_a_sensible_standard_deviation(jitter: object) -> None:
    with pytest.raises(ArgumentError, match=r"jitter .*standard deviation"):
        check_jitter(jitter)


@pytest.mark.parametrize("seed", [0, 7, None])
def test_a_natural_number_is_a_seed_and_so_is_none(seed: int | None) -> None:
    assert check_seed(seed) == seed


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_a_seed_must_be_a_natural_number(seed: object) -> None:
    with pytest.raises(ArgumentError, match=r"seed .* integer of at least 0"):
        check_seed(seed)
