"""GGUF files: what the zoo writes is what is read, the KV cache's arithmetic, parts, and hostile files."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.base.files import Torn, mapped
from memprof.models import gguf
from memprof.models.identity import files_of, identify
from memprof.models.tensors import Files, Unparsed, tensors
from memprof.zoo import decoder

np = pytest.importorskip("numpy")

# These change only if the decoder is changed on purpose.
SHA256 = {
    "float16": "32f103ec09d84687cc39dae4fd443922a83b5a656764e82f9f6e0ddeed7abed0",
    "q8_0": "c4371bab9fdfc7f2309b716ddda56105aff293ae0f1dd7522c8e0fc8a1aa1029",
    "q4_0": "9e41547485c5e55043f81aee258715b48d6d2966ad256edb5985d881248c612c",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """small(type) -> path of a decoder of 1 MB, each made once."""
    folder = tmp_path_factory.mktemp("gguf")

    def get(type: str = "float16") -> Path:
        if type != "float16":
            pytest.importorskip("gguf")
        path: Path = folder / f"{type}.gguf"
        if not path.exists():
            zoo.make("llama", path, format="gguf", type=type, size_bytes=10**6)
        return path

    return get


def read(path: Path) -> gguf.Gguf:
    with mapped(path) as data:
        return gguf.read(data)


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", 4, value)


def model(path: Path, *keys: bytes, tensors: bytes = b"", count: int = 0, version: int = 3) -> Path:
    """A file with these keys and lines of tensors, and 64 bytes of data."""
    head = b"GGUF" + struct.pack("<IQQ", version, count, len(keys)) + b"".join(keys) + tensors
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(64))
    return path


def llama(path: Path, *more: bytes, **numbers: int) -> Path:
    """A file that has an architecture's numbers alone."""
    own = {"block_count": 4, "embedding_length": 256, "attention.head_count": 8, **numbers}
    return model(
        path, text("general.architecture") + struct.pack("<I", 8) + text("x"), *(number(f"x.{k}", v) for k, v in own.items()), *more
    )


