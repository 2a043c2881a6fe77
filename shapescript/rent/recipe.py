"""What the rented machine must hold to run a program as this one does: the same Python, torch and ShapeScript.

Gives `Recipe`, in plain words and names of files: `image.py` makes Modal's image of it. ShapeScript's own source
travels and is built there, because its modules in C++ belong to one system's libraries. The source comes from the
tree, where ShapeScript runs from one, and else from the copy that the installed package has in `_project`.
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import shapescript
from shapescript.rent.errors import RentError

PACKAGE = Path(shapescript.__file__).resolve().parent
BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
MADE_BY_BUILDS = (".so", ".pyd", ".dylib", ".pyc")
SOURCE = "/opt/shapescript"
"""Where ShapeScript's source lies in the image."""
CONSTRAINTS = "/opt/same-versions.txt"
REQUIREMENTS = "/opt/requirements.txt"
CUDA = "/opt/cuda"
"""Where NVIDIA's compiler lies in the image, apart from what torch brings along, which is as torch wants it."""
CUDA_PACKAGES = ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-runtime", "cuda-cccl")
CUDA_VERSION = "13.0.*"
PIP = "python -m pip install --no-cache-dir --root-user-action=ignore --disable-pip-version-check"


@dataclass(frozen=True)
class Recipe:
    """The steps are shell commands, in the order of the image's layers: what changes least comes first."""

    python: str
    torch: str
    torch_index: str | None
    same: tuple[str, ...]
    packages: tuple[str, ...]
    requirements: Path | None
    source: Mapping[str, Path] = field(repr=False)

    @property
    def base(self) -> str:
        """The image to start from."""
        return f"python:{self.python}-slim-bookworm"

    @property
    def compiler_step(self) -> str:
        """What builds ShapeScript's modules in C++."""
        return "apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*"

    @property
    def cuda_step(self) -> str:
        """NVIDIA's compiler, which builds ShapeScript's module for GPUs."""
        packages = " ".join(f"'nvidia-{name}=={CUDA_VERSION}'" for name in CUDA_PACKAGES)
        return f"{PIP} --no-deps --target {CUDA} {packages}"

    @property
    def torch_step(self) -> str:
        """The same torch, built for NVIDIA's GPUs."""
        index = f" --index-url {self.torch_index}" if self.torch_index else ""
        return f"{PIP} torch=={self.torch}{index}"

    @property
    def extra_index(self) -> str:
        """Where packages that belong to torch are found."""
        return f" --extra-index-url {self.torch_index}" if self.torch_index else ""

    @property
    def constraints(self) -> str:
        """The versions that no later step may change, in pip's form."""
        return "".join(f"{line}\n" for line in (f"torch=={self.torch}", *self.same))

    @property
    def packages_step(self) -> str | None:
        """What the program needs besides."""
        if self.requirements is not None:
            return f"{PIP} -c {CONSTRAINTS} -r {REQUIREMENTS}{self.extra_index}"
        if self.packages:
            return f"{PIP} -c {CONSTRAINTS} {' '.join(self.packages)}{self.extra_index}"
        return None

    @property
    def shapescript_step(self) -> str:
        """The same ShapeScript; where its modules in C++ or for GPUs can't be built, the image isn't made."""
        built = f"SHAPESCRIPT_NATIVE=1 SHAPESCRIPT_CUDA=1 CUDA_HOME={CUDA}/nvidia/cu13"
        return f"{built} {PIP} -c {CONSTRAINTS} {SOURCE}"


def recipe(folder: Path, packages: Mapping[str, str]) -> Recipe:
    """The recipe for a program that lies in `folder` and imports `packages`."""
    torch = installed_torch()
    source = project_files()
    requirements = folder / "requirements.txt"
    own = own_requirements(source["pyproject.toml"])
    same = tuple(f"{name}=={version}" for name in own if name != "torch" and (version := installed(name)) is not None)
    return Recipe(
        python=platform.python_version().rstrip("+"),
        torch=torch.partition("+")[0],
        torch_index=torch_index(torch),
        same=same,
        packages=tuple(sorted(line for name, line in packages.items() if canonical(name) not in own)),
        requirements=requirements if requirements.is_file() else None,
        source=source,
    )


def installed(package: str) -> str | None:
    """The version of a package that is here, without the part that names one build of it."""
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def installed_torch() -> str:
    """The version of torch that is here, which must be one that can be had."""
    if sys.implementation.name != "cpython":
        raise RentError(f"the rented machine runs CPython, and this is {sys.implementation.name}")
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise RentError("torch isn't installed here, so there is no version of it to install there") from None
    if not re.fullmatch(r"\d+\.\d+\.\d+(\+\w+)?", version):
        raise RentError(f"torch {version}, which is installed here, is no release, so it can't be installed there")
    return version


def torch_index(version: str) -> str | None:
    """Where the build of torch lies: one for a CUDA of its own isn't on PyPI. One for CPUs has a sister there."""
    build = version.partition("+")[2]
    return f"https://download.pytorch.org/whl/{build}" if re.fullmatch(r"cu\d+", build) else None


def canonical(name: str) -> str:
    """A package's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def own_requirements(pyproject: Path) -> list[str]:
    """The packages that ShapeScript needs to run."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return [canonical(re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0]) for line in project["dependencies"]]


def project_files() -> dict[str, Path]:
    """The files that ShapeScript is built from: where each belongs in the project's tree, and where it is."""
    tree = PACKAGE.parent
    files: dict[str, Path] = {}
    if (tree / "setup.py").is_file() and (tree / "csrc").is_dir():
        files |= {name: tree / name for name in BESIDE if (tree / name).is_file()}
        files |= below(tree / "csrc", "csrc/")
        files |= below(tree / "docs" / "errors", "docs/errors/")
        files |= below(PACKAGE, "shapescript/")
    elif (PACKAGE / "_project" / "setup.py").is_file():
        files |= below(PACKAGE / "_project", "")
        files |= below(PACKAGE / "errors", "docs/errors/")
        files |= below(PACKAGE, "shapescript/", left_out=("_project", "errors"))
    else:
        raise RentError(f"ShapeScript's source isn't beside `{PACKAGE}`, so it can't be built on the rented machine")
    return files


def below(folder: Path, prefix: str, left_out: Iterable[str] = ()) -> dict[str, Path]:
    """The files of a folder and those below, but for what builds make."""
    skipped = {"__pycache__", *left_out}
    return {
        prefix + path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not skipped.intersection(path.relative_to(folder).parts)
        and path.suffix not in MADE_BY_BUILDS
        and path.name != "_tables.py"
    }
