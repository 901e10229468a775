"""Characters and what they make up: what can be encoded, cut, or must not be shown."""
