"""Engines with one fault each, made of the reference, and the laws that must catch it.

`MUTANTS` maps a name to (factory, ids of laws). A law that catches none of them is idle: a test says so.
"""

from testing.mutants import answers, contract, keeping, running, together
from testing.mutants.made import MUTANTS

__all__ = ["MUTANTS", "answers", "contract", "keeping", "running", "together"]
