"""What fills the memory slot: chosen once, called with deadlines, counted; nothing of it can harm a turn."""
