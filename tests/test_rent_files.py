"""What travels to a rented machine, what comes back, and the part that runs there, each by itself."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from shapescript.rent import guest
from shapescript.rent.errors import RentError
from shapescript.rent.files_back import FilesBack
from shapescript.rent.image import make_image
from shapescript.rent.recipe import own_requirements, project_files, recipe, torch_index
from shapescript.rent.run import warnings
from shapescript.rent.upload import Stamp, Upload, files_of_root, find_files, size


def write(folder: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


# --- what travels ----------------------------------------------------------------------------------------------------


def test_what_travels_and_what_does_not(tmp_path: Path) -> None:
    write(tmp_path, "train.ss", "data/a.bin", "deep/er/b.py", "checkpoint.safetensors", ".hidden", ".gitignore")
    write(tmp_path, ".git/config", "__pycache__/x.pyc", "deep/__pycache__/y.pyc", "z.pyc", ".env", ".env.local")
    write(tmp_path, "venv/pyvenv.cfg", "venv/lib/torch.py", "node_modules/x.js")
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    upload = find_files(tmp_path)
    travelling = [".gitignore", ".hidden", "checkpoint.safetensors", "data/a.bin", "deep/er/b.py", "train.ss"]
    assert sorted(upload.files) == travelling
    assert upload.empty == ["empty/inside"]
    assert {".git/", ".env", ".env.local", "venv/", "z.pyc", "nowhere"} <= set(upload.left_out)
    assert upload.size == len(travelling)


def test_a_gitignore_is_not_read_and_a_shapescriptignore_is(tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", text="*.bin\n")
    write(tmp_path, "train.ss", "a.bin", "keep/b.bin", "large/c.txt", ".env")
    assert {"a.bin", "keep/b.bin", "large/c.txt"} <= set(find_files(tmp_path).files)
    write(tmp_path, ".shapescriptignore", text="# what stays here\n*.bin\n!keep/*.bin\n/large/\n!.env\n")
    assert sorted(find_files(tmp_path).files) == [".env", ".gitignore", ".shapescriptignore", "keep/b.bin", "train.ss"]


def test_folders_reached_by_links_travel(tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/data/a.bin", "elsewhere/data/more/b.bin", "program/train.ss", "elsewhere/one.txt")
    program = tmp_path / "program"
    (program / "data").symlink_to(tmp_path / "elsewhere" / "data")
    (program / "one.txt").symlink_to(tmp_path / "elsewhere" / "one.txt")
    (program / "round").symlink_to(program)
    upload = find_files(program)
    assert sorted(upload.files) == ["data/a.bin", "data/more/b.bin", "one.txt", "train.ss"]
    assert upload.roots == {"": program, "data/": tmp_path / "elsewhere" / "data"}
    assert {str(path) for path in files_of_root(upload, "")} == {"one.txt", "train.ss"}
    assert {str(path) for path in files_of_root(upload, "data/")} == {"a.bin", "more/b.bin"}


def test_a_home_is_no_folder_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RentError, match="give it a folder of its own"):
        find_files(tmp_path)


def test_a_large_folder_is_warned_of(tmp_path: Path) -> None:
    upload = Upload(tmp_path, {"data/a": Stamp(2 * 10**9, 0), "data/b": Stamp(10**9, 0), "x.py": Stamp(5, 0)})
    (line,) = warnings(upload)
    assert "3.0 GB" in line and "data/ 3.0 GB" in line and ".shapescriptignore" in line
    assert list(warnings(Upload(tmp_path, {"a": Stamp(10**9, 0)}))) == []
    assert [size(n) for n in (0, 999, 1000, 1234567)] == ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB"]


# --- the same versions -----------------------------------------------------------------------------------------------


def test_the_recipe_is_what_is_here(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"hypothesis": "hypothesis==1.2", "numpy": "numpy==9"})
    assert made.base == f"python:{'.'.join(map(str, sys.version_info[:3]))}-slim-bookworm"
    assert made.torch == metadata.version("torch").partition("+")[0]
    assert f"numpy=={metadata.version('numpy')}" in made.constraints.splitlines()
    assert made.packages == ("hypothesis==1.2",), "ShapeScript's own packages have their versions already"
    assert made.packages_step is not None and made.packages_step.endswith(" hypothesis==1.2")
    assert recipe(tmp_path, {}).packages_step is None
    write(tmp_path, "requirements.txt")
    step = recipe(tmp_path, {}).packages_step
    assert step is not None and "-r /opt/requirements.txt" in step and "-c /opt/same-versions.txt" in step


def test_the_module_for_gpus_is_built_there(tmp_path: Path) -> None:
    """Its sources travel, a compiler for them is there before, and without it the image isn't made."""
    made = recipe(tmp_path, {})
    sources = ("launch.cu", "launch_tiles.cu", "bindings.cpp", "nccl.cpp")
    assert {f"csrc/cuda/{name}" for name in sources} <= set(made.source)
    assert "--target /opt/cuda " in made.cuda_step and "'nvidia-cuda-nvcc==13.0.*'" in made.cuda_step
    assert " SHAPESCRIPT_CUDA=1 CUDA_HOME=/opt/cuda/nvidia/cu13 " in made.shapescript_step

    steps: list[str] = []

    class Image:
        def run_commands(self, step: str) -> Image:
            steps.append(step)
            return self

        def add_local_file(self, *given: object, **named: object) -> Image:
            return self

        add_local_dir = add_local_file

    modal = SimpleNamespace(Image=SimpleNamespace(from_registry=lambda base: Image()))
    (tmp_path / "train.ss").write_text("devices cuda[0]\n")
    make_image(modal, made, Upload(tmp_path), {}, tmp_path)  # type: ignore[arg-type]
    assert steps == [made.compiler_step, made.cuda_step, made.torch_step, made.shapescript_step]


