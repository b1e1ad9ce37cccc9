"""A small checkpoint to read and to move about."""

from pathlib import Path

import torch

from executor.checkpoint.folder import write_checkpoint

FILE = "model.safetensors"
TENSORS = {FILE: {"a": torch.arange(3.0), "b": torch.ones(2, 2)}}


def written(folder: Path, mini_batch: int = 300) -> Path:
    """Write a checkpoint into a folder of checkpoints; return its own folder."""
    return write_checkpoint(folder, {"mini_batch": mini_batch}, TENSORS)
