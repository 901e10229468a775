"""The laws of perdure as tests."""

pytest_plugins = ["perdure.testing.engines"]
