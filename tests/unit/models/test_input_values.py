"""Values of a model's inputs: given ones are checked, chosen ones are named, and none is called the cause of a failure."""

import pytest
from onnx import TensorProto, helper, save
from support.sample_runs import job

from memprof.base.errors import UsageError
from memprof.models import input_values

TYPES = {
    "sr": ("INT64", []),
    "small": ("UINT8", []),
    "flag": ("BOOL", []),
    "gain": ("FLOAT", []),
    "image": ("UINT8", [1, 8]),
    "ids": ("INT32", [1, 4]),
}


@pytest.fixture
def model(tmp_path):
    declared = [helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape) for name, (dtype, shape) in TYPES.items()]
    path = tmp_path / "net.onnx"
    save(helper.make_model(helper.make_graph([helper.make_node("Neg", ["gain"], ["out"])], "net", declared, [])), path)
    return path


@pytest.mark.parametrize("value", ["sr=16000", "sr=-1", "small=255", "flag=on", "flag=off", "gain=0.5", "gain=2", "image=7", "other=1"])
def test_value_of_type_taken(model, value):
    name, _, text = value.partition("=")
    input_values.check(model, {name: text}, ())


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("sr", "abc", "sr is int64, which takes a whole number from "),
        ("sr", "1.5", "sr is int64, which takes a whole number from "),
        ("small", "256", "small is uint8, which takes a whole number from 0 to 255"),
        ("small", "-1", "small is uint8, which takes a whole number from 0 to 255"),
        ("flag", "1", "flag is bool, which takes on or off"),
        ("gain", "loud", "gain is float32, which takes a number"),
        ("ids", "1", "the file of --inputs has ids too"),
    ],
)
def test_value_of_other_type_refused(model, name, value, sentence):
    with pytest.raises(UsageError) as refusal:
        input_values.check(model, {name: value}, ("ids",))

    assert sentence in str(refusal.value)


def test_chosen_values_named(model):
    chosen = input_values.made(model, ("small",))

    assert chosen == {"sr": "0", "flag": "off", "gain": "a number from 0 to 1", "ids": "all 0"}


CHOSEN = {
    "assumed": ({"x": (1, 3)}, "x of shape 1x3 (open dimensions taken as 1)"),
    "made": ({"x": "0"}, "x = 0"),
    "ranges": ({"x": 50_000}, "x = integers from 0 to 49,999"),
}


@pytest.mark.parametrize("kind", CHOSEN)
@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Pad needs an axis of 2", "whether others would run is not known"),
        ("max is too large", "whether others would run is not known"),
        ("input x has the wrong size", "the runtime names x"),
    ],
)
def test_hint_claims_only_named_cause(kind, message, cause):
    chosen, words = CHOSEN[kind]
    failed = job(**{kind: chosen})

    assert (
        input_values.invented(failed, message)
        == f"memprof chose these inputs: {words}; {cause} (--shape, --input and --inputs give your own)"
    )


def test_hint_absent_without_choice():
    assert input_values.invented(job(), "x failed") == ""
