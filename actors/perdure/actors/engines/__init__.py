"""Context engines as actors: which one a session has, calls with deadlines, health, delivery."""
