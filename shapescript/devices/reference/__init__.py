"""The reference executor: every primitive as plain torch, one function for each, by name."""
