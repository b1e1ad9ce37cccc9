"""Seeded jitter."""

import numpy as np
import pytest

from schedir.errors import ArgumentError
from simulator.noise import check_noise, check_seed, exponential, jitter, stream


def test_the_exponential_is_exact_to_eleven_digits() -> None:
    values = np.linspace(-10, 10, 2001)

    assert np.abs(exponential(values) / np.exp(values) - 1).max() < 1e-11


def test_the_logarithm_of_jitter_is_normal_with_the_sigma_asked_for() -> None:
    logarithm = np.log(jitter(100_000, 0.1, stream(0, 0)))

    assert logarithm.mean() == pytest.approx(0.0, abs=0.002)
    assert logarithm.std() == pytest.approx(0.1, abs=0.002)
    assert np.median(logarithm) == pytest.approx(0.0, abs=0.002)


def test_one_seed_gives_the_same_bits_every_time_and_another_gives_others() -> None:
    first = jitter(100, 0.1, stream(5, 0))

    assert first.tobytes() == jitter(100, 0.1, stream(5, 0)).tobytes()
    assert (first != jitter(100, 0.1, stream(6, 0))).all()
    assert (first != jitter(100, 0.1, stream(5, 1))).all()


def test_jitter_is_made_of_the_first_normals_of_numpys_stream() -> None:
    normals = [0.1257302210933933, -0.1321048632913019]  # numpy.random.Generator(PCG64(SeedSequence([0, 0])))

    assert jitter(2, 0.5, stream(0, 0)) == pytest.approx(np.exp(0.5 * np.array(normals)), rel=1e-6)


def test_no_noise_is_a_factor_of_exactly_one() -> None:
    assert (jitter(1000, 0.0, stream(0, 0)) == 1.0).all()


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf"), "0.1", True, 3.0])
def test_noise_must_be_a_sensible_standard_deviation(noise: object) -> None:
    with pytest.raises(ArgumentError, match=r"noise .*standard deviation"):
        check_noise(noise)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_a_seed_must_be_a_natural_number(seed: object) -> None:
    with pytest.raises(ArgumentError, match=r"seed .* integer of at least 0"):
        check_seed(seed)
