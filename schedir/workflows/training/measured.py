"""Which mini-batches of a training its figures and pictures are of, in words."""

from __future__ import annotations

from schedir.timeline.timeline import Timeline


def measured_range(timeline: Timeline) -> tuple[int, int]:
    """Return the first and the last mini-batch that a trainer's timeline is of, numbered as the training is."""
    program, meta = timeline.graph.program, timeline.meta
    last = int(meta["first_mini_batch"]) + program.num_mini_batches - 1
    # under a flush the whole graph is a pass; without one the first of its mini-batches may have gone before
    count = program.num_mini_batches if program.weights.synchronous else int(meta["measured_mini_batches"])
    return last - count + 1, last


def measured_text(timeline: Timeline) -> str:
    """Say which mini-batches a trainer's timeline is of: `mini-batch 41, the median of 8`, `mini-batches 22 to 29`."""
    first, last = measured_range(timeline)
    count, smaller = timeline.meta["measured_mini_batches"], timeline.meta["smaller_mini_batches"]
    which = f"mini-batch {first}" if first == last else f"mini-batches {first} to {last}"
    rest = f", {smaller} of them smaller" if smaller else ""
    length = last - first + 1
    passes = "" if length == 1 else " times as many"
    return which + rest + (f", the median of {count // length}{passes}" if count > length else "")
