"""The file of packed weights: what comes back, and what is refused."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from solutions.int4 import Packed, linear, load_mmap, pack, quantize, save

START = struct.Struct("<8sIIQQ")


def packed_weight(rows: int = 40, columns: int = 200) -> Packed:
    torch.manual_seed(3)
    return pack(quantize(torch.randn(rows, columns).bfloat16(), 64, symmetric=False))


def tensor_of(path: Path, name: str) -> torch.Tensor:
    found = load_mmap(path)[name]
    assert isinstance(found, torch.Tensor)
    return found


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    packed = packed_weight()
    norm = torch.randn(7, 3).bfloat16().mT
    plain = {"norm": norm, "nothing": torch.empty(0, 4), "1 ü": norm[0]}
    save(tmp_path / "model", {"up": packed, **plain})
    found = load_mmap(tmp_path / "model", verify=True)
    assert list(found) == ["up", *plain]
    up = found["up"]
    assert isinstance(up, Packed) and up[3:] == packed[3:]
    for got, wanted in zip(up[:3], packed[:3], strict=True):
        assert torch.equal(got, wanted) and got.dtype == wanted.dtype
    for name, wanted in plain.items():
        assert torch.equal(tensor_of(tmp_path / "model", name), wanted)
    x = torch.randn(3, 200).bfloat16()
    assert torch.equal(linear(x, up), linear(x, packed))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_written_to_a_map_stays_out_of_the_file(tmp_path: Path) -> None:
    save(tmp_path / "model", {"x": torch.zeros(10)})
    first, second = (tensor_of(tmp_path / "model", "x") for _ in range(2))
    first.fill_(5)
    assert not second.any()
    assert not tensor_of(tmp_path / "model", "x").any()


def test_a_large_file_opens_without_being_read(tmp_path: Path) -> None:
    save(tmp_path / "model", {"x": torch.zeros(8)})
    raw = bytearray((tmp_path / "model").read_bytes())
    magic, version, _, length, _ = START.unpack_from(raw)
    header = json.loads(raw[START.size : START.size + length])
    count = 2**32  # bytes, of which the disk holds none
    header["x"]["parts"]["tensor"].update(
        dtype="uint8", shape=[count], nbytes=count, crc32=0
    )
    text = json.dumps(header).encode()
    whole = 4096 + count
    start = START.pack(magic, version, zlib.crc32(text), len(text), whole)
    with (tmp_path / "model").open("wb") as file:
        file.write(start + text)
        file.truncate(whole)
    before = resident_bytes()
    x = tensor_of(tmp_path / "model", "x")
    assert x.shape == (count,) and int(x[-1]) == 0
    assert resident_bytes() - before < 2**24


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def reheaded(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """Return what changes a file's header, and keeps its checksum right."""

    def work(raw: bytes) -> bytes:
        magic, version, _, length, whole = START.unpack_from(raw)
        header = json.loads(raw[START.size : START.size + length])
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
        assert len(text) == length
        start = START.pack(magic, version, zlib.crc32(text), length, whole)
        return start + text + raw[START.size + length :]

    return work


def part(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = header["w"]["parts"]["words"]
    return found


def with_offset(header: dict[str, Any]) -> None:
    part(header)["offset"] = 2**40


def with_shape(header: dict[str, Any]) -> None:
    part(header)["shape"] = [1, 1, 32, 4]


def with_negative(header: dict[str, Any]) -> None:
    part(header)["nbytes"] = -144


def with_dtype(header: dict[str, Any]) -> None:
    part(header)["dtype"] = "int99"


def without_sizes(header: dict[str, Any]) -> None:
    del header["w"]["sizes"]


def with_rows(header: dict[str, Any]) -> None:
    header["w"]["sizes"][0] = 99


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda raw: b"", "no file of packed weights: it begins with b''"),
    "foreign": (lambda raw: b"PK" + raw[2:], "no file of packed weights"),
    "text mode": (lambda raw: raw.replace(b"\r\n", b"\n", 1), "no file of packed"),
    "newer": (lambda raw: raw[:8] + b"\2" + raw[9:], "version 2; this program reads 1"),
    "cut": (lambda raw: raw[:-1], "was cut short or added to"),
    "longer": (lambda raw: raw + b"\0", "was cut short or added to"),
    "header": (lambda raw: raw[:40] + b"#" + raw[41:], "header is damaged"),
    "length": (
        lambda raw: raw[:16] + struct.pack("<Q", 2**60) + raw[24:], "header is damaged"
    ),
    "outside": (reheaded(with_offset), "bytes from 1099511627776 on"),
    "shape": (reheaded(with_shape), r"bytes of shape \[1, 1, 32, 4\]"),
    "negative": (reheaded(with_negative), "wanted numbers from 0"),
    "dtype": (reheaded(with_dtype), "dtype 'int99'"),
    "kind": (reheaded(without_sizes), r"wanted \['tensor'\]"),
    "rows": (reheaded(with_rows), r"shapes .* of \[99,"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_none_is_refused_by_name(name: str, tmp_path: Path) -> None:
    save(tmp_path / "good", {"w": packed_weight()})
    change, message = BROKEN[name]
    path = tmp_path / "broken.kw4"
    path.write_bytes(change((tmp_path / "good").read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        load_mmap(path)
    assert "broken.kw4" in str(caught.value)


def test_damage_within_a_tensor_is_found_when_asked_for(tmp_path: Path) -> None:
    save(tmp_path / "model", {"w": packed_weight(), "x": torch.ones(4)})
    raw = bytearray((tmp_path / "model").read_bytes())
    raw[-4096] ^= 1  # the first byte of x
    (tmp_path / "model").write_bytes(raw)
    assert tensor_of(tmp_path / "model", "x").shape == (4,)
    with pytest.raises(ValueError, match="'x' is damaged"):
        load_mmap(tmp_path / "model", verify=True)


def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'b' is str; wanted Packed or a tensor"):
        save(tmp_path / "model", {"a": torch.ones(3), "b": "x"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'c' is torch.complex64"):
        save(tmp_path / "model", {"c": torch.ones(3, dtype=torch.complex64)})
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        load_mmap(tmp_path / "model")
