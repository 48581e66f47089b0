"""The limits of a server, and what they are when nobody says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsui.errors import DsuiError

MIB = 1 << 20


@dataclass(frozen=True)
class ServerSettings:
    """How much a server takes on. What goes beyond is refused with a sentence, and never waits without end."""

    batch: int = 32
    """Images in a forward pass, at most."""
    wait: float = 0.005
    """Seconds that a batch waits for images that are being decoded, at most."""
    queue: int = 256
    """Images of one model that are decoded, wait or are predicted at once; further requests are answered with 503."""
    files: int = 64
    """Images in a request."""
    pixels: int = 50_000_000
    """Pixels of an image as its header announces them, and of all images that are decoded at the same time."""
    body: int = 32 * MIB
    """Bytes of a request's body."""
    bodies: int = 256 * MIB
    """Bytes of all bodies that are held at once."""
    seconds: float = 30.0
    """For the whole of a request: its body, its turn, and its prediction."""
    header_seconds: float = 10.0
    """For the head of a request."""
    connections: int = 1000
    """Open connections that are served; requests on further ones are answered with 503, but for those of probes."""
    drain: float = 0.0
    """Seconds that a server that was told to stop goes on taking requests, so that a balancer can notice."""
    threads: int | None = None
    """Of ONNX Runtime; None leaves them to it."""
    token: str | None = field(default=None, repr=False)
    """What a client must send as `Authorization: Bearer TOKEN`."""

    def __post_init__(self) -> None:
        for name in ("batch", "queue", "files", "pixels", "body", "bodies", "connections"):
            if getattr(self, name) < 1:
                raise DsuiError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("seconds", "header_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise DsuiError(f"{name} is {getattr(self, name):g}; it must be positive and finite.")
        if self.files > self.queue:
            raise DsuiError(
                f"a request may hold {self.files} files and the queue only {self.queue}, so that such a request would "
                "never be answered; make the queue longer."
            )
        if self.body > self.bodies:
            raise DsuiError("one body may be larger than all bodies together; raise the limit of all of them.")
        if self.token is not None and not self.token.strip():
            raise DsuiError("the token is empty; write one of at least 16 characters, or none at all.")
