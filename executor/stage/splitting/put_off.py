"""Operations whose gradient by a weight can be made later, from what they saved and the gradient of their output.

    operation                             saved      later
    addmm, mm, bmm (Linear, x @ w)        x, w       dw = x^H g,  dx = g w^H,  db = g summed over the rows
    convolution (Conv, ConvTranspose)     x, w       the kernel that autograd itself calls, for the wanted ones only
    embedding                             indices    g scattered to the rows

Every rule is autograd's own formula (derivatives.yaml of torch), so a gradient made later is the one that a whole backward makes.
Any other operation is nobody's business here: its weight gradients are made with the input's gradient.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node


class Operands(Protocol):
    """What an operation saved, as far as later gradients need it."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are kept."""
        ...

    def gradients(self, wanted: Sequence[int], output_gradient: Tensor) -> list[Tensor]:
        """Return the gradients of the wanted operands, given by their places among the operation's edges."""
        ...


class AsItIs(NamedTuple):
    """No operation at all: what enters goes on."""

    tensors: tuple[Tensor, ...] = ()

    def gradients(self, wanted: Sequence[int], output_gradient: Tensor) -> list[Tensor]:
        """Return the gradient that was given."""
        return [output_gradient for _ in wanted]


class Product(NamedTuple):
    """`alpha * left @ right`, for addmm with `beta * added`."""

    left: Tensor | None
    """None where the gradient of `right` is not wanted; so is `right` for `left`."""
    right: Tensor | None
    first: int
    """Edge of `left`: 1 behind `added`, or 0."""
    alpha: float
    beta: float
    added_shape: tuple[int, ...]
    by_columns: bool
    """`right` lies in memory column by column, as a Linear's transposed weight: then its gradient is made so, too."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The factors."""
        return tuple(factor for factor in (self.left, self.right) if factor is not None)

    def gradients(self, wanted: Sequence[int], output_gradient: Tensor) -> list[Tensor]:
        """Return the gradients of `added`, `left` or `right`."""
        return [self._gradient(operand, output_gradient) for operand in wanted]

    def _gradient(self, operand: int, output_gradient: Tensor) -> Tensor:
        if operand < self.first:
            return _times(output_gradient.sum_to_size(self.added_shape), self.beta)
        if operand == self.first:
            assert self.right is not None, "kept, because the gradient of left is wanted"
            return _times(output_gradient @ self.right.mH, self.alpha)
        assert self.left is not None, "kept, because the gradient of right is wanted"
        if self.by_columns:
            return _times((output_gradient.mT @ self.left.conj()).mT, self.alpha)
        return _times(self.left.mH @ output_gradient, self.alpha)


class Convolution(NamedTuple):
    """A convolution, transposed or not."""

    tensors: tuple[Tensor, Tensor]
    """Input and weight; of the weight's values none is needed unless the input's gradient is wanted."""
    bias_shape: list[int] | None
    settings: tuple[Any, ...]
    """Stride, padding, dilation, transposed, output padding, groups."""

    def gradients(self, wanted: Sequence[int], output_gradient: Tensor) -> list[Tensor]:
        """Return the gradients of input, weight or bias, by one call: that of the bias alone would cost as much as the weight's."""
        mask = [place in wanted for place in range(3)]
        made = torch.ops.aten.convolution_backward(output_gradient, *self.tensors, self.bias_shape, *self.settings, mask)
        return [made[operand] for operand in wanted]


class Lookup(NamedTuple):
    """An embedding: rows of a table."""

    tensors: tuple[Tensor]
    """The indices."""
    settings: tuple[Any, ...]
    """Number of rows, index of padding, whether to divide by frequency, whether the gradient is sparse."""

    def gradients(self, wanted: Sequence[int], output_gradient: Tensor) -> list[Tensor]:
        """Return the gradient of the table; the indices have none."""
        return [torch.ops.aten.embedding_backward(output_gradient, *self.tensors, *self.settings) for _ in wanted]


def operands_of(node: Node, wanted: Sequence[int]) -> Operands | None:
    """Return what a node of the autograd graph saved for the gradients of the wanted operands; None where they cannot be put off.

    Raises RuntimeError, as a backward would, where what was saved has been changed in place.
    """
    held = _RULES[node.name()](node, wanted)
    return held if all(_is_plain(tensor) for tensor in held.tensors) else None


def may_be_put_off(node: Node) -> bool:
    """Return whether there is a rule for an operation."""
    return node.name() in _RULES


def _of_addmm(node: Any, wanted: Sequence[int]) -> Operands:
    # edges: 0 is what is added, 1 the left factor, 2 the right; a factor is kept for the other one's gradient only
    added, added_output = node.next_functions[0]
    return Product(
        left=_alone(node._saved_mat1) if 2 in wanted else None,
        right=_alone(node._saved_mat2) if 1 in wanted else None,
        first=1,
        alpha=node._saved_alpha,
        beta=node._saved_beta,
        added_shape=() if added is None else tuple(added._input_metadata[added_output].shape),
        by_columns=2 in wanted and node._saved_mat2_sym_strides[0] == 1,
    )


def _of_mm(node: Any, wanted: Sequence[int]) -> Operands:
    # mm and bmm save under the same names; torch's mm_mat2_backward makes the gradient in the layout of the right factor
    return _of_bmm(node, wanted)._replace(by_columns=1 in wanted and node._saved_mat2_sym_strides[0] == 1)


def _of_bmm(node: Any, wanted: Sequence[int]) -> Product:
    return Product(
        left=_alone(node._saved_self) if 1 in wanted else None,
        right=_alone(node._saved_mat2) if 0 in wanted else None,
        first=0,
        alpha=1,
        beta=1,
        added_shape=(),
        by_columns=False,
    )


def _of_convolution(node: Any, _: Sequence[int]) -> Operands:
    settings = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    return Convolution(
        tensors=(_alone(node._saved_input), _alone(node._saved_weight)),
        bias_shape=_list(node._saved_bias_sym_sizes_opt),
        settings=tuple(getattr(node, f"_saved_{name}") for name in settings),
    )


def _of_embedding(node: Any, _: Sequence[int]) -> Operands:
    settings = ("weight_sym_argsize_0", "padding_idx", "scale_grad_by_freq", "sparse")
    # torch shows an index of -1 (no padding) as the unsigned number of the same bits.
    values = [_signed(getattr(node, f"_saved_{name}")) for name in settings]
    return Lookup((_alone(node._saved_indices),), tuple(values))


_RULES: Mapping[str, Callable[[Any, Sequence[int]], Operands]] = {
    "AddmmBackward0": _of_addmm,
    "MmBackward0": _of_mm,
    "BmmBackward0": _of_bmm,
    "ConvolutionBackward0": _of_convolution,
    "EmbeddingBackward0": _of_embedding,
}
"""By the name of the autograd node that an operation makes."""


def _alone(saved: Tensor) -> Tensor:
    """Return a saved tensor without the graph that made it, which would otherwise stay alive."""
    return saved.detach()


def _is_plain(tensor: Tensor) -> bool:
    """Return False for what has rules of its own: sparse, nested, quantized tensors, and subclasses."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested


def _times(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1 else tensor * factor


def _list(sizes: Any) -> list[int] | None:
    return None if sizes is None else list(sizes)


def _signed(value: int | bool) -> int | bool:
    return value - 2**64 if not isinstance(value, bool) and value >= 2**63 else value
