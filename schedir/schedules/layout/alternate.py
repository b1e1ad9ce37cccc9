"""The pattern under all 1F1B orders: some forwards, then one forward, one backward in turn, then what backwards remain.

n = 5, warm-up 2        F0 F1 | F2 B0 F3 B1 F4 B2 | B3 B4
"""

from __future__ import annotations

import numpy as np

from schedir.ir.arrays import Ints


def alternate(num_actions: int, warm_ups: Ints) -> tuple[Ints, Ints]:
    """Return (is_forward, index), each (len(warm_ups), 2 x num_actions): the pattern for every warm-up.

    `index` counts the forwards (where is_forward) and the backwards (elsewhere) of a row from 0.
    """
    n = num_actions
    early = np.minimum(warm_ups, n)[:, None]
    place = np.arange(2 * n)[None, :]
    turn = place - early  # position behind the warm-up
    steady = (turn >= 0) & (place < 2 * n - early)
    is_forward = (turn < 0) | (steady & (turn % 2 == 0))
    forwards = np.where(turn < 0, place, early + turn // 2)
    backwards = np.where(steady, turn // 2, place - n)
    return is_forward, np.where(is_forward, forwards, backwards)
