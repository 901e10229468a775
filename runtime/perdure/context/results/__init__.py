"""The second defence: tool results cut to the room there is."""
