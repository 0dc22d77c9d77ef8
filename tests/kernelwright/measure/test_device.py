"""``device()`` says which machine this is, and remembers what it measured."""

from __future__ import annotations

import importlib
import json

import pytest

from kernelwright.measure.cores import cache_bytes, cpu_cores, cpu_name
from kernelwright.measure.datasheet import SHEETS, family_of, find_sheet

# ``kernelwright.device`` is the function; the module of that name lies behind it.
room = importlib.import_module("kernelwright.device")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Count measurements instead of making them, in a cache of the test's own."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "emulator")
    made = []

    def measure(place: str) -> object:
        made.append(place)
        return room.Ceilings(20.0 + len(made), 0.3, "float32", "2026-11-21")

    monkeypatch.setattr(room, "measure_ceilings", measure)
    room._device.cache_clear()
    yield made
    room._device.cache_clear()


def test_a_machine_without_a_gpu_says_so(quick):
    here = room.device()
    assert not here.is_gpu and here.kind == "emulator"
    assert here.capability is None and here.family is None
    assert here.copy_gbps == 21.0
    text = repr(here)
    assert cpu_name() in text
    assert "how fast a GPU would run them is not measured" in text
    assert "21.0 GB/s" in text


def test_it_measures_once_and_reads_the_disk_afterwards(quick):
    room.device()
    room.device()
    room._device.cache_clear()  # as in the next process
    assert room.device().copy_gbps == 21.0
    assert quick == ["cpu"]


def test_remeasuring_replaces_what_the_disk_holds(quick):
    room.device()
    assert room.device(remeasure=True).copy_gbps == 22.0
    room._device.cache_clear()
    assert room.device().copy_gbps == 22.0


def test_a_broken_file_is_measured_around(quick, tmp_path):
    room.device()
    (path,) = tmp_path.glob("device/*/*.json")
    path.write_text(json.dumps({"copy": 1}))
    room._device.cache_clear()
    assert room.device().copy_gbps == 22.0


def test_html_is_a_table_with_the_same_rows(quick):
    here = room.device()
    page = here._repr_html_()
    assert page.count("<tr>") == len(here.rows())
    assert "<p>No GPU" in page


def test_a_gpu_is_compared_with_its_data_sheet():
    here = room.Device(
        is_gpu=True,
        name="NVIDIA H200",
        memory_bytes=150 * 10**9,
        cache_bytes=60 * 1024**2,
        cores=16,
        ceilings=room.Ceilings(4283.0, 673.0, "bfloat16", "2026-11-21"),
        capability=(9, 0),
        sms=132,
        driver="580.1",
        cuda="13.0",
        sheet=find_sheet("NVIDIA H200"),
    )
    text = repr(here)
    assert "9.0 (hopper)" in text
    assert "4,283 GB/s, 89% of 4,800 GB/s (NVIDIA H200 data sheet)" in text
    assert "673 TFLOP/s" in text
    assert "60 MiB" in text


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3352),
        ("NVIDIA H100 PCIe", 2039),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA L4", 300),
        ("NVIDIA L40S", 864),
        ("Tesla T4", 320),
        ("NVIDIA GeForce RTX 3080", 912),
        ("NVIDIA GeForce RTX 3080 Ti", 912),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672),
        ("NVIDIA GeForce RTX 4090", 1008),
    ],
)
def test_data_sheets_are_found_by_the_drivers_name(name, gbps):
    sheet = find_sheet(name)
    assert sheet is not None and sheet.memory_gbps == gbps
    assert sheet.source.startswith("NVIDIA")


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "X1"],
)
def test_unknown_names_stay_unknown(name):
    assert find_sheet(name) is None


def test_every_line_of_the_table_can_be_reached():
    # A wide pattern in front of a narrow one would hide it.
    for number, sheet in enumerate(SHEETS):
        example = (
            sheet.pattern.replace(r"\b", "").replace("$", "").replace("G?", "")
        ).replace("(SXM4|PCIE)", "PCIE")
        found = find_sheet(example)
        assert found is SHEETS[number], example


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((7, 0), "older"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 6), "ampere"),
        ((8, 9), "ada"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
        ((12, 0), "blackwell"),
    ],
)
def test_families(capability, family):
    assert family_of(capability) == family


def test_cpu_facts_come_from_the_kernels_files(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Intel(R) Xeon(R)  Gold 1\n")
    assert cpu_name(info) == "Intel Xeon Gold 1"
    for index, size in enumerate(("48K", "2048K", "32M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert cache_bytes(tmp_path) == 32 * 1024**2
    assert cache_bytes(tmp_path / "nothing") == 32 * 1024**2
    assert cpu_cores() >= 1


def test_cpu_name_without_a_file_is_still_a_name(tmp_path):
    assert cpu_name(tmp_path / "none")
