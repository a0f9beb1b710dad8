"""The graph behind every front end, and the rules that plan it, one a file."""
