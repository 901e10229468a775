"""The actors of a host: session, turn, the workers, and the tree that supervises them."""
