"""Whether a schedule trains right: held against the same training in one thread."""
