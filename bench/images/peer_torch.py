#!/usr/bin/env python3
"""Times training steps of ResNet-18 on images of 32 x 32 in PyTorch and prints one JSON line.

The net equals dt-train's resnet-18-cifar: torchvision's ResNet-18 with a 3 x 3 stem and no pooling after it. Tensors are
channels_last unless --contiguous is given. The step is SGD with Nesterov momentum and weight decay, fused if this version of
PyTorch supports that. --compile runs the net through torch.compile."""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as e:
    print(f"peer_torch.py: {e}", file=sys.stderr)
    sys.exit(77)


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if inputs != outputs:
            self.short = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.short(x), inplace=True)


def resnet18(classes):
    layers = [conv(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for width in (64, 128, 256, 512):
        layers += [Block(before, width, 1 if width == 64 else 2), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--contiguous", action="store_true")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    net = resnet18(10).train()
    x, target = torch.randn(a.batch, 3, 32, 32), torch.randint(0, 10, (a.batch,))
    if not a.contiguous:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    options = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
    try:
        optim = torch.optim.SGD(net.parameters(), fused=True, **options)
    except (TypeError, RuntimeError):
        optim = torch.optim.SGD(net.parameters(), **options)
    run = torch.compile(net) if a.compile else net
    times = []
    for _ in range(a.warmup + a.steps):
        start = time.perf_counter()
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
            y = run(x)
        F.cross_entropy(y.float(), target).backward()
        optim.step()
        times.append(time.perf_counter() - start)
    kind = "compiled" if a.compile else "contiguous" if a.contiguous else "channels_last"
    print(json.dumps({"name": f"torch-{torch.__version__} {kind}", "step_s": times[a.warmup :],
                      "median_s": statistics.median(times[a.warmup :])}))


if __name__ == "__main__":
    main()
# SPDX-License-Identifier: Apache-2.0
