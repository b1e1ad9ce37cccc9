"""What graphs prove: versions, staleness, horizons, drift, live activations, against papers and stored cases."""

from typing import Any

import pytest

from schedir.compiler import compile_program
from schedir.ir.facts import Facts, facts
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.registry import build_program
from tests import async_cases
from tests.late_halves import late_halves
from tests.programs import written


def facts_of(name: str, devices: int, micro_batches: int, **options: Any) -> Facts:
    return facts(compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches, **options)))


@pytest.mark.parametrize("name", async_cases.ALL)
def test_versions_alive_are_those_of_the_case(name: str) -> None:
    found = facts(compile_program(async_cases.program_of_order(name), recompute=async_cases.recompute(name)))

    true, alive = [0] * len(found.true_versions), [0] * len(found.true_versions)
    for home, (true_sets, all_sets) in async_cases.stored()["versions_alive"][name].items():
        stage = int(home.split(".")[0])  # "stage" or "stage.replica"
        true[stage], alive[stage] = max(true[stage], true_sets), max(alive[stage], all_sets)
    assert found.true_versions == tuple(true)
    assert found.weight_versions == tuple(alive)


# PAPERS.md: GPipe keeps m activations, 1F1B min(m, p - k); known problem D24 has m = 8, D1 has m = 2 and m = 1.
@pytest.mark.parametrize(
    ("name", "micro_batches", "peaks"),
    [
        ("gpipe", 8, (8, 8, 8, 8)),
        ("1f1b", 8, (4, 3, 2, 1)),
        ("gpipe", 2, (2, 2, 2, 2)),
        ("1f1b", 2, (2, 2, 2, 1)),
        ("gpipe", 1, (1, 1, 1, 1)),
        ("1f1b", 1, (1, 1, 1, 1)),
        ("pipedream", 1, (4, 3, 2, 1)),
    ],
)
def test_peaks_of_live_activations(name: str, micro_batches: int, peaks: tuple[int, ...]) -> None:
    assert facts_of(name, 4, micro_batches).peak_live_activations == peaks


def test_synchronous_schedules_keep_one_version_and_lack_none() -> None:
    """Known problem D29: one version under GPipe and 1F1B."""
    for name in ("gpipe", "1f1b"):
        found = facts_of(name, 4, 3, num_mini_batches=2)
        assert found.weight_versions == found.true_versions == (1, 1, 1, 1)
        assert found.staleness == found.drift == (0, 0, 0, 0)
        assert found.horizon_forward is None
        assert found.consistent


def test_pipedream_keeps_p_minus_k_versions_and_lacks_one_less() -> None:
    """PipeDream (SOSP 2019), section 3.3; known problem D29: [4, 3, 2, 1]."""
    found = facts_of("pipedream", 4, 1)

    assert found.weight_versions == (4, 3, 2, 1)
    assert found.staleness == (3, 2, 1, 0)
    assert found.consistent


def test_vertical_sync_keeps_all_versions_on_all_stages() -> None:
    found = facts_of("pipedream", 4, 1, weights="vertical-sync")

    assert found.weight_versions == (4, 4, 4, 4)
    assert found.staleness == (3, 3, 3, 3)


def test_without_a_stash_the_drift_is_reported() -> None:
    found = facts_of("pipedream", 4, 1, weights="current")

    assert found.weight_versions == (1, 1, 1, 1)
    assert found.drift == (3, 2, 1, 0)
    assert not found.consistent


def test_what_a_late_weight_gradient_reads_is_alive_until_its_end() -> None:
    """Version 0 beside 1 until W1, 1 beside 2 until W2, 2 beside 3 until W3: without a stash, too."""
    found = facts(compile_program(late_halves(2)))

    assert found.weight_versions == (2, 2)
    assert found.staleness == (3, 3)  # F3 reads version 0
    assert found.drift == (2, 2)  # F3 reads version 0, I3 and W3 version 2


