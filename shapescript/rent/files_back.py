"""Files from the rented machine into the program's folder.

Takes the bytes of a tar as they arrive; gives how many files came. A file appears whole or not at all. One that was
changed here since the run began isn't overwritten: what comes for it lies beside it, as `name.modal`. A name that
leads out of the folder is refused.
"""

from __future__ import annotations

import os
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

from shapescript.rent.say import say
from shapescript.rent.upload import PART, Stamp

MEGABYTE = 1 << 20


class Chunks:
    """The bytes of an iterator, as a file to read from."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks: Iterator[bytes] = iter(chunks)
        self.held = bytearray()

    def read(self, number: int) -> bytes:
        """So many bytes, fewer only at the end."""
        while len(self.held) < number and (chunk := next(self.chunks, None)) is not None:
            self.held += chunk
        out = bytes(self.held[:number])
        del self.held[:number]
        return out


@dataclass
class FilesBack:
    """The folder, what lay in it when the run began, and what came since."""

    folder: Path
    uploaded: Mapping[str, Stamp]
    began: int = field(default_factory=time.time_ns)
    ours: dict[str, Stamp] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    """In the order in which they came last."""
    failed: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def take(self, chunks: Iterable[bytes]) -> int:
        """Writes the files of one tar; raises `tarfile.TarError` if it breaks off, with nothing half written."""
        number = 0
        with tarfile.open(fileobj=cast("IO[bytes]", Chunks(chunks)), mode="r|", bufsize=MEGABYTE) as archive:
            for entry in archive:
                data = archive.extractfile(entry) if entry.isfile() else None
                if data is None:
                    continue
                try:
                    self.write(entry, data)
                except OSError as error:
                    self.failed[entry.name] = error.strerror or str(error)
                    continue
                self.failed.pop(entry.name, None)
                self.names.pop(entry.name, None)
                self.names[entry.name] = None
                self.size += entry.size
                number += 1
        return number

    def write(self, entry: tarfile.TarInfo, data: IO[bytes]) -> None:
        """Writes one file beside its place, then puts it there."""
        name = entry.name
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or (os.name == "nt" and set(name) & set("\\:")):
            raise OSError(f"the name `{name}` leads out of the program's folder")
        place = self.folder.joinpath(*parts)
        if changed_here := self.changed_here(name, place):
            place = place.with_name(place.name + ".modal")
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(place.name + PART)
        try:
            with open(part, "wb") as file:
                while piece := data.read(MEGABYTE):
                    file.write(piece)
            os.chmod(part, entry.mode & 0o777 | 0o600)
            os.utime(part, (entry.mtime, entry.mtime))
            os.replace(part, os.path.realpath(place) if place.is_symlink() else place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if changed_here:
            if name not in self.names:
                say(f"`{name}` was changed here meanwhile: the one from the machine is `{name}.modal`")
        else:
            self.ours[name] = Stamp.of(place)

    def changed_here(self, name: str, place: Path) -> bool:
        """Is there a file that this run neither uploaded as it is now nor wrote?"""
        try:
            now = Stamp.of(place)
        except OSError:
            return False
        known = self.ours.get(name) or self.uploaded.get(name)
        return now != known if known is not None else now.time >= self.began
