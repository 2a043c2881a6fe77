"""The words after a program's name, as the arguments of its `main`.

Takes the signature of `main`; gives the values that were written, by the name of their parameter, each of its type.
A parameter is given by position or as `--name value`, `--name=value`; a `bool` also as `--name` or `--no-name`.
Defaults are left to who calls `main`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shapescript.cli.usage import UsageError
from shapescript.diagnostics.suggest import nearest
from shapescript.types.kinds import Host
from shapescript.types.typed import FunctionInfo, ParameterInfo


class Help(Exception):
    """`--help` was asked for; `str(help)` is the answer."""


def program_arguments(main: FunctionInfo, words: Sequence[str], file: str) -> dict[str, object]:
    """The values of `main`'s parameters that the words give.

    Raises:
        UsageError: a word is too many or isn't of its type, or a parameter without a default is missing.
        Help: the words ask what `main` takes.
    """
    parameters = {parameter.name: parameter for parameter in main.parameters}
    for parameter in main.parameters:
        if not isinstance(parameter.type, Host) and parameter.default is None:
            raise UsageError(
                f"`main` of `{file}` takes `{parameter.name}: {parameter.type}`, which a command line can't give; "
                "call it from Python"
            )
    if any(word in ("--help", "-h") for word in words):
        raise Help(usage(main, file))
    values: dict[str, object] = {}
    for name, word in pairs(main, parameters, words, file):
        if name in values:
            raise UsageError(f"`{name}` is given twice")
        values[name] = value_of(parameters[name], word)
    missing = [name for name, parameter in parameters.items() if name not in values and parameter.default is None]
    if missing:
        raise UsageError(
            f"`main` also needs `{missing[0]}`, of type {parameters[missing[0]].type}\n{usage(main, file)}"
        )
    return values


def pairs(
    main: FunctionInfo, parameters: dict[str, ParameterInfo], words: Sequence[str], file: str
) -> Iterator[tuple[str, str]]:
    """Each parameter that the words name or reach by position, with its word."""
    places = [parameter.name for parameter in main.parameters if isinstance(parameter.type, Host)]
    position = 0
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            option, equals, value = word[2:].partition("=")
            name = option.replace("-", "_")
            if name.startswith("no_") and name not in parameters and is_bool(parameters.get(name[3:])):
                yield name[3:], "false"
                continue
            if name not in parameters:
                raise UsageError(unknown(option, list(parameters), file))
            if equals:
                yield name, value
            elif is_bool(parameters[name]) and (not rest or rest[0] not in ("true", "false")):
                yield name, "true"
            elif rest:
                yield name, rest.pop(0)
            else:
                raise UsageError(f"`--{option}` needs a value, of type {parameters[name].type}")
            continue
        if position == len(places):
            raise UsageError(f"`{word}` is too much: `main` takes {len(places)}\n{usage(main, file)}")
        yield places[position], word
        position += 1


def is_bool(parameter: ParameterInfo | None) -> bool:
    """Is there such a parameter, and is it a bool?"""
    return parameter is not None and str(parameter.type) == "bool"


def unknown(option: str, names: list[str], file: str) -> str:
    """Words for an option that `main` hasn't."""
    if option in ("devices", "dim", "seed", "color", "format"):
        return f"`--{option}` stands before the file: `shapescript run --{option} ... {file}`"
    close = nearest(option.replace("-", "_"), names)
    return f"`main` of `{file}` has no parameter `{option}`" + (f"; did you mean `--{close}`?" if close else "")


def value_of(parameter: ParameterInfo, word: str) -> object:
    """A word as a value of the parameter's type."""
    kind = str(parameter.type)
    try:
        if kind == "int":
            return int(word)
        if kind == "float":
            return float(word)
    except ValueError:
        example = "3" if kind == "int" else "0.001"
        raise UsageError(f"`{parameter.name}` is {kind}, such as {example}, and `{word}` isn't") from None
    if kind == "bool":
        if word not in ("true", "false"):
            raise UsageError(f"`{parameter.name}` is bool, true or false, and `{word}` isn't")
        return word == "true"
    if kind != "str":
        raise UsageError(f"`{parameter.name}` is {kind}, which a command line can't give")
    return word


def usage(main: FunctionInfo, file: str) -> str:
    """What `main` takes, a line for each parameter."""
    shown = []
    lines = []
    for parameter in main.parameters:
        name = parameter.name.upper()
        shown.append(name if parameter.default is None else f"[{name}]")
        default = ""
        if parameter.default is not None:
            default = f" (default {main.source.span(parameter.default.start, parameter.default.end).text})"
        lines.append(f"  --{parameter.name} {parameter.type}{default}")
    head = " ".join(["usage: shapescript run", file, *shown])
    return "\n".join([head, *(["", "by position, or as:"] if lines else []), *lines])
