"""One module an area: which cells it runs, the table it prints, the goals it is held to."""
