"""Pure functions on records: the safety steps, the five defences, the pipeline. No I/O, clock, async."""
