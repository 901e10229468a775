"""Commands as clients of a running `perdure serve`."""
