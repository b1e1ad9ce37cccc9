"""The machine, in the few words that the meta of a measured timeline has for it."""

from __future__ import annotations

import platform

import torch


def this_machine() -> dict[str, str]:
    """Return system, processor and torch's version; nothing that names the machine or its user."""
    return {"platform": platform.platform(), "processor": platform.machine(), "torch": torch.__version__}
