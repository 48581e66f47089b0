"""`adapt` on look-alikes of the model families people bring, built by hand so that none of them is needed."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from dsui.backbones.adapt import AdaptedBackbone, adapt
from dsui.data.digits import digits
from dsui.head import MoGMMHead
from dsui.objectives import DualSupervisedLoss

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (1, 8, 8)
CLASSES = 5


class TorchvisionResNet(nn.Module):
    """Ends in `fc` after a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(12)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(torch.relu(self.bn1(self.conv1(x)))), 1))  # type: ignore[no-any-return]


class TorchvisionVGG(nn.Module):
    """Ends in a `classifier` Sequential of three Linear layers with in-place activations and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(4))
        self.classifier = nn.Sequential(
            nn.Linear(16, 20),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(20, 14),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(14, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))  # type: ignore[no-any-return]


class TimmModel(nn.Module):
    """`forward_features`, `forward_head` and a `head` that starts at zero, with an Identity where a layer is off."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(9, CLASSES)
        nn.init.zeros_(self.head.weight)
        self.embed = nn.Linear(64, 9)
        nn.init.zeros_(self.embed.bias)
        self.head_drop = nn.Dropout(0.1)
        self.fc_norm = nn.Identity()

    def reset_classifier(self, classes: int) -> None:
        self.head = nn.Linear(9, classes)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.embed(x.flatten(1))  # type: ignore[no-any-return]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(self.fc_norm(x))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


class ModelOutput(OrderedDict[str, Any]):
    """As in transformers: a dictionary whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class TransformersViT(nn.Module):
    """Patches, attention, class token, `classifier`; answers with logits and hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, CLASSES)
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> ModelOutput:
        tokens = self.patches(pixel_values).flatten(2).transpose(1, 2)
        hidden = self.encoder(torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1))
        answer = ModelOutput() if labels is None else ModelOutput(loss=torch.zeros(()))
        answer.update(hidden_states=(hidden,), last_hidden_state=hidden, logits=self.classifier(hidden[:, 0]))
        return answer


@dataclass
class ImageClassifierOutput:
    loss: Tensor | None
    logits: Tensor


class DataclassViT(TransformersViT):
    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Any:
        return ImageClassifierOutput(None, super().forward(pixel_values, labels).logits)


class OutOfOrder(nn.Module):
    """Registered last to first; the classifier is called with a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.third, self.first, self.second = nn.Linear(6, CLASSES), nn.Linear(64, 7), nn.Linear(7, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(input=self.second(self.first(x.flatten(1))).relu())  # type: ignore[no-any-return]


class AuxiliaryOutputs(NamedTuple):
    logits: Tensor
    aux_logits: Tensor


class InceptionLike(nn.Module):
    """In training mode it answers with a named pair, its auxiliary head running last."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.always = always
        self.body, self.fc, self.aux = nn.Linear(64, 6), nn.Linear(6, CLASSES), nn.Linear(6, CLASSES)
        for head in (self.fc, self.aux):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, x: Tensor) -> Tensor | AuxiliaryOutputs:
        x = self.body(x.flatten(1)).relu()
        answer = AuxiliaryOutputs(self.fc(x), self.aux(x))
        return answer if self.training or self.always else answer.logits


