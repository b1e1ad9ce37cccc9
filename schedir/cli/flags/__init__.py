"""What stands on a command line: groups of flags, their values, and what they name: schedules, costs, recipes."""
