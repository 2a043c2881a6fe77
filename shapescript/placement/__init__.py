"""Where each function runs, and what can't be split across the devices."""
