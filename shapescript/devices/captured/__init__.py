"""Runs a graph on a CUDA device as captured CUDA graphs."""
