"""`python -m shapescript`: the same as the command `shapescript`."""

import sys

from shapescript.cli import main

if __name__ == "__main__":
    sys.exit(main())
