"""Scenarios: scripts that a host is driven through in virtual time, written by hand or imported."""
