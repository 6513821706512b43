#!/usr/bin/env python3
"""Times PyTorch on a GPU, for comparison with bench/device and dt-train: a matrix product, attention, and training steps of
GPT-2 with torch.compile.

  bench/device_torch.py [product] [attention] [gpt2-124m] [gpt2-1558m]     default: all

bf16 with f32 weights and optimizer states (autocast), fused AdamW, scaled_dot_product_attention, and a vocabulary of 50304
instead of 50257, the padding that is common in PyTorch. Rates count the same flops as bench/device and dt-train."""
import sys
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(__doc__)
    sys.exit()

del sys.path[0]  # this folder's tokenize.py would hide the standard module
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as e:
    print(f"device_torch.py: {e}", file=sys.stderr)
    sys.exit(77)


def best(call, times=20):
    call()
    torch.cuda.synchronize()
    found = 9e9
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(times):
            call()
        torch.cuda.synchronize()
        found = min(found, (time.perf_counter() - begin) / times)
    return found


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, vocab=50304, seq=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.ln_f(h)).view(-1, self.head.out_features), y.reshape(-1))


def train(name, layers, width, heads, batch):
    model = Model(layers, width, heads).cuda()
    step_of = torch.compile(model)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x = torch.randint(0, 50257, (batch, 1025), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_of(x[:, :-1], x[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    took = best(step, 4)
    params = sum(p.numel() for p in model.parameters())
    flops = 6 * params + 6 * layers * width * 1024  # causal: half the pairs
    print(f"{name}: {batch * 1024 / took:.0f} tokens/s, step {took * 1e3:.1f} ms, {flops * batch * 1024 / took / 1e12:.0f} "
          f"TFLOP/s, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB", flush=True)


def attention(batch, seq, heads, kv, d):
    q, k, v = (torch.randn(batch, h, seq, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for h in (heads, kv, kv))
    flop = 4 * d * batch * heads * seq * (seq + 1) / 2
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
    g = torch.randn_like(o)
    forward = best(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv))
    backward = best(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True))
    print(f"attention {batch} x {seq}, {heads}/{kv} x {d}: forward {forward * 1e3:.3f} ms, {flop / forward / 1e12:.0f} TFLOP/s; "
          f"backward {backward * 1e3:.3f} ms, {2.5 * flop / backward / 1e12:.0f} TFLOP/s", flush=True)


def main():
    names = sys.argv[1:] or ["product", "attention", "gpt2-124m", "gpt2-1558m"]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    if "product" in names:
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        print(f"product of 8192: {2 * 8192**3 / best(lambda: a @ b.T) / 1e12:.0f} TFLOP/s", flush=True)
    if "attention" in names:
        attention(32, 1024, 12, 12, 64)
        attention(8, 1024, 25, 25, 64)
        attention(4, 4096, 32, 8, 128)
    if "gpt2-124m" in names:
        train("gpt2-124m", 12, 768, 12, 32)
    if "gpt2-1558m" in names:
        train("gpt2-1558m", 48, 1600, 25, 8)


main()
# SPDX-License-Identifier: Apache-2.0
