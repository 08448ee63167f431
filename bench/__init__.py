"""Benchmarks: ratios taken side by side in one run, since machines are noisy."""
