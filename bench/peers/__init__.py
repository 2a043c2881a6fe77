"""The same training in PyTorch and JAX, written as people who know them well would write it for speed."""
