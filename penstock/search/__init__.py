"""Finding and showing nodes: full text, vectors, both together."""
