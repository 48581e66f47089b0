"""The Open Inference Protocol, version 2, which KServe and Triton speak: `/v2/...`."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from dsui import __version__
from dsui.excerpt import excerpt, shorten
from dsui.runtime import Prediction
from dsui.serving.batching import Part
from dsui.serving.body import read_body
from dsui.serving.documents import INFER, MODEL_METADATA, MODEL_READY, SERVER_LIVE, SERVER_METADATA, SERVER_READY
from dsui.serving.refusal import Refusal
from dsui.serving.served_model import ServedModel
from dsui.serving.serving_state import ServingState
from dsui.serving.slot import ModelSlot
from dsui.serving.tensors import DTYPES, Infer, encode_answer, kind_of, parse_infer

LENGTH = "Inference-Header-Content-Length"
KINDS = {"label": "INT64", "accepted": "BOOL"}
"""Data types of outputs; the others are FP32."""


def inference_router(state: ServingState) -> APIRouter:
    router = APIRouter()

    @router.get("/v2", **SERVER_METADATA)
    async def server_metadata() -> dict[str, Any]:
        return {"name": "dsui", "version": __version__, "extensions": ["binary_tensor_data"]}

    @router.get("/v2/health/live", **SERVER_LIVE)
    async def live() -> dict[str, bool]:
        return {"live": True}

    @router.get("/v2/health/ready", **SERVER_READY)
    async def ready() -> dict[str, bool]:
        _check_ready(state)
        return {"ready": True}

    @router.get("/v2/models/{name}", **MODEL_METADATA)
    async def metadata(name: str) -> dict[str, Any]:
        return _metadata(state.slot(name))

    @router.get("/v2/models/{name}/versions/{version}", **MODEL_METADATA)
    async def version_metadata(name: str, version: str) -> dict[str, Any]:
        slot = state.slot(name)
        _check_version(slot, version)
        return _metadata(slot)

    @router.get("/v2/models/{name}/ready", **MODEL_READY)
    async def model_ready(name: str) -> dict[str, Any]:
        _check_ready(state)
        return {"name": state.slot(name).name, "ready": True}

    @router.get("/v2/models/{name}/versions/{version}/ready", **MODEL_READY)
    async def version_ready(name: str, version: str) -> dict[str, Any]:
        _check_version(state.slot(name), version)
        return await model_ready(name)

    @router.post("/v2/models/{name}/infer", **INFER)
    async def infer(request: Request, name: str) -> Response:
        return await _answer(state, request, state.slot(name), None)

    @router.post("/v2/models/{name}/versions/{version}/infer", **INFER)
    async def version_infer(request: Request, name: str, version: str) -> Response:
        return await _answer(state, request, state.slot(name), version)

    return router


async def _answer(state: ServingState, request: Request, slot: ModelSlot, version: str | None) -> Response:
    deadline = state.deadline()
    with state.bodies.open() as held:
        body = await read_body(request, held, state.settings.body, deadline)
        asked = parse_infer(body, request.headers.get(LENGTH))
        request.state.request_fields["images"] = len(asked.tensor)
        model, outputs = await state.in_time(request, _infer(state, slot, version, asked), deadline)
    facts = {"model_name": slot.name, "model_version": model.version}
    if asked.number is not None:
        facts["id"] = asked.number
    content, head = encode_answer(facts, outputs, asked)
    if head is None:
        return Response(content, media_type="application/json")
    return Response(content, headers={LENGTH: str(head)}, media_type="application/octet-stream")


def _check_version(slot: ModelSlot, version: str) -> None:
    known = slot.current.version
    if version != known:
        raise Refusal(404, f"the model {slot.name} has the version {known} and not {excerpt(version)}.")


def _check_ready(state: ServingState) -> None:
    if state.draining:
        raise Refusal(503, "the server is about to stop.", {"Retry-After": "1"})


def _metadata(slot: ModelSlot) -> dict[str, Any]:
    model = slot.current
    classes = len(model.predictor.classes)
    return {
        "name": slot.name,
        "versions": [model.version],
        "platform": "onnxruntime_onnx",
        "inputs": [model.input_tensor(-1)],
        "outputs": [
            {
                "name": name,
                "datatype": KINDS.get(name, "FP32"),
                "shape": [-1, classes] if name == "probabilities" else [-1],
            }
            for name in model.facts.outputs
        ],
    }


def _outputs_wanted(model: ServedModel, wanted: list[str]) -> list[str]:
    known = list(model.facts.outputs)
    if not set(wanted) <= set(known):
        raise Refusal(400, f"the model has no output of that name; its outputs are {', '.join(known)}.")
    return list(dict.fromkeys(wanted or known))


def _check_input(state: ServingState, model: ServedModel, asked: Infer) -> None:
    tensor, taken = asked.tensor, model.input_shape
    kind = "UINT8" if model.takes_images else "FP32"
    if asked.name != model.facts.input or tensor.dtype != DTYPES[kind] or tensor.shape[1:] != taken:
        given = f"the tensor {shorten(asked.name)} is {kind_of(tensor)} {list(tensor.shape)}"
        wanted = f"the model takes {kind} [N, {', '.join(map(str, taken))}], named {model.facts.input}"
        files = ", or image files to /v1/predict" if model.takes_images else ""
        raise Refusal(400, f"{given} and {wanted}; send such a tensor{files}.")
    if len(tensor) == 0:
        raise Refusal(400, "the tensor has no rows; send at least one.")
    if len(tensor) > state.settings.queue:
        raise Refusal(413, f"the tensor has {len(tensor):,} rows; send at most {state.settings.queue:,} of them.")
    if kind == "FP32" and not np.isfinite(tensor).all():
        raise Refusal(400, "the tensor holds NaN or infinity; remove or correct them.")


async def _infer(
    state: ServingState, slot: ModelSlot, version: str | None, asked: Infer
) -> tuple[ServedModel, dict[str, NDArray[Any]]]:
    """By which model, and the outputs by name. It is predicted a batch at a time."""
    if version is not None:
        _check_version(slot, version)
    model = slot.current  # a reload closes it only when all that it let in is answered
    names = _outputs_wanted(model, asked.outputs)
    _check_input(state, model, asked)
    tensor, step = asked.tensor, state.settings.batch
    with model.batcher.admitting(len(tensor)) as ticket:
        blocks = [tensor[start : start + step] for start in range(0, len(tensor), step)]
        parts = await asyncio.gather(*(model.batcher.submit(block, ticket) for block in blocks))
    return model, {each: np.concatenate([_output(model, part, each) for part in parts]) for each in names}


def _output(model: ServedModel, part: Part[Prediction], name: str) -> NDArray[Any]:
    """[N, ...] as the graph has it."""
    prediction, rows = part.whole, slice(part.start, part.stop)
    values: Any
    if name == "label":
        values = model.class_indices(prediction)
    elif name == "accepted":
        values = None if prediction.abnormal is None else ~prediction.abnormal
    else:
        values = getattr(prediction, name, None)
        values = prediction.scores.get(name) if values is None else values
    if values is None:
        raise RuntimeError(f"the prediction has no {name}, which the file announces")
    return np.asarray(values[rows], dtype=DTYPES[KINDS.get(name, "FP32")])
