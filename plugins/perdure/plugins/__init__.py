"""What a slot can hold: context engines and memories, and the registry that names them."""
