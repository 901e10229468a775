"""The HTTP API of a host: starlette on hypercorn, on either loop. `routes` is the table of all of it."""
