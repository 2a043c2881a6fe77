"""What ends a run on a rented machine before its program could, and the exit statuses that are the run's own.

A program's own exit status is passed on as it is; these are the ones that say something else.
"""

from __future__ import annotations

CANNOT_START = 2
"""The command line, the package, the token, a secret or the image: the same command will fail again."""
FILES_LOST = 74
"""The program ended well, and some of its files couldn't be brought back."""
TRY_AGAIN = 75
"""Modal can't be reached, has no such machine now, or took it away: the same command may work later."""
TIMED_OUT = 124
INTERRUPTED = 130


class RentError(Exception):
    """Why a run can't start or go on; `str(error)` is one line for the user, `status` the exit status."""

    def __init__(self, message: str, status: int = CANNOT_START) -> None:
        super().__init__(message)
        self.status = status
