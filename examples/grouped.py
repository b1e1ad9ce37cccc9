"""A schedule of one's own as a function: GPipe over groups of micro-batches, one update behind the last group.

    device 0   F0 F1 .  .  B1 B0 F2 F3 .  .  B3 B2        p = 2, m = 4, group = 2 (a cell = one action)
    device 1   .  F0 F1 B1 B0 .  .  F2 F3 B3 B2

Only `group` activations live on a device, as many bubbles are the price. Try:

    schedir show examples/grouped.py:grouped --devices 2 --micro-batches 4
    schedir check examples/grouped.py:grouped --devices 3 --micro-batches 6 --option group=3 --gradients
    schedir compare gpipe examples/grouped.py:grouped --devices 4 --micro-batches 8
"""

from schedir.ir.shape import Shape


def grouped(shape: Shape, group: int = 2) -> list[str]:
    """Return one order for each device, as text."""
    return [" ".join(_order(device, shape, group)) for device in range(shape.num_devices)]


def _order(stage: int, shape: Shape, group: int) -> list[str]:
    order: list[str] = []
    for first in range(0, shape.total_micro_batches, group):
        members = range(first, min(first + group, shape.total_micro_batches))
        order += [f"{stage}F{micro_batch}" for micro_batch in members]
        order += [f"{stage}B{micro_batch}" for micro_batch in reversed(members)]
    return order
