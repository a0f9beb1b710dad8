"""Bridges: suppliers that read from a broker and send to the intake, so that nothing is lost between the two."""
