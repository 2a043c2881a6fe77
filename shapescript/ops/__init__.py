"""The operations: the registry, and the ops by family."""