class Aliased(nn.Module):
    """One Linear under two names, the later of which is used."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, CLASSES)
        self.head = self.fc

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))  # type: ignore[no-any-return]


FAMILIES: list[tuple[Callable[[], nn.Module], str, int]] = [
    (TorchvisionResNet, "fc", 12),
    (TorchvisionVGG, "classifier.6", 14),
    (TimmModel, "head", 9),
    (TransformersViT, "classifier", 8),
    (DataclassViT, "classifier", 8),
    (OutOfOrder, "third", 6),
    (InceptionLike, "fc", 6),
    (lambda: InceptionLike(always=True), "fc", 6),
    (Aliased, "fc", 64),
    (lambda: nn.DataParallel(TorchvisionResNet()), "fc", 12),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 11), nn.Tanh(), nn.Linear(11, CLASSES))),
        "1.2",
        11,
    ),
]
families = pytest.mark.parametrize(("build", "layer", "width"), FAMILIES)


def logits_of(answer: Any) -> Tensor:
    logits: Tensor = answer if isinstance(answer, Tensor) else answer.logits
    return logits


@families
def test_features_through_the_removed_layer_are_the_original_logits(
    build: Callable[[], nn.Module], layer: str, width: int
) -> None:
    torch.manual_seed(0)
    model, images = build().eval(), torch.randn(6, *SHAPE)
    backbone = adapt(model, SHAPE)
    inner = model.module if isinstance(model, nn.DataParallel) else model
    removed = inner.get_submodule(layer)
    with torch.no_grad():
        features, logits = backbone(images), logits_of(inner(images))
        assert torch.equal(removed(features), logits)
    assert (backbone.layer, backbone.out_features) == (layer, width)
    assert features.shape == (6, width)


@pytest.mark.parametrize("build", [family[0] for family in FAMILIES])
def test_given_model_and_random_numbers_stay_as_they_were(build: Callable[[], nn.Module]) -> None:
    model = build().train()
    model(torch.randn(4, *SHAPE))  # running statistics that are not at their start
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before, modules, random = copy.deepcopy(model.state_dict()), dict(model.named_modules()), torch.get_rng_state()
    backbone = adapt(model, SHAPE)
    assert torch.equal(torch.get_rng_state(), random)
    assert dict(model.named_modules()) == modules
    assert all(module.training for module in modules.values())
    assert all(not module._forward_hooks for module in [*modules.values(), *backbone.modules()])
    after = model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert all(bool((p.grad == 1).all()) for p in model.parameters() if p.grad is not None)


@families
def test_backbone_keeps_every_other_parameter_and_shares_none(
    build: Callable[[], nn.Module], layer: str, width: int
) -> None:
    model = build()
    backbone = adapt(model, SHAPE)
    inner = model.module if isinstance(model, nn.DataParallel) else model
    removed = {id(p) for p in inner.get_submodule(layer).parameters()}
    kept = {name: p for name, p in inner.named_parameters() if id(p) not in removed}
    found = dict(backbone.model.named_parameters())
    assert backbone.out_features == width
    assert found.keys() == kept.keys()
    assert all(torch.equal(p, kept[name]) and p is not kept[name] for name, p in found.items())
    assert backbone.training


def test_pickle_and_state_dict_carry_the_backbone() -> None:
    backbone = adapt(TransformersViT().eval(), SHAPE)
    restored = pickle.loads(pickle.dumps(backbone))  # noqa: S301
    other = adapt(TransformersViT().eval(), SHAPE)
    other.load_state_dict(backbone.state_dict())
    images = torch.randn(2, *SHAPE)
    with torch.no_grad():
        expected = backbone(images)
        assert torch.equal(restored(images), expected)
        assert torch.equal(other(images), expected)
    assert (restored.layer, restored.out_features) == (backbone.layer, backbone.out_features)


def test_model_with_auxiliary_heads_gives_features_in_both_modes() -> None:
    model = InceptionLike().train()
    backbone = adapt(model, SHAPE)
    images = torch.randn(3, *SHAPE)
    assert torch.equal(backbone.train()(images), backbone.eval()(images))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_another_type_are_probed_in_it(dtype: torch.dtype) -> None:
    model = TorchvisionResNet().to(dtype)
    for example in (SHAPE, torch.randn(2, *SHAPE)):
        assert adapt(model, example).eval()(torch.randn(2, *SHAPE, dtype=dtype)).dtype == dtype


def test_logits_cast_to_float32_are_still_recognised() -> None:
    class Casting(TorchvisionResNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).float()

    assert adapt(Casting().bfloat16(), SHAPE).layer == "fc"


def test_compiled_model_is_unwrapped() -> None:
    compiled = torch.compile(TorchvisionResNet(), backend="eager")
    assert isinstance(compiled, nn.Module)
    assert type(adapt(compiled, SHAPE).model) is TorchvisionResNet


def test_weight_tied_to_the_classifier_stays_where_else_it_is_used() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = nn.Linear(64, 64), nn.Linear(64, 64)
            self.fc.weight = self.body.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.body(x.flatten(1)).relu())  # type: ignore[no-any-return]

    model = Tied()
    images = torch.randn(2, *SHAPE)
    backbone = adapt(model, SHAPE)
    assert backbone.layer == "fc"
    assert torch.equal(backbone(images), model.body(images.flatten(1)).relu())


def test_single_linear_layer_leaves_its_input() -> None:
    embeddings = torch.randn(3, 64)
    assert torch.equal(adapt(nn.Linear(64, CLASSES), (64,))(embeddings), embeddings)


def test_layer_named_by_hand_is_found_wherever_the_answer_holds_it() -> None:
    class AuxiliaryFirst(InceptionLike):
        def forward(self, x: Tensor) -> Any:
            main, aux = super().forward(x)
            return aux, main

    model = AuxiliaryFirst(always=True).eval()
    images = torch.randn(2, *SHAPE)
    by_itself, by_hand = adapt(model, SHAPE), adapt(model, SHAPE, layer="fc")
    assert (by_itself.layer, by_hand.layer) == ("aux", "fc")
    assert torch.equal(by_hand(images), model.body(images.flatten(1)).relu())


def test_adapted_backbone_and_mixture_head_learn_digits() -> None:
    torch.manual_seed(0)
    images, labels = digits()
    images, labels = 2 * images[:256] - 1, labels[:256]
    backbone: AdaptedBackbone = adapt(TorchvisionResNet(), SHAPE)
    head, objective = MoGMMHead(backbone.out_features, 10, components=2), DualSupervisedLoss()
    optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = objective(head(backbone(images)), labels, head)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.grad is not None and p.grad.any() for p in backbone.parameters())
