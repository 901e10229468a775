"""An actor with work of its own, and how it is attached to perdure."""
