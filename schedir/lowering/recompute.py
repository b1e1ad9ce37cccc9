"""Where the forward is run once more: never, all but the last micro-batch of each mini-batch, always; per stage.

device 0   F0 F1 R0 B0 R1 B1        R stands directly before its B (I, or pair) and needs its own stage's F only,
device 1      F0 R0 B0 F1 R1 B1     so it starts before the gradient arrives, unless `on-gradient` is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.errors import ArgumentError
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.compile_options import written_modes

MODES = ("never", "except-last", "always", "selective")
STARTS = ("early", "on-gradient")


def parse_modes(recompute: str | Sequence[str], num_stages: int) -> tuple[str, ...]:
    """Return one mode per stage from a word, a comma-separated text or a sequence with one word per stage."""
    words = written_modes(recompute)
    for word in words:
        if word not in MODES:
            raise ArgumentError(f"recompute {word!r} is unknown: use one of {', '.join(MODES)}, or one per stage, comma-separated")
    if len(words) not in (1, num_stages):
        raise ArgumentError(f"recompute has {len(words)} values for {num_stages} stages: give one, or one per stage")
    return words * num_stages if len(words) == 1 else words


def check_start(recompute_start: str) -> str:
    """Return `recompute_start` if it is known."""
    if recompute_start not in STARTS:
        raise ArgumentError(f"recompute_start {recompute_start!r} is unknown: use {' or '.join(STARTS)}")
    return recompute_start


def recomputed(table: ActionTable, modes: tuple[str, ...]) -> Ints:
    """Return bool by key: this micro-batch is recomputed on this stage."""
    program = table.program
    # a program that places R itself has said which: options do not add to it
    if table.recompute_row is not None:
        return np.asarray(table.recompute_row >= 0)
    if set(modes) == {"never"}:
        return np.zeros(table.num_keys, bool)
    mode = np.array([MODES.index(word) for word in modes])
    # the last micro-batch's backward follows its forward at once on the last stage: there is nothing to save by dropping
    last = np.arange(program.total_micro_batches) % program.num_micro_batches == program.num_micro_batches - 1
    chosen = (mode[:, None] >= MODES.index("always")) | ((mode[:, None] == MODES.index("except-last")) & ~last[None, :])
    return np.asarray(chosen).reshape(-1)
