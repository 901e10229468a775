"""The memory `memory-core`: Markdown files are the truth, and an index beside them finds what they say."""
