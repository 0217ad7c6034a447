"""Output parsers for lagent: what models write, turned into structure, whole or streaming."""
