"""Types: sizes, axes, elements, the kinds of type, unification, and the checker."""
