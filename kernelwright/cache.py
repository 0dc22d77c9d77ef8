"""A content-addressed cache on disk that parallel processes share safely."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# Where this context (a thread, a task) keeps its cache, if not where others do.
_elsewhere: ContextVar[Path | None] = ContextVar("cache", default=None)


@contextmanager
def cache_in(root: Path) -> Iterator[None]:
    """Keep what is compiled in this block under ``root``; other threads do not."""
    token = _elsewhere.set(root)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def cache_root() -> Path:
    """Return the folder of the cache: ``KERNELWRIGHT_CACHE`` or the user's own."""
    if (elsewhere := _elsewhere.get()) is not None:
        return elsewhere
    chosen = os.environ.get("KERNELWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernelwright"


def _shared(room: str, key: str, suffix: str) -> Path | None:
    """Look in a second cache that this process only reads.

    A confined process has a cache of its own, and finds there what a trusted one
    made before: ``KERNELWRIGHT_CACHE_SHARED`` names it.
    """
    root = os.environ.get("KERNELWRIGHT_CACHE_SHARED")
    if not root:
        return None
    found = Path(root) / room / key[:2] / f"{key}{suffix}"
    return found if found.exists() else None


def digest(*parts: str | bytes) -> str:
    """Hash the parts into a key; a part's end is part of what is hashed."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:32]


def cached(room: str, key: str, suffix: str, produce: Callable[[Path], object]) -> Path:
    """Return the cached file for ``key``, making it with ``produce`` if absent.

    Two processes that miss at once both produce, each into a file of its own, and
    the last ``rename`` wins: a reader sees a whole file or none, and no lock can be
    left behind by a process that died.

    Args:
        room: a folder inside the cache, one for each kind of content.
        key: the content's ``digest``.
        suffix: the file's ending, with its dot.
        produce: writes the content to the path that it is given.
    """
    folder = cache_root() / room / key[:2]
    target = folder / f"{key}{suffix}"
    if target.exists():
        return target
    if (ready := _shared(room, key, suffix)) is not None:
        return ready
    folder.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=folder, prefix=f".{key}-", suffix=suffix)
    os.close(handle)
    try:
        produce(Path(scratch))
        os.replace(scratch, target)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    return target
