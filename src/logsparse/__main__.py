"""`python -m logsparse` is the command `logsparse`."""

from logsparse.cli import main

main()
