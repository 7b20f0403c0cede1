"""One command of `logsparse` a file; heavy imports wait inside each function."""
