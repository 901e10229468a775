"""The memories that come with perdure, and what they share."""
