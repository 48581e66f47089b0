from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from dsui import MoGMMHead
from dsui.projection import SphereProjection
from dsui.training.batch_norm import batch_norms, reestimate, synchronise
from dsui.training.sharpness import frozen_statistics
from tests.support import forked

SPLITS = [(4, 4), (7, 1), (2, 6)]
OFFSET = 1e3


def made_net(dropout: float = 0.0) -> nn.Sequential:
    """Convolution, both kinds of batch norm and a head, with affine parameters that are not at 1 and 0."""
    torch.manual_seed(0)
    convolution = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(), nn.Flatten()]
    hidden = [nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Dropout(dropout), nn.Linear(6, 5)]
    net = nn.Sequential(*convolution, *hidden, MoGMMHead(5, 3, 2)).double()
    with torch.no_grad():
        for norm in batch_norms(net):
            if norm.affine:
                norm.weight.normal_()
                norm.bias.normal_()
    return net


def images(batch: int = 8, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(batch, 2, 4, 4, generator=generator, dtype=torch.float64) + 1


def trained(net: nn.Module, x: Tensor, coefficients: Tensor, device: str = "cpu") -> dict[str, Any]:
    """Two training passes and one of evaluation; the loss is a sum over samples, so that shares add up."""
    x, coefficients = x.to(device, copy=True).requires_grad_(), coefficients.to(device)
    for _ in range(2):
        net.zero_grad()
        x.grad = None
        out = net(x)
        ((out.logits + out.class_scores.square() + out.log_joint) * coefficients).sum().backward()
    tracked = {name: value.clone() for name, value in net.named_buffers()}
    with frozen_statistics(net):
        net(x)
    return {
        "outputs": torch.cat([out.logits, out.log_joint, out.features, out.norm[:, None]], 1).detach(),
        "d_input": x.grad,
        "d_parameters": {name: parameter.grad for name, parameter in net.named_parameters()},
        "statistics": tracked,
        "kept": all(torch.equal(value, tracked[name]) for name, value in net.named_buffers()),
        "evaluated": net.eval()(x).log_joint.detach(),
    }


def coefficients() -> Tensor:
    return torch.linspace(-1, 2, 24, dtype=torch.float64).view(8, 3)


def shifted(rank: int) -> Tensor:
    return OFFSET + torch.randn(500, 3, generator=torch.Generator().manual_seed(rank))


class Setting(NamedTuple):
    """Where two processes compute, how they talk, and how many GPUs that takes."""

    device: str
    backend: str
    gpus: int


SETTINGS = [Setting("cpu", "gloo", 0), Setting("cuda", "gloo", 1), Setting("cuda", "nccl", 2)]


def work(rank: int, folder: str, setting: Setting) -> None:
    """One of two processes; what it finds goes to a file."""
    torch.set_num_threads(1)
    device = f"cuda:{rank % setting.gpus}" if setting.gpus else setting.device
    dist.init_process_group(setting.backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    for split in SPLITS:
        net = made_net().to(device)
        synchronise(net, torch.device(device))
        part = slice(0, split[0]) if rank == 0 else slice(split[0], 8)
        found[str(split)] = trained(net, images()[part], coefficients()[part], device)
    found["device"] = setting.device
    found["kinds"] = [type(norm).__name__ for norm in batch_norms(net)]
    norm = nn.BatchNorm1d(3, momentum=None).to(device)
    synchronise(norm, torch.device(device))
    norm(shifted(rank).to(device))
    found["shifted"] = norm.running_var
    if setting.device == "cpu":
        try:
            x = shifted(rank).requires_grad_()
            (slope,) = torch.autograd.grad(norm(x).square().sum(), x, create_graph=True)
            slope.square().sum().backward()
        except ValueError as error:
            found["second derivative"] = str(error)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=SETTINGS, ids=[f"{each.device}-{each.backend}" for each in SETTINGS])
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    setting = request.param
    if torch.cuda.device_count() < setting.gpus:
        pytest.skip(
            f"two processes on {setting.device} with {setting.backend} need a machine with GPUs: {setting.gpus}"
        )
    folder = tmp_path_factory.mktemp("processes")
    forked.two_processes(work, str(folder), setting)
    return [torch.load(folder / f"{rank}.pt", map_location="cpu") for rank in range(2)]


def assert_same(actual: Tensor, expected: Tensor) -> None:
    # float64 sums of some hundred terms in another order
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("split", SPLITS)
def test_two_processes_compute_what_one_computes_with_the_whole_batch(
    processes: list[dict[str, Any]], split: tuple[int, int]
) -> None:
    whole = trained(made_net(), images(), coefficients())
    parts = [process[str(split)] for process in processes]
    for name in ("outputs", "d_input", "evaluated"):
        assert_same(torch.cat([part[name] for part in parts]), whole[name])
    for name, gradient in whole["d_parameters"].items():
        assert_same(parts[0]["d_parameters"][name] + parts[1]["d_parameters"][name], gradient)
    for name, value in whole["statistics"].items():
        for part in parts:
            assert_same(part["statistics"][name], value)


OURS, PYTORCHS = ["SyncedBatchNorm2d", "SyncedBatchNorm1d"], ["SyncBatchNorm"] * 2


def test_the_head_shares_by_our_own_norm_and_the_network_by_pytorchs_on_a_gpu(processes: list[dict[str, Any]]) -> None:
    for process in processes:
        assert process["kinds"] == [*(OURS if process["device"] == "cpu" else PYTORCHS), "SyncedSphereProjection"]


def test_second_derivatives_through_shared_statistics_are_refused(processes: list[dict[str, Any]]) -> None:
    for process in processes:
        if process["device"] == "cpu":
            said = process["second derivative"]
            assert said.startswith("second derivatives through batch norms that several processes")


def test_frozen_statistics_stay_in_synchronised_norms(processes: list[dict[str, Any]]) -> None:
    assert all(process[str(split)]["kept"] for process in processes for split in SPLITS)


def test_a_large_mean_does_not_cost_the_shared_variance_its_digits(processes: list[dict[str, Any]]) -> None:
    truth = torch.cat([shifted(0), shifted(1)]).double().var(0).float()
    # means at 1000 are known to 6e-5 in float32; E[x^2] - E[x]^2 would be off by 0.06
    torch.testing.assert_close(processes[0]["shifted"], truth, rtol=1e-4, atol=0)


@pytest.fixture(params=["no group", "a group of one"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    if request.param == "a group of one":
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
        yield
        dist.destroy_process_group()
    else:
        yield


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_process_alone_computes_the_same_bits_under_the_same_names(
    request: pytest.FixtureRequest, device: str
) -> None:
    """What would train on a GPU computes here on a CPU, which PyTorch's norms do only without a group."""
    if device == "cuda" and request.node.callspec.params["alone"] == "a group of one":
        pytest.skip("SyncBatchNorm trains with a group only on a GPU")
    plain, synced = made_net(), made_net()
    synchronise(synced, torch.device(device))
    synchronise(synced, torch.device(device))
    kinds = [type(norm).__name__ for norm in batch_norms(synced)]
    assert kinds == [*(OURS if device == "cpu" else PYTORCHS), "SyncedSphereProjection"]
    one, other = (trained(net, images(), coefficients()) for net in (plain, synced))
    assert torch.equal(one["outputs"], other["outputs"])
    assert torch.equal(one["d_input"], other["d_input"])
    assert torch.equal(one["evaluated"], other["evaluated"])
    assert one["kept"] == other["kept"]
    assert list(plain.state_dict()) == list(synced.state_dict())
    with pytest.raises(ValueError, match="training batch of 1"):
        synced.train()[-1](torch.zeros(1, 5, dtype=torch.float64))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_checkpoints_load_with_and_without_shared_statistics(device: str) -> None:
    plain, synced = made_net(), made_net()
    synchronise(synced, torch.device(device))
    plain.train()(images())
    synced.load_state_dict(plain.state_dict())
    synced.train()(images(seed=2))
    back = made_net()
    back.load_state_dict(synced.state_dict())
    plain.train()(images(seed=2))
    for net in (plain, synced, back):
        net.eval()
    assert torch.equal(synced(images()).log_joint, plain(images()).log_joint)
    assert torch.equal(back(images()).log_joint, plain(images()).log_joint)


def test_a_norm_that_cannot_be_synchronised_is_named() -> None:
    with pytest.raises(ValueError, match="a BatchNorm3d cannot be synchronised"):
        synchronise(nn.Sequential(nn.BatchNorm3d(2)), torch.device("cpu"))


def test_reestimated_statistics_are_those_of_pytorch() -> None:
    net = made_net()[:-1]
    twin = copy.deepcopy(net)
    batches = [images(seed=seed) for seed in range(4)]
    reestimate(net, batches)
    update_bn(batches, twin)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value)


def test_the_heads_statistics_are_means_over_batches_of_batch_statistics() -> None:
    head = MoGMMHead(5, 3, 2).double()
    batches = [torch.randn(9, 5, dtype=torch.float64) * (k + 1) + k for k in range(3)]
    head(100 * batches[0])
    reestimate(head, iter(batches))
    assert isinstance(head.projection, SphereProjection)
    torch.testing.assert_close(head.projection.running_mean, torch.stack([x.mean(0) for x in batches]).mean(0))
    torch.testing.assert_close(head.projection.running_var, torch.stack([x.var(0) for x in batches]).mean(0))


def test_reestimation_leaves_dropout_out_and_modes_and_momenta_as_they_were() -> None:
    net = made_net(dropout=0.5)
    net.eval()[5].train()
    batch_norms(net)[0].momentum = 0.3
    twin = copy.deepcopy(net)
    modes = [module.training for module in net.modules()]
    reestimate(net, [images()])
    reestimate(twin, [images()])
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), twin.buffers(), strict=True))

    def broken() -> Iterator[Tensor]:
        yield images()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        reestimate(net, broken())
    assert [module.training for module in net.modules()] == modes
    assert [norm.momentum for norm in batch_norms(net)] == [0.3, 0.1, 0.1]


def test_no_batches_are_an_error_and_change_nothing() -> None:
    net = made_net()
    net(images())
    before = [buffer.clone() for buffer in net.buffers()]
    with pytest.raises(ValueError, match="no batch"):
        reestimate(net, [])
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), before, strict=True))
