"""Folders of parts: shards, the ledger of what is done, and workers on this machine or of Ray."""
