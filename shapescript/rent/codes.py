"""The codes of what a rented machine can't do for a program."""

CODES = {
    "E1906": "more devices than the rented machine has",
}
