"""The command line as a user has it, with less patience: the tests can't wait half a minute for a file.

The first word is JSON: what takes the place of `Pace`'s numbers, of a machine's own patience (`unheard`) and of the
shortest `--timeout`.
"""

from __future__ import annotations

import functools
import json
import sys

from shapescript.cli import main
from shapescript.rent import ask, follow, run

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run.UNHEARD = given.pop("unheard", run.UNHEARD)
    ask.SHORTEST = given.pop("shortest", ask.SHORTEST)
    run.Pace = functools.partial(follow.Pace, **given)  # type: ignore[misc,assignment]
    sys.exit(main(sys.argv[2:]))
