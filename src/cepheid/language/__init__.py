"""The language that users write, and errors that point at what they wrote."""
