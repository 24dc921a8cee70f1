"""Measurements of jaxdyn beside Pinocchio, MuJoCo, MJX, Brax and frax: `python -m benchmarks --help`."""
