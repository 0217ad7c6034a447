"""What the tests of all distributions share."""

from hypothesis import settings

# Speed is measured in bench/; a busy machine must not fail a test.
settings.register_profile("lagent", deadline=None)
settings.load_profile("lagent")
