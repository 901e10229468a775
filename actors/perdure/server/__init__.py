"""The HTTP API of a host."""