@pytest.mark.parametrize(
    ("version", "index"),
    [
        ("2.13.0", None),
        ("2.13.0+cpu", None),
        ("2.13.0+cu126", "https://download.pytorch.org/whl/cu126"),
        ("2.13.0+rocm6.3", None),
    ],
)
def test_where_torch_is_found(version: str, index: str | None) -> None:
    assert torch_index(version) == index


@pytest.mark.parametrize("version", ["2.14.0.dev20260101+cu126", "2.14.0a0+git1234567", "2.13.0rc1", None])
def test_a_torch_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None) -> None:
    real = metadata.version

    def other(name: str) -> str:
        if name != "torch":
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", other)
    with pytest.raises(RentError, match="isn't installed here" if version is None else "is no release"):
        recipe(tmp_path, {})


def test_shapescript_travels_as_its_source() -> None:
    files = project_files()
    assert {"pyproject.toml", "setup.py", "csrc/cpu/core.cpp", "shapescript/rent/guest.py"} <= set(files)
    assert "docs/errors/E1906.md" in files and "shapescript/py.typed" in files
    assert not [name for name in files if "__pycache__" in name or name.endswith(".so") or name.endswith("/_tables.py")]
    own = own_requirements(files["pyproject.toml"])
    assert {"torch", "ply", "numpy", "scikit-learn"} <= set(own)


# --- what comes back -------------------------------------------------------------------------------------------------


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1_700_000_000
            made.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def pieces(data: bytes, length: int = 700) -> Iterator[bytes]:
    for start in range(0, len(data), length):
        yield data[start : start + length]


def test_files_come_whole(tmp_path: Path) -> None:
    back = FilesBack(tmp_path, {})
    assert back.take(pieces(archive({"a": b"1" * 5000, "out/b": b""}))) == 2
    assert (tmp_path / "a").read_bytes() == b"1" * 5000 and (tmp_path / "out" / "b").exists()
    assert os.stat(tmp_path / "a").st_mtime == 1_700_000_000
    with pytest.raises(tarfile.TarError):
        back.take(pieces(archive({"a": b"2" * 5000})[:3000]))
    assert (tmp_path / "a").read_bytes() == b"1" * 5000, "the one that broke off didn't take its place"
    assert [path.name for path in tmp_path.rglob("*part")] == []


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../../b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    back = FilesBack(folder, {})
    assert back.take(pieces(archive({name: b"x"}))) == 0
    assert len(back.failed) == 1 and "leads out" in next(iter(back.failed.values()))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inside"]


