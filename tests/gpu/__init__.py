"""What needs an NVIDIA GPU: `python -m tests.gpu` builds, runs all of it and prints one table."""
