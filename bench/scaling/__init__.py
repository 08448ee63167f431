"""What `python -m bench.scale` is made of."""
