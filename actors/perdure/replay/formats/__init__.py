"""Recordings of other programs, each read into the one shape of `replay.recording`."""
