"""The system prompt: its stable part, the boundary, and what changes below it."""
