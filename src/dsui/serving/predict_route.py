"""`POST /v1/predict`: files in, labels and decisions out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from dsui.excerpt import excerpt, shorten
from dsui.runtime import ImageError
from dsui.serving.answers import answer_about, answer_without
from dsui.serving.batching import Ticket
from dsui.serving.body import read_body
from dsui.serving.documents import PREDICT
from dsui.serving.multipart import UploadedFile, parse_files
from dsui.serving.refusal import Refusal
from dsui.serving.served_model import ServedModel
from dsui.serving.serving_state import ServingState
from dsui.serving.slot import ModelSlot

FORM = "multipart/form-data"
TOGETHER = 8
"""Files of a form that one thread decodes; a thread for each costs more than to decode a small one."""
PLAIN = {"", "application/octet-stream", "application/x-www-form-urlencoded"}
"""Types under which a body is taken for one image; the last is what `curl --data-binary` says of any file."""


def predict_router(state: ServingState) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/predict", **PREDICT)
    async def predict(request: Request) -> Response:
        deadline = state.deadline()
        slot, every_class = state.slot(request.query_params.get("model")), _wants_every_class(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM and kind not in PLAIN and not kind.startswith("image/"):
            raise Refusal(
                415, f"the body is {shorten(kind, 60)}; send an image, or a form (multipart/form-data) of images."
            )
        with state.bodies.open() as held:
            body = await read_body(request, held, state.settings.body, deadline)
            if kind == FORM:
                files = parse_files(body, request.headers["content-type"], state.settings.files)
            elif body:
                files = [UploadedFile("", body)]
            else:
                raise Refusal(422, "the body is empty; send an image, or a form (multipart/form-data) of images.")
            del body
            model, answers = await state.in_time(request, _predict_all(state, slot, files, every_class), deadline)
        request.state.request_fields["images"] = len(answers)
        failed = all(each["error"] is not None for each in answers)
        content = {"model": slot.name, "version": model.version, "images": answers}
        return Response(json.dumps(content), 422 if failed else 200, media_type="application/json")

    return router


def _wants_every_class(request: Request) -> bool:
    given = request.query_params.get("probabilities", "false").lower()
    if given not in {"true", "false"}:
        raise Refusal(422, f"probabilities is {excerpt(given)}; write true or false.")
    return given == "true"


async def _predict_all(
    state: ServingState, slot: ModelSlot, files: list[UploadedFile], every_class: bool
) -> tuple[ServedModel, list[dict[str, Any]]]:
    """By which model, and the answers in the order of the files. All are let in, or none."""
    model = slot.current  # a reload closes it only when all that it let in is answered
    if not model.takes_images:
        raise Refusal(
            422, f"the model {slot.name} takes features and no images; send them to /v2/models/{slot.name}/infer."
        )
    step = min(TOGETHER, state.settings.batch)
    with model.batcher.admitting(len(files)) as ticket:
        parts = await asyncio.gather(
            *(
                _predict_some(state, slot, model, files[start : start + step], ticket, every_class)
                for start in range(0, len(files), step)
            )
        )
    return model, [answer for part in parts for answer in part]


async def _predict_some(
    state: ServingState,
    slot: ModelSlot,
    model: ServedModel,
    files: list[UploadedFile],
    ticket: Ticket,
    every_class: bool,
) -> list[dict[str, Any]]:
    def decode() -> list[NDArray[np.uint8] | ImageError]:
        return [model.prepare(file.content, state.pixels) for file in files]

    found = await asyncio.get_running_loop().run_in_executor(state.decoders, decode)
    readable = [each for each in found if not isinstance(each, ImageError)]
    slot.count_unreadable(len(found) - len(readable))
    if readable:
        part = await model.batcher.submit(np.stack(readable), ticket)
        rows = iter(range(part.start, part.stop))
    return [
        answer_without(file.name, shorten(each))
        if isinstance(each, ImageError)
        else answer_about(model, file.name, part.whole, next(rows), every_class)
        for file, each in zip(files, found, strict=True)
    ]
