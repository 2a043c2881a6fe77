"""Measurements, as ratios of medians within one run. `python -m bench` runs them; nothing here is a test."""
