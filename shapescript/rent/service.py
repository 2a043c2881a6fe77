"""Modal's client: whether it can be used here, and its errors as one line each.

Gives `open_service`, which imports the `modal` package (half a second, so only when a run is wanted) and looks for a
token without asking anyone, and `explained`. No value of a token is read into anything that is printed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any

from shapescript.rent.ask import Request
from shapescript.rent.errors import CANNOT_START, TRY_AGAIN, RentError

OLDEST = (1, 5)
CREDENTIALS = (("token_id", "token_secret"), ("oauth_refresh_token", "oauth_client_id"))


@dataclass(frozen=True)
class Service:
    """The client's package and its errors."""

    modal: ModuleType
    errors: ModuleType


def open_service() -> Service:
    """The client, if it is installed, is new enough, and has a token to show."""
    try:
        version = metadata.version("modal")
    except metadata.PackageNotFoundError:
        raise RentError(
            "renting a GPU needs the package `modal`: `pip install modal`, then `modal setup` to sign in"
        ) from None
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        raise RentError(f"modal {version} is too old, this needs {'.'.join(map(str, OLDEST))}: `pip install -U modal`")
    # a file that changes while it is uploaded, a log, say, is taken as it is
    os.environ.setdefault("MODAL_BUILD_VALIDATION", "ignore")
    # its errors reach us as exceptions; said twice, they would stand between the program's lines
    os.environ.setdefault("MODAL_LOGLEVEL", "CRITICAL")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # where it can't be used, it says so at length, and then raises
            modal = importlib.import_module("modal")
        config = importlib.import_module("modal.config").config
        errors = importlib.import_module("modal.exception")
    except ImportError as error:
        raise RentError(f"the package `modal` is broken here ({error}): `pip install -U modal`") from None
    except Exception as error:  # a configuration file that it can't read; its errors can't be imported before
        if not type(error).__module__.startswith("modal"):
            raise
        raise RentError(first_line(error)) from None
    sys.stderr.write(said.getvalue())
    if not any(all(setting(config, name) for name in names) for names in CREDENTIALS):
        raise RentError("there is no token for Modal here: `modal setup` signs in, once")
    return Service(modal, errors)


def setting(config: Any, name: str) -> bool:
    """Is there a value for this setting? Older clients don't know all of them."""
    try:
        return bool(config.get(name))
    except KeyError:
        return False


def first_line(error: BaseException) -> str:
    """What an error says, on one line."""
    text = " ".join(str(error).split())
    return text if text else type(error).__name__


def explained(error: Exception, service: Service, request: Request, doing: str) -> RentError | None:
    """An error of the client's in a user's words; None if it isn't the client's. `doing` says what was tried."""
    errors, words = service.errors, first_line(error)
    unreachable = (errors.ConnectionError, errors.ServiceError, errors.InternalError, OSError)
    if isinstance(error, OSError) and error.filename is not None:
        return RentError(f"`{error.filename}` can't be read: {error.strerror}")
    image_failed = (errors.RemoteError, getattr(errors, "ImageBuildError", errors.RemoteError))
    if isinstance(error, errors.AuthError):
        return RentError(f"Modal doesn't take the token that is here ({words}): `modal setup` signs in anew")
    if isinstance(error, errors.VersionError):
        return RentError(f"this version of modal is too old for Modal's servers ({words}): `pip install -U modal`")
    if isinstance(error, errors.ResourceExhaustedError):
        return RentError(f"Modal has no room for {request.machine} now ({words}); another GPU, or later", TRY_AGAIN)
    if isinstance(error, (errors.TimeoutError, TimeoutError)):
        return RentError(f"no {request.machine} came in time ({words}); another GPU, or later", TRY_AGAIN)
    if isinstance(error, image_failed):
        return RentError(f"the image couldn't be built, its log stands above ({words})", CANNOT_START)
    if isinstance(error, unreachable):
        return RentError(f"Modal can't be reached, {doing}: {words}", TRY_AGAIN)
    if isinstance(error, errors.Error):
        return RentError(f"Modal refused, {doing}: {words}", CANNOT_START)
    return None
