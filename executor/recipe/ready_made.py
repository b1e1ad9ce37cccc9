"""Small ready models for the demo, benchmarks and tests: a character transformer, an MLP, a small convolution net.

All are float32 and made from a seed. Their layers are alike, so that `Recipe.cut` gives stages of nearly equal cost wherever
the number of layers divides; embedding and output layer cost a few percent of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.randomness import never_draws
from executor.recipe.corpus import python_manual, windows
from executor.recipe.recipe import MiniBatch, Recipe

EPOCH_SIZE = 100
"""Mini-batches of an epoch: the data of these models are drawn without end."""


@never_draws
class Embedding(nn.Module):
    """Adds a learned vector per character and one per place: int64 (samples, length) -> (samples, length, width)."""

    def __init__(self, num_characters: int, length: int, width: int) -> None:
        super().__init__()
        self.character = nn.Embedding(num_characters, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, codes: Tensor) -> Tensor:
        embedded: Tensor = self.character(codes) + self.place[: codes.shape[1]]
        return embedded


@never_draws
class TransformerBlock(nn.Module):
    """One pre-norm transformer block with causal attention: (samples, length, width) -> the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.project(self._attend(self.query_key_value(self.attention_norm(hidden))))
        mixed: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return mixed

    def _attend(self, projected: Tensor) -> Tensor:
        samples, length, _ = projected.shape
        query, key, value = projected.view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return attended.transpose(1, 2).reshape(samples, length, -1)


def character_transformer(
    *, num_blocks: int = 4, width: int = 128, length: int = 32, mini_batch_size: int = 32, seed: int = 0
) -> Recipe:
    """Return a character-level transformer on Python's own manual, about 0.2 million parameters a block.

    At these sizes the forward of two blocks on 8 samples takes about 5 ms on one core. The output is
    (samples, length, characters): a score for every next character.
    """
    corpus = python_manual()
    num_characters = len(corpus.alphabet)

    def build() -> nn.Sequential:
        return nn.Sequential(
            Embedding(num_characters, length, width),
            *(TransformerBlock(width, heads=4) for _ in range(num_blocks)),
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_characters)),
        )

    return Recipe(
        model=_seeded(seed, build),
        loss=character_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        data=lambda data_seed: windows(corpus, length=length, samples=mini_batch_size, seed=data_seed),
        name="character transformer",
        epoch_size=EPOCH_SIZE,
        about=corpus.describe(),
    )


@never_draws
def character_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross entropy in nats a character: scores (samples, length, characters), target (samples, length)."""
    return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def mlp(*, num_layers: int = 4, width: int = 512, mini_batch_size: int = 512, seed: int = 0) -> Recipe:
    """Return equal layers (Linear, then tanh) that learn a fixed random rotation: float32 (samples, width) both ways."""

    def build() -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(num_layers)))

    return Recipe(
        model=_seeded(seed, build),
        loss=functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.04 * width, momentum=0.9),
        data=lambda data_seed: _rotated(width, mini_batch_size, data_seed),
        name="MLP",
        epoch_size=EPOCH_SIZE,
        about=f"random vectors of {width} numbers, to be rotated",
    )


def conv_net(*, num_blocks: int = 4, channels: int = 32, size: int = 16, mini_batch_size: int = 64, seed: int = 0) -> Recipe:
    """Return equal convolution blocks that find the bright quadrant of noisy images: float32 (samples, channels, size, size).

    The output is (samples, 4): a score for each quadrant.
    """

    def build() -> nn.Sequential:
        blocks = (
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.ReLU())
            for _ in range(num_blocks)
        )
        return nn.Sequential(*blocks, nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 4)))

    return Recipe(
        model=_seeded(seed, build),
        loss=functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        data=lambda data_seed: _quadrants(channels, size, samples=mini_batch_size, seed=data_seed),
        name="convolution net",
        epoch_size=EPOCH_SIZE,
        about=f"noisy images of {size} x {size} with one bright quadrant",
    )


def _seeded(seed: int, build: Callable[[], nn.Sequential]) -> nn.Sequential:
    """Return what `build` makes from a seed, without touching the caller's random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _rotated(width: int, samples: int, seed: int) -> Iterator[MiniBatch]:
    fixed = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(width, width, generator=fixed)).Q
    generator = torch.Generator().manual_seed(seed)
    while True:
        vectors = torch.randn(samples, width, generator=generator)
        yield vectors, torch.tanh(vectors @ rotation)


def _quadrants(channels: int, size: int, *, samples: int, seed: int) -> Iterator[MiniBatch]:
    generator = torch.Generator().manual_seed(seed)
    half = size // 2
    while True:
        images = torch.randn(samples, channels, size, size, generator=generator)
        bright = torch.randint(4, (samples,), generator=generator)
        for image, quadrant in zip(images, bright.tolist(), strict=True):
            row, column = divmod(quadrant, 2)
            image[:, row * half : (row + 1) * half, column * half : (column + 1) * half] += 0.2
        yield images, bright
