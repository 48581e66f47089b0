"""The Open Inference Protocol: tensors come and go as the protocol says, in JSON and in its binary extension."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from starlette.testclient import TestClient

from dsui.serving.refusal import Refusal
from dsui.serving.tensors import DTYPES, parse_infer
from tests.serving.conftest import Start
from tests.support.onnx_model import expected_outputs

URL = "/v2/models/tiny/infer"
LENGTH = "Inference-Header-Content-Length"
NUMPY = {"INT64": "<i8", "FP32": "<f4", "BOOL": "?"}


def images(count: int = 5) -> NDArray[np.uint8]:
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (count, 1, 1, 3))
    return np.broadcast_to(colours, (count, 8, 8, 3)).astype(np.uint8)


def as_json(values: NDArray[Any], **more: Any) -> dict[str, Any]:
    tensor = {"name": "images", "datatype": "UINT8", "shape": list(values.shape), "data": values.ravel().tolist()}
    return {"inputs": [tensor], **more}


def arrays_of(content: dict[str, Any], rest: bytes = b"") -> dict[str, NDArray[Any]]:
    found = {}
    for each in content["outputs"]:
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = np.array(each["data"], dtype=NUMPY[each["datatype"]])
        else:
            values, rest = np.frombuffer(rest[:size], dtype=NUMPY[each["datatype"]]), rest[size:]
        found[each["name"]] = values.reshape(each["shape"])
    assert rest == b""
    return found


def check_outputs(found: dict[str, NDArray[Any]], given: NDArray[np.uint8]) -> None:
    oracle = expected_outputs(given)
    assert found["label"].tolist() == oracle["label"].tolist()
    for name in ("probabilities", "uncertainty", "foreignness", "log_density"):
        np.testing.assert_allclose(found[name], oracle[name], atol=1e-5)  # float32 against float64
    assert found["accepted"].tolist() == (oracle["uncertainty"] <= 0.3).tolist()


def test_metadata_describe_the_tensors_that_go_in_and_come_out(client: TestClient) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/models/tiny/ready").json() == {"name": "tiny", "ready": True}
    facts = client.get("/v2/models/tiny").json()
    assert facts["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 8, 8, 3]}]
    found = client.post(URL, json=as_json(images())).json()
    assert [each["name"] for each in found["outputs"]] == [each["name"] for each in facts["outputs"]]
    for given_out, told in zip(found["outputs"], facts["outputs"], strict=True):
        assert given_out["datatype"] == told["datatype"]
        assert [size for size, any_size in zip(given_out["shape"], told["shape"], strict=True) if any_size != -1] == [
            size for size in told["shape"] if size != -1
        ]
    assert found["model_version"] in facts["versions"]


@pytest.mark.parametrize("count", [1, 5, 70], ids=["one", "some", "more than a batch"])
def test_json_tensors_give_what_the_formulas_give(client: TestClient, count: int) -> None:
    given_images = images(count)
    found = client.post(URL, json=as_json(given_images, id="seven"))
    assert found.status_code == 200
    assert found.json()["id"] == "seven"
    check_outputs(arrays_of(found.json()), given_images)


def test_nested_data_are_the_same_as_flat_data(client: TestClient) -> None:
    nested = as_json(images(2))
    nested["inputs"][0]["data"] = images(2).tolist()
    assert client.post(URL, json=nested).json() == client.post(URL, json=as_json(images(2))).json()


@pytest.mark.parametrize("all_binary", [True, False])
def test_the_binary_extension_carries_the_same_numbers(client: TestClient, all_binary: bool) -> None:
    given_images = images(40)
    content = given_images.tobytes()
    request = as_json(given_images, parameters={"binary_data_output": all_binary})
    del request["inputs"][0]["data"]
    request["inputs"][0]["parameters"] = {"binary_data_size": len(content)}
    head = json.dumps(request).encode()
    found = client.post(URL, content=head + content, headers={LENGTH: str(len(head))})
    assert found.status_code == 200
    size = int(found.headers[LENGTH]) if all_binary else len(found.content)
    check_outputs(arrays_of(json.loads(found.content[:size]), found.content[size:]), given_images)


def test_only_the_outputs_that_are_asked_for_come_each_in_its_form(client: TestClient) -> None:
    wanted = [{"name": "accepted"}, {"name": "label", "parameters": {"binary_data": True}}]
    found = client.post(URL, json=as_json(images(3), outputs=wanted))
    size = int(found.headers[LENGTH])
    content = json.loads(found.content[:size])
    assert [each["name"] for each in content["outputs"]] == ["accepted", "label"]
    assert "data" in content["outputs"][0]
    assert len(found.content) - size == 3 * 8


def test_a_model_of_features_takes_them(start: Start) -> None:
    client = start({"features": True, "channels": 4})
    values = np.random.default_rng(0).random((3, 4), dtype=np.float32)
    tensor = {"name": "features", "datatype": "FP32", "shape": [3, 4], "data": values.tolist()}
    found = arrays_of(client.post(URL, json={"inputs": [tensor]}).json())
    np.testing.assert_allclose(found["probabilities"], expected_outputs(values)["probabilities"], atol=1e-5)
    tensor["data"] = [[1.0, 2.0, 3.0, 1e39]] * 3
    refused = client.post(URL, json={"inputs": [tensor]})
    assert (refused.status_code, "infinity" in refused.json()["error"]) == (400, True)


def test_null_is_as_good_as_absent_and_no_output_named_is_all(client: TestClient) -> None:
    given = images(2)
    full = client.post(URL, json=as_json(given)).json()
    request = as_json(given)
    request |= {"id": None, "parameters": None, "outputs": None}
    request["inputs"][0]["parameters"] = None
    assert client.post(URL, json=request).json() == full
    assert client.post(URL, json=as_json(given, outputs=[])).json() == full


def test_a_model_has_one_version_and_answers_under_its_name(client: TestClient) -> None:
    (version,) = client.get("/v2/models/tiny").json()["versions"]
    place = f"/v2/models/tiny/versions/{version}"
    assert client.get(place).json() == client.get("/v2/models/tiny").json()
    assert client.get(f"{place}/ready").json() == {"name": "tiny", "ready": True}
    assert client.post(f"{place}/infer", json=as_json(images(1))).json()["model_version"] == version
    for ending in ("", "/ready"):
        refused = client.get(f"/v2/models/tiny/versions/1{ending}")
        assert (refused.status_code, version in refused.json()["error"]) == (404, True)
    assert client.post("/v2/models/tiny/versions/1/infer", json=as_json(images(1))).status_code == 404


def test_a_compressed_body_is_refused_as_such(client: TestClient) -> None:
    found = client.post(URL, content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert (found.status_code, "compressed" in found.json()["error"]) == (415, True)


def changed(**changes: Any) -> dict[str, Any]:
    request = as_json(images(1))
    request["inputs"][0] |= changes
    return request


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        ([], "mapping"),
        ({}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": as_json(images(1))["inputs"] * 2}, "takes one"),
        (changed(name="pictures"), "named images"),
        (changed(datatype="FP64"), "UINT8"),
        (changed(datatype="FP32"), "UINT8"),
        (changed(shape=[1, 8, 8, 4]), "192 numbers|256 numbers"),
        (changed(shape=[1, 4, 16, 3]), "the model takes"),
        (changed(shape=[-1, 8, 8, 3]), "shape"),
        (changed(shape=[0, 8, 8, 3], data=[]), "rows|0"),
        (changed(data=[256] * 192), "from 0 to 255"),
        (changed(data=[-1] * 192), "from 0 to 255"),
        (changed(data=[0.5] * 192), "numbers of uint8"),
        (changed(data=[True] * 192), "numbers of uint8"),
        (changed(data=["1"] * 192), "numbers of uint8"),
        (changed(data=[[1], [1, 2]]), "array of numbers"),
        (changed(data=[10**30] * 192), "numbers of uint8|array of numbers"),
        (changed(data=7), "data"),
        (changed(parameters={"binary_data_size": 192}), "binary_data_size"),
        (as_json(images(1), outputs=[{"name": "logits"}]), "its outputs are"),
    ],
)
def test_a_wrong_request_is_one_sentence_that_says_what_is_wrong(
    client: TestClient, request_body: Any, words: str
) -> None:
    found = client.post(URL, json=request_body)
    assert found.status_code in {400, 413}, found.text
    assert set(found.json()) == {"error"}
    assert any(each in found.json()["error"] for each in words.split("|")), found.json()["error"]


@pytest.mark.parametrize("length", ["-1", "9999", "x", "1" * 30])
def test_a_false_length_of_the_json_is_refused(client: TestClient, length: str) -> None:
    found = client.post(URL, json=as_json(images(1)), headers={LENGTH: length})
    assert found.status_code == 400


def test_more_rows_than_the_queue_holds_can_never_be_answered_and_are_refused(start: Start) -> None:
    client = start(queue=64)
    assert client.post(URL, json=as_json(images(65))).status_code == 413
    assert client.post(URL, json=as_json(images(64))).status_code == 200


@given(st.data())
def test_any_tensor_of_the_protocol_comes_through_json_and_bytes_unchanged(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(DTYPES)))
    elements = st.floats(width=32, allow_nan=False) if kind == "FP32" else None
    values = data.draw(arrays(DTYPES[kind], array_shapes(max_dims=3, max_side=4), elements=elements))
    tensor: dict[str, Any] = {"name": "x", "datatype": kind, "shape": list(values.shape), "data": values.tolist()}
    if kind != "FP32" or np.isfinite(values).all():
        assert_same(parse_infer(json.dumps({"inputs": [tensor]}).encode(), None).tensor, values)
    del tensor["data"]
    tensor["parameters"] = {"binary_data_size": values.nbytes}
    head = json.dumps({"inputs": [tensor]}).encode()
    assert_same(parse_infer(head + values.tobytes(), str(len(head))).tensor, values)


def assert_same(found: NDArray[Any], values: NDArray[Any]) -> None:
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 300).map(str)))
def test_bytes_that_are_no_request_are_refused_and_nothing_else_happens(body: bytes, length: str | None) -> None:
    with pytest.raises(Refusal):
        parse_infer(body, length)