class TestZoo:
    @pytest.mark.parametrize("type", SHA256)
    def test_bytes_reproducible(self, small: Any, type: str) -> None:
        assert hashlib.sha256(small(type).read_bytes()).hexdigest() == SHA256[type]

    @pytest.mark.parametrize("size", [10**6, 5 * 10**7, 10**8, 8 * 10**9])
    def test_weights_near_requested_size(self, size: int) -> None:
        shape = decoder.sized(size)
        layer = 24 * shape.width**2  # float16: 12 values for each place of a square of the width
        assert abs(2 * shape.parameters - size) <= layer / 2
        assert shape.heads == 2 * shape.kv_heads

    def test_8_layers_from_50_mb(self) -> None:
        assert decoder.sized(50_000_000) == decoder.Decoder(layers=8, width=512)

    def test_too_small_size_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"at least \d+ bytes"):
            zoo.make("llama", tmp_path / "x.gguf", format="gguf", size_bytes=1000)

    @pytest.mark.parametrize(
        ("name", "format", "type", "words"),
        [
            ("llama", "tflite", None, "llama is made as gguf or onnx or genai, not as tflite"),
            ("mnist", "gguf", None, "mnist is made as onnx or tflite or ncnn or mnn, not as gguf"),
            ("llama", "gguf", "int8", "gguf files are made in float16 or q8_0 or q4_0, not in int8"),
            ("mnist", "onnx", "q8_0", "onnx files are made in float32 or int8, not in q8_0"),
        ],
    )
    def test_unknown_combination_refused(self, tmp_path: Path, name: str, format: str, type: str, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            zoo.make(name, tmp_path / "x", format=format, type=type)

    @pytest.mark.parametrize(("type", "error"), [("float16", 4e-4), ("q8_0", 6e-3), ("q4_0", 0.13)])
    def test_values_read_by_gguf_package(self, small: Any, type: str, error: float) -> None:
        package = pytest.importorskip("gguf")
        from memprof.zoo.weights import values

        weights = {weight.name: weight for _, weight in decoder.sized(10**6).weights}
        reader = package.GGUFReader(str(small(type)))
        tensor = next(tensor for tensor in reader.tensors if tensor.name == "blk.1.ffn_down.weight")
        weight = weights["blk.1.ffn_down"]
        read = package.quants.dequantize(tensor.data, tensor.tensor_type)

        assert read.shape == weight.shape
        assert np.abs(read.astype("f4") - values("llama", weight)).max() <= error * weight.limit


class TestReader:
    @pytest.mark.parametrize("type", SHA256)
    def test_tensors_as_gguf_package(self, small: Any, type: str) -> None:
        package = pytest.importorskip("gguf")
        reader = package.GGUFReader(str(small(type)))
        file = read(small(type))

        assert [(tensor.name, tensor.bytes, tensor.offset) for tensor in file.tensors] == [
            (tensor.name, tensor.n_bytes, tensor.data_offset) for tensor in reader.tensors
        ]
        assert all(tensor.shape == tuple(reversed(other.shape)) for tensor, other in zip(file.tensors, reader.tensors, strict=True))
        assert file.keys["llama.block_count"] == reader.fields["llama.block_count"].contents()
        assert "tokenizer.ggml.tokens" not in file.keys

    def test_type_sizes_as_gguf_package(self) -> None:
        package = pytest.importorskip("gguf")
        sizes = {int(kind): size for kind, size in package.GGML_QUANT_SIZES.items()}
        assert {kind: sizes.get(kind, size) for kind, size in gguf.BLOCKS.items()} == gguf.BLOCKS

    def test_weight_bytes_of_tensors(self, small: Any) -> None:
        weights = sum(tensor.bytes for tensor in read(small("q8_0")).tensors)
        identified = identify(small("q8_0"))
        assert identified.weight_bytes == weights < identified.bytes
        assert identified.name == "q8_0.gguf"

    def test_tensor_data_of_file(self, small: Any) -> None:
        from memprof.zoo.weights import values

        weight = next(weight for part, weight in decoder.sized(10**6).weights if part == "attn_k")
        stored = next(tensor for tensor in tensors(small()) if tensor.name == "blk.0.attn_k.weight")
        with Files() as files:
            assert np.array_equal(files.data(stored).view("<f2").reshape(stored.shape), values("llama", weight).astype("<f2"))
        quantized = next(tensor for tensor in tensors(small("q4_0")) if tensor.name == "blk.0.attn_k.weight")
        assert (quantized.dtype, quantized.shape) == ("uint8", (quantized.bytes,))

    def test_split_model_parts(self, tmp_path: Path) -> None:
        names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
        for name in names:
            model(tmp_path / name, tensors=text("w") + struct.pack("<IQIQ", 1, 16, 0, 0), count=1)
        assert [file.name for file in files_of(tmp_path / names[0])] == names
        assert identify(tmp_path / names[0]).weight_bytes == 3 * 64
        (tmp_path / names[1]).unlink()
        with pytest.raises(InputError, match=r"its part m-00002-of-00003\.gguf is missing"):
            identify(tmp_path / names[0])


class TestKvCache:
    @pytest.mark.parametrize(("type", "size"), [("f16", 8192), ("f32", 16384), ("q8_0", 4352), ("q4_0", 2304)])
    def test_bytes_per_token(self, tmp_path: Path, type: str, size: int) -> None:
        # 8 layers x 4 KV heads x 64 x 2 x the type: the trial's decoder.
        path = llama(tmp_path / "m.gguf", **{"block_count": 8, "embedding_length": 512, "attention.head_count_kv": 4})
        assert gguf.kv_cache(path).bytes_per_token(type) == size

    def test_keys_and_values_differ(self, tmp_path: Path) -> None:
        path = llama(tmp_path / "m.gguf", **{"attention.key_length": 128, "attention.value_length": 64})
        assert gguf.kv_cache(path) == gguf.KvCache((8,) * 4, 128, 64)
        assert gguf.kv_cache(path).bytes_per_token("f16", "q8_0") == 4 * 8 * (128 * 2 + 64 * 34 / 32)

    def test_layers_with_different_heads(self, tmp_path: Path) -> None:
        heads = text("x.attention.head_count_kv") + struct.pack("<IIQ4I", 9, 4, 4, 8, 0, 2, 2)
        assert gguf.kv_cache(llama(tmp_path / "m.gguf", heads)).bytes_per_token() == (8 + 2 + 2) * 32 * 2 * 2

    @pytest.mark.parametrize(
        ("numbers", "words"),
        [
            ({"attention.sliding_window": 4096}, "its architecture has attention.sliding_window, so not every layer keeps every token"),
            ({"ssm.state_size": 16}, "its architecture has ssm.state_size"),
            ({"attention.head_count": 0}, "it does not say its layers, its width and its heads"),
            ({"block_count": 1 << 31}, "it does not say its layers"),
        ],
    )
    def test_undeterminable_size_refused(self, tmp_path: Path, numbers: dict[str, int], words: str) -> None:
        with pytest.raises(InputError, match=words):
            gguf.kv_cache(llama(tmp_path / "m.gguf", **numbers))

    def test_unknown_type(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no type 'q8' of a KV cache"):
            gguf.kv_cache(llama(tmp_path / "m.gguf")).bytes_per_token("q8")

    def test_file_not_gguf(self, tmp_path: Path) -> None:
        for content, words in ((b"", "is empty"), (b"GGUF", "damaged"), (b"PK\x03\x04" + bytes(100), "damaged or no .gguf file")):
            (tmp_path / "m.gguf").write_bytes(content)
            with pytest.raises(InputError, match=words):
                gguf.kv_cache(tmp_path / "m.gguf")


_MANY = (1 << 63, 1 << 32, 10**12)


class TestHostile:
    @pytest.mark.parametrize("count", _MANY)
    def test_counts_beyond_file(self, tmp_path: Path, count: int) -> None:
        array = text("a") + struct.pack("<IIQ", 9, 8, count)
        numbers = text("a") + struct.pack("<IIQ", 9, 4, count)
        nested = text("a") + struct.pack("<IIQ", 9, 9, count)
        for path in (
            model(tmp_path / "tensors.gguf", count=count),
            *(model(tmp_path / f"{place}.gguf", key) for place, key in enumerate((array, numbers, nested))),
            model(tmp_path / "name.gguf", struct.pack("<Q", count) + b"name"),
            model(tmp_path / "extents.gguf", tensors=text("w") + struct.pack("<IQQIQ", 2, count, count, 0, 0), count=1),
            model(tmp_path / "offset.gguf", tensors=text("w") + struct.pack("<IQIQ", 1, 16, 0, count), count=1),
        ):
            with pytest.raises(Torn):
                read(path)
            with pytest.raises(Unparsed):
                tensors(path)
            assert identify(path).weight_bytes is None

    def test_deeply_nested_arrays(self, tmp_path: Path) -> None:
        deep = text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 3000
        with pytest.raises(Torn):
            read(model(tmp_path / "m.gguf", deep))

    @pytest.mark.parametrize("size", [0, 3, 1 << 40])
    def test_invalid_alignment(self, tmp_path: Path, size: int) -> None:
        path = model(tmp_path / "m.gguf", text("general.alignment") + struct.pack("<IQ", 10, size))
        if size == 3:
            assert read(path).tensors == ()
        else:
            with pytest.raises(Torn):
                read(path)

    @given(data=st.data())
    def test_damaged_file_read_or_torn(self, data: st.DataObject, small: Any) -> None:
        head = bytearray(small().read_bytes()[:2000])
        for _ in range(data.draw(st.integers(0, 4))):
            head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
        try:
            file = gguf.read(bytes(head[: data.draw(st.integers(0, len(head)))]))
        except Torn:
            return
        assert all(tensor.offset + tensor.bytes <= len(head) for tensor in file.tensors)
