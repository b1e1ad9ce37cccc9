"""Pipeline-parallel training schedules: compile them, predict their timeline, really train with them, compare, draw."""
