"""The memory `memory-graph`: entities and the relations between them, with their time and their sources."""