def test_links_and_devices_do_not_come(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            entry = tarfile.TarInfo(f"entry{kind!r}")
            entry.type, entry.linkname = kind, "/etc/passwd"
            made.addfile(entry)
    assert FilesBack(tmp_path, {}).take(pieces(out.getvalue())) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_was_changed_here_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "uploaded", "edited")
    old = time.time() - 100
    for name in ("uploaded", "edited"):
        os.utime(tmp_path / name, (old, old))
    write(tmp_path, "ignored", text="there before the run")
    os.utime(tmp_path / "ignored", (old, old))
    back = FilesBack(tmp_path, {name: Stamp.of(tmp_path / name) for name in ("uploaded", "edited")})
    write(tmp_path, "edited", "new", text="mine")
    os.utime(tmp_path / "new", (time.time() + 1, time.time() + 1))
    for round in (b"1", b"2"):
        back.take(pieces(archive(dict.fromkeys(("uploaded", "edited", "new", "ignored"), round))))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "uploaded": "2",
        "edited": "mine",
        "edited.modal": "2",
        "new": "mine",
        "new.modal": "2",
        "ignored": "2",
    }
    assert capsys.readouterr().err.count("`edited` was changed here meanwhile") == 1


# --- the part that runs there ----------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    write(folder, "given")
    state = guest.State(folder)
    state.pack(0).write_text(json.dumps({name: guest.stamp(path) for name, path in guest.files(folder)}))
    return folder


def packed(work: Path, live: bool, arrived: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    class Output:
        buffer = io.BytesIO()

    monkeypatch.setattr(sys, "stdout", Output)
    Output.buffer = io.BytesIO()
    assert guest.pack(work, live, arrived) == 0
    with tarfile.open(fileobj=io.BytesIO(Output.buffer.getvalue())) as found:
        return {entry.name: (found.extractfile(entry) or io.BytesIO()).read() for entry in found}


def test_what_did_not_arrive_is_sent_again(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(work, "new", "given", text="yy")
    assert sorted(packed(work, False, 0, monkeypatch)) == ["given", "new"]
    assert sorted(packed(work, False, 0, monkeypatch)) == ["given", "new"], "the last didn't arrive"
    assert packed(work, False, 1, monkeypatch) == {}
    write(work, "new", text="zzz")
    assert packed(work, False, 1, monkeypatch) == {"new": b"zzz"}
    assert packed(work, False, 9, monkeypatch) == {}, "before the upload is copied there is nothing to send"


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="rented machines have /proc")
def test_a_file_comes_when_it_is_complete(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = time.time() - 60
    write(work, "rested", "young", "run/events.out.tfevents.1", "run/metrics.csv")
    os.utime(work / "rested", (old, old))
    with open(work / "half", "w") as half:
        half.write("x")
        half.flush()
        os.utime(work / "half", (old, old))
        with open(work / "rested"):  # being read is no harm
            found = packed(work, True, 0, monkeypatch)
    assert sorted(found) == ["rested", "run/events.out.tfevents.1", "run/metrics.csv"]
    assert sorted(packed(work, False, 0, monkeypatch)) == sorted([*found, "half", "young"])


def test_the_copy_can_be_changed_where_the_upload_cannot(tmp_path: Path) -> None:
    uploaded, folder = tmp_path / "uploaded", tmp_path / "work" / "program"
    write(uploaded, "a", "deep/b")
    os.chmod(uploaded / "a", 0o555)
    job = tmp_path / "job.json"
    command = [sys.executable, "-c", "open('a', 'w').write('new'); open('made/c', 'w')"]
    job.write_text(json.dumps({"command": command, "folders": ["made"], "timeout": 60, "timeout_words": "late"}))
    assert guest.run(folder, uploaded, job) == 0
    assert (folder / "a").read_text() == "new" and os.access(folder / "a", os.X_OK)
    assert (uploaded / "a").read_text() == "x"


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 143)])
def test_the_status_is_the_programs(tmp_path: Path, code: str, status: int) -> None:
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({"command": [sys.executable, "-c", code], "folders": [], "timeout": 60, "timeout_words": ""})
    )
    assert guest.run(tmp_path / "work" / "program", tmp_path / "none", job) == status


def test_a_program_that_was_stopped_before_it_began(tmp_path: Path) -> None:
    folder = tmp_path / "work" / "program"
    guest.stop(folder, "INT")
    job = tmp_path / "job.json"
    command = [sys.executable, "-c", "open('ran', 'w')"]
    job.write_text(json.dumps({"command": command, "folders": [], "timeout": 60, "timeout_words": ""}))
    assert guest.run(folder, tmp_path / "none", job) == 130
    assert not (folder / "ran").exists()


def test_the_part_that_runs_there_needs_the_standard_library_alone() -> None:
    import ast

    tree = ast.parse(Path(guest.__file__).read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in named} <= set(sys.stdlib_module_names)
