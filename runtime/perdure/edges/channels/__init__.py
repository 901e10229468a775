"""Ways out for answers: one module a kind."""
