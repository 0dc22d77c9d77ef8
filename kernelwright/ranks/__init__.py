"""Run a function in several processes of one group: ``kw.ranks(4, function)``."""

from kernelwright.ranks.messages import Message
from kernelwright.ranks.run import Results, ranks

__all__ = ["Message", "Results", "ranks"]
