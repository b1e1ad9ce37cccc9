"""What torch's autograd says of a stage's own code, in one line that names the stage and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from schedir.errors import RefusedError

Body = Callable[..., Any]

_SHAPE = re.compile(r"\[torch\.[\w.]+ (\[[\d, ]*\])\]")
"""The tensor that was changed in place, as torch names it: `[torch.FloatTensor [4]]`."""


def explaining(body: Body, stage: int) -> Body:
    """Return a backward of a stage, or a half of one, that raises `explained` errors."""

    def explained_body(*values: object) -> Any:
        try:
            return body(*values)
        except RuntimeError as error:
            refused = explained(error, stage)
            if refused is None:
                raise
            raise refused from error

    return explained_body


def explained(error: RuntimeError, stage: int) -> RefusedError | None:
    """Return what to raise instead of an error by which torch refuses a stage's code, None for any other error.

    torch has no types for these errors, so they are known by their text.
    """
    text = str(error)
    if "use_reentrant=True" in text:
        return RefusedError(
            f"stage {stage} checkpoints with use_reentrant=True, which torch.autograd.grad cannot differentiate: give "
            'use_reentrant=False, or leave the checkpoint out and compile with recompute="always"'
        )
    if "modified by an inplace operation" in text:
        shape = _SHAPE.search(text)
        what = f"a tensor of shape {shape[1]}" if shape else "a tensor"
        return RefusedError(
            f"stage {stage} changes {what} in place (a buffer, or an activation) that a backward still needs: compute with a "
            'clone() of it, or compile with recompute="always"'
        )
    return None
