"""What is particular to models of Hugging Face's transformers: how they are called, and losses on what they give.

    model = transformers.GPT2LMHeadModel(config)
    stages = schedir.split(model, 4)                                   # or at=["transformer.h.3", …], balance="time", …
    pipeline = Pipeline(stages, loss=next_token_loss, loss_weight=next_tokens, optimizer=…)

How they are cut stands in `executor.model.cutting.cut_blocks`: not because they are theirs, but because they run blocks.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from executor.randomness import never_draws
from schedir.errors import RefusedError

IGNORED = -100
"""The label of a token that does not count, in all of transformers."""
_SAMPLES = 2


def is_hugging_face(model: object) -> bool:
    """Tell whether a model is one of transformers', without loading that."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def settings_of(model: Any) -> dict[str, Any]:
    """Return how a model is called for training: what is remembered for generating would go from block to block unseen."""
    return {"use_cache": False} if getattr(model.config, "use_cache", False) else {}


def example_of(model: Any) -> dict[str, Tensor]:
    """Return an input that a model takes: tokens, or images of noise; raise RefusedError for one that takes something else."""
    config, name = model.config, model.main_input_name
    if name == "pixel_values":
        size = getattr(config, "image_size", 64)
        height, width = (size, size) if isinstance(size, int) else size
        generator = torch.Generator().manual_seed(0)
        image = torch.randn(_SAMPLES, config.num_channels, height, width, generator=generator)
        return {name: image.to(device=model.device, dtype=model.dtype)}
    if name == "input_ids":
        length = min(7, getattr(config, "max_position_embeddings", 7))
        tokens = torch.arange(1, _SAMPLES * length + 1, device=model.device).reshape(_SAMPLES, length) % config.vocab_size
        # what a decoder is told of its own, shorter, so that nothing passes for the encoder's
        answer = {"decoder_input_ids": tokens[:, 1:].flip(1)} if config.is_encoder_decoder else {}
        return {name: tokens, "attention_mask": torch.ones_like(tokens)} | answer
    raise RefusedError(f"{type(model).__name__} takes more than tokens or images: give example=, an input of it")


@never_draws
def next_token_loss(output: Any, labels: Tensor) -> Tensor:
    """Return the mean cross entropy, in nats a token, of every next token that is not -100.

    `output.logits` (samples, length, tokens); labels (samples, length), as a rule the input itself.
    """
    return functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


def next_tokens(labels: Tensor) -> Tensor:
    """Return how many tokens `next_token_loss` counts: its `loss_weight`, so that mini-batches are the mean over all of theirs."""
    return (labels[:, 1:] != IGNORED).sum()


@never_draws
def token_loss(output: Any, labels: Tensor) -> Tensor:
    """Return the mean cross entropy, in nats a token, of every token that is not -100, as of a masked language model."""
    return functional.cross_entropy(output.logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def tokens(labels: Tensor) -> Tensor:
    """Return how many tokens `token_loss` counts."""
    return (labels != IGNORED).sum()


@never_draws
def class_loss(output: Any, labels: Tensor) -> Tensor:
    """Return the mean cross entropy of `output.logits` (samples, classes) and labels (samples)."""
    return functional.cross_entropy(output.logits, labels)
