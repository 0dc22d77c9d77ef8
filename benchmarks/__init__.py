"""Benchmarks: one script a stem; what the book shows stands in ``results/``,
with its device, and a run of your own in ``results/here/``.

What they share, by what it holds: ``_command`` the command line and floors,
``_candidates`` what is timed and its row, ``_peers`` what it is compared with,
``_sources`` rungs and detectives, ``_attention`` chapters 9 and 10's tensors,
``_store`` the records, ``_ncu`` counters, and ``_cpu`` the emulator's own timing.
"""
