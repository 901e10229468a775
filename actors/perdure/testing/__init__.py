"""What the tests of other people's programs may import: a provider on the loopback interface."""
