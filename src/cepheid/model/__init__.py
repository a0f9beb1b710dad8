"""What flows through Cepheid: events, streams, time, validity, matches, and how they are read and written."""
