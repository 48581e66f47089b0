"""The OpenAPI document is true: schemathesis makes requests of it, good ones and bad ones, and checks every answer."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.onnx_model import write_onnx_model
from tests.support.server import Server, png, running_server

EXAMPLES = 12
"""Requests for each route and mode."""
VERSIONS = ("", "/versions/{version}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("openapi")
    write_onnx_model(folder / "mine.onnx")
    with running_server(folder, folder / "mine.onnx") as started:
        yield started
        started.send(signal.SIGTERM)
        started.process.wait(60)
        assert not [line for line in started.events("request") if line["status"] == 500]


def operations(server: Server) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    return [each.ok() for each in found]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
def test_answers_are_what_the_document_says(server: Server, mode: GenerationMode) -> None:
    found = operations(server)
    assert len(found) >= 12

    def check(case: Case[Any]) -> None:
        # random bytes are no image, and a random shape is not the model's: right by the document, and refused
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    bounded = settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for operation in found:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # nothing about it can be wrong
        bounded(given(case=operation.as_strategy(generation_mode=mode))(check))()


def test_examples_of_the_document_work_when_they_are_pasted(server: Server) -> None:
    paths = httpx.get(f"{server.address}/openapi.json").json()["paths"]
    infer = paths["/v2/models/{name}/infer"]["post"]
    example = infer["requestBody"]["content"]["application/json"]["example"]
    (name,) = (each["example"] for each in infer["parameters"] if each["name"] == "name")
    found = httpx.post(f"{server.address}/v2/models/{name}/infer", json=example)
    assert (found.status_code, found.json()["outputs"][0]["shape"]) == (200, [1])
    assert example["inputs"][0]["shape"] == [1, 8, 8, 3], "it is this model's"
    shown = paths["/v1/predict"]["post"]["responses"]["200"]["content"]["application/json"]["example"]
    predicted = httpx.post(f"{server.address}/v1/predict", content=png()).json()
    assert set(predicted) == set(shown)
    assert set(predicted["images"][0]) == set(shown["images"][0])


def test_every_route_is_in_the_document(server: Server) -> None:
    paths = set(httpx.get(f"{server.address}/openapi.json").json()["paths"])
    assert paths == {
        *("/", "/healthz", "/readyz", "/metrics", "/v1/predict", "/v1/models"),
        *("/v2", "/v2/health/live", "/v2/health/ready"),
        *(f"/v2/models/{{name}}{version}{ending}" for version in VERSIONS for ending in ("", "/ready", "/infer")),
    }


def test_nothing_is_read_from_a_disk_by_a_name_that_a_client_gives(server: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.onnx"
    secret.write_bytes(b"x")
    for name in (str(secret), "../../etc/passwd", "%2e%2e%2fserver.log"):
        assert httpx.get(f"{server.address}/v2/models/{name}").status_code == 404
        assert httpx.post(f"{server.address}/v1/predict?model={name}", content=png()).status_code == 404
