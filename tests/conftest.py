"""Settings for every test: one thread for each worker process, how many examples a law gets, who needs a GPU."""

import gc
import os
import random
import signal
import sys
from collections.abc import Iterator

# A shell lets what it starts in the background ignore Ctrl-C, and so would every test and process started from here.
signal.signal(signal.SIGINT, signal.default_int_handler)

NUM_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Read when numpy and torch are first imported, so set before any test module is."""
OF_THE_SCREEN = (
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("JUPYTER_COLUMNS", "JUPYTER_LINES", "TERMINAL_WIDTH", "TYPER_USE_RICH"),
)
"""What rich and typer read: a job of continuous integration says other things than a shell."""
OF_A_LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SCHEDIR_TRACEBACK")
"""What changes how we run."""


def settle_environment() -> None:
    """Let every run of the tests have one environment, wherever it was started."""
    for name in NUM_THREADS:
        os.environ.setdefault(name, "1")
    os.environ |= {"MPLBACKEND": "Agg", "TERM": "xterm"}
    for name in (*OF_THE_SCREEN, *OF_A_LAUNCH):
        os.environ.pop(name, None)


settle_environment()

import pytest  # noqa: E402 - the variables above come first


def _set_up_hypothesis() -> None:
    """Say how many examples a law gets; tests/gpu has no laws, and runs where hypothesis is not installed."""
    try:
        from hypothesis import HealthCheck, settings
    except ModuleNotFoundError:
        return
    # Deadlines and the check for slow data depend on how busy the machine is.
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    # What `make test` and `make test-all` draw is the same in every run: luck decides over no landing. `make fuzz` draws anew.
    settings.register_profile("fast", common, max_examples=15, derandomize=True)
    settings.register_profile("full", common, max_examples=200, derandomize=True)
    # Said where it is false, too: Hypothesis repeats its examples of itself where the variable CI is set.
    settings.register_profile("fuzz", common, max_examples=int(os.environ.get("EXAMPLES", "1000")), derandomize=False)
    name = os.environ.get("HYPOTHESIS_PROFILE", "fast")
    settings.load_profile(name)
    if name != "fuzz":
        _draw_no_numbers_of_loaded_modules()


def _draw_no_numbers_of_loaded_modules() -> None:
    """Keep Hypothesis from drawing numbers that it reads in our modules: which are loaded depends on the tests that ran before."""
    from hypothesis.internal.conjecture import providers

    # nothing public turns it off; where a later Hypothesis has no such function, this does nothing
    vars(providers)["_get_local_constants"] = lambda: vars(providers).get("_local_constants")


_set_up_hypothesis()


@pytest.fixture(autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    """Let no test take another one's interrupts away.

    A command that is called in this process leaves its handlers of signals behind. And where a collection of garbage calls Python
    back, as Hypothesis has it to take the time, an interrupt that came meanwhile is raised in there, where Python drops it.
    """
    gc.callbacks.clear()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _random_numbers_are_the_same() -> None:
    """Let no luck decide over a landing: torch begins with another seed in every process, and tests before a test draw, too."""
    random.seed(0)
    # what no test has loaded is not loaded for this
    for name, seed in (("numpy.random", "seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)(0)


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
