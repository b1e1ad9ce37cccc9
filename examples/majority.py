"""A recipe of one's own: a stack of equal layers that learns which of eleven random bits are more, ones or zeros.

schedir profile examples/majority.py:majority --stages 2 --by layer -o out/costs.json
schedir compare gpipe xpipe --model examples/majority.py:majority --devices 2
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from executor import Recipe

BITS, WIDTH, SAMPLES = 11, 256, 256


def majority() -> Recipe:
    """Return what to train, how, and on what."""
    torch.manual_seed(0)
    middle = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(6)]
    return Recipe(
        model=nn.Sequential(nn.Linear(BITS, WIDTH), *middle, nn.Linear(WIDTH, 2)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        data=votes,
        name="majority",
        about=f"{BITS} random bits and whether most of them are ones",
    )


def votes(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield mini-batches without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        bits = torch.randint(2, (SAMPLES, BITS), generator=generator)
        yield bits.float(), (bits.sum(dim=1) > BITS // 2).long()
