"""Programs of forms that few schedules have: overlapped pairs, and several stages on a device."""

from schedir.ir.notation.text import parse_program
from schedir.ir.program import Program


def program(name: str, orders: list[str], *, num_stages: int) -> Program:
    """Return a synchronous program of two micro-batches."""
    header = f'schema = "schedir.program/1"\nname = "{name}"\nnum_stages = {num_stages}\nnum_devices = {len(orders)}\n'
    header += 'num_micro_batches = 2\nnum_mini_batches = 1\nweights = "latest"\n'
    return parse_program(header + "\n".join(f"device {device}: {cells}" for device, cells in enumerate(orders)))


PAIRS = program("pairs", ["0F0 (0F1;0B0)OVERLAP_F_B 0I1 0W1"], num_stages=1)
"""One device: F0, then F1 together with B0, then the halves of the backward of micro-batch 1."""

TWO_STAGES = program("looped", ["0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"], num_stages=4)
"""Two devices with two stages each."""
