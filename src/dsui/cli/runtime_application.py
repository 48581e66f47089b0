"""The command `dsui` where only the distribution dsui-runtime is installed: what ONNX files can do without PyTorch."""

from __future__ import annotations

from dsui.cli.info_onnx import info
from dsui.cli.monitor import monitor
from dsui.cli.predict_onnx import predict
from dsui.cli.serve import serve
from dsui.cli.start import make_app, start

app = make_app(
    "Know when an image classifier should not be trusted.\n\n"
    "This is dsui-runtime: it works with files of `dsui export`. Training and evaluation are in the package dsui.\n\n"
    "Example: dsui predict model.onnx photos"
)
app.command()(predict)
app.command()(serve)
app.command()(monitor)
app.command()(info)


def main() -> None:
    """As `dsui.cli.application.main`."""
    start(app)
