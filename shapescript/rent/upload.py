"""Which files travel: the program's folder, without what can't be of use there.

Takes the folder; gives `Upload`: each file with its size and time, the empty folders, and what is left out. A folder
that is reached by a link travels as a folder. `.shapescriptignore`, in the form of a .gitignore, leaves out more. A
.gitignore isn't read, because data and checkpoints, which a program needs there, stand in it as often as not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pathspec

from shapescript.rent.errors import RentError

IGNORE_FILE = ".shapescriptignore"
LARGE = 10**9
FOLDERS_LEFT_OUT = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".vscode",
    ".idea",
    "node_modules",
)
PART = ".shapescript-part"
"""How the name of a file ends that is still coming back; a client that was killed leaves it."""
FILES_LEFT_OUT = (f"*{PART}", "*.py[co]", ".DS_Store", ".env", ".env.*", ".modal.toml", ".netrc")
"""What is made again there, and what holds passwords: `--env` and `--secret` say which of those are to travel."""


@dataclass(frozen=True)
class Stamp:
    """How a change of a file is seen."""

    size: int
    time: int

    @staticmethod
    def of(path: str | Path) -> Stamp:
        """Of a file that is there."""
        found = os.stat(path)
        return Stamp(found.st_size, found.st_mtime_ns)


@dataclass
class Upload:
    """What travels; names are relative, with `/` between. `roots` are the folder itself and those reached by links."""

    folder: Path
    files: dict[str, Stamp] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    roots: dict[str, Path] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """All bytes together."""
        return sum(stamp.size for stamp in self.files.values())

    def largest(self, number: int = 3) -> list[tuple[str, int]]:
        """What takes most room, by the first part of the name."""
        sizes: dict[str, int] = {}
        for name, stamp in self.files.items():
            top, slash, _ = name.partition("/")
            sizes[top + slash] = sizes.get(top + slash, 0) + stamp.size
        return sorted(sizes.items(), key=lambda item: -item[1])[:number]


def find_files(folder: Path) -> Upload:
    """Walks the folder."""
    if folder in (Path.home(), Path(folder.anchor)):
        raise RentError(f"the program lies in `{folder}`, all of which would be uploaded: give it a folder of its own")
    upload = Upload(folder, roots={"": folder})
    leaves_out = patterns(folder)
    for name, path, is_folder in walk(folder, "", (os.path.realpath(folder),), leaves_out, upload):
        if is_folder:
            upload.empty.append(name)
            continue
        try:
            upload.files[name] = Stamp.of(path)
        except OSError:  # a link to nothing, or a file that is gone already
            upload.left_out.append(name)
    return upload


def patterns(folder: Path) -> pathspec.GitIgnoreSpec:
    """What is left out: the rules of the file come last, so that `!name` there brings a name back."""
    lines = [f"{name}/" for name in FOLDERS_LEFT_OUT] + list(FILES_LEFT_OUT)
    own = folder / IGNORE_FILE
    try:
        if own.is_file():
            lines += own.read_text(encoding="utf-8").splitlines()
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except (OSError, ValueError) as error:
        raise RentError(f"`{own}` can't be used: {error}") from None


def walk(
    folder: Path, prefix: str, above: tuple[str, ...], leaves_out: pathspec.GitIgnoreSpec, upload: Upload
) -> Iterator[tuple[str, str, bool]]:
    """The files of a folder and those below, and the folders that are empty; a link back upwards isn't followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise RentError(f"`{folder}` can't be read: {error.strerror}") from None
    empty = True
    for entry in entries:
        name = prefix + entry.name
        is_folder = entry.is_dir()
        if leaves_out.match_file(name + "/" if is_folder else name) or (is_folder and is_environment(entry.path)):
            upload.left_out.append(name + "/" if is_folder else name)
            continue
        if not is_folder:
            if entry.is_file() or entry.is_symlink():
                empty = False
                yield name, entry.path, False
            continue
        empty = False
        real = os.path.realpath(entry.path)
        if real in above:
            upload.left_out.append(name + "/")
            continue
        if entry.is_symlink():
            upload.roots[name + "/"] = Path(real)
        yield from walk(Path(entry.path), name + "/", (*above, real), leaves_out, upload)
    if empty and prefix:
        yield prefix.rstrip("/"), str(folder), True


def is_environment(path: str) -> bool:
    """Is this a virtual environment of Python's, or of conda's?"""
    return os.path.exists(os.path.join(path, "pyvenv.cfg")) or os.path.isdir(os.path.join(path, "conda-meta"))


def files_of_root(upload: Upload, root: str) -> set[PurePosixPath]:
    """The files that belong to one of the roots and to none below it, by their names from there."""
    below = [other for other in upload.roots if other != root and other.startswith(root)]
    return {
        PurePosixPath(name.removeprefix(root))
        for name in upload.files
        if name.startswith(root) and not any(name.startswith(other) for other in below)
    }


def counted(number: int, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def size(number: float) -> str:
    """A number of bytes as people write it."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number:.0f} bytes"
