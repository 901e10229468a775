"""Measures perdure against peers and floors, side by side in one run: `python -m benchmarks`."""
