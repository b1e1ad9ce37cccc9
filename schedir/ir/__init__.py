"""The intermediate representation: actions, programs, weight rules and the task graph that everything else reads."""
