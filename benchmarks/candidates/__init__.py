"""Kernels that may replace a solution, and do not yet: each says what it predicts.

A candidate was thought through, compiled and its machine code counted where no GPU was
at hand. Its module says what it replaces, why it should be faster and by how much
(``predicted``: a prediction, not a measurement). ``python -m benchmarks.candidates`` on
a GPU checks each against float64, then times it beside today's solution and the peer in
the same rounds. What wins there goes to ``solutions/``, what loses is deleted; what was
seen is written in the candidate's module until then.
"""
