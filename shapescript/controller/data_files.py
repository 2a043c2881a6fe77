"""Data in files: `open_data` gives what `as Dataset[Example]` takes.

`.npz`, `.npy` and `.safetensors` files are memory-mapped, so that data larger than the memory is read as it is asked
for; a compressed `.npz`, `.parquet` and `.csv` are read whole (for larger ones, Hugging Face's `datasets` maps them).
A folder of images, one folder a class, is read image by image. The libraries that read tables and images are extras.

The columns stay in the controller's memory or on the disk: each batch is checked and copied to the device.
"""

from __future__ import annotations

import fnmatch
import struct
import zipfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.controller.arrays import as_tensor, from_array
from shapescript.controller.dataset_items import Rows
from shapescript.controller.errors import DataError
from shapescript.diagnostics.suggest import nearest

Column = NDArray[Any] | torch.Tensor
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
LOCAL_HEADER = 30


class Columns:
    """Columns that stay where they are; a batch's rows are copied out of them."""

    def __init__(self, columns: Mapping[str, Column], source: str) -> None:
        lengths = {name: len(column) for name, column in columns.items() if column.ndim}
        if len(lengths) < len(columns) or len(set(lengths.values())) > 1:
            listed = ", ".join(f"`{name}` {lengths.get(name, 'is one value')}" for name in columns)
            raise DataError(f"the columns of `{source}` should have as many rows each: {listed}")
        self.columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: int) -> Rows:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return {name: column[0] for name, column in self.rows(np.asarray([place])).items()}

    def rows(self, numbers: NDArray[np.int64]) -> Rows:
        """The rows of these numbers."""
        found = {}
        for name, column in self.columns.items():
            if isinstance(column, torch.Tensor):
                found[name] = column[torch.from_numpy(numbers)]
            else:
                found[name] = from_array(np.ascontiguousarray(column[numbers]))
        return found


def open_data(
    path: str | Path, columns: Mapping[str, str | Sequence[str]] | None = None, **options: Any
) -> Columns | ImageFolder:
    """The data of a file or of a folder of images, by what its name ends with.

    `columns` says for each field which column it is, or which columns make it, by names or by a pattern: `{"x": "p*"}`.
    The options of a folder of images are those of `ImageFolder`.

    Raises:
        DataError: there is no such file, it can't be read, or a package is missing.
    """
    place = Path(path)
    if place.is_dir():
        if columns is not None:
            raise DataError(
                f"`{path}` is a folder of images, which has no columns; `image=` and `label=` name its fields"
            )
        return ImageFolder(place, **options)
    if options:
        raise DataError(f"`{next(iter(options))}` is an option of a folder of images, and `{path}` is a file")
    if not place.is_file():
        raise DataError(f"there is no file `{path}`")
    opener = OPENERS.get(place.suffix.lower())
    if opener is None:
        raise DataError(f"`{path}` is none of {', '.join(OPENERS)}, and no folder of images")
    try:
        found = opener(place)
    except (OSError, ValueError, zipfile.BadZipFile, struct.error) as error:
        raise DataError(f"`{path}` can't be read: {error}") from error
    return Columns(chosen(found, columns, str(path)) if columns is not None else found, str(path))


def chosen(found: Mapping[str, Column], columns: Mapping[str, str | Sequence[str]], source: str) -> dict[str, Column]:
    """The columns of the fields."""
    made: dict[str, Column] = {}
    for field, wanted in columns.items():
        if isinstance(wanted, str) and wanted in found:
            made[field] = found[wanted]
            continue
        names = fnmatch.filter(found, wanted) if isinstance(wanted, str) else list(wanted)
        missing = [name for name in names if name not in found]
        if missing or not names:
            name = missing[0] if missing else str(wanted)
            close = nearest(name, list(found))
            hint = f"; did you mean `{close}`?" if close else f"; it has {', '.join(list(found)[:12])}"
            raise DataError(f"`{source}` has no column `{name}`, which `{field}` is to be{hint}")
        made[field] = np.stack([np.asarray(found[name]) for name in names], axis=1)
    return made


# --- numpy -----------------------------------------------------------------------------------------------------------


def open_npy(path: Path) -> dict[str, Column]:
    """The one array of a `.npy`, called by the file's name."""
    return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)}


def open_npz(path: Path) -> dict[str, Column]:
    """The arrays of a `.npz`: mapped where they are stored as they are, read where they are compressed."""
    found: dict[str, Column] = {}
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            member = archive.getinfo(f"{name}.npy")
            mapped = mapped_member(path, member) if member.compress_type == zipfile.ZIP_STORED else None
            found[name] = arrays[name] if mapped is None else mapped
    return found


