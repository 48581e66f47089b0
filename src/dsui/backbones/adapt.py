"""Any classifier that ends in a Linear layer as a backbone: the identity replaces that layer.

    backbone = adapt(torchvision.models.resnet50(), (3, 224, 224))     # .out_features 2048, .layer "fc"
    head = MoGMMHead(backbone.out_features, num_classes=10)

Names and registration order do not say which Linear is the classifier. One forward pass of a copy in evaluation mode
does: it is the one whose output the model returns, alone or, in a collection, as "logits" or else as the first entry.
The model itself does not change, nor does the state of the random numbers. The backbone is a second copy, in the same
mode, on the same device and of the same type, without wrappers (DataParallel, torch.compile). Auxiliary heads stay in
it, unused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dsui.backbones.backbone import Backbone

LOGITS = "logits"


class AdaptedBackbone(Backbone):
    """`model` with the identity in place of the classifier `layer`: inputs [B, ...] -> features [B, out_features].

    `entry` is where the model's answer holds the classifier's output, if the answer is a collection.
    """

    def __init__(self, model: nn.Module, layer: str, out_features: int, entry: str) -> None:
        super().__init__()
        self.model, self.layer, self.out_features, self.entry = model, layer, out_features, entry
        classifier = model.get_submodule(layer)
        # One Linear may be registered under several names, and forward may use any of them.
        for name, module in list(model.named_modules(remove_duplicate=False)):
            if module is classifier:
                model.set_submodule(name, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        entries = _entries(self.model(images))
        # With auxiliary heads the answer may be a tensor in one mode and a collection in the other.
        return entries[self.entry if self.entry in entries else _main(entries)]


def adapt(model: nn.Module, example: Tensor | tuple[int, ...], layer: str | None = None) -> AdaptedBackbone:
    """A copy of `model` that returns the input of its classifier.

    `example` is a batch of inputs, or the shape of one, such as (channels, height, width). `layer` names the
    classifier by hand, for an answer with the classifier's output neither first nor under "logits".
    """
    model = _unwrap(model)
    if isinstance(model, nn.Linear):
        model = nn.Sequential(model)
    kind = type(model).__name__
    batch = _batch(model, example)
    if batch.is_meta:
        raise ValueError(f"{kind} is on the meta device and holds no values; load its weights before adapting it.")
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ValueError(f"{kind} has no torch.nn.Linear; let it return [batch, features] and use it as it is.")
    if layer is not None and layer not in linears:
        raise ValueError(f"{kind} has no torch.nn.Linear {layer!r}; its last ones are {', '.join(linears[-5:])}.")
    probe = copy.deepcopy(model).eval()
    calls, entries = _watch(probe, batch)
    chosen, entry = _choose(kind, calls, entries, layer)
    expected = (len(batch), chosen.input_shape[-1])
    if chosen.input_shape != expected:
        raise ValueError(
            f"the classifier {chosen.layer!r} of {kind} takes {list(chosen.input_shape)} for {len(batch)} inputs, "
            "not one feature vector each; pool the tokens or positions before it."
        )
    if sum(call.layer == chosen.layer for call in calls) > 1:
        raise ValueError(
            f"the classifier {chosen.layer!r} of {kind} runs more than once in a forward pass and cannot be "
            "taken out; give its last use a Linear of its own."
        )
    features = _run(AdaptedBackbone(probe, chosen.layer, expected[1], entry), batch, f"{kind} without {chosen.layer!r}")
    if features.shape != expected:
        raise ValueError(
            f"{kind} without {chosen.layer!r} returns {list(features.shape)} instead of {list(expected)}; "
            "return the classifier's output from forward whatever its width."
        )
    return AdaptedBackbone(copy.deepcopy(model), chosen.layer, expected[1], entry)


class _Call(NamedTuple):
    """One run of a Linear layer."""

    layer: str
    input_shape: torch.Size
    output: Tensor


def _watch(probe: nn.Module, batch: Tensor) -> tuple[list[_Call], dict[str, Tensor]]:
    """The runs of Linear layers in one forward pass, in order, and the model's answer.

    Noise on each output tells apart heads that start at zero and would all give zeros.
    """
    calls: list[_Call] = []
    names = {module: name for name, module in probe.named_modules()}

    def record(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
        noisy = output + torch.randn_like(output)
        # Cloned, so that an in-place activation after the layer shows as a difference.
        calls.append(_Call(names[module], (*args, *kwargs.values())[0].shape, noisy.clone()))
        return noisy

    for module in names:
        if isinstance(module, nn.Linear):
            module.register_forward_hook(record, with_kwargs=True)
    return calls, _entries(_run(probe, batch, type(probe).__name__))


def _choose(kind: str, calls: list[_Call], entries: dict[str, Tensor], layer: str | None) -> tuple[_Call, str]:
    """The run whose output the model returns, and the entry of the answer that holds it."""
    runs = [call for call in calls if layer in {None, call.layer}]
    for call in reversed(runs):
        for entry in [_main(entries)] if layer is None else entries:
            returned = entries[entry]
            if call.output.shape == returned.shape and torch.equal(call.output.to(returned), returned):
                return call, entry
    seen = f"{runs[-1].layer!r} was the last to run and gave {list(runs[-1].output.shape)}" if runs else "none ran"
    raise ValueError(
        f"{kind} returns {', '.join(f'{entry} {list(value.shape)}' for entry, value in entries.items())} and not "
        f"what {'one of its Linear layers' if layer is None else repr(layer)} gives ({seen}); remove what follows "
        'the classifier, such as a softmax, or name the classifier by hand, as in layer="fc".'
    )


def _unwrap(model: nn.Module) -> nn.Module:
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return _unwrap(model.module)
    compiled = getattr(model, "_orig_mod", None)
    return _unwrap(compiled) if isinstance(compiled, nn.Module) else model


def _batch(model: nn.Module, example: Tensor | tuple[int, ...]) -> Tensor:
    """The example on the model's device and of its type; a shape becomes two random inputs."""
    state = next((t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()), torch.empty(0))
    if isinstance(example, Tensor):
        return example.to(state.device, state.dtype if example.is_floating_point() else example.dtype)
    return torch.rand((2, *example), generator=torch.Generator().manual_seed(0)).to(state)


def _run(model: nn.Module, batch: Tensor, what: str) -> Any:
    try:
        with torch.no_grad(), torch.random.fork_rng([batch.device] if batch.is_cuda else []):
            return model(batch)
    except Exception as error:
        raise ValueError(
            f"{what} fails on inputs of shape {list(batch.shape)} ({error}); check `example` and the model's forward."
        ) from error


def _entries(answer: Any) -> dict[str, Tensor]:
    """The tensors of a model's answer by name or position; a single tensor is called "logits"."""
    if isinstance(answer, Tensor):
        return {LOGITS: answer}
    if isinstance(answer, tuple | list):
        parts = answer._asdict() if hasattr(answer, "_asdict") else dict(enumerate(answer))
    else:
        parts = answer if isinstance(answer, Mapping) else getattr(answer, "__dict__", {})
    tensors = {str(name): value for name, value in parts.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"the model returns {type(answer).__name__} without a tensor; let it return its logits.")
    return tensors


def _main(entries: dict[str, Tensor]) -> str:
    return LOGITS if LOGITS in entries else next(iter(entries))
