"""A real SLURM on this machine: munged, slurmctld and slurmd with a configuration of their own, for one node."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

DAEMONS = ("munged", "slurmctld", "slurmd")
installed = pytest.mark.skipif(
    not all(map(shutil.which, (*DAEMONS, "sbatch"))), reason="SLURM is not installed (packages slurm-wlm and munge)"
)
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation={folder}/slurmctld
SlurmdSpoolDir={folder}/slurmd
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60
"""


@contextmanager
def slurm_machine(folder: Path) -> Iterator[None]:
    """A node of two processors; SLURM's commands use it until the end of the context."""
    folder.mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, user=user, ports=free_ports(), folder=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(configuration))
        try:
            munge = [f"--{name}={folder}/munge.{end}" for name, end in MUNGE.items()]
            run("munged", "--force", *munge)
            run("slurmctld", "-c")
            run("slurmd", "-c")
            wait_until(lambda: "idle" in run("sinfo", "--noheader", "--format=%T"))
            yield
        finally:
            for daemon in ("slurmd", "slurmctld", "munge"):
                with suppress(OSError, ValueError):
                    os.kill(int((folder / f"{daemon}.pid").read_text()), signal.SIGTERM)


MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


def run(command: str, *arguments: object) -> str:
    """What a command of SLURM prints."""
    path = shutil.which(command)
    assert path is not None, f"{command} is missing"
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def wait_until(true: Callable[[], bool], seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.2)
