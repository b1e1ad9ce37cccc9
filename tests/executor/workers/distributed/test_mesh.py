"""The connections of one process, without another one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from executor.workers.distributed import mesh
from executor.workers.distributed.exchange.control import PING, PONG, Control
from executor.workers.distributed.mesh import Mesh


def test_a_process_that_asks_for_the_time_as_soon_as_it_is_heard_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    made = object.__new__(Mesh)
    control = Control(0, 2, SimpleNamespace(cause=None), timeout_s=1.0)  # type: ignore[arg-type]  # of the watch no more is asked
    vars(made).update(
        watch=SimpleNamespace(cause=None),
        number=0,
        members=("process 0", "process 1"),
        control=control,
        _run="a run",
        _timeout_s=1.0,
        _enter=None,
    )
    lane = SimpleNamespace(send=lambda key, *_, **__: sent.append(key))

    def listen(peer: int, tag: int, deliver: Callable[[tuple[int, int], Any], None]) -> None:  # noqa: ARG001 - as it is called
        deliver(PING, 0)

    monkeypatch.setattr(mesh, "Transport", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(made, "_add_outgoing", lambda *_: lane)
    monkeypatch.setattr(made, "_add_incoming", listen)
    made.open()
    assert sent == [PONG]
