"""Draw timelines, memory and comparisons with matplotlib."""

from plots.gantt import gantt
from plots.saving import picture_format, save

__all__ = ["gantt", "picture_format", "save"]
