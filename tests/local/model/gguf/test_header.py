"""Headers of GGUF files: equal to what the package reads, and refused in one line where they are wrong."""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from specclient_local.loading.configured_models import read_configured_models
from specclient_local.loading.model_loader import ModelPlacement, load_model, read_any_config
from specclient_local.model.gguf import header as module
from specclient_local.model.gguf.header import read_header
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import load_weights, resolve_checkpoint
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

from gguf_files import write_gguf  # noqa: E402 - needs the package


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("header")
    return write_gguf(write_checkpoint(folder / "checkpoint"), folder / "model.gguf")


def test_the_header_equals_what_the_package_reads(path):
    reader, header = gguf.GGUFReader(path), read_header(path)
    theirs = {name: each.contents() for name, each in reader.fields.items() if not name.startswith("GGUF.")}
    ours = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in header.values.items()
    }
    assert ours == theirs
    assert len(ours) > 15
    for tensor in reader.tensors:
        entry = header.tensors[tensor.name]
        assert (entry.begin, entry.size) == (tensor.data_offset, tensor.n_bytes)
        assert (entry.kind, entry.shape) == (tensor.tensor_type.name, tuple(tensor.shape.tolist()[::-1]))
    assert len(reader.tensors) == len(header.tensors)


def refused(tmp_path, data, message):
    """Check that a file is refused in one line, and takes little memory."""
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(changed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < 4 * len(data) + 2**20


def test_a_file_that_is_truncated_anywhere_is_refused(path, tmp_path):
    data = path.read_bytes()
    first = min(entry.begin for entry in read_header(path).tensors.values())
    for end in (*range(64), *range(64, first, 97), first, len(data) - 1):
        refused(tmp_path, data[:end], "truncated|no GGUF file|room for|but ends at")


def fields(*, tensors=0, count=1, name=b"a.b", kind=4, value=b"\x01\0\0\0", version=3):
    """Return a header with one field."""
    return (
        b"GGUF" + struct.pack("<IQQ", version, tensors, count) + struct.pack("<Q", len(name)) + name
        + struct.pack("<I", kind) + value
    )  # fmt: skip


def entry(dimensions, number=0, offset=0, name=b"t"):
    """Return a header with one entry of the table of tensors."""
    packed = struct.pack("<I", len(dimensions)) + b"".join(struct.pack("<Q", each) for each in dimensions)
    return (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(name)) + name
        + packed + struct.pack("<IQ", number, offset)
    )  # fmt: skip


LIES = {
    "fields": (fields(count=2**60), "states 1152921504606846976 fields"),
    "tensors": (fields(tensors=2**60), "states 1152921504606846976 tensors"),
    "a text": (fields(kind=8, value=struct.pack("<Q", 2**62)), "truncated"),
    "a name": (fields(name=b"x" * 2000), "a name of 2000 bytes"),
    "an array": (fields(kind=9, value=struct.pack("<IQ", 4, 2**61) + b"\0" * 64), "elements of a.b"),
    "an array of bytes": (fields(kind=9, value=struct.pack("<IQ", 0, 2**61)), "elements of a.b"),
    "an array of texts": (fields(kind=9, value=struct.pack("<IQ", 8, 2**40) + b"\0" * 64), "elements of a.b"),
    "numbers beyond the end": (fields(kind=9, value=struct.pack("<IQ", 12, 9) + b"\0" * 10), "truncated"),
    "an array of arrays": (fields(kind=9, value=struct.pack("<IQ", 9, 2) + b"\0" * 64), "unknown type 9"),
    "a type": (fields(kind=77), "unknown type 77 in a.b"),
    "the version": (fields(version=9), "version 9; supported are 2 and 3"),
    "the byte order": (fields(version=3 << 24), "version 50331648"),
    "a text in Latin-1": (fields(kind=8, value=struct.pack("<Q", 1) + b"\xe9"), "not UTF-8"),
    "the alignment": (
        fields(name=b"general.alignment", value=struct.pack("<I", 24)),
        "alignment 24; it must be",
    ),
    "dimensions": (entry([1] * 9) + b"\0" * 256, "9 dimensions of t"),
    "a shape": (entry([2**40, 2**40]) + b"\0" * 64, "tensor t at bytes"),
    "an offset": (entry([2], offset=2**40) + b"\0" * 64, "tensor t at bytes"),
    "an odd offset": (entry([2], offset=5) + b"\0" * 64, "tensor t at bytes"),
    "blocks": (entry([31], number=8) + b"\0" * 64, "in blocks of 32"),
    "no dimension": (entry([]) + b"\0" * 64, "in blocks of 1"),
    "the magic number": (b"GGML" + b"\0" * 64, "no GGUF file"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lying_header_is_refused_before_memory_is_taken(tmp_path, name):
    data, message = LIES[name]
    refused(tmp_path, data, message)


def test_a_header_with_changed_bytes_is_read_or_refused_in_one_line(path, tmp_path):
    data, rng, read, errors = path.read_bytes(), random.Random(0), 0, []
    first = min(entry.begin for entry in read_header(path).tensors.values())
    changed = tmp_path / "changed.gguf"
    for _ in range(300):
        at, size = rng.randrange(first - 8), rng.choice((1, 2, 4, 8))
        new = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
        changed.write_bytes(data[:at] + new + data[at + size :])
        try:
            load_weights(changed, read_any_config(changed))
            Tokenizer(changed).encode("def f(x):")
            read += 1
        except CheckpointError as error:
            errors.append(str(error))
    assert read > 0 < len(errors)
    assert not any("\n" in error for error in errors)


def test_fields_and_tensors_that_occur_twice_are_refused(path, tmp_path):
    twice = fields(count=2) + fields()[24:]
    refused(tmp_path, twice, "states a.b twice")
    one = entry([2])
    both = one[:8] + struct.pack("<Q", 2) + one[16:] + one[24:]
    refused(tmp_path, both + b"\0" * 64, "a tensor twice")


def test_unknown_types_are_known_by_their_number(tmp_path):
    file = tmp_path / "unknown.gguf"
    file.write_bytes(entry([32], number=4000) + b"\0" * 64)
    assert read_header(file).tensors["t"].kind == "4000"


def test_a_header_is_read_again_when_its_file_changes(path, tmp_path):
    file = tmp_path / "copy.gguf"
    file.write_bytes(path.read_bytes())
    assert read_header(file) is read_header(file)
    file.write_bytes(fields())
    assert read_header(file).values == {"a.b": 1}


def test_without_the_package_the_extra_is_named(path, monkeypatch):
    module._read_header.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'specclient\[gguf\]'"):
        read_any_config(path)


def test_a_list_of_models_needs_no_package(path, monkeypatch):
    module._read_header.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    listed = read_configured_models({"models": {"m": {"path": str(path)}}})["m"].listed("m")
    assert (listed.target, listed.context) == (str(path), None)


def test_files_that_do_not_exist_or_are_no_files(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; name a GGUF file"):
        resolve_checkpoint(tmp_path / "none.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert resolve_checkpoint(tmp_path / "folder.gguf") == tmp_path / "folder.gguf"


def test_transformers_runs_no_gguf_file(path):
    with pytest.raises(ConfigurationError, match="only the built-in decoder runs"):
        load_model(path, ModelPlacement(runner="hf"), slots=1, context=64)
