"""The application: routes, page, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dsui import __version__
from dsui.excerpt import shorten
from dsui.serving.documents import complete
from dsui.serving.gate import Gate
from dsui.serving.inference_routes import inference_router
from dsui.serving.page import page_router
from dsui.serving.predict_route import predict_router
from dsui.serving.serving_state import ServingState
from dsui.serving.settings import ServerSettings
from dsui.serving.status_routes import status_router


def create_app(models: Mapping[str, Path], settings: ServerSettings | None = None) -> FastAPI:
    """Serves models, by the names that clients call them; each is a file model.onnx or the folder of a run.

    They are loaded before this returns; a DsuiError says which one cannot be used. `app.state.serving` has them.
    """
    state = ServingState(models, settings or ServerSettings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.start()
        yield
        await state.close()

    app = FastAPI(
        title="dsui",
        version=__version__,
        description="Labels of images, and whether to trust them.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.serving = state
    for router in (predict_router(state), inference_router(state), status_router(state), page_router()):
        app.include_router(router)
    app.add_exception_handler(HTTPException, _explain_status)
    app.add_exception_handler(RequestValidationError, _explain_value)
    app.add_middleware(Gate, state=state)
    first = state.slot(None)
    app.openapi_schema = complete(app.openapi(), first.name, first.current.input_tensor(1))
    return app


async def _explain_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "there is nothing at this address; /openapi.json lists what there is.",
        405: f"this address does not take {shorten(request.method, 20)}; /openapi.json lists what it takes.",
    }
    sentence = sentences.get(error.status_code, shorten(error.detail))
    return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)


async def _explain_value(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JSONResponse({"error": f"{'.'.join(map(str, first['loc'][1:]))}: {shorten(first['msg'])}."}, 422)
