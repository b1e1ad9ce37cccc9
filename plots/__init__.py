"""Draw timelines, memory and comparisons with matplotlib."""

from plots.comparison import comparison
from plots.gantt import gantt
from plots.memory import memory
from plots.saving import picture_format, save

__all__ = ["comparison", "gantt", "memory", "picture_format", "save"]
