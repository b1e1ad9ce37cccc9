"""Cells of torch.distributed.pipelining's CSV beside plain actions: `0SEND_F1`, `2REDUCE_GRAD`; what is wrong with any other.

torch reads cells with a pattern that need not match to their end, so that `0F1_oops` passes for 0F1. Here a cell is what it says
or an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from schedir.expect import shown
from schedir.ir.notation.cells import LETTERS


class Communication(StrEnum):
    """What torch's devices do beside computing, by its names (`_ComputationType` of torch 2.13)."""

    SEND_F = "SEND_F"
    """Send a forward's output to the device of the next stage."""
    RECV_F = "RECV_F"
    """Ask for a forward's input; the forward waits for it."""
    SEND_B = "SEND_B"
    """Send the gradient of a stage's input to the device of the previous stage."""
    RECV_B = "RECV_B"
    """Ask for the gradient of a stage's output; the backward waits for it."""
    UNSHARD = "UNSHARD"
    """Gather a stage's sharded weights (FSDP)."""
    RESHARD = "RESHARD"
    """Drop gathered weights again."""
    REDUCE_GRAD = "REDUCE_GRAD"
    """Divide a stage's gradients by the number of micro-batches, and sum them over replicas."""


TRANSFERS = (Communication.SEND_F, Communication.RECV_F, Communication.SEND_B, Communication.RECV_B)
"""Those of one micro-batch; the others concern a whole stage."""

_NUMBER = "[0-9]{1,9}"
_STAGE_WORDS = "|".join(word for word in Communication if word not in TRANSFERS)
_CELLS = re.compile(rf"(?:{_NUMBER}(?:(?:[{LETTERS}]|{'|'.join(TRANSFERS)}){_NUMBER}|{_STAGE_WORDS}) )*")
_SPLIT = re.compile(r"([0-9]+)([A-Za-z_-]*)([0-9]*)(.*)", re.DOTALL)

_SPELLINGS = (
    dict.fromkeys("FBIW")
    | dict.fromkeys(map(str, Communication))
    | {
        "FORWARD": "F",
        "FWD": "F",
        "BACKWARD": "B",
        "BWD": "B",
        "FULL_BACKWARD": "B",
        "BACKWARD_INPUT": "I",
        "INPUT_GRAD": "I",
        "DGRAD": "I",
        "BACKWARD_WEIGHT": "W",
        "WEIGHT_GRAD": "W",
        "WGRAD": "W",
        "SEND": "SEND_F",
        "RECV": "RECV_F",
        "ALL_GATHER": "UNSHARD",
        "REDUCE_SCATTER": "REDUCE_GRAD",
    }
)
"""What people write -> the word that torch has for it, None where it is that word."""


def split_cells(cells: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return what, stage and micro-batch (-1: none) of actions and communication; None if any cell is a pair or wrong.

    `what` is the letter's code of an action, and FIRST_WORD + its number in `Communication` of communication.
    """
    text = f"{' '.join(cells)} "
    if not _CELLS.fullmatch(text) or text.count(" ") != len(cells):
        return None
    for number, word in enumerate(Communication):  # one character each, and of those of a whole stage a micro-batch
        text = text.replace(word, chr(FIRST_WORD + number) + ("" if word in TRANSFERS else str(NO_MICRO_BATCH)))
    raw = text.encode("latin-1")
    codes = np.frombuffer(raw.translate(None, b"0123456789 "), np.uint8).astype(np.int64)
    numbers = np.fromstring(raw.translate(_SPACE_FOR_CODE), np.int64, sep=" ").reshape(-1, 2)
    micro_batch = numbers[:, 1]
    return codes, numbers[:, 0], np.where(micro_batch == NO_MICRO_BATCH, -1, micro_batch)


FIRST_WORD = 0xC0
"""Codes of communication in `split_cells` begin behind those of all letters."""
NO_MICRO_BATCH = 10**9
"""What no cell can say: numbers have at most nine digits."""
_SPACE_FOR_CODE = bytes(code if code < ord("A") else ord(" ") for code in range(256))


def fault_of(text: str) -> str:
    """Return, in one line, what is wrong with a cell that `split_cells` does not take."""
    found = _SPLIT.fullmatch(text)
    if found is None:
        return f"{shown(text)} is no action: write <stage><word><micro-batch>, like 2F0 or 2SEND_F0"
    stage, word, micro_batch, rest = found.groups()
    if _SPELLINGS.get(word, word) is not None and word not in tuple(LETTERS):
        return f"{shown(text)}: {_unknown(word)}"
    if rest:
        read = f"{stage}{word}{micro_batch}"
        return f"{shown(text)} has {shown(rest)} behind {read}, which torch drops without a word: write {read}, if that is meant"
    if max(len(stage), len(micro_batch)) > 9:
        return f"{shown(text)} has a number of more than nine digits: stages and micro-batches are numbered from 0"
    if micro_batch:
        return f"{shown(text)} has a micro-batch, but {word} concerns the whole stage: write {stage}{word}"
    return f"{shown(text)} has no micro-batch: write <stage>{word}<micro-batch>, like {stage}{word}0"


def _unknown(word: str) -> str:
    """Say that a word is none of torch's, with the nearest."""
    known = f"use F, B, I, W, {', '.join(Communication)} or a pair like (0F3;3B1)OVERLAP_F_B"
    if not word:
        return f"the action is missing: {known}"
    plain = word.upper().replace("-", "_").strip("_")
    close = get_close_matches(plain, _SPELLINGS, n=1, cutoff=0.5)
    hint = f"did you mean {_SPELLINGS[close[0]] or close[0]}?" if close else known
    return f"action {shown(word)} is unknown: {hint}"
