"""What a training has given so far, on the disk while it goes on: its losses and its evaluations.

losses.csv         mini_batch, loss, learning_rate, gradient_norm    a row per mini-batch, numbered from 0, written as it is trained
evaluations.csv    mini_batches, drained, then the figures           a row per evaluation: after so many mini-batches; drained is 0
                                                                     where stages were some updates apart, as between two drains

A training that goes on from a checkpoint goes on with the files of the one before: rows up to the checkpoint stay, and those behind
it, which are trained again, give way when the first new row comes. A file of a training that nothing can go on from is moved aside.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from schedir.errors import FormatError, RunError
from schedir.files import unwritten
from schedir.workflows.files import write_text

if TYPE_CHECKING:
    from executor.recipe.training_outcome import Evaluation, TrainedMiniBatch

LOSSES, EVALUATIONS = "losses.csv", "evaluations.csv"
COLUMNS = ("mini_batch", "loss", "learning_rate", "gradient_norm")
AFTER, DRAINED = "mini_batches", "drained"
"""First columns of the evaluations; files from before the second have it not."""


@dataclass(frozen=True, slots=True)
class LossRow:
    """A row of losses.csv."""

    mini_batch: int
    loss: float
    learning_rate: float | None = None
    gradient_norm: float | None = None

    def text(self) -> str:
        """Return the row with every digit; what is not known is empty."""
        values = (self.loss, self.learning_rate, self.gradient_norm)
        return ",".join([str(self.mini_batch), *("" if value is None else repr(float(value)) for value in values)])


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """A row of evaluations.csv."""

    mini_batches: int
    figures: Mapping[str, float]
    drained: bool = True
    """All stages had had all updates."""


class TrainLog:
    """Writes the files of one folder as a training goes on, and knows what there is to go on from."""

    def __init__(self, folder: Path, *, say: Callable[[str], None]) -> None:
        """Nothing is written before something is trained; `say` tells the user which files are moved aside."""
        self._folder, self._say = folder, say
        self._file: IO[str] | None = None
        self._own_history = False
        """The files in the folder are those that this training goes on with."""
        self.losses: list[LossRow] = []
        """All, those of before among them."""
        self.evaluations: list[EvaluationRow] = []
        self.num_trained = 0
        """Here, without those of before."""
        self.checkpoint: Path | None = None
        """The newest: written, or gone on from."""
        self.saved_at = 0
        """Behind how many mini-batches it stands."""
        self.is_saving = False
        """One is being written; if training has ended, it was not written to its end."""

    def path(self, name: str) -> Path:
        """Return where a file is."""
        return self._folder / name

    def began(self, mini_batch: int, checkpoint: Path | None) -> None:
        """Take up what the training of a checkpoint left beside its folder of checkpoints, as far as that checkpoint."""
        self.checkpoint, self.saved_at = checkpoint, mini_batch
        if checkpoint is None:
            return
        before = checkpoint.parent.parent
        self._own_history = before.resolve() == self._folder.resolve()
        self.losses = [row for row in read_losses(before / LOSSES) if row.mini_batch < mini_batch]
        self.evaluations = [row for row in read_evaluations(before / EVALUATIONS) if row.mini_batches <= mini_batch]

    def trained(self, mini_batch: TrainedMiniBatch) -> None:
        """Write a row, once."""
        row = LossRow(mini_batch.mini_batch, mini_batch.loss, mini_batch.learning_rate, mini_batch.gradient_norm)
        if self.num_trained and row.mini_batch <= self.losses[-1].mini_batch:
            return
        self.num_trained += 1
        self.losses.append(row)
        if self._file is None:
            self._open()
        else:
            self._write(self._file, f"{row.text()}\n")

    def evaluated(self, evaluation: Evaluation) -> None:
        """Take the figures down; they are written with the next row of losses."""
        if self.evaluations and self.evaluations[-1].mini_batches == evaluation.mini_batch:
            self.evaluations.pop()
        self.evaluations.append(EvaluationRow(evaluation.mini_batch, evaluation.figures, drained=evaluation.drained))
        if self._file is not None:
            self._write_evaluations()

    def evaluating(self, mini_batch: int) -> None:
        """Hear that an evaluation begins: there is nothing to write yet."""

    def saving(self, mini_batch: int) -> None:  # noqa: ARG002 - it is there when it is saved
        """Take down that a checkpoint is not whole yet."""
        self.is_saving = True

    def saved(self, mini_batch: int, checkpoint: Path) -> None:
        """Bring the rows up to a checkpoint to the disk, as the checkpoint is."""
        self.checkpoint, self.saved_at, self.is_saving = checkpoint, mini_batch, False
        if self._file is not None:
            os.fdatasync(self._file.fileno())

    def nothing_is_left(self) -> None:
        """Write what there is, as behind a training: one that was killed behind its last save may not have come to it."""
        if not self._own_history:
            if self.losses or self.evaluations:
                self._open()
                self.close()
            return
        # rows of a longer training, whose earlier checkpoint this is, stay: nothing is trained that would take their place
        self.losses += [row for row in read_losses(self.path(LOSSES)) if row.mini_batch >= self.saved_at]
        if self.evaluations:
            newest = self.evaluations[-1].mini_batches
            self.evaluations += [row for row in read_evaluations(self.path(EVALUATIONS)) if row.mini_batches > newest]
            self._write_evaluations()

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        """Put the rows so far in the place of what is in the file, whole, and go on at its end."""
        if not self._own_history:
            for name in (LOSSES, EVALUATIONS):
                self.move_aside(name)
        path = write_text(self._folder / LOSSES, "\n".join([",".join(COLUMNS), *(row.text() for row in self.losses), ""]))
        self._file = path.open("a", encoding="utf-8")
        self._write_evaluations()

    def _write(self, file: IO[str], text: str) -> None:
        try:
            file.write(text)
            # a row may be the last thing that this process does
            file.flush()
        except OSError as error:
            raise RunError(str(unwritten(self._folder / LOSSES, error, "give a folder that can be written"))) from error

    def _write_evaluations(self) -> None:
        if not self.evaluations:
            return
        # in the order in which they came: another recipe, or another cut, may have other metrics
        names = list(dict.fromkeys(name for row in self.evaluations for name in row.figures))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([AFTER, DRAINED, *names])
        for row in self.evaluations:
            figures = (repr(float(row.figures[name])) if name in row.figures else "" for name in names)
            writer.writerow([row.mini_batches, int(row.drained), *figures])
        write_text(self._folder / EVALUATIONS, text.getvalue())

    def move_aside(self, name: str) -> None:
        """Give a file that is no part of this training another name, and tell it; nothing where there is none."""
        path = self._folder / name
        if not path.exists():
            return
        numbered = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in _from_one())
        kept = next(place for place in numbered if not place.exists())
        path.rename(kept)
        self._say(f"kept {path} of an earlier training as {kept}")


def _from_one() -> Iterator[int]:
    number = 1
    while True:
        yield number
        number += 1


def read_losses(path: Path) -> list[LossRow]:
    """Return the rows of a file of losses; none where there is no file. Raises FormatError."""
    return [
        LossRow(int(row["mini_batch"]), float(row["loss"]), *(_number(row.get(name)) for name in COLUMNS[2:]))
        for row in _rows(path, COLUMNS[:2], int_column="mini_batch")
    ]


def read_evaluations(path: Path) -> list[EvaluationRow]:
    """Return the rows of a file of evaluations; none where there is no file. Raises FormatError."""
    return [
        EvaluationRow(
            int(row[AFTER]),
            {name: float(value) for name, value in row.items() if name not in {AFTER, DRAINED} and value},
            drained=row.get(DRAINED) != "0",
        )
        for row in _rows(path, (AFTER,), int_column=AFTER)
    ]


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _rows(path: Path, needed: Iterable[str], *, int_column: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file of numbers, but for what a machine that lost its power left of the last one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise _no_table(path, str(getattr(error, "strerror", None) or error)) from error
    reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise _no_table(path, f"it has no column {missing[0]}")
    for row in reader:
        try:
            if None in row or None in row.values():
                raise ValueError("too few or too many values")
            int(row[int_column])
            for value in row.values():
                float(value or 0)
        except ValueError as error:
            raise _no_table(path, f"line {reader.line_num}: {error}") from error
        yield row


def _no_table(path: Path, reason: str) -> FormatError:
    return FormatError(f"{path} does not have the losses or evaluations of a training ({reason.lower()}): move it away to go on")
