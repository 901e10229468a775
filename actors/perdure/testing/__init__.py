"""What the tests of other people's programs may import: a provider on loopback, the laws of engines."""
