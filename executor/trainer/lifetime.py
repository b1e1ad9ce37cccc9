"""The end of a training: in peace, by the first error, or when nobody has its trainer any more.

open ── close ──▶ ended        what was begun is done, every process has all weights, modules are where they were
  ├─── error ───▶ ended        all processes hear of it; whoever waits gets the first cause
  └─── dropped ─▶ ended        as by an error: no thread is left
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from executor.trainer.engine import Engine
from schedir.errors import RunError

PATIENCE_S = 1.0
"""How long a training that has failed or is interrupted may take to end."""


class Lifetime:
    """Of one training."""

    def __init__(self, engine: Engine, owner: object) -> None:
        """End the training when the owner is gone."""
        self._engine = engine
        self.is_open = True
        weakref.finalize(owner, self._dropped).atexit = False  # threads are daemons, and a team has its own word at the end

    def check(self) -> None:
        """Raise RunError if it has ended."""
        if not self.is_open:
            raise RunError("this training has ended: make a new Trainer, from a checkpoint if there is one")

    def check_together(self) -> None:
        """Raise RunError if other processes are asked for what they have, and have left."""
        if not self.is_open and self._engine.team.num_processes > 1:
            raise RunError("the processes of this training have parted: ask for its timeline before it is closed")

    @contextmanager
    def guarded(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """End the training if anything is raised inside: nobody knows then what has been trained."""
        try:
            with torch.inference_mode(mode=False):  # whatever the caller is in: nothing made in that mode can be trained
                yield
        except but:
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """End in peace; a second time nothing happens."""
        if self.is_open:
            self.is_open = False
            self._engine.close(patience_s=self._engine.timeout_s)
            self._engine.leave()

    def fail(self, error: BaseException) -> None:
        """End because of an error; raise the first cause instead if another process had one before."""
        if (shown := self._abandon(error)) is not error:
            raise shown from None

    def _abandon(self, error: BaseException) -> BaseException:
        if not self.is_open:
            return error
        self.is_open = False
        shown = self._engine.team.failed(error)
        try:
            self._engine.close(patience_s=PATIENCE_S)
        finally:
            self._engine.crew.leave()
        return shown

    def _dropped(self) -> None:
        """End the training of a trainer that nobody has closed.

        Python collects garbage in any thread, be it one of this training, which cannot wait for its own end.
        """
        error = RunError("a trainer was let go of, but not closed: use it in a with block")
        if threading.current_thread() is threading.main_thread():
            self._abandon(error)
        elif self.is_open:
            threading.Thread(target=self._abandon, args=(error,), name="end of a trainer", daemon=True).start()
