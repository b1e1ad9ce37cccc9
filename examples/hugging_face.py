"""Recipes of Hugging Face models: tiny ones, made from a config, that learn on this machine within a minute.

schedir train 1f1b --model examples/hugging_face.py:gpt2 --devices 2 --micro-batches 4 --mini-batches 40
schedir profile --model examples/hugging_face.py:vit --stages 2
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

from executor.model.hugging_face import class_loss, next_token_loss, next_tokens
from executor.recipe.corpus import python_manual, windows
from executor.recipe.recipe import Recipe

LENGTH = 32


def gpt2() -> Recipe:
    """Return a GPT-2 of characters on Python's own manual; every sample is padded to another length."""
    corpus = python_manual()
    config = GPT2Config(
        vocab_size=len(corpus.alphabet),
        n_positions=LENGTH,
        n_embd=64,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )

    def data(seed: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        for ids, _ in windows(corpus, length=LENGTH, samples=16, seed=seed):
            lengths = torch.randint(LENGTH // 2, LENGTH + 1, (len(ids), 1), generator=generator)
            mask = (torch.arange(LENGTH) < lengths).long()
            yield {"input_ids": ids, "attention_mask": mask}, torch.where(mask > 0, ids, -100)

    torch.manual_seed(0)
    return Recipe(
        model=GPT2LMHeadModel(config),
        loss=next_token_loss,
        loss_weight=next_tokens,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        data=data,
        name="GPT-2",
        about=corpus.describe(),
    )


def vit() -> Recipe:
    """Return a ViT that finds the bright quadrant of a noisy image."""
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
    images: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_channels": 1, "num_labels": 4}
    config = ViTConfig(**sizes, **images)

    def data(seed: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            labels = torch.randint(4, (32,), generator=generator)
            bright = torch.nn.functional.one_hot(labels, 4).reshape(-1, 1, 2, 2).float()
            noise = torch.randn(32, 1, 16, 16, generator=generator)
            yield {"pixel_values": noise + torch.nn.functional.interpolate(bright, scale_factor=8.0)}, labels

    torch.manual_seed(0)
    return Recipe(
        model=ViTForImageClassification(config),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        data=data,
        name="ViT",
        about="noisy images of 16 x 16 with one bright quadrant",
    )
