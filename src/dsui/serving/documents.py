"""What the OpenAPI document says of each route: its form, its errors, and examples."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

Document = dict[str, Any]

LARGEST_EXAMPLE = 3072
"""Numbers in an example of a tensor, as many as 32 x 32 pixels have; of larger models it shows the form alone."""
ERROR: Document = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "One sentence: what is wrong, and what to do."}},
}
NUMBER: Document = {"type": ["number", "null"]}
TEXT: Document = {"type": ["string", "null"]}
SCORED_CLASS: Document = {
    "type": "object",
    "required": ["label", "probability"],
    "properties": {"label": {"type": "string"}, "probability": NUMBER},
}
IMAGE: Document = {
    "type": "object",
    "required": ["file", "label", "probability", "uncertainty", "decision", "reason", "classes", "error"],
    "properties": {
        "file": {"type": "string"},
        "label": TEXT,
        "probability": {**NUMBER, "description": "Of the label."},
        "uncertainty": {**NUMBER, "description": "Larger means more likely wrong or foreign."},
        "percentiles": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "By calibrated score: the share of the held-out images with a smaller one, in percent.",
        },
        "log_density": {**NUMBER, "description": "Of the features; small means foreign."},
        "scores": {"type": "object", "additionalProperties": NUMBER, "description": "Those that have thresholds."},
        "decision": {"type": ["string", "null"], "enum": ["accept", "reject", None]},
        "reason": {**TEXT, "description": "uncertain, foreign, or uncertain and foreign."},
        "classes": {"type": "array", "items": SCORED_CLASS, "description": "The nearest first."},
        "error": {**TEXT, "description": "Why the file cannot be used; the other fields are then empty."},
    },
}
PREDICTIONS: Document = {
    "type": "object",
    "required": ["model", "version", "images"],
    "properties": {
        "model": {"type": "string"},
        "version": {"type": "string"},
        "images": {"type": "array", "items": IMAGE, "description": "In the order of the files."},
    },
}
PREDICTED: Document = {
    "model": "mine",
    "version": "0f3a5c1de2b4",
    "images": [
        {
            "file": "cat.png",
            "label": "cat",
            "probability": 0.97,
            "uncertainty": -1.2,
            "percentiles": {"uncertainty": 41.0, "foreignness": 12.5},
            "log_density": -35.1,
            "scores": {"uncertainty": -1.2},
            "decision": "accept",
            "reason": None,
            "classes": [{"label": "cat", "probability": 0.97}, {"label": "dog", "probability": 0.03}],
            "error": None,
        }
    ],
}
TENSOR: Document = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string", "enum": ["BOOL", "UINT8", "INT64", "FP32"]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 8},
        "parameters": {"type": "object"},
        "data": {"type": "array"},
    },
}
NAMED: Document = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
}
INFERENCE: Document = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string", "maxLength": 200},
        "parameters": {"type": "object"},
        "inputs": {"type": "array", "items": TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {"type": "array", "items": NAMED},
    },
}
INFERENCE_EXAMPLE: Document = {
    "id": "1",
    "inputs": [{"name": "images", "datatype": "UINT8", "shape": [1, 2, 2, 1], "data": [0, 50, 100, 255]}],
    "outputs": [{"name": "label"}, {"name": "accepted"}],
}
INFERRED: Document = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "outputs": {"type": "array", "items": TENSOR},
    },
}
INFERRED_EXAMPLE: Document = {
    "model_name": "mine",
    "model_version": "0f3a5c1de2b4",
    "id": "1",
    "outputs": [
        {"name": "label", "datatype": "INT64", "shape": [1], "data": [0]},
        {"name": "accepted", "datatype": "BOOL", "shape": [1], "data": [True]},
    ],
}
ERRORS = {
    400: "The request is not what it says.",
    401: "The token is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body, or what is in it, is too large.",
    415: "The body is of another type.",
    422: "A value cannot be used.",
    500: "The server failed; its log says why, under the number in X-Request-ID.",
    503: "The server has too much to do, or is about to stop; Retry-After says when to come back.",
}


def _json(schema: Document, example: Document | None = None) -> Document:
    content: Document = {"schema": schema}
    return {"application/json": content if example is None else {**content, "example": example}}


def _errors(*statuses: int) -> dict[int | str, Document]:
    return {status: {"description": ERRORS[status], "content": _json(ERROR)} for status in statuses}


def _route(summary: str, schema: Document, *statuses: int, example: Document | None = None) -> Document:
    done: dict[int | str, Document] = {200: {"description": "Done.", "content": _json(schema, example)}}
    return {"summary": summary, "response_model": None, "responses": done | _errors(*statuses)}


OBJECT: Document = {"type": "object"}
HEALTH = _route("Whether the server lives.", OBJECT, example={"alive": True})
READY = _route("Whether it takes requests, and with which models.", OBJECT)
READY["responses"][503] = {"description": ERRORS[503], "content": _json(OBJECT)}
MODELS = _route("The models: classes, limits, promise, what they decided, and their monitors.", OBJECT, 401)
METRICS: Document = {
    "summary": "Metrics for Prometheus.",
    "response_model": None,
    "responses": {
        200: {"description": "Done.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **_errors(401),
    },
}
SERVER_METADATA = _route("The server, by the Open Inference Protocol.", OBJECT, 401)
SERVER_LIVE = _route("Whether the server lives.", OBJECT, example={"live": True})
SERVER_READY = _route("Whether it takes requests.", OBJECT, 503, example={"ready": True})
MODEL_METADATA = _route("Inputs and outputs of a model.", OBJECT, 401, 404)
MODEL_READY = _route("Whether a model takes requests.", OBJECT, 401, 404, 503)

PREDICT = _route(
    "Labels and decisions of images.", PREDICTIONS, 400, 401, 404, 408, 413, 415, 500, 503, example=PREDICTED
)
PREDICT["description"] = (
    "Send one image as the body, or one or several as the files `files` of a form. The answer has an object for each "
    "image, in their order; that of a file which cannot be used says why in `error`. The status is 422 where no file "
    "could be used."
)
PREDICT["responses"][422] = {"description": "No file could be used.", "content": _json({"anyOf": [PREDICTIONS, ERROR]})}
PREDICT["openapi_extra"] = {
    "parameters": [
        {
            "name": "model",
            "in": "query",
            "description": "The name of a model; the first where none is named.",
            "schema": {"type": "string"},
        },
        {
            "name": "probabilities",
            "in": "query",
            "description": "List every class and not only the nearest.",
            "schema": {"type": "boolean", "default": False},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
                    },
                }
            },
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
}
INFER = _route(
    "Outputs of a model for a tensor of its own size, by the Open Inference Protocol.",
    INFERRED,
    *(400, 401, 404, 408, 413, 415, 422, 500, 503),
    example=INFERRED_EXAMPLE,
)
INFER["responses"][200]["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
INFER["openapi_extra"] = {"requestBody": {"required": True, "content": _json(INFERENCE, INFERENCE_EXAMPLE)}}


def complete(document: Document, model: str, tensor: Document) -> Document:
    """The document of FastAPI, with the fields of examples that it leaves out because they are null, and with examples
    for this model, which takes this tensor, so that they work when they are pasted."""
    document = deepcopy(document)  # its parts are those of this module
    answer = document["paths"]["/v1/predict"]["post"]["responses"]["200"]["content"]["application/json"]
    answer["example"] = PREDICTED
    values = math.prod(tensor["shape"])
    for path, route in document["paths"].items():
        for method in route.values():
            for parameter in method.get("parameters", ()):
                if parameter["name"] == "name":
                    parameter["example"] = model
        if path.endswith("/infer") and values <= LARGEST_EXAMPLE:
            example = {
                **INFERENCE_EXAMPLE,
                "inputs": [{**tensor, "data": [0] * values}],
                "outputs": [{"name": "label"}],
            }
            route["post"]["requestBody"]["content"]["application/json"]["example"] = example
    return document