def test_drift_counts_predicted_updates_whichever_read_is_ahead() -> None:
    """F reads version 0 predicted over 3 updates, B the true version 0."""
    found = facts(compile_program(written("0F0 0B0", m=1, weights=WeightRule(Rule.PREDICT, 3))))

    assert found.drift == (3,)


def test_double_buffering_keeps_two_versions() -> None:
    """PipeDream-2BW (Narayanan et al. 2021), section 3.1, with m = p = 2."""
    found = facts(compile_program(async_cases.program_of_order("2bw_p2_T2_sgd_8")))

    assert found.weight_versions == (2, 2)
    assert found.staleness == (1, 1)


# PipeOptim predicts p - k - 1 forward and 0 backward; counted it is the same at T = 1, and nothing drifts.
def test_exact_horizons_are_the_counted_ones() -> None:
    exact, pipeoptim = facts_of("xpipe", 4, 1, horizon="exact"), facts_of("xpipe", 4, 1, horizon="pipeoptim")

    assert exact.horizon_forward == exact.counted_forward == pipeoptim.horizon_forward == (3, 2, 1, 0)
    assert exact.horizon_backward == exact.counted_backward == (0, 0, 0, 0)
    assert exact.drift == (0, 0, 0, 0)


def test_spectrains_horizons_and_what_they_miss() -> None:
    """SpecTrain (Chen et al. 2018), equation 5: k // 2 + p - k - 1 forward, k // 2 backward."""
    found = facts_of("xpipe", 4, 1, horizon="spectrain-paper")

    assert found.horizon_forward == (3, 2, 2, 1)
    assert found.horizon_backward == (0, 0, 1, 1)
    assert found.counted_forward == (3, 2, 1, 0)


def test_staleness_of_replicas_counts_their_own_updates() -> None:
    """1F1B-RR: stage 0 with r = 2 replicas of p = 2 stages on 3 devices lags by (p' - 1) // r = 1 update of its own."""
    found = facts_of("pipedream", 3, 1, replicas=(2, 1))

    assert found.weight_versions == (2, 1)
    assert found.staleness == (1, 0)


def test_of_a_split_backward_the_weight_gradient_frees_the_activation() -> None:
    found = facts(compile_program(written("0F0 0I0 0F1 0I1 0F2 0I2 0W0 0W1 0W2", m=3)))

    assert found.peak_live_activations == (3,)


def test_an_activation_lives_during_its_forward_and_its_backward() -> None:
    assert facts(compile_program(written("0F0 0B0 0F1 0B1", m=2))).peak_live_activations == (1,)


def test_both_halves_of_a_pair_are_alive_while_it_runs() -> None:
    found = facts(compile_program(written("0F0 (0F1;0B0)OVERLAP_F_B (0F2;0B1)OVERLAP_F_B 0B2", m=3)))

    assert found.peak_live_activations == (2,)


def test_a_pair_with_an_input_gradient_frees_nothing() -> None:
    found = facts(compile_program(written("0F0 (0F1;0I0)OVERLAP_F_B (0F2;0I1)OVERLAP_F_B 0W0 0W1 0B2", m=3)))

    assert found.peak_live_activations == (3,)


def test_stages_of_one_device_are_counted_apart() -> None:
    found = facts(compile_program(written("0F0 1F0 0F1 1F1 1B0 1B1 0B0 0B1", m=1, n=2, stages=2, weights=Rule.STASH)))

    assert found.peak_live_activations == (4,)
    assert found.weight_versions == (2, 2)
    assert found.staleness == (1, 1)


def test_the_backward_of_a_pair_keeps_its_stashed_version_alive() -> None:
    found = facts(compile_program(written("0F0 0F1 0B0 (0F2;0B1)OVERLAP_F_B 0B2", m=1, n=3, weights=Rule.STASH)))

    assert found.weight_versions == (2,)
    assert found.staleness == (1,)
