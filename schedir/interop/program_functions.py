"""Programs from functions of the user's own: `file.py:function` or `package.module:function`.

The function takes the shape, whole as `shape` or as the counts that it names (num_devices, num_micro_batches,
num_mini_batches, stages_per_device), and options under their names. It returns a Program or one order for each device, as
actions or as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schedir.errors import ArgumentError, FormatError, RefusedError
from schedir.expect import shown
from schedir.interop.user_code import guarded, load_function
from schedir.ir.notation.cells import Orders
from schedir.ir.notation.header import Header, did_you_mean
from schedir.ir.program import Program
from schedir.ir.shape import Shape, too_large

COUNTS = ("num_devices", "num_micro_batches", "num_mini_batches", "stages_per_device")
"""The counts of a shape; those that a function does not take need only agree with what it returns."""

WEIGHTS = ("weights", "horizon", "backward_weights")
"""The weight rule; a function that returns orders need not take it."""

_DEFAULTS = {"num_mini_batches": 1, "stages_per_device": 1}


def call_program_function(
    spec: str, options: Mapping[str, Any], header: Callable[[str], Header], *, default_counts: Mapping[str, int]
) -> Program:
    """Import and call `file.py:function` or `package.module:function`; raise SchedirError for all that goes wrong in it.

    `header` makes the header, given a name, of orders that the function returns; a Program has its own. `default_counts` are
    counts of the shape for a function that needs them where `options` lack them.
    """
    function = load_function(spec)
    arguments = _arguments(spec, function, options, default_counts=default_counts)
    with guarded(spec):
        result = function(**arguments)
    if isinstance(result, Program):
        return result
    own = header(spec.rpartition(":")[2])
    if {"num_mini_batches", "shape"} & set(arguments):  # it was told, so its orders have them all
        own = replace(own, num_mini_batches=options.get("num_mini_batches"))
    return _from_orders(spec, result, own)


def _arguments(
    spec: str, function: Callable[..., Any], options: Mapping[str, Any], *, default_counts: Mapping[str, int]
) -> dict[str, Any]:
    """Choose from `options` what the function takes; raise ArgumentError for what it lacks or does not know."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments = {key: value for key, value in options.items() if key in parameters or takes_any}
    unknown = [key for key in options if key not in (*arguments, *COUNTS, *WEIGHTS)]
    if unknown:
        known = [name for name in parameters if name not in (*COUNTS, "shape")]
        raise ArgumentError(f"{spec}: {did_you_mean(unknown[0], known, 'option')}")
    counts = {**_DEFAULTS, **default_counts, **{key: options[key] for key in COUNTS if key in options}}
    excess = too_large(
        counts.get("num_devices", 1) * counts["stages_per_device"], counts.get("num_micro_batches", 1) * counts["num_mini_batches"]
    )
    if excess is not None:
        raise RefusedError(f"{spec}: {excess}")
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [name for name, known in parameters.items() if known.default is known.empty and known.kind not in starred]
    arguments |= {name: _needed(spec, name, counts) for name in required if name not in (*arguments, "shape")}
    if "shape" in parameters:
        arguments["shape"] = Shape(**{name: _needed(spec, name, counts) for name in COUNTS})
    return arguments


def _needed(spec: str, name: str, counts: Mapping[str, int]) -> int:
    if name not in counts:
        raise ArgumentError(f"{spec} needs {name}: give it")
    return counts[name]


def _from_orders(spec: str, result: object, header: Header) -> Program:
    if isinstance(result, str) or not isinstance(result, Sequence) or not result:
        raise FormatError(
            f"{spec} returned {str(result)[:40]!r}: it must return a Program or a list with one order for each device"
        )
    orders = Orders(lambda device, number: f"{spec}: device {device}: action {number + 1}: ")
    for device, order in enumerate(result):
        if not isinstance(order, Iterable):
            raise FormatError(f"{spec}: device {device}: {shown(order)} is no order: give a text or a list of actions")
        orders.add(order.split() if isinstance(order, str) else [str(entry) for entry in order])
    return orders.program(header)
