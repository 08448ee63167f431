"""The text stage: bytes in, readable text out, in child processes that can be killed."""
