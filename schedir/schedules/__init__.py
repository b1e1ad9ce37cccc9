"""The schedules that come with schedir, one pure function each."""
