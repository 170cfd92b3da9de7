"""Side-by-side measurements: the harness, and the rows of `stepnet bench` and of the scripts in `benchmarks/`."""
