"""The command `dsui` with all its commands, one file for each; `dsui.cli.errors` turns errors into sentences.

PyTorch and other packages that load slowly are imported inside the commands, so help, --version and the completion of a
shell do not wait for them.
"""

from __future__ import annotations

from dsui.cli.bench import bench
from dsui.cli.compare import compare
from dsui.cli.data import data_app
from dsui.cli.demo import demo
from dsui.cli.embed import embed
from dsui.cli.evaluate import evaluate
from dsui.cli.export import export
from dsui.cli.info import info
from dsui.cli.monitor import monitor
from dsui.cli.predict import predict
from dsui.cli.push import push
from dsui.cli.report import report
from dsui.cli.reproduce import reproduce
from dsui.cli.serve import serve
from dsui.cli.start import make_app, start
from dsui.cli.suspects import suspects
from dsui.cli.threshold import threshold
from dsui.cli.train import train
from dsui.cli.verify import verify

app = make_app(
    "Know when an image classifier should not be trusted.\n\n"
    "`dsui demo` shows everything in a minute or two. For your own images: train, evaluate, report, predict.\n\n"
    "Example: dsui demo"
)
app.command()(demo)
app.command()(train)
app.command()(embed)
app.command()(evaluate)
app.command()(compare)
app.command()(reproduce)
app.command()(report)
app.command()(predict)
app.command()(threshold)
app.command()(export)
app.command()(push)
app.command()(serve)
app.command()(monitor)
data_app.command()(suspects)
app.add_typer(data_app, name="data")
app.command()(verify)
app.command()(bench)
app.command()(info)


def main() -> None:
    """Run a command. Exit status 2 means wrong usage, 1 any other error, 130 Ctrl-C; each comes with a sentence."""
    start(app)
