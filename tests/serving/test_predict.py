"""`POST /v1/predict`: the answers are the model's, file by file, and every wrong request gets a sentence."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.serving.conftest import Start
from tests.support.onnx_model import CLASSES, expected_outputs
from tests.support.server import png

RED, GREY = (250, 10, 10), (128, 128, 128)


def expected(colour: tuple[int, int, int]) -> dict[str, Any]:
    return expected_outputs(np.full((1, 8, 8, 3), colour, dtype=np.uint8))


def test_a_raw_image_gets_label_scores_decision_and_the_reason(client: TestClient) -> None:
    for colour in (RED, GREY):
        found = client.post("/v1/predict", content=png(colour, (40, 30)), headers={"content-type": "image/png"})
        assert found.status_code == 200
        (answer,), oracle = found.json()["images"], expected(colour)
        assert answer["label"] == CLASSES[oracle["label"][0]]
        # float32 in the graph against float64
        assert answer["probability"] == pytest.approx(oracle["probabilities"].max(), abs=1e-5)
        assert answer["uncertainty"] == pytest.approx(oracle["uncertainty"][0], abs=1e-5)
        assert answer["log_density"] == pytest.approx(oracle["log_density"][0], abs=1e-5)
        rejected = oracle["uncertainty"][0] > 0.3
        assert answer["decision"] == ("reject" if rejected else "accept")
        assert answer["reason"] == ("uncertain" if rejected else None)
        by_name = {each["label"]: each["probability"] for each in answer["classes"]}
        wanted = dict(zip(CLASSES, oracle["probabilities"][0], strict=True))
        assert by_name == pytest.approx(wanted, abs=1e-5)
        assert [each["probability"] for each in answer["classes"]] == sorted(by_name.values(), reverse=True)
        # its calibration is uniform from 0 to 2/3
        assert answer["percentiles"]["uncertainty"] == pytest.approx(min(100, 150 * oracle["uncertainty"][0]), abs=0.1)


def test_files_of_a_form_are_answered_in_their_order_and_a_bad_one_says_why(client: TestClient) -> None:
    files = [("files", ("red.png", png(RED))), ("files", ("bad.png", b"no image")), ("files", ("grey", png(GREY)))]
    found = client.post("/v1/predict", files=files)
    assert found.status_code == 200
    answers = found.json()["images"]
    assert [each["file"] for each in answers] == ["red.png", "bad.png", "grey"]
    assert [each["decision"] for each in answers] == ["accept", None, "reject"]
    assert [each["error"] is None for each in answers] == [True, False, True]
    assert "not an image" in answers[1]["error"]
    assert len({tuple(each) for each in answers}) == 1, "every object has the same keys"


@pytest.mark.parametrize(
    "content",
    [b"no image", png()[:-40], b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 100, b"%!PS-Adobe-3.0 EPSF-3.0\n"],
    ids=["text", "truncated", "GIF head", "PNG head", "PostScript"],
)
def test_a_file_that_is_no_image_is_422_with_the_reason(client: TestClient, content: bytes) -> None:
    found = client.post("/v1/predict", content=content, headers={"content-type": "image/png"})
    assert found.status_code == 422
    assert found.json()["images"][0]["error"]
    assert "Traceback" not in found.text


def test_an_image_of_too_many_pixels_is_refused_by_its_header(start: Start) -> None:
    client = start(pixels=1000)
    found = client.post("/v1/predict", content=png(size=(100, 100)))
    assert found.status_code == 422
    assert found.json()["images"][0]["error"] == "its header announces 100 x 100 pixels, more than 1,000"
    assert client.post("/v1/predict", content=png(size=(10, 100))).status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "status", "words"),
    [
        (b"", {}, 422, "empty"),
        (b"{}", {"content-type": "application/json"}, 415, "multipart/form-data"),
        (b"x" * 2000, {}, 413, "1,000 bytes"),
        (b"--x--", {"content-type": "multipart/form-data"}, 400, "form"),
    ],
    ids=["empty", "JSON", "large", "no boundary"],
)
def test_a_wrong_request_is_one_sentence(
    start: Start, content: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    found = start(body=1000).post("/v1/predict", content=content, headers=headers)
    assert found.status_code == status
    assert words in found.json()["error"]
    assert set(found.json()) == {"error"}


def test_names_and_options_are_checked(client: TestClient) -> None:
    assert client.post("/v1/predict?model=tiny", content=png()).status_code == 200
    unknown = client.post("/v1/predict?model=tini", content=png())
    assert unknown.status_code == 404
    assert "tiny" in unknown.json()["error"], "the nearest name is suggested"
    assert client.post("/v1/predict?probabilities=maybe", content=png()).status_code == 422
    assert client.get("/v1/predict").status_code == 405
    assert client.get("/nothing").json()["error"].startswith("there is nothing at this address")


def test_too_many_files_are_refused_before_any_is_predicted(start: Start) -> None:
    client = start(files=3)
    found = client.post("/v1/predict", files=[("files", (f"{n}.png", png())) for n in range(4)])
    assert found.status_code == 413
    assert client.get("/v1/models").json()["models"][0]["images"]["accepted"] == 0


def test_a_model_without_thresholds_decides_nothing(start: Start) -> None:
    client = start({"limits": (), "density": False})
    (answer,) = client.post("/v1/predict", content=png()).json()["images"]
    assert (answer["decision"], answer["reason"], answer["log_density"]) == (None, None, None)
    assert client.get("/v1/models").json()["models"][0]["images"]["undecided"] == 1


def test_a_model_of_features_says_where_to_send_them(start: Start) -> None:
    found = start({"features": True, "channels": 4}).post("/v1/predict", content=png())
    assert found.status_code == 422
    assert "/v2/models/tiny/infer" in found.json()["error"]


def test_an_error_nobody_foresaw_leaves_no_trace_of_the_code(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = start()

    def fail(*_: object) -> None:
        raise KeyError("/secret/path.py")

    monkeypatch.setattr("dsui.serving.served_model.ServedModel.prepare", fail)
    found = client.post("/v1/predict", content=png(), headers={"X-Request-ID": "mine-7"})
    assert found.status_code == 500
    assert "mine-7" in found.json()["error"]
    assert found.headers["x-request-id"] == "mine-7"
    assert "secret" not in found.text
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None, "the log has the rest"


def test_without_the_token_nothing_but_probes_and_the_page_answers(start: Start) -> None:
    client = start(token="s3cret-token")  # noqa: S106
    assert client.post("/v1/predict", content=png()).status_code == 401
    for path in ("/v1/models", "/metrics", "/v2", "/v2/models/tiny"):
        assert client.get(path).status_code == 401, path
        assert client.get(path, headers={"Authorization": "Bearer s3cret-tokeN"}).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer s3cret-token"}).status_code == 200
    for path in ("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/openapi.json"):
        assert client.get(path).status_code == 200, path
    assert client.get("/v1/models").headers["www-authenticate"] == "Bearer"


def test_metrics_count_what_happened(client: TestClient) -> None:
    for content in (png(RED), png(RED), png(GREY), b"no image"):
        client.post("/v1/predict", content=content)
    client.get("/nothing/" + "a" * 50)
    lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[:1] not in {"#", ""})
    assert float(lines['dsui_images_total{decision="accepted",model="tiny"}']) == 2
    assert float(lines['dsui_images_total{decision="rejected",model="tiny"}']) == 1
    assert float(lines['dsui_images_total{decision="unreadable",model="tiny"}']) == 1
    assert float(lines['dsui_requests_total{method="POST",path="/v1/predict",status="200"}']) == 3
    assert float(lines['dsui_requests_total{method="GET",path="other",status="404"}']) == 1
    assert float(lines['dsui_batch_images_count{model="tiny"}']) == 3
    assert float(lines['dsui_queue_images{model="tiny"}']) == 0
    assert float(lines['dsui_score_percentile_bucket{le="+Inf",model="tiny",score="uncertainty"}']) == 3
    assert float(lines['dsui_score_percentile_bucket{le="5",model="tiny",score="uncertainty"}']) == 2, "red is certain"
    assert 'dsui_monitor_wealth{model="tiny",monitor="acceptance"}' in lines
    assert len([name for name in lines if "nothing" in name]) == 0, "a client cannot invent series"


def test_the_models_say_what_they_promise_and_what_they_did(client: TestClient) -> None:
    client.post("/v1/predict", files=[("files", ("a", png(RED))), ("files", ("b", png(GREY)))])
    (model,) = client.get("/v1/models").json()["models"]
    assert model["classes"] == list(CLASSES)
    assert model["acceptance_rate"] == 0.5
    assert model["limits"] == [{"score": "uncertainty", "value": 0.3, "finds": "errors", "percentile": 45.0}]
    assert "95 %" in model["promise"]
    assert set(model["monitors"]) == {"acceptance", "uncertainty"}
    assert json.dumps(model["monitors"], allow_nan=False)
