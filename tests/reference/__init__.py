"""The brute-force matcher that every engine is compared with. It imports only the syntax tree."""
