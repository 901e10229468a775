"""The session file: the log that is the truth. Reading is byte-exact and harmless; one writer appends."""
