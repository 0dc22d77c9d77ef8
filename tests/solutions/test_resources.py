"""The table of registers, shared memory and spills: whole, true and up to date."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import resources

TABLE = json.loads(resources.PATH.read_text())
ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in TABLE["rows"]}
AGAIN = "run: python -m benchmarks.resources"


def cells() -> list[tuple[str, str, dict[str, Any]]]:
    return [(n, arch, c) for n, row in ROWS.items() for arch, c in row["cells"].items()]


def test_it_is_not_stale() -> None:
    then, now = TABLE["sources"], resources.sources()
    changed = sorted(p for p in then.keys() | now.keys() if then.get(p) != now.get(p))
    assert not changed, f"{', '.join(changed)} changed since; {AGAIN}"


def test_every_reference_kernel_is_in_it() -> None:
    wanted = {entry.name for entry in resources.entries()}
    assert wanted == ROWS.keys(), AGAIN
    families = {row["family"] for row in ROWS.values()}
    assert families == set(resources.FAMILIES)
    on_disk = {p.parent.name for p in resources.SOLUTIONS.glob("*/*.cu")}
    listed = on_disk & set(resources.FAMILIES)
    assert listed == set(resources.FAMILIES)
    assert all(row["cells"].keys() == set(resources.SHARED) for row in ROWS.values())


def test_no_reference_spills() -> None:
    spilled = [(n, arch) for n, arch, c in cells() if c.get("spill_bytes")]
    assert not spilled


def test_shared_memory_is_within_each_chips_limit() -> None:
    for name, arch, found in cells():
        if "na" not in found:
            assert found["shared_bytes"] <= resources.SHARED[arch], (name, arch)
            assert found["static_bytes"] <= resources.STATIC, (name, arch)


def test_what_cannot_be_says_why() -> None:
    for name, arch, found in cells():
        if "na" in found:
            assert arch != "sm_90", name
            assert (
                "shared memory; a block has" in found["na"]
                or "needs sm_" in (found["na"])
            )
        assert ROWS[name][arch] == resources.said(found)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("family", resources.FAMILIES)
def test_the_compiler_says_the_same_today(family: str, arch: str) -> None:
    """One kernel of each family, compiled now."""
    entry = [e for e in resources.entries() if e.family == family][-1]
    found = resources.cell(entry, arch)
    if resources.toolchain() == TABLE["versions"]:
        assert found == ROWS[entry.name]["cells"][arch], AGAIN
    else:  # another compiler may allot registers otherwise, and must not spill either
        assert not found.get("spill_bytes")


def test_a_template_without_an_instance_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "INSTANCES", {})
    with pytest.raises(LookupError, match="name an instance that is launched"):
        resources.entries()
