"""How large things are, in tokens, and who takes how many."""
