"""The first defence: what a provider caches, what breaks it, and what that costs."""
