"""What the command `dsui` runs, and `python -m dsui`."""

from __future__ import annotations

import sys


def main() -> None:
    """Ctrl-C while the command line is still being loaded ends as it does later."""
    try:
        from dsui.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("dsui: stopped.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
