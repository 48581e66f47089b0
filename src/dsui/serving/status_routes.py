"""How the server is: alive, ready, its models, its metrics."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from dsui.serving.documents import HEALTH, METRICS, MODELS, READY
from dsui.serving.serving_state import ServingState
from dsui.serving.slot import ModelSlot


def status_router(state: ServingState) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", **HEALTH)
    async def health() -> dict[str, bool]:
        return {"alive": True}

    @router.get("/readyz", **READY)
    async def ready() -> Response:
        models = {
            name: {"version": slot.current.version, "reload_failed": slot.reload_failed}
            for name, slot in state.slots.items()
        }
        content = {"ready": not state.draining, "models": models}
        return Response(json.dumps(content), 503 if state.draining else 200, media_type="application/json")

    @router.get("/v1/models", **MODELS)
    async def models() -> dict[str, list[dict[str, Any]]]:
        return {"models": [describe(slot) for slot in state.slots.values()]}

    @router.get("/metrics", **METRICS)
    async def metrics() -> Response:
        return Response(state.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def describe(slot: ModelSlot) -> dict[str, Any]:
    """What a person, or the page, wants to know of a model."""
    model, facts = slot.current, slot.current.facts
    thresholds = facts.thresholds
    limits = [] if thresholds is None else [
        {
            "score": limit.score,
            "value": limit.value,
            "finds": limit.finds,
            "percentile": _percentile(slot, limit.score, limit.value),
        }
        for limit in thresholds.limits
    ]  # fmt: skip
    return {
        "name": slot.name,
        "version": model.version,
        "method": facts.method,
        "backbone": facts.backbone,
        "input": facts.input,
        "size": facts.size,
        "channels": facts.channels,
        "classes": list(model.predictor.classes),
        "limits": limits,
        "promise": facts.promise,
        "promised_coverage": None if thresholds is None else thresholds.asked.coverage,
        "calibration_images": None if facts.calibration is None else facts.calibration.images,
        "verdict": None if facts.verdict is None else facts.verdict.headline,
        "images": dict(slot.counts),
        "acceptance_rate": slot.acceptance_rate,
        "monitors": {name: monitor.to_mapping() for name, monitor in slot.monitors.items()},
        "reload_failed": slot.reload_failed,
    }


def _percentile(slot: ModelSlot, score: str, value: float) -> float | None:
    place = slot.current.scale.percentile(score, value)
    return None if place is None else round(place, 2)
