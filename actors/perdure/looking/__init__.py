"""Looking into session files and what would be made of them, without a host and without changing a byte."""
