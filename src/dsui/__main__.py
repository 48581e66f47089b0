"""The entry point of the command `dsui` and of `python -m dsui`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading ends like Ctrl-C later."""
    try:
        from dsui.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("dsui: stopped.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
