"""The type stub of a program says what the program declares, in Python that parses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from test_python_api import LAYERS, NET

from shapescript.cli import main


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> ast.Module:
    place = tmp_path_factory.mktemp("stubs")
    (place / "net.ss").write_text(NET)
    (place / "layers.ss").write_text(LAYERS)
    assert main(["stubs", str(place / "net.ss")]) == 0
    return ast.parse((place / "net.pyi").read_text())


def test_each_declaration_is_there_with_its_types(stub: ast.Module) -> None:
    found = {getattr(node, "name", None): node for node in stub.body}
    values = {ast.unparse(node) for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert {"D: int", "Hd: int", "rate: float"} <= values
    model = found["Classifier"]
    assert isinstance(model, ast.ClassDef) and [ast.unparse(base) for base in model.bases] == ["Model"]
    fields = {ast.unparse(node) for node in model.body if isinstance(node, ast.AnnAssign)}
    assert {"w1: torch.Tensor", "blocks: tuple['Block', ...]", "bn: Model"} <= fields
    step = found["step"]
    assert isinstance(step, ast.FunctionDef)
    assert ast.unparse(step.args) == "m: 'Classifier', opt: Optimizer, batch: 'Example' | dict[str, Any]"
    assert step.returns is not None and ast.unparse(step.returns) == "torch.Tensor"
    assert ast.get_docstring(step) == (
        "fn step(mut m: Classifier, mut opt: AdamW[Classifier], batch: [b] Example) -> [] NonNeg"
    )
    train = found["train"]
    assert isinstance(train, ast.FunctionDef)
    assert ast.unparse(train.args) == "m: 'Classifier', data: Any, epochs: int=..., name: str=..."
    layers = found["layers"]
    assert isinstance(layers, ast.ClassDef)
    assert [node.name for node in layers.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))] == [
        "Pair",
        "double",
    ]


def test_a_program_with_errors_gets_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrong.ss").write_text("devices cpu\n\nfn f(x: [b D]) -> [b D]:\n    return x\n")
    assert main(["stubs", str(tmp_path / "wrong.ss")]) == 1
    assert "error[E0201]" in capsys.readouterr().err
    assert not (tmp_path / "wrong.pyi").exists()
