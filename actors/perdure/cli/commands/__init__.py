"""Each command's options and help; its body lives in a module of its own, imported when it runs."""
