"""The redo journal of durability `power`: one for a state folder, one sync for all who append at once."""
