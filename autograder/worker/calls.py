"""What an adapter counted while it called an answer, by the name of the count."""

from __future__ import annotations

counted_by_adapter: dict[str, float] = {}
