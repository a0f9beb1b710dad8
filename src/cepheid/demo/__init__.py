"""The demo: a campus whole, run as a user would run it."""
