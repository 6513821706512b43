#!/usr/bin/python3
"""Golden logits of a real, trained model: stories260K (llama2.c's format, adjacent-pair RoPE, tied head).

    golden_stories.py [--data DIR] [--check]

Reads DIR/stories260K/{stories260K.bin,tok512.bin,greedy.txt} (default: $DT_TEST_DATA, else ../shared/data
beside the checkout) and writes golden-stories260k.h5 beside this script: the model's attributes, and for each
prompt I /prompt/I/text (bytes), /prompt/I/ids [n] with BOS first, /prompt/I/logits [n, vocab] and
/prompt/I/greedy [32], the greedy tokens that follow. Computed in fp64, stored as f32. The weights are not
stored.

Before writing, the greedy continuation of the empty prompt must equal greedy.txt, which another
implementation wrote. This verifies the file reader, the tokenizer and the model together.
--check recomputes (of greedy.txt only the beginning) and compares: exit status 3 on a difference, 77 without
the data or PyTorch.
"""

import argparse
import os
import struct
import sys

import golden_models
from golden_models import HERE, LLAMA, np, torch

BOS = 1
PROMPTS = ["", "Once upon a time", "Lily and Tom went to the park. They saw a big", "The quick brown fox \u2603 99"]


def read_model(path):
    """Returns (config, {our name: fp32 array}) of a llama2.c version 0 file; checks every length against the
    file."""
    with open(path, "rb") as f:
        raw = f.read()
    dim, ffn, layers, heads, kv_heads, vocab, seq = struct.unpack_from("<7i", raw)
    if min(dim, ffn, layers, heads, kv_heads, seq) <= 0 or vocab == 0 or dim % heads or heads % kv_heads:
        raise ValueError(f"{path}: not a llama2.c model")
    tied, vocab, d = vocab > 0, abs(vocab), dim // heads
    rest = np.frombuffer(raw, "<f4", offset=28)
    at = 0

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        if at + n > rest.size:
            raise ValueError(f"{path}: ends inside its weights")
        at += n
        return rest[at - n : at].reshape(shape)

    w = {"embed.weight": take(vocab, dim)}
    kv = kv_heads * d
    for name, shape in [("attn_norm", (dim,)), ("attn.q", (dim, dim)), ("attn.k", (kv, dim)), ("attn.v", (kv, dim)),
                        ("attn.o", (dim, dim)), ("mlp_norm", (dim,)), ("mlp.gate", (ffn, dim)),
                        ("mlp.down", (dim, ffn)), ("mlp.up", (ffn, dim))]:
        for i, x in enumerate(take(layers, *shape)):
            w[f"layers.{i}.{name}.weight"] = x
    w["norm.weight"] = take(dim)
    take(2, seq, d // 2)  # skips the rotary tables, which are computed instead
    if not tied:
        w["head.weight"] = take(vocab, dim)
    if at != rest.size:
        raise ValueError(f"{path}: {4 * (rest.size - at)} bytes behind the weights")
    c = dict(LLAMA, family="llama", vocab=vocab, hidden=dim, ffn=ffn, layers=layers, heads=heads, kv_heads=kv_heads,
             head_dim=d, max_seq=seq, tied=tied, rope_pairing="adjacent")
    del c["batch"], c["seq"]
    return c, w


def read_tokenizer(path, vocab):
    """Returns [(bytes, score)] of llama2.c's tokenizer.bin."""
    with open(path, "rb") as f:
        raw = f.read()
    at, out = 4, []
    for _ in range(vocab):
        score, n = struct.unpack_from("<fi", raw, at)
        out.append((raw[at + 8 : at + 8 + n], score))
        at += 8 + n
    if at != len(raw):
        raise ValueError(f"{path}: {len(raw) - at} bytes left over")
    return out


def encode(tokens, text):
    """SentencePiece BPE: starts from characters (bytes if a character is no token, ids 3 + byte), merges best
    score first."""
    index = {t: i for i, (t, _) in reversed(list(enumerate(tokens)))}
    ids = []
    for ch in (" " + text) if text else "":
        b = ch.encode()
        ids += [index[b]] if b in index else [x + 3 for x in b]
    while True:
        best = max(
            ((tokens[index[m]][1], -i) for i in range(len(ids) - 1)
             if (m := tokens[ids[i]][0] + tokens[ids[i + 1]][0]) in index),
            default=None,
        )
        if best is None:
            return [BOS] + ids
        i = -best[1]
        ids[i : i + 2] = [index[tokens[ids[i]][0] + tokens[ids[i + 1]][0]]]


def decode(tokens, ids):
    out, previous = b"", BOS
    for t in ids:
        piece = tokens[t][0]
        if previous == BOS and piece.startswith(b" "):
            piece = piece[1:]
        if len(piece) == 6 and piece.startswith(b"<0x"):
            piece = bytes([int(piece[3:5], 16)])
        out += piece
        previous = t
    return out


def logits_of(c, w, ids):
    with torch.no_grad():
        return golden_models.forward(c, w, torch.tensor([ids]))[0][0]


def greedy(c, w, ids, n):
    ids = list(ids)
    start = len(ids)
    while len(ids) < start + n:
        ids.append(int(logits_of(c, w, ids)[-1].argmax()))
        if ids[-1] == BOS:
            break
    return ids[start:]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--data", default=os.environ.get("DT_TEST_DATA", os.path.join(HERE, "../../../shared/data")))
    a.add_argument("--check", action="store_true")
    o = a.parse_args()
    folder = os.path.join(o.data, "stories260K")
    if not os.path.isfile(os.path.join(folder, "stories260K.bin")):
        print(f"golden_stories.py: no stories260K in '{o.data}' (set DT_TEST_DATA)", file=sys.stderr)
        return 77
    torch.set_num_threads(1)
    c, weights = read_model(os.path.join(folder, "stories260K.bin"))
    tokens = read_tokenizer(os.path.join(folder, "tok512.bin"), c["vocab"])
    w = {k: torch.tensor(v, dtype=torch.float64) for k, v in weights.items()}

    with open(os.path.join(folder, "greedy.txt"), "rb") as f:
        story = f.read().strip()
    told = decode(tokens, greedy(c, w, [BOS], 48 if o.check else 256))[: len(story)]
    if not story.startswith(told):
        print(f"golden_stories.py: the model says '{told.decode(errors='replace')}', not what greedy.txt has",
              file=sys.stderr)
        return 3
    print(f"the first {len(told)} of {len(story)} bytes of greedy.txt come out")

    data = {}
    for i, text in enumerate(PROMPTS):
        ids = encode(tokens, text)
        assert decode(tokens, ids[1:]) == text.encode(), text
        data[f"prompt/{i}/text"] = np.frombuffer(text.encode(), np.uint8)
        data[f"prompt/{i}/ids"] = np.array(ids, np.int32)
        data[f"prompt/{i}/logits"] = logits_of(c, w, ids).numpy().astype(np.float32)
        data[f"prompt/{i}/greedy"] = np.array(greedy(c, w, ids, 32), np.int32)
    c["prompts"] = len(PROMPTS)
    path = os.path.join(HERE, "golden-stories260k.h5")
    if o.check:
        bad = golden_models.check(path, c, data)
        print("golden-stories260k.h5: " + (f"differs: {' '.join(bad[:6])}" if bad else f"{len(data)} datasets agree"))
        return 3 if bad else 0
    golden_models.write(path, c, data)
    print(f"golden-stories260k.h5: {os.path.getsize(path)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
