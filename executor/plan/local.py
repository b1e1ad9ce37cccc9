"""What happens inside of one device has no task in the graph: `LOCAL` stands where the task's number would."""

from __future__ import annotations

LOCAL = -1
"""No number of a task; tasks are numbered from 0."""
