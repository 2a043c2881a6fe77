"""Imports go downward only, in the order of docs/architecture.md, and checking a program never loads torch.

An import under `if TYPE_CHECKING:` names a type for the reader and runs nothing, so it may go upward.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "shapescript"

# from the lowest to the highest; a module belongs to the layer with the longest name that begins its own
LAYERS = (
    ("source", "room", "random_bits", "_core", "_transport", "_executor"),
    ("diagnostics",),
    ("syntax",),
    ("types.size", "types.axes", "types.element", "types.kinds"),
    ("ops",),
    ("names",),
    ("types",),
    ("placement",),
    ("ir",),
    ("passes",),
    ("layout",),
    ("devices",),
    ("specialise",),
    ("controller",),
    ("session",),
    ("editor", "colours"),
    ("rent",),
    ("python", "importer"),
    ("cli", "__main__"),
    ("notebook",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# what a check of a program goes through: none of it may load torch, and none but random_bits numpy
WITHOUT_TORCH = ("source", "diagnostics", "syntax", "types", "ops", "names", "placement")
HEAVY = ("torch", "numpy", "sklearn", "tensorboard", "modal", "safetensors")


def module_name(path: Path) -> str:
    """The name of a file's module below the package: `types.size`, `syntax`; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer(name: str) -> str:
    """The name in LEVEL to which a module belongs."""
    while name not in LEVEL:
        assert "." in name, f"`shapescript.{name}` is in no layer of docs/architecture.md"
        name = name.rpartition(".")[0]
    return name


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from running_nodes(other)
        else:
            yield from running_nodes(node)


def imported(name: str, path: Path, known: set[str]) -> Iterator[tuple[int, str]]:
    """Each module that a file imports, at its top or in a function, with the line: full dotted names."""
    for node in running_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; write shapescript.…"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = whole.removeprefix("shapescript.") in known
                yield node.lineno, whole if is_module else str(node.module)


def test_every_layer_is_there() -> None:
    known = set(modules())
    missing = [
        name for name in LEVEL if not name.startswith("_") and not any((m + ".").startswith(name + ".") for m in known)
    ]
    assert not missing, f"layers of docs/architecture.md without a module: {missing}"


def test_every_module_has_a_layer_and_imports_downward() -> None:
    files = modules()
    wrong: list[str] = []
    for name, path in files.items():
        if not name:
            continue  # the package itself imports lazily: see below
        own = layer(name)
        for line, target in imported(name, path, set(files)):
            if target == "shapescript":
                continue
            if target.startswith("shapescript."):
                other = layer(target.removeprefix("shapescript."))
                if LEVEL[other] > LEVEL[own]:
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: `{own}` imports `{target}`, which stands above it")
    assert not wrong, "\n".join(wrong)


def test_the_package_itself_imports_nothing_of_its_own() -> None:
    found = [target for _, target in imported("", PACKAGE / "__init__.py", set(modules()))]
    assert all(not target.startswith("shapescript") for target in found), found


def test_what_checks_never_names_a_heavy_package() -> None:
    files = modules()
    wrong: list[str] = []
    for name, path in files.items():
        if name and name.split(".")[0] in WITHOUT_TORCH:
            for line, target in imported(name, path, set(files)):
                if target.split(".")[0] in HEAVY:
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: imports {target}")
    assert not wrong, "\n".join(wrong)


def loaded_after(code: str) -> set[str]:
    """The heavy packages in memory after some Python code has run in a process of its own."""
    listing = f"\nimport sys\nprint('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + listing], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("loaded:")
    return set(last.split()[1:])


@pytest.mark.parametrize("name", ["", *WITHOUT_TORCH, "session", "editor", "cli"])
def test_importing_a_stage_of_the_check_does_not_load_torch(name: str) -> None:
    inside = [module for module in modules() if module == name or (name and module.startswith(name + "."))]
    assert inside, f"there is no `shapescript.{name}`"
    if name in ("session", "cli"):
        inside = [name]  # their parts that run programs do load torch; importing the package must not
    # the builder of the parser's tables is a program, not a stage
    inside = [module for module in inside if not module.endswith("build_tables")]
    code = "\n".join(f"import shapescript.{module}" if module else "import shapescript" for module in inside)
    assert loaded_after(code) == set()


def test_checking_a_program_does_not_load_torch() -> None:
    program = str(ROOT / "examples" / "digits" / "train.ss")
    code = (
        "from shapescript.cli import main\n"
        "try:\n"
        f"    status = main(['check', {program!r}])\n"
        "except SystemExit as stop:\n"
        "    status = stop.code\n"
        "assert not status, status"
    )
    assert loaded_after(code) == set()


def test_the_guard_sees_torch() -> None:
    """The test above would say nothing if torch could hide from it."""
    assert "torch" in loaded_after("import torch")
