#!/usr/bin/python3
"""Writes golden-resnet18.h5, golden-resnet50.h5, golden-vit.h5 and golden-airbench94.h5: torchvision's ResNets and
vision transformer and PyTorch's airbench94 on random weights and images, in fp64.

    python3 -m venv V && V/bin/pip install torch torchvision h5py && V/bin/python golden_resnets.py

Weights and images are not stored: element i of tensor NAME is drawn(NAME, i) below, which
tests/unit/test_resnet.c computes too. Each file has eval_logits, in evaluation mode with drawn running
statistics. In training mode it has logits; the loss (label smoothing 0.1, two labels per image with a mixing
weight); of every gradient, sorted by name, its norm, PROJECTIONS dot products with vectors of signs and
SAMPLES of its elements; and of every running statistic after one step its sum and sum of squares. --check
compares instead; exit status 77 without torchvision. """

import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    import torchvision
except ImportError as e:
    print("skipped: %s" % e)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECTIONS, SAMPLES, CLASSES, SMOOTHING = 4, 32, 10, 0.1


def fnv(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def bits(name, n):
    """Returns splitmix64 of the name's hash plus the element's index."""
    with np.errstate(over="ignore"):
        z = (np.uint64(fnv(name)) + np.arange(1, n + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def drawn(name, n):
    """Uniform on [-1, 1) with 24 bits, which fp32 represents exactly."""
    return (bits(name, n) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def value(name, shape):
    n = int(np.prod(shape))
    x = drawn(name, n).reshape(shape)
    if len(shape) == 4:
        scale = np.float32(np.sqrt(6 / (shape[0] * shape[2] * shape[3])))
    elif len(shape) == 2:
        scale = np.float32(1 / np.sqrt(shape[1]))
    else:
        scale = np.float32(0.125)
    x = (x.astype(np.float32) * scale).astype(np.float32)
    if name.endswith("running_var") or (len(shape) == 1 and name.endswith(".weight")):
        x = (x + np.float32(0.75)).astype(np.float32)
    # small residuals: otherwise rounding alone changes fp32 gradients of ResNet-50 by 2%
    if name.endswith("bn3.weight"):
        x = (x * np.float32(0.25)).astype(np.float32)
    return torch.from_numpy(x.astype(np.float64))


def loss_of(logits, target, other, share):
    log = torch.log_softmax(logits, 1)
    rows = torch.arange(len(target))
    hit = share * log[rows, target] + (1 - share) * log[rows, other]
    return (-(1 - SMOOTHING) * hit - SMOOTHING * log.mean(1)).mean()


def digest(name, grad):
    """Returns the norm, PROJECTIONS dot products with signs, and SAMPLES elements."""
    flat = grad.reshape(-1).numpy()
    b = bits("signs " + name, len(flat))
    signs = [1 - 2 * ((b >> np.uint64(k)) & np.uint64(1)).astype(np.float64) for k in range(PROJECTIONS)]
    at = (bits("places " + name, SAMPLES) % np.uint64(len(flat))).astype(np.int64)
    return np.concatenate([[np.linalg.norm(flat)], [np.dot(s, flat) for s in signs], flat[at]])


def parts(key, shape):
    """Returns a parameter's names, rows and shapes in dt: those of torchvision but for the vision transformer."""
    ends = {"class_token": "class_token", "encoder.pos_embedding": "pos.weight", "conv_proj": "patch", "encoder.ln": "norm",
            "heads.head": "fc"}
    layer = {"ln_1": "attn_norm", "self_attention.out_proj": "attn.o", "ln_2": "mlp_norm", "mlp.0": "mlp.up",
             "mlp.3": "mlp.down"}
    if key in ends:  # [1, 1, hidden] and [1, tokens, hidden]
        return [(ends[key], slice(None), tuple(n for n in shape if n > 1))]
    module, kind = key.rsplit(".", 1) if "." in key else (key, "")
    if module in ends:
        return [("%s.%s" % (ends[module], kind), slice(None), shape)]
    if not module.startswith("encoder.layers."):
        return [(key, slice(None), shape)]
    number, name = module[len("encoder.layers.encoder_layer_"):].split(".", 1)
    if name in layer:
        return [("layers.%s.%s.%s" % (number, layer[name], kind), slice(None), shape)]
    rows = shape[0] // 3  # self_attention.in_proj_weight
    return [("layers.%s.attn.%s.%s" % (number, "qkv"[i], kind.rsplit("_")[-1]), slice(i * rows, (i + 1) * rows),
             (rows,) + shape[1:]) for i in range(3)]


def compute(build, size, batch):
    net = build(num_classes=CLASSES).double()
    buffers = {k: b for k, b in net.named_buffers() if "num_batches" not in k}
    for key, t in list(net.named_parameters()) + list(buffers.items()):
        for name, rows, shape in parts(key, tuple(t.shape)):
            t.data[rows].copy_(value(name, shape).reshape(t.data[rows].shape))
    x = torch.from_numpy(drawn("images", batch * 3 * size * size).reshape(batch, 3, size, size))
    target = torch.arange(batch) * 3 % CLASSES
    other = torch.arange(batch) * 7 % CLASSES
    share = torch.tensor([1.0, 0.75, 0.5, 0.25], dtype=torch.float64)[torch.arange(batch) % 4]
    net.eval()
    with torch.no_grad():
        eval_logits = net(x).numpy()
    net.train()
    logits = net(x)
    loss = loss_of(logits, target, other, share)
    loss.backward()
    grads = {name: p.grad[rows] for k, p in net.named_parameters() if p.requires_grad
             for name, rows, _ in parts(k, tuple(p.shape))}
    return {
        "eval_logits": eval_logits,
        "logits": logits.detach().numpy(),
        "loss": np.float64(loss.item()),
        "grads": np.stack([digest(k, grads[k]) for k in sorted(grads)]),
        "running": np.array([[b.sum(), b.square().sum()] for _, b in sorted(buffers.items())]).reshape(-1, 2),
    }


def vit(num_classes):
    return torchvision.models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768, num_classes=num_classes,
        norm_layer=lambda n: torch.nn.LayerNorm(n, eps=1e-12))


def act(x):
    return torch.nn.functional.gelu(x)


class Group(torch.nn.Module):
    def __init__(self, width_in, width):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(width_in, width, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(width)
        self.norm1.weight.requires_grad = self.norm2.weight.requires_grad = False

    def forward(self, x):
        x = act(self.norm1(torch.max_pool2d(self.conv1(x), 2)))
        return act(self.norm2(self.conv2(x)))


class Airbench94(torch.nn.Module):
    """Jordan 2024, arXiv:2404.00498; the factor 1/9 of the logits is included in the weights of fc."""

    def __init__(self, num_classes):
        super().__init__()
        self.whiten = torch.nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad = False
        self.layer1, self.layer2, self.layer3 = Group(24, 64), Group(64, 256), Group(256, 256)
        self.fc = torch.nn.Linear(256, num_classes, bias=False)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(act(self.whiten(x)))))
        return self.fc(torch.max_pool2d(x, x.shape[-1]).flatten(1))


def main():
    torch.set_num_threads(1)
    different = 0
    # airbench94: with so few images, any two values in a pooling window differ by at least 1e-6
    nets = (("resnet18", torchvision.models.resnet18, 64, 4), ("resnet50", torchvision.models.resnet50, 64, 4),
            ("vit", vit, 64, 4),
            ("airbench94", Airbench94, 32, 3))
    for name, build, size, batch in nets:
        path = os.path.join(HERE, "golden-%s.h5" % name)
        new = compute(build, size, batch)
        if "--check" not in sys.argv:
            with h5py.File(path, "w", libver=("earliest", "v110")) as g:
                g.attrs.update(batch=batch, size=size, classes=CLASSES)
                for key, v in new.items():
                    g[key] = v
            continue
        with h5py.File(path, "r") as g:
            for key, v in new.items():
                if not np.allclose(g[key][()], v, rtol=1e-9, atol=1e-9 * np.abs(v).max()):
                    print("%s: %s differs" % (path, key))
                    different = 1
    return different


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
