"""Settings of the tests: no deadlines, since a busy machine is not a bug."""

from hypothesis import settings

settings.register_profile("logsparse", deadline=None)
settings.load_profile("logsparse")
