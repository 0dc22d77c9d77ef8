"""The book's scripts: fetched once, checked against their hash, then kept."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "book"))

import vendor

DATA = b"window.it = 1\n"
RIGHT = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an npm on the PATH that packs one file and counts its calls."""
    archive = tmp_path / "it.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        entry = tarfile.TarInfo("package/dist/it.js")
        entry.size = len(DATA)
        packed.addfile(entry, io.BytesIO(DATA))
    script = tmp_path / "bin/npm"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\ncp {archive} .\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    return script


def wanted(sha256: str, member: str = "dist/it.js") -> vendor.Script:
    return vendor.Script("it@1.0.0", member, "it.js", sha256)


def test_a_script_is_fetched_once_and_kept(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "SCRIPTS", (wanted(RIGHT),))
    for number in range(2):
        vendor.vendor(tmp_path / f"book{number}")
        assert (tmp_path / f"book{number}/it.js").read_bytes() == DATA
    assert (tmp_path / "calls").read_text() == "x\n"


def test_a_script_that_is_not_what_it_was_is_refused(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "SCRIPTS", (wanted("0" * 64),))
    with pytest.raises(vendor.VendorError, match=f"got {RIGHT}"):
        vendor.vendor(tmp_path / "book")
    assert not (tmp_path / "book/it.js").exists()


def test_no_network_is_one_clear_line(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm.write_text("#!/bin/sh\necho 'npm error network is away' >&2\nexit 1\n")
    monkeypatch.setattr(vendor, "SCRIPTS", (wanted(RIGHT),))
    with pytest.raises(vendor.VendorError, match=r"it@1\.0\.0: npm error network"):
        vendor.vendor(tmp_path / "book")


def test_without_npm_and_a_network_the_mend_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ERROR: no network' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(vendor.sys, "executable", str(python))
    with pytest.raises(vendor.VendorError, match="no network; mend: install Node"):
        vendor.vendor(tmp_path / "book")
