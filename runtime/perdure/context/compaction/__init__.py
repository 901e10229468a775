"""The third defence as decisions: what to cover, what to ask, what counts as proof. No model calls."""
