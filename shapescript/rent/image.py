"""Modal's image of a recipe, with the program's files on top.

Takes the recipe, the upload and a folder for the files made here; gives a `modal.Image`. What changes from run to run
is added last and not built in, so an image is built once for each set of versions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from shapescript.rent.recipe import CONSTRAINTS, REQUIREMENTS, SOURCE, Recipe
from shapescript.rent.upload import Upload, files_of_root

GUEST = "/mnt/shapescript/guest.py"
JOB = "/mnt/shapescript/job.json"
UPLOADED = "/mnt/program"
WORK = "/root/program"
"""Where the program runs: a copy of the upload, which can't be written to."""


def make_image(modal: ModuleType, recipe: Recipe, upload: Upload, job: dict[str, object], here: Path) -> Any:
    """The image; nothing is built until it is asked for."""
    image = modal.Image.from_registry(recipe.base)
    for step in (recipe.compiler_step, recipe.cuda_step, recipe.torch_step):
        image = image.run_commands(step)
    image = image.add_local_file(written(here / "same-versions.txt", recipe.constraints), CONSTRAINTS, copy=True)
    image = image.add_local_dir(gathered(recipe, here / "source"), SOURCE, copy=True)
    image = image.run_commands(recipe.shapescript_step)
    if recipe.requirements is not None:
        image = image.add_local_file(recipe.requirements, REQUIREMENTS, copy=True)
    if recipe.packages_step is not None:
        image = image.run_commands(recipe.packages_step)
    guest = Path(__file__).with_name("guest.py")
    image = image.add_local_file(guest, GUEST)
    image = image.add_local_file(written(here / "job.json", json.dumps(job)), JOB)
    for root, path in upload.roots.items():
        wanted = files_of_root(upload, root)
        if wanted:
            image = image.add_local_dir(path, f"{UPLOADED}/{root}".rstrip("/"), ignore=all_but(wanted))
    return image


def all_but(wanted: set[PurePosixPath]) -> Callable[[Path], bool]:
    """Whether a file of a folder, named from there, is left out."""
    return lambda path: PurePosixPath(path.as_posix()) not in wanted


def written(path: Path, text: str) -> Path:
    """A file with this text."""
    path.write_text(text, encoding="utf-8")
    return path


def gathered(recipe: Recipe, folder: Path) -> Path:
    """A folder with ShapeScript's source, each file where it belongs."""
    for name, path in recipe.source.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return folder
