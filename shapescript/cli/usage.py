"""The error of a command line that can't be; every command may raise it."""


class UsageError(Exception):
    """A command line that can't be; `str(error)` says why. The exit status is 2."""
