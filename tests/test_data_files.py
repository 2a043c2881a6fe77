"""Data in files, and datasets of other libraries, against what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import shapescript
from shapescript.controller.data_files import Columns, ImageFolder
from shapescript.controller.datasets import Dataset, FieldSpec
from shapescript.controller.errors import DataError

FIELDS = (FieldSpec("x", (3,), "f32", "[D]"), FieldSpec("y", (), "i64", "[] Index[C]", "Index", 4))
X = np.random.default_rng(0).random((10, 3), dtype=np.float32)
Y = np.arange(10) % 4


def rows(source: object, seed: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    data = Dataset.of(source, "Example", FIELDS)
    data = data if seed is None else data.shuffle(seed)
    found = list(data.batches(4))
    return torch.cat([batch["x"] for batch in found]), torch.cat([batch["y"] for batch in found])


def check(source: object) -> None:
    x, y = rows(source)
    assert torch.equal(x, torch.from_numpy(X)) and y.tolist() == Y.tolist()
    x, y = rows(source, seed=3)
    assert sorted(map(tuple, x.tolist())) == sorted(map(tuple, X.tolist())) and y.tolist() != Y.tolist()


def test_npz_is_mapped_where_it_is_stored_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", x=np.asfortranarray(X), y=Y.astype(np.uint8))
    np.savez_compressed(tmp_path / "small.npz", x=X, y=Y)
    plain, small = (shapescript.open_data(tmp_path / name) for name in ("plain.npz", "small.npz"))
    assert isinstance(plain.columns["x"], np.memmap) and not isinstance(small.columns["x"], np.memmap)
    check(plain)
    check(small)


def test_npy_and_safetensors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype(">f4"))
    [column] = shapescript.open_data(tmp_path / "x.npy").columns.values()
    assert isinstance(column, np.memmap)
    check(Columns({"x": column, "y": Y}, "both"))
    save_file({"x": torch.from_numpy(X), "label": torch.from_numpy(Y)}, tmp_path / "d.safetensors")
    check(shapescript.open_data(tmp_path / "d.safetensors", columns={"x": "x", "y": "label"}))


def test_tables(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    flat = X.ravel()
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(flat), 3), "y": Y, "name": ["a"] * 10})
    parquet.write_table(table.drop_columns("name"), tmp_path / "d.parquet")
    check(shapescript.open_data(tmp_path / "d.parquet"))
    wide = pa.table({"p0": X[:, 0], "p1": X[:, 1], "p2": X[:, 2], "y": Y})
    csv.write_csv(wide, tmp_path / "d.csv")
    x, y = rows(shapescript.open_data(tmp_path / "d.csv", columns={"x": "p*", "y": "y"}))
    torch.testing.assert_close(x, torch.from_numpy(X))
    check(shapescript.open_data(tmp_path / "d.csv", columns={"x": ["p0", "p1", "p2"], "y": "y"}))
    with pytest.raises(DataError, match="no column `p9`, which `x` is to be; did you mean `p0`"):
        shapescript.open_data(tmp_path / "d.csv", columns={"x": ["p0", "p9"]})
    parquet.write_table(table, tmp_path / "named.parquet")
    with pytest.raises(DataError, match="column `name` of .* holds string, and a field holds numbers"):
        shapescript.open_data(tmp_path / "named.parquet")
    (tmp_path / "gap.csv").write_text("x,y\n1,2\n3,\n")
    with pytest.raises(DataError, match="column `y` of .* has no value in row 1"):
        shapescript.open_data(tmp_path / "gap.csv")


def test_a_folder_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, value in (("dog", 255), ("cat", 51)):
        (tmp_path / "images" / name).mkdir(parents=True)
        image.new("RGB", (4, 2), (value, 0, 0)).save(tmp_path / "images" / name / "0.png")
    (tmp_path / "images" / "cat" / "notes.txt").write_text("")
    found = shapescript.open_data(tmp_path / "images", size=(3, 2))
    assert isinstance(found, ImageFolder) and found.classes == ["cat", "dog"] and len(found) == 2
    fields = (FieldSpec("image", (3, 3, 2), "f32", "[3 h w]"), FieldSpec("label", (), "i64", "[] Index[C]", "Index", 2))
    [batch] = Dataset.of(found, "Picture", fields).batches(2)
    torch.testing.assert_close(batch["image"][:, 0, 0, 0], torch.tensor([0.2, 1.0]))
    assert batch["label"].tolist() == [0, 1]
    (tmp_path / "images" / "cat" / "1.png").write_text("no image")
    with pytest.raises(DataError, match="1.png. isn't an image that can be read"):
        list(Dataset.of(ImageFolder(tmp_path / "images", size=(3, 2)), "Picture", fields).batches(2))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="a folder of images for each class, and there is no image"):
        shapescript.open_data(tmp_path / "none")


def test_hugging_faces_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    check(datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}))
    check(datasets.Dataset.from_dict({"x": X, "y": Y}).with_format("numpy"))

    def items() -> Any:
        yield from ({"x": row.tolist(), "y": int(label)} for row, label in zip(X, Y, strict=True))

    x, y = rows(datasets.IterableDataset.from_generator(items))
    assert torch.equal(x, torch.from_numpy(X)) and y.tolist() == Y.tolist()


def test_windows_of_tokens_in_a_file(tmp_path: Path) -> None:
    np.arange(50, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    tokens = np.memmap(tmp_path / "tokens.bin", np.uint16, "r")
    windows = shapescript.Windows(tokens, 4, stride=3, names=("a", "b"))
    fields = tuple(FieldSpec(name, (4,), "i64", "[T] Index[V]", "Index", 50) for name in ("a", "b"))
    found = [batch for batch in Dataset.of(windows, "Window", fields).batches(5)]
    assert sum(len(batch["a"]) for batch in found) == len(windows) == 16
    assert found[-1]["a"][-1].tolist() == [45, 46, 47, 48] and found[-1]["b"][-1].tolist() == [46, 47, 48, 49]
    assert isinstance(windows.tokens, np.memmap)
    few = tuple(FieldSpec(name, (4,), "i64", "[T] Index[V]", "Index", 40) for name in ("a", "b"))
    with pytest.raises(DataError, match="item 12 of the dataset: `b` of `Window` should be .* 0..40, and holds 40"):
        list(Dataset.of(windows, "Window", few).batches(5))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("no.npz", None, "there is no file"),
        ("d.xyz", "", "is none of .npz, .npy, .safetensors, .parquet, .csv"),
        ("d.npz", "no archive", "can't be read"),
        ("d.npy", "\x93NUMPY", "can't be read"),
        ("d.safetensors", "short", "can't be read"),
        ("d.parquet", "PAR1", "can't be read"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        shapescript.open_data(tmp_path / name)


def test_a_program_opens_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    (tmp_path / "files.ss").write_text(
        "devices cpu\n\ndim D = 3\ndim C = 4\n\nimport python shapescript\n\ndata Example:\n    x: [D]\n"
        '    y: [] Index[C]\n\nfn main():\n    for batch in shapescript.open_data("d.npz") as Dataset[Example] '
        "|> batches(4):\n        print(batch.y)\n"
    )
    with shapescript.load(tmp_path / "files.ss") as program:
        program.main()
    assert capsys.readouterr().out == "[0, 1, 2, 3]\n[0, 1, 2, 3]\n[0, 1]\n"
