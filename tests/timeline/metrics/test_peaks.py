import numpy as np

from schedir.timeline.metrics.peaks import peaks, verdict
from schedir.timeline.timeline import MemoryClass, MemorySteps, Timeline
from tests.timeline.build import graph_of, run


def memory_of(*steps: tuple[float, int, int]) -> MemorySteps:
    """Return memory over time from (seconds, weights, activations)."""
    by_class = np.zeros((len(steps), len(MemoryClass)), np.int64)
    by_class[:, list(MemoryClass).index(MemoryClass.WEIGHTS)] = [weights for _, weights, _ in steps]
    by_class[:, list(MemoryClass).index(MemoryClass.ACTIVATIONS)] = [activations for _, _, activations in steps]
    return MemorySteps(np.array([time for time, _, _ in steps]), by_class)


def with_memory(*devices: MemorySteps) -> Timeline:
    predicted = run(graph_of("1f1b", len(devices), 1))
    return Timeline(predicted.graph, predicted.start, predicted.end, predicted.source, memory=devices)


def test_the_peak_is_the_first_moment_of_most_bytes() -> None:
    found = peaks(with_memory(memory_of((0.0, 100, 0), (1.0, 100, 30), (2.0, 100, 10), (3.0, 100, 30), (4.0, 100, 0))))

    assert found is not None
    assert (found[0].bytes, found[0].at_s) == (130, 1.0)
    assert (found[0].by_class.weights, found[0].by_class.activations, found[0].by_class.versions) == (100, 30, 0)
    assert found[0].largest is MemoryClass.WEIGHTS


def test_memory_that_is_not_modelled_has_no_peak() -> None:
    assert peaks(run(graph_of("1f1b", 2, 1))) is None


def test_the_verdict_names_device_bytes_class_time_and_remedy() -> None:
    """The line of formats/README.md with its figures."""
    found = peaks(with_memory(memory_of((4.1, int(38.2e9), int(53e9))), memory_of((0.0, 10, 0))))
    assert found is not None

    assert verdict(found, (int(74e9), int(74e9))) == (
        "device 0: 91.2 GB > 74.0 GB: activations 53.0 GB at 4.1 s: recompute, smaller micro_batch_size"
    )


def test_the_verdict_says_what_a_limit_leaves_out() -> None:
    found = peaks(with_memory(memory_of((4.1, int(38.2e9), int(53e9)))))
    assert found is not None

    assert verdict(found, (int(74e9),), (int(6e9),)) == (  # the line of formats/README.md
        "device 0: 91.2 GB > 74.0 GB (80 GB less 6 GB reserved): activations 53.0 GB at 4.1 s: recompute, smaller micro_batch_size"
    )


def test_a_verdict_that_all_fits_names_the_fullest_device() -> None:
    found = peaks(with_memory(memory_of((0.0, 90, 0)), memory_of((0.0, 95, 0))))
    assert found is not None

    assert verdict(found, (100, 100)) == "fits: device 1 is fullest with 95 B of 100 B"


def test_the_fullest_is_the_one_with_the_least_left_and_of_equal_ones_the_first() -> None:
    found = peaks(with_memory(memory_of((0.0, 90, 0)), memory_of((0.0, 50, 0)), memory_of((0.0, 95, 0))))
    assert found is not None

    assert verdict(found, (100, 55, 100)) == "fits: device 1 is fullest with 50 B of 55 B"
    assert verdict(found, (95, 95, 100)) == "fits: device 0 is fullest with 90 B of 95 B"
    assert verdict(found, (90, 95, 100)) == "fits: device 0 is fullest with 90 B of 90 B"  # a limit is reached, not passed
    assert verdict(found, (80, 45, 100)).startswith("device 0: 90 B > 80 B: weights")


def test_a_device_that_holds_nothing_has_a_peak_of_nothing() -> None:
    found = peaks(with_memory(memory_of(), memory_of((0.0, 50, 0))))
    assert found is not None

    assert (found[0].bytes, found[0].at_s, found[0].by_class.weights) == (0, 0.0, 0)
