"""`POST /v1/predict`: files in, labels and decisions out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request, Response

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
    with model.batcher.admitting(len(files)) as ticket:
        if len(files) == 1:
            return model, [await _predict_one(state, slot, model, files[0], ticket, every_class)]
        return model, await asyncio.gather(
            *(_predict_one(state, slot, model, each, ticket, every_class) for each in files)
        )  # fmt: skip


async def _predict_one(
    state: ServingState, slot: ModelSlot, model: ServedModel, file: UploadedFile, ticket: Ticket, every_class: bool
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    try:
        pixels = await loop.run_in_executor(state.decoders, model.prepare, file.content, state.pixels)
    except ImageError as error:
        slot.count_unreadable()
        return answer_without(file.name, shorten(error))
    return answer_about(model, file.name, await model.batcher.submit(pixels[None], ticket), every_class)
