"""What is measured. Each module runs in a fresh process of its own and prints one line of figures."""
