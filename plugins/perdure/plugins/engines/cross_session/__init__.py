"""The engine `cross-session`: what matters in one session of an agent is known in its next ones."""
