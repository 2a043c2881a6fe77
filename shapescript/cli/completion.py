"""`shapescript completion SHELL`: the script by which a shell completes commands, options and files.

Made from the parser itself, so that it offers what there is.
"""

from __future__ import annotations

import argparse

from shapescript.cli.usage import UsageError

SHELLS = ("bash", "zsh", "fish")


def completion(arguments: argparse.Namespace) -> int:
    """Prints the script of a shell."""
    if arguments.shell not in SHELLS:
        raise UsageError(f"there is no completion for `{arguments.shell}`; there is for {', '.join(SHELLS)}")
    from shapescript.cli.main import command_options

    options = command_options()
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](options), end="")
    return 0


def bash(options: dict[str, list[str]]) -> str:
    """For bash: `eval "$(shapescript completion bash)"`."""
    cases = "\n".join(f'        {name}) words="{" ".join(words)}" ;;' for name, words in options.items())
    return f"""\
_shapescript() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(options)}" -- "$word") $(compgen -f -X '!*.ss' -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
        *) COMPREPLY=($(compgen -f -X '!*.ss' -- "$word") $(compgen -d -- "$word")) ;;
    esac
}}
complete -o filenames -F _shapescript shapescript
"""


def zsh(options: dict[str, list[str]]) -> str:
    """For zsh: `eval "$(shapescript completion zsh)"`."""
    cases = "\n".join(f"        {name}) options=({' '.join(words)}) ;;" for name, words in options.items())
    return f"""\
_shapescript() {{
    local -a options commands
    commands=({" ".join(options)})
    if (( CURRENT == 2 )); then
        compadd -a commands
        _files -g '*.ss'
        return
    fi
    case "$words[2]" in
{cases}
    esac
    if [[ "$words[CURRENT]" == -* ]]; then
        compadd -a options
    else
        _files
    fi
}}
compdef _shapescript shapescript
"""


def fish(options: dict[str, list[str]]) -> str:
    """For fish: `shapescript completion fish | source`."""
    lines = [f"complete -c shapescript -n __fish_use_subcommand -a '{' '.join(options)}'"]
    for name, words in options.items():
        lines += (
            f"complete -c shapescript -n '__fish_seen_subcommand_from {name}' -l {word[2:]}"
            for word in words
            if word.startswith("--")
        )
    return "\n".join(lines) + "\n"
