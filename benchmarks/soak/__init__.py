"""The long soak: ten thousand sessions through a week of virtual time, in one process, under a budget."""
