"""The VS Code extension's files: what they name is there, and the grammar colours what the language has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from shapescript import __version__
from shapescript.colours import BUILTINS, TYPES
from shapescript.syntax.tokens import RESERVED

FOLDER = Path(__file__).resolve().parent.parent / "editors" / "vscode"


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_what_the_extension_names_is_there() -> None:
    package = read("package.json")
    assert package["version"] == __version__
    named = [package["icon"], *(each["path"] for each in package["contributes"]["grammars"])]
    for language in package["contributes"]["languages"]:
        named += [language["configuration"], *language["icon"].values()]
    assert all((FOLDER / name).is_file() for name in named)
    commands = {each["command"] for each in package["contributes"]["commands"]}
    code = (FOLDER / "src" / "extension.ts").read_text(encoding="utf-8")
    assert commands == set(re.findall(r'registerCommand\("([\w.]+)"', code))


def scopes(line: str) -> dict[str, str]:
    """The words of a line with the first scope that a rule of the grammar gives them."""
    found: dict[str, str] = {}
    at = 0
    rules = read("syntaxes/shapescript.tmLanguage.json")["patterns"]
    while at < len(line):
        hits = [(m, rule) for rule in rules if (m := re.compile(rule.get("match") or rule["begin"]).search(line, at))]
        if not hits:
            break
        match, rule = min(hits, key=lambda hit: hit[0].start())
        if "name" in rule:
            found[match[0]] = rule["name"]
        for number, capture in rule.get("captures", {}).items():
            if match[int(number)]:
                found[match[int(number)]] = capture["name"]
        at = max(match.end(), at + 1)
    return found


def test_the_grammar() -> None:
    assert scopes("fn step(mut m: Net) -> [] NonNeg:")["step"] == "entity.name.function.shapescript"
    assert scopes("    param w: [D C] = normal(std=0.5)")["param"] == "storage.modifier.shapescript"
    found = scopes("    return x |> relu(over=n) + 1.5  # why")
    assert found["return"].startswith("keyword.control") and found["1.5"].startswith("constant.numeric")
    assert found["# why"].startswith("comment.line") and found["|>"] == "keyword.operator.pipe.shapescript"
    for word in RESERVED:
        assert word in scopes(f"  {word} x("), word
    for word in TYPES:
        assert scopes(f"x: {word}")[word] == "support.type.shapescript"
    for word in BUILTINS:
        assert scopes(f"  y + {word}(x)")[word].startswith(("support", "storage", "keyword")), word
