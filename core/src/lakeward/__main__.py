"""`python -m lakeward`: the command line, where the script is not on PATH."""

from __future__ import annotations

from lakeward.cli.main import main

if __name__ == "__main__":
    main()
