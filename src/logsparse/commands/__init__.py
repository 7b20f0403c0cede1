"""One file per command of `logsparse`; heavy imports are inside each function."""
