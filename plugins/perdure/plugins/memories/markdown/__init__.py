"""The memory `memory-markdown`: two files, lasting facts in MEMORY.md and an append-only log in
HISTORY.md.
"""
