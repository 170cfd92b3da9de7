"""The training loop against stochastic gradient descent written out here: nothing but torch's arithmetic is shared."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stepnet import create_model
from stepnet.data import Data, ImageSet
from stepnet.data.normalise import Normalisation
from stepnet.training import Recipe, TrainConfig, train_config
from training.tiny import read_all

SEED, CLASSES, EPOCHS, BATCH = 3, 6, 3, 4
IMAGES, TESTS = 10, 7  # batches of 4, 4 and 2

RECIPES = {
    "steps": {
        "milestones": (1, 2),
        "lr": 0.2,
        "momentum": 0.8,
        "nesterov": True,
        "weight_decay": 0.05,
        "label_smoothing": 0.2,
        "k_lr": 3.0,
        "head_lr": 0.5,
    },
    "one cycle, running cost": {
        "schedule": "one_cycle",
        "milestones": (),
        "lr": 0.1,
        "warmup": 0.5,
        "momentum": 0.7,
        "weight_decay": 0.05,
        "running_cost": "kinetic",
        "kinetic": 0.01,
    },
    "running cost and weight decay": {
        "milestones": (),
        "momentum": 0.5,
        "weight_decay": 0.05,
        "running_cost": "both",
        "kinetic": 0.02,
    },
    "no decay of vectors, cosine, clipping": {
        "schedule": "cosine",
        "milestones": (),
        "clip": 1.44,
        "momentum": 0.0,
        "weight_decay": 0.05,
        "decay_vectors": False,
        "label_smoothing": 0.1,
    },
}


def made_data():
    rng = np.random.default_rng(0)
    train, test = (
        ImageSet(
            rng.integers(0, 256, (count, 4, 4, 1), dtype=np.uint8),
            rng.integers(0, CLASSES, count),
            tuple(map(str, range(CLASSES))),
        )
        for count in (IMAGES, TESTS)
    )
    return Data("made", train, test, Normalisation((0.5,), (0.25,)))


class PlainTraining:
    """LM-ResNet with 2 + 2 blocks, its loss and its optimiser, as one would write them for this network alone."""

    def __init__(self, weights, recipe):
        self.recipe = recipe
        self.buffers = {name: value.clone() for name, value in weights.items() if "running" in name}
        self.w = {
            name: value.clone().requires_grad_()
            for name, value in weights.items()
            if value.is_floating_point() and name not in self.buffers
        }
        self.velocity = {}
        self.clipped = 0  # steps whose gradient was too long

    def norm(self, name, u, training):
        mean, var = self.buffers[f"{name}.running_mean"], self.buffers[f"{name}.running_var"]
        return F.batch_norm(u, mean, var, self.w[f"{name}.weight"], self.w[f"{name}.bias"], training)

    def block(self, name, u, training, stride=1):
        u = F.relu(self.norm(f"{name}.norms.0", u, training))
        u = F.conv2d(u, self.w[f"{name}.convs.0.weight"], stride=stride, padding=1)
        u = F.relu(self.norm(f"{name}.norms.1", u, training))
        return F.conv2d(u, self.w[f"{name}.convs.1.weight"], padding=1)

    def forward(self, x, training):
        """The logits, and `sum_n |f(u_n)|^2`, the mean over the batch."""
        cost = 0.0

        def f(name, u, stride=1):
            nonlocal cost
            value = self.block(name, u, training, stride)
            cost = cost + value.square().sum() / len(value)
            return value

        u0 = F.conv2d(x, self.w["stem.weight"], padding=1)
        u1 = u0 + f("stages.0.blocks.0", u0)
        k = self.w["stages.0.k"][0]
        u2 = (1 - k) * u1 + k * u0 + f("stages.0.blocks.1", u1)
        v0 = torch.cat([u2[:, :, ::2, ::2], torch.zeros_like(u2[:, :, ::2, ::2])], 1)
        v1 = v0 + f("stages.1.transition.block", u2, 2)
        k = self.w["stages.1.k"][0]
        v2 = (1 - k) * v1 + k * v0 + f("stages.1.blocks.0", v1)
        pooled = F.relu(self.norm("norm", v2, training)).mean((2, 3))
        return pooled @ self.w["head.weight"].T + self.w["head.bias"], cost

    def lr(self, t):
        """At time t in epochs."""
        recipe = self.recipe
        if recipe["schedule"] == "steps":
            return recipe["lr"] / 10 ** sum(t >= milestone for milestone in recipe["milestones"])
        top = recipe["warmup"] * EPOCHS
        if recipe["schedule"] == "cosine" and t + 0.01 >= top:
            return recipe["lr"] * (1 + math.cos(math.pi * (t - top) / (EPOCHS - top))) / 2
        return recipe["lr"] * ((t + 0.01) / top if t + 0.01 < top else (EPOCHS - t) / (EPOCHS - top))

    def step(self, x, labels, t):
        """One step on a batch; the sum of its losses, and how many images it got wrong."""
        recipe = self.recipe
        logits, cost = self.forward(x, training=True)
        target = torch.full((len(x), CLASSES), recipe["label_smoothing"] / CLASSES, dtype=torch.float64)
        target[torch.arange(len(x)), labels] += 1 - recipe["label_smoothing"]
        losses = -(target * (logits - logits.logsumexp(1, keepdim=True))).sum(1)
        objective = losses.mean()
        if recipe["running_cost"] in ("kinetic", "both"):
            objective = objective + recipe["kinetic"] * cost
        gradients = torch.autograd.grad(objective, list(self.w.values()))
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        if recipe["clip"] is not None:
            self.clipped += norm > recipe["clip"]
            gradients = [min(1, recipe["clip"] / (norm + 1e-6)) * gradient for gradient in gradients]
        with torch.no_grad():
            for (name, w), gradient in zip(self.w.items(), gradients, strict=True):
                self.descend(name, w, gradient, self.lr(t))
        return float(losses.detach().sum()), int((logits.argmax(1) != labels).sum())

    def descend(self, name, w, gradient, lr):
        """Sutskever's momentum in torch's form, weight decay as a part of the gradient."""
        recipe, is_k = self.recipe, name.endswith(".k")
        decays = recipe["running_cost"] != "kinetic" and (recipe["decay_vectors"] or (w.ndim > 1 and not is_k))
        slope = gradient + (recipe["weight_decay"] * w if decays else 0)
        momentum = recipe["momentum"]
        self.velocity[name] = momentum * self.velocity[name] + slope if name in self.velocity else slope
        lr *= recipe["k_lr"] if is_k else recipe["head_lr"] if name.startswith("head.") else 1
        w -= lr * (slope + momentum * self.velocity[name] if recipe["nesterov"] else self.velocity[name])

    def evaluate(self, x, labels):
        with torch.no_grad():
            logits, _ = self.forward(x, training=False)
        losses = logits.logsumexp(1) - logits[torch.arange(len(x)), labels]
        ranks = (logits > logits[torch.arange(len(x)), labels][:, None]).sum(1)
        return {
            "test_loss": float(losses.mean()),
            "test_error": 100 * float((ranks > 0).double().mean()),
            "test_top5_error": 100 * float((ranks > 4).double().mean()),
        }


@pytest.mark.parametrize("name", RECIPES)
def test_the_loop_is_plain_sgd(tmp_path, name):
    data = made_data()
    recipe = Recipe(epochs=EPOCHS, batch_size=BATCH, **RECIPES[name])
    config = TrainConfig("tiny_double", recipe=recipe, seed=SEED, out=str(tmp_path / "run"))
    torch.manual_seed(SEED)
    network = create_model("tiny_double", num_classes=CLASSES, in_channels=1)
    plain = PlainTraining(network.state_dict(), vars(recipe))
    assert sum(key.endswith(".k") for key in plain.w) == 2
    run = train_config(config, network=network, data=data)

    images = data.normalise(data.train.images).double()
    labels = torch.from_numpy(data.train.labels)
    tests = data.normalise(data.test.images).double(), torch.from_numpy(data.test.labels)
    expected = []
    for epoch in range(EPOCHS):
        order = np.random.Philox(np.random.SeedSequence((SEED, epoch, 0))).random_raw(IMAGES).argsort(kind="stable")
        loss = wrong = 0
        for step, batch in enumerate(np.split(order, [4, 8])):
            losses, errors = plain.step(images[batch], labels[batch], epoch + step / 3)
            loss, wrong = loss + losses, wrong + errors
        line = {"epoch": epoch, "loss": loss / IMAGES, "error": 100 * wrong / IMAGES, **plain.evaluate(*tests)}
        ks = {f"stages.{n}.blocks.{1 - n}": plain.w[f"stages.{n}.k"].item() for n in range(2)}
        expected.append({**line, "lr": plain.lr(epoch + 2 / 3), "k": ks})

    assert recipe.clip is None or 0 < plain.clipped < 3 * EPOCHS  # some steps, not all
    found = read_all(run.last)
    for key, value in {**plain.w, **plain.buffers}.items():
        torch.testing.assert_close(found[f"model.{key}"], value.detach(), rtol=1e-11, atol=1e-13, msg=key)
    for key, value in plain.velocity.items() if recipe.momentum else ():
        momentum = found[f"optimizer.{key}.momentum_buffer"]
        torch.testing.assert_close(momentum, value, rtol=1e-10, atol=1e-12, msg=key)
    for line, wanted in zip(run.metrics(), expected, strict=True):
        assert line["k"] == pytest.approx(wanted.pop("k"), rel=1e-11)
        assert {key: line[key] for key in wanted} == pytest.approx(wanted, rel=1e-11)
