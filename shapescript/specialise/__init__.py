"""The evaluator, its values and the domain that makes graphs."""
