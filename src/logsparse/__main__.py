"""`python -m logsparse`: the command `logsparse`."""

from logsparse.cli import main

main()
