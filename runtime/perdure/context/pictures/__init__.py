"""Pictures in a request: what a provider takes, and what they cost."""
