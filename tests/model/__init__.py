"""Tests of events, streams, time and of reading and writing them."""
