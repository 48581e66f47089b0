"""`python -m dsui` is `dsui`."""

from dsui.cli import main

main()
