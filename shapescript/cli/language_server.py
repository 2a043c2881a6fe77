"""`shapescript lsp`: starts the language server on the standard input and output."""

from __future__ import annotations

import argparse
import logging
import sys


def lsp(arguments: argparse.Namespace) -> int:
    """Serves an editor until it ends."""
    if sys.stdin.isatty():
        print("An editor starts this command and speaks to it; see docs/editor.md. Ctrl-C ends it.", file=sys.stderr)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    from shapescript.editor.server import serve

    serve()
    return 0
