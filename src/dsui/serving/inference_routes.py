"""The Open Inference Protocol, version 2, which KServe and Triton speak: `/v2/...`."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from dsui import __version__
from dsui.runtime import Prediction
from dsui.serving.batching import Part
from dsui.serving.body import read_body
from dsui.serving.documents import INFER, MODEL_METADATA, MODEL_READY, SERVER_LIVE, SERVER_METADATA, SERVER_READY
from dsui.serving.refusal import Refusal
from dsui.serving.served_model import ServedModel
from dsui.serving.serving_state import ServingState
from dsui.serving.slot import ModelSlot
from dsui.serving.tensors import DTYPES, encode_answer, parse_infer

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

    @router.get("/v2/models/{name}/ready", **MODEL_READY)
    async def model_ready(name: str) -> dict[str, Any]:
        slot = state.slot(name)
        _check_ready(state)
        return {"name": slot.name, "ready": True}

    @router.post("/v2/models/{name}/infer", **INFER)
    async def infer(request: Request, name: str) -> Response:
        deadline = state.deadline()
        slot = state.slot(name)
        model = slot.current
        with state.bodies.open() as held:
            body = await read_body(request, held, state.settings.body, deadline)
            asked = parse_infer(body, request.headers.get(LENGTH))
            names = _outputs_wanted(model, asked.outputs)
            _check_input(state, model, asked.name, asked.tensor)
            request.state.request_fields["images"] = len(asked.tensor)
            parts = await state.in_time(request, _predict_blocks(state, model, asked.tensor), deadline)
        outputs = {each: np.concatenate([_output(model, part, each) for part in parts]) for each in names}
        facts = {"model_name": slot.name, "model_version": model.version}
        if asked.number is not None:
            facts["id"] = asked.number
        content, head = encode_answer(facts, outputs, asked)
        if head is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={LENGTH: str(head)}, media_type="application/octet-stream")

    return router


def _check_ready(state: ServingState) -> None:
    if state.draining:
        raise Refusal(503, "the server is about to stop.", {"Retry-After": "1"})


def _metadata(slot: ModelSlot) -> dict[str, Any]:
    model = slot.current
    channels = model.facts.channels
    shape, kind = ([-1, -1, -1, channels], "UINT8") if model.takes_images else ([-1, channels], "FP32")
    classes = len(model.predictor.classes)
    return {
        "name": slot.name,
        "versions": [model.version],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": model.facts.input, "datatype": kind, "shape": shape}],
        "outputs": [
            {
                "name": name,
                "datatype": KINDS.get(name, "FP32"),
                "shape": [-1, classes] if name == "probabilities" else [-1],
            }
            for name in model.facts.outputs
        ],
    }


def _outputs_wanted(model: ServedModel, wanted: list[str] | None) -> list[str]:
    known = list(model.facts.outputs)
    if wanted is None:
        return known
    for name in wanted:
        if name not in known:
            raise Refusal(400, f"the model has no output of that name; its outputs are {', '.join(known)}.")
    return list(dict.fromkeys(wanted))


def _check_input(state: ServingState, model: ServedModel, name: str, tensor: NDArray[Any]) -> None:
    expected, channels = model.facts.input, model.facts.channels
    kind = DTYPES["UINT8" if model.takes_images else "FP32"]
    size = model.facts.size
    right = tensor.ndim == 4 and tensor.shape[1:] == (size, size, channels) if model.takes_images else (
        tensor.ndim == 2 and tensor.shape[1] == channels
    )  # fmt: skip
    form = f"[N, {size}, {size}, {channels}] of UINT8" if model.takes_images else f"[N, {channels}] of FP32"
    if name != expected or tensor.dtype != kind or not right:
        raise Refusal(
            400,
            f"the tensor is {list(tensor.shape)} and the model takes {form}, named {expected}; send such a tensor, or "
            "image files to /v1/predict.",
        )
    if not 1 <= len(tensor) <= state.settings.queue:
        raise Refusal(413, f"the tensor has {len(tensor)} rows; send 1 to {state.settings.queue:,} of them.")
    if kind.kind == "f" and not np.isfinite(tensor).all():
        raise Refusal(400, "the tensor holds NaN or infinity; remove or correct them.")


async def _predict_blocks(state: ServingState, model: ServedModel, tensor: NDArray[Any]) -> list[Part[Prediction]]:
    """A batch at a time."""
    step = state.settings.batch
    with model.batcher.admitting(len(tensor)) as ticket:
        blocks = [tensor[start : start + step] for start in range(0, len(tensor), step)]
        return await asyncio.gather(*(model.batcher.submit(block, ticket) for block in blocks))


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
