"""Golden vectors of the reference program, held against ours: one adapter for each file of vectors.

A case passes when ours gives what was recorded, or when it falls under a rule of departure: a predicate
on the case, the reason why ours is right to differ, and an assertion of the right value. There are no
other skips. `python -m conformance [FOLDER]` (or `make conformance`) runs a folder of such files.
"""
