"""Bytes as verdicts and refusals print them: `91.2 GB`."""

from __future__ import annotations

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
"""1000 apart, as on data sheets."""


def bytes_text(count: float) -> str:
    """Return a number of bytes with the prefix that suits it and one decimal: `91.2 GB`; whole below a kilobyte: `470 B`."""
    step = max((power for power in range(len(_PREFIXES)) if abs(count) >= 1000**power), default=0)
    # what rounds to a thousand has the next prefix: 999,960,000 is 1.0 GB, not 1000.0 MB
    if step and step + 1 < len(_PREFIXES) and round(abs(count) / 1000**step, 1) >= 1000:
        step += 1
    return f"{count / 1000**step:.1f} {_PREFIXES[step]}B" if step else f"{count:.0f} B"
