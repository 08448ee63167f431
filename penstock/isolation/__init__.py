"""Work in child processes that can be killed: an input that hangs or crashes fails alone."""
