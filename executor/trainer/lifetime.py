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

from executor.trainer.edits import CallerEdits
from executor.trainer.engine import Engine
from executor.trainer.window import CallerWindow
from schedir.errors import RefusedError, RunError

PATIENCE_S = 1.0
"""How long a training that has failed or is interrupted may take to end."""


class Lifetime:
    """Of one training."""

    def __init__(self, engine: Engine, owner: object, window: CallerWindow) -> None:
        """End the training when the owner is gone; `window` is open whenever the caller is outside of the trainer."""
        self._engine, self._window, self._edits = engine, window, CallerEdits(engine)
        self.is_open = True
        self.failure = ""
        """What ended it, in words, if it was an error."""
        self._open()
        weakref.finalize(owner, self._dropped).atexit = False  # threads are daemons, and a team has its own word at the end

    def check(self) -> None:
        """Raise RunError if it has ended."""
        if not self.is_open:
            raise RunError("this training has ended: make a new Trainer, from a checkpoint if there is one")

    def check_model(self) -> None:
        """Raise RefusedError if the model is not what it was when training began."""
        self._window.check_settled()

    def check_together(self) -> None:
        """Raise RunError if other processes are asked for what they have, and have left."""
        if not self.is_open and self._engine.team.num_processes > 1:
            raise RunError("the processes of this training have parted: ask for its timeline before it is closed")

    @contextmanager
    def guarded(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """End the training if anything is raised inside: nobody knows then what has been trained.

        Errors of the kinds `but` leave it open, unless a device has failed: that one takes no further step.
        """
        self._window.check_places()  # before anything: it may be undone, and training goes on
        self._check_left_alone()
        self._shut()
        try:
            with torch.inference_mode(mode=False):  # whatever the caller is in: nothing made in that mode can be trained
                yield
        except but as error:
            if self._engine.stream.has_failed:
                self.fail(error)
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            if self.is_open:
                self._open()

    def _check_left_alone(self) -> None:
        """Raise RefusedError if the caller has changed what mini-batches on their way compute with; he may undo that."""
        try:
            self._edits.check_left_alone()
        except BaseException as error:
            if self._engine.stream.has_failed or not isinstance(error, RefusedError):
                self.fail(error)
            else:
                self._window.open()  # this may be a look through it, which has shut it
            raise

    def _open(self) -> None:
        """Let the caller see, and change, newest weights."""
        self._edits.leave()
        if self._engine.is_idle:
            self._window.memory.note()
        else:
            self._window.memory.forget()
        self._window.open()

    def _shut(self) -> None:
        """Take over what he has changed; end the training if that cannot be, for processes may differ in it."""
        self._window.shut()
        try:
            with torch.inference_mode(mode=False):
                self._window.memory.give_back()
                self._edits.enter()
        except BaseException as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """End in peace, or by the first error of a device in what was begun; a second time nothing happens."""
        if self.is_open:
            try:
                self._check_left_alone()
            except RefusedError as error:
                self.fail(error)  # what the devices were given they do no more
                raise
            self._shut()
            try:
                # nobody else asks for the steps on their way any more: what a device has raised in them would never be heard of
                self._engine.await_steps()
            except BaseException as error:
                self.fail(error)
                raise
            self.is_open = False
            try:
                self._engine.close(patience_s=self._engine.timeout_s)
                self._engine.leave()
            finally:
                self._let_go()

    def fail(self, error: BaseException) -> None:
        """End because of an error; raise the first cause instead if another process had one before."""
        if (shown := self._abandon(error)) is not error:
            raise shown from None

    def _abandon(self, error: BaseException) -> BaseException:
        if not self.is_open:
            return error
        self.is_open = False
        self._window.shut()
        shown = self._engine.team.failed(error)
        self.failure = f"{type(shown).__name__}: {' '.join(str(shown).split())[:200]}".rstrip(": ")
        try:
            self._engine.close(patience_s=PATIENCE_S)
        finally:
            self._let_go()
        return shown

    def _let_go(self) -> None:
        """Give the user's modules back to them."""
        self._engine.let_go()
        self._window.remove()

    def _dropped(self) -> None:
        """End the training of a trainer that nobody has closed.

        Python collects garbage in any thread, be it one of this training, which cannot wait for its own end.
        """
        error = RunError("a trainer was let go of, but not closed: use it in a with block")
        if threading.current_thread() is threading.main_thread():
            self._abandon(error)
        elif self.is_open:
            threading.Thread(target=self._abandon, args=(error,), name="end of a trainer", daemon=True).start()
