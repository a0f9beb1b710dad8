"""Settings of the property tests."""

from hypothesis import settings

# A loaded machine may take long over one example, above all where it writes files; the tests have a timeout anyway.
settings.register_profile("cepheid", deadline=None)
settings.load_profile("cepheid")
