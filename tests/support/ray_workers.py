"""A real Ray cluster of two workers on this machine: two nodes of Ray, each with a processor and a GPU by its word."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest


@contextmanager
def two_workers() -> Iterator[str]:
    """The address of the cluster; the environment names it until the end of the context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray writes one to the user's home
        patch.setenv("OMP_NUM_THREADS", "1")
        node = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80 << 20}
        cluster: Any = import_module("ray.cluster_utils").Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False}
        )
        try:
            cluster.add_node(**node)
            cluster.wait_for_nodes()
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster.address
        finally:
            cluster.shutdown()
