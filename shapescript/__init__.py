"""ShapeScript: a typed tensor language whose axes have names.

Importing it imports neither torch nor any stage: what the package gives to Python is fetched from `session` when it
is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what editors know; at run time `__getattr__` fetches each when it is asked for
    from shapescript.controller.data_files import open_data as open_data
    from shapescript.controller.datasets import TensorDataset as TensorDataset
    from shapescript.controller.datasets import Windows as Windows
    from shapescript.controller.errors import ArgumentError as ArgumentError
    from shapescript.controller.errors import CheckError as CheckError
    from shapescript.controller.errors import CheckpointError as CheckpointError
    from shapescript.controller.errors import DataError as DataError
    from shapescript.controller.errors import DeviceError as DeviceError
    from shapescript.controller.errors import Error as Error
    from shapescript.controller.errors import RunError as RunError
    from shapescript.controller.errors import ShapeError as ShapeError
    from shapescript.controller.errors import WorkerError as WorkerError
    from shapescript.python.module import load as load
    from shapescript.python.torch_modules import export as export
    from shapescript.python.training import adam as adam
    from shapescript.python.training import adamw as adamw
    from shapescript.python.training import lion as lion
    from shapescript.python.training import load_checkpoint as load_checkpoint
    from shapescript.python.training import save as save
    from shapescript.python.training import save_checkpoint as save_checkpoint
    from shapescript.python.training import sgd as sgd
    from shapescript.session import check as check

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
    "open_data",
    "save",
    "save_checkpoint",
    "sgd",
)


def __getattr__(name: str) -> object:
    if name in FROM_SESSION:
        return getattr(import_module("shapescript.session"), name)
    if name in ("load_ipython_extension", "unload_ipython_extension"):
        return getattr(import_module("shapescript.notebook"), name)
    raise AttributeError(f"module `shapescript` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted([*globals(), *FROM_SESSION])


import_module("shapescript.importer").install()  # `import net` finds net.ss
