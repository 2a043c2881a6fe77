"""The package as built: whole, without torch at build time, with and without a compiler.

Builds a wheel of a copy of the tree, without a network: what the build needs is in the test extra.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import shapescript

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "csrc", "shapescript", "docs")
MADE_BY_BUILDS = shutil.ignore_patterns("__pycache__", "*.so", "_tables.py", "*.egg-info", ".*_cache")

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler here"
)


def copy_of_the_tree(folder: Path) -> Path:
    """The project as a clone would have it, in a folder whose name needs quoting."""
    tree = folder / "a copy $ of it"
    tree.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=MADE_BY_BUILDS)
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


def build(tree: Path, into: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pip wheel` of a tree, from another folder, with torch hidden from the build."""
    hidden = into.parent / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "torch.py").write_text("raise ImportError('the build imported torch')\n")
    return subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", str(into), str(tree)],
        cwd=hidden,
        env={**os.environ, "PYTHONPATH": str(hidden), "SHAPESCRIPT_CUDA": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def unpacked(folder: Path) -> tuple[Path, list[str]]:
    """The only wheel of a folder, unpacked, and the names of its files."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
        return folder / "unpacked", archive.namelist()


WITHOUT_EDITABLE = """import sys
sys.meta_path = [finder for finder in sys.meta_path if "ditable" not in getattr(finder, "__name__", "")]
"""
"""An editable install hands out the tree's modules wherever the package at hand lacks one."""


def run_there(folder: Path, code: str) -> str:
    """What Python code prints with the unpacked package, and not the tree's, to import."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EDITABLE + code],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_in(tree: Path, code: str) -> str:
    """What Python code prints with the package of a tree to import."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


WHERE_AND_NATIVE = "import shapescript, shapescript.random_bits as r; print(shapescript.__file__); print(r.native())"
SOURCE = """
import hashlib
from shapescript.rent.recipe import project_files
for name, path in sorted(project_files().items()):
    print(name, hashlib.sha256(path.read_bytes()).hexdigest())
"""
EXPLAINS = "import shapescript.cli as c; raise SystemExit(c.main(['explain', 'E1901']))"


@needs_compiler
def test_a_wheel_is_whole(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    before = run_in(tree, SOURCE)
    built = build(tree, tmp_path / "wheels", SHAPESCRIPT_NATIVE="1")
    assert built.returncode == 0, built.stdout
    folder, names = unpacked(tmp_path / "wheels")
    where, native = run_there(folder, WHERE_AND_NATIVE).splitlines()
    assert where == str(folder / "shapescript" / "__init__.py")
    assert native == "True"
    sources = {str(p.relative_to(tree)) for p in (tree / "shapescript").rglob("*.py") if p.name != "_tables.py"}
    assert sources <= set(names), sources - set(names)
    assert "shapescript/syntax/_tables.py" in names
    pages = [f"shapescript/errors/{page.name}" for page in (tree / "docs" / "errors").glob("*.md")]
    assert pages and set(pages) <= set(names)
    assert "E1901" in run_there(folder, EXPLAINS)
    assert run_there(folder, SOURCE).splitlines() == before.splitlines(), "a rented machine builds the same"


def test_without_a_compiler_the_build_warns_and_goes_on(tmp_path: Path) -> None:
    built = build(copy_of_the_tree(tmp_path), tmp_path / "wheels", CXX="no-such-compiler", SHAPESCRIPT_NATIVE="auto")
    assert built.returncode == 0, built.stdout
    assert "weren't built" in built.stdout and "no-such-compiler" in built.stdout
    folder, names = unpacked(tmp_path / "wheels")
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    assert run_there(folder, WHERE_AND_NATIVE).splitlines()[1] == "False"


def test_a_native_part_that_is_asked_for_and_cannot_be_built_fails(tmp_path: Path) -> None:
    built = build(copy_of_the_tree(tmp_path), tmp_path / "wheels", CXX="no-such-compiler", SHAPESCRIPT_NATIVE="1")
    assert built.returncode != 0
    assert "no-such-compiler" in built.stdout


@needs_compiler
def test_an_error_of_the_compiler_is_shown(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    core = tree / "csrc" / "cpu" / "core.cpp"
    core.write_text(core.read_text() + "\nthis is no C++;\n")
    built = build(tree, tmp_path / "wheels", SHAPESCRIPT_NATIVE="auto")
    assert built.returncode == 0, built.stdout
    assert "core.cpp" in built.stdout and "error" in built.stdout
    assert run_there(unpacked(tmp_path / "wheels")[0], WHERE_AND_NATIVE).splitlines()[1] == "False"


def test_the_build_requires_no_torch() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert not [need for need in settings["build-system"]["requires"] if "torch" in need]
    assert "torch>=2.11,<2.14" in settings["project"]["dependencies"]


def test_the_version_is_one() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("shapescript")
    except PackageNotFoundError:
        return  # run from a tree that isn't installed
    assert installed == shapescript.__version__
