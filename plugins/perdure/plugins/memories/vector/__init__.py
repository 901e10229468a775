"""The memory `memory-vector`: short texts, stored and found by likeness; SQLite by default, LanceDB as an
extra.
"""
