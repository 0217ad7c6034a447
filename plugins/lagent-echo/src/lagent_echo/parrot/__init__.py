"""One small component of every kind, called ``parrot``: the text that ``lagent new-plugin`` makes new plugins from."""
