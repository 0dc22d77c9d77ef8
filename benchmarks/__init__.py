"""Benchmarks: one script a stem; results stand in ``results/`` with their device."""
