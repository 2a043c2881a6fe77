"""The command `shapescript`: reads its words, calls a stage, gives an exit status.

0: all is well; 1: the program has errors; 2: the command line is wrong, or a file isn't there; 130: Ctrl-C.
"""

from __future__ import annotations

from shapescript.cli.main import main

__all__ = ["main"]
