"""The rules of the Messages API, one subject a file; `strict` calls them in the provider's order."""
