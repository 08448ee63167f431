"""The HTTP API: parse, call the domain, map errors."""
