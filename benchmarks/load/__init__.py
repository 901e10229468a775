"""A thousand clients over loopback: `make load`."""
