"""ShapeScript: a typed tensor language whose axes have names.

Importing it imports neither torch nor any stage: what the package gives to Python is fetched from `session` when it
is first asked for.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

FROM_SESSION = (
    "ArgumentError",
    "CheckError",
    "CheckpointError",
    "DataError",
    "DeviceError",
    "Error",
    "RunError",
    "ShapeError",
    "TensorDataset",
    "Windows",
    "WorkerError",
    "adam",
    "adamw",
    "check",
    "export",
    "lion",
    "load",
    "load_checkpoint",
    "save",
    "save_checkpoint",
    "sgd",
)


def __getattr__(name: str) -> object:
    if name in FROM_SESSION:
        return getattr(import_module("shapescript.session"), name)
    raise AttributeError(f"module `shapescript` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted([*globals(), *FROM_SESSION])


import_module("shapescript.importer").install()  # `import net` finds net.ss
