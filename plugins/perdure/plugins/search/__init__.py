"""Searching texts by words and by vectors: pieces, a store, explicit stages, and what puts them together."""
