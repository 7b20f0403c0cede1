"""The paper's experiments as data and runs: each finished run is one row in a folder of results."""
