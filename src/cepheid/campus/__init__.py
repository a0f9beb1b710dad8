"""The campus: the example application's world, made up from a seed, with its faults written down."""
