"""Random numbers of a stage: the same for the same (seed, mini-batch, micro-batch, stage), on whatever thread and when run again.

All threads share torch's CPU generator, so what a stage draws from it would depend on what the others draw meanwhile. A
dispatch mode gives every drawing operation the stage's own generator instead. The mode costs some microseconds an operation, so
it stays off in stages made of nothing but layers that never draw.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

_DEFAULT_GENERATOR = threading.Lock()
"""Held while an operation that takes no generator draws from the default one in a state that is not its own."""

NEVER_DRAW: frozenset[type] = frozenset(
    {
        *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten, nn.Unflatten),
        *(nn.Linear, nn.Bilinear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.GLU),
        *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Softmax, nn.LogSoftmax),
        *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.Threshold),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Upsample, nn.PixelShuffle, nn.ZeroPad2d),
        *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.CrossEntropyLoss, nn.NLLLoss, nn.BCELoss, nn.BCEWithLogitsLoss),
    }
)
"""Layers and losses whose forward never draws, whatever their mode."""
_FUNCTIONS_NEVER_DRAW = (
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss),
    *(functional.cross_entropy, functional.nll_loss),
    *(functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits),
)


Called = TypeVar("Called", bound=Callable[..., Any])

_PROMISE = "_schedir_never_draws"


def never_draws(called: Called) -> Called:
    """Promise, above a module's class or a loss, that its forward draws no random numbers itself; subclasses promise anew."""
    setattr(called, _PROMISE, True)
    return called


def may_draw(called: Callable[..., Any]) -> bool:
    """Return False only for a module, or a loss, that is known never to draw: unknown code and hooks may."""
    if not isinstance(called, nn.Module):
        return all(called is not function for function in _FUNCTIONS_NEVER_DRAW) and not getattr(called, _PROMISE, False)
    return any(_module_may_draw(module) for module in called.modules())


def _module_may_draw(module: nn.Module) -> bool:
    known = type(module) in NEVER_DRAW or _PROMISE in vars(type(module))
    return not known or "forward" in vars(module) or bool(module._forward_hooks or module._forward_pre_hooks)


def seed_of(*numbers: int) -> int:
    """Return a seed of 63 bits that differs for every sequence of numbers (splitmix64 after each)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 1


class StageGenerator(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """While active, operations of this thread draw from a generator of their own."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # so in torch
        self.generator = torch.Generator(device)

    def seed(self, seed: int) -> None:
        """Start the sequence of this seed."""
        self.generator.manual_seed(seed)

    def __torch_dispatch__(  # noqa: PLR0917 - as torch has it
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**kwargs, "generator": kwargs.get("generator") or self.generator})
        return self._on_default_generator(lambda: func(*args, **kwargs))

    def _on_default_generator(self, draw: Callable[[], Any]) -> Any:
        device = self.generator.device
        default = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
        # the generator is every thread's: it lends its place to ours for one draw and gets its own state back
        with _DEFAULT_GENERATOR:
            before = default.get_state()
            default.set_state(self.generator.get_state())
            try:
                return draw()
            finally:
                self.generator.set_state(default.get_state())
                default.set_state(before)
