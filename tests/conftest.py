"""Settings for every test: one thread for each worker process, how many examples a law gets, who needs a GPU."""

import os
import signal

# A shell lets what it starts in the background ignore Ctrl-C, and so would every test and process started from here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Read when numpy and torch are first imported, so set before any test module is.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402 - the variables above come first


def _set_up_hypothesis() -> None:
    """Say how many examples a law gets; tests/gpu has no laws, and runs where hypothesis is not installed."""
    try:
        from hypothesis import HealthCheck, settings
    except ModuleNotFoundError:
        return
    # Deadlines and the check for slow data depend on how busy the machine is.
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("fast", common, max_examples=15, derandomize=True)
    settings.register_profile("full", common, max_examples=200, derandomize="CI" in os.environ)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


_set_up_hypothesis()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked gpu where there is no CUDA device."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu or _has_cuda():
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_cuda() -> bool:
    torch = pytest.importorskip("torch")
    return bool(torch.cuda.is_available())