def mapped_member(path: Path, member: zipfile.ZipInfo) -> NDArray[Any] | None:
    """An array that lies in an archive as it is, mapped; None for one that can't be."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        header = file.read(LOCAL_HEADER)
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(member.header_offset + LOCAL_HEADER + name_length + extra_length)
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            return None
        shape, turned, dtype = read(file)
        if dtype.hasobject or 0 in shape:
            return None
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if turned else "C")


# --- others ----------------------------------------------------------------------------------------------------------


def open_safetensors(path: Path) -> dict[str, Column]:
    """The tensors of a `.safetensors`, which lie in the mapped file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def open_parquet(path: Path) -> dict[str, Column]:
    """The columns of a `.parquet`."""
    parquet = extra("pyarrow.parquet")
    return columns_of_table(parquet.read_table(path, memory_map=True), path)


def open_csv(path: Path) -> dict[str, Column]:
    """The columns of a `.csv` whose first line names them."""
    return columns_of_table(extra("pyarrow.csv").read_csv(path), path)


def columns_of_table(table: Any, path: Path) -> dict[str, Column]:
    """Columns of numbers, and of lists of numbers of one length, as arrays."""
    pa = extra("pyarrow")
    found: dict[str, Column] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if array.null_count:
            row = next(i for i, valid in enumerate(array.is_valid().to_pylist()) if not valid)
            raise DataError(f"column `{name}` of `{path}` has no value in row {row}")
        width = None
        if (
            pa.types.is_list(array.type)
            or pa.types.is_large_list(array.type)
            or pa.types.is_fixed_size_list(array.type)
        ):
            lengths = set(extra("pyarrow.compute").list_value_length(array).to_pylist())
            if len(lengths) > 1:
                raise DataError(f"column `{name}` of `{path}` holds lists of different lengths: pad them to one")
            width = lengths.pop() if lengths else 0
            array = array.flatten()
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)):
            raise DataError(
                f"column `{name}` of `{path}` holds {array.type}, and a field holds numbers: leave it out with "
                "`columns=`, or make numbers of it in Python"
            )
        values = array.to_numpy(zero_copy_only=False)
        found[name] = values if width is None else values.reshape(-1, width)
    return found


def extra(name: str) -> Any:
    """A package that reads some files.

    Raises:
        DataError: it isn't installed.
    """
    try:
        return import_module(name)
    except ImportError:
        package = {"PIL.Image": "pillow"}.get(name, name.partition(".")[0])
        raise DataError(f"this needs the package `{package}`: pip install 'shapescript[data]'") from None


OPENERS = {
    ".npz": open_npz,
    ".npy": open_npy,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
    ".csv": open_csv,
}


class ImageFolder:
    """Images in a folder for each class, the classes by name: item i has the image, [3 h w] in 0..1, and its class.

    `image` and `label` name the fields; `size` is (height, width), to which each is scaled; `channels` is 1 or 3.
    """

    def __init__(
        self,
        path: str | Path,
        image: str = "image",
        label: str = "label",
        size: tuple[int, int] | None = None,
        channels: int = 3,
    ) -> None:
        extra("PIL.Image")
        if channels not in (1, 3):
            raise DataError(f"an image has 1 or 3 channels, and `channels` is {channels}")
        self.path = Path(path)
        self.names = (image, label)
        self.size = size
        self.channels = channels
        self.classes = sorted(folder.name for folder in self.path.iterdir() if folder.is_dir())
        self.files = [
            (file, number)
            for number, name in enumerate(self.classes)
            for file in sorted((self.path / name).rglob("*"))
            if file.suffix.lower() in IMAGES
        ]
        if not self.files:
            raise DataError(f"`{path}` should have a folder of images for each class, and there is no image in it")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> dict[str, object]:
        file, number = self.files[place]
        image = extra("PIL.Image")
        try:
            with image.open(file) as opened:
                picture = opened.convert("RGB" if self.channels == 3 else "L")
        except OSError as error:
            raise DataError(f"`{file}` isn't an image that can be read: {error}") from None
        if self.size is not None:
            height, width = self.size
            picture = picture.resize((width, height), image.Resampling.BILINEAR)
        pixels = np.asarray(picture, dtype=np.float32).reshape(picture.height, picture.width, self.channels) / 255
        tensor = as_tensor(np.ascontiguousarray(pixels.transpose(2, 0, 1)), "the image")
        return {self.names[0]: tensor, self.names[1]: number}
