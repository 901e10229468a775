"""The fourth defence as decisions: which entries may leave a file, on the graph of its entries."""
