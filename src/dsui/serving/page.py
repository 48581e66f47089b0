"""The page at `/`: a file of its own, with all of its styles and its script inside."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Response

PAGE = "page.html"
INLINE = {"script": "script-src", "style": "style-src"}


def page_router() -> APIRouter:
    html = files("dsui.serving").joinpath(PAGE).read_text(encoding="utf-8")
    headers = {"Content-Security-Policy": content_policy(html), "Referrer-Policy": "no-referrer"}
    router = APIRouter()

    @router.get("/", **DOCUMENT)
    async def page() -> Response:
        return Response(html, media_type="text/html", headers=headers)

    return router


def content_policy(html: str) -> str:
    """Lets the browser run this script and these styles, by their hashes, and nothing else; requests go to this server
    alone."""
    allowed = [
        "default-src 'none'",
        "connect-src 'self'",
        "img-src blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    allowed.append("frame-ancestors 'none'")
    for tag, directive in INLINE.items():
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{directive} 'sha256-{digest}'")
    return "; ".join(allowed)


DOCUMENT: dict[str, Any] = {
    "summary": "A page where a person drops images.",
    "response_model": None,
    "responses": {200: {"description": "Done.", "content": {"text/html": {"schema": {"type": "string"}}}}},
}
