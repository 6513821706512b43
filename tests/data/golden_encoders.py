#!/usr/bin/python3
"""Golden values for encoders, from transformers: golden-bert.h5, -roberta, -bertclasses, -robertascores and -bertscores.

    golden_encoders.py            writes the files beside this script
    golden_encoders.py --check    recomputes them and compares; exit status 0, 3 if one differs, 77 without
                                  transformers, PyTorch or h5py

Weights and tokens are exact, in fp32 and int32; all else is computed in fp64 and stored as f32 (the loss as
f64). Files are those of golden_models.py, with /ids in which some tokens are masked and /targets that are -1
at all others. Besides: /types [batch, seq] and /states [batch, seq, hidden], the final hidden states of /ids
with these token types. Of the files with labels no /logits and /targets, but /label_logits [batch, labels] of
whole rows, likewise; and of the first /lengths [batch] tokens of each row, the others being padding, /loss and
/grad for /labels [batch], classes, or /scores [batch] (bertclasses: cross-entropy, robertascores: squared
error, bertscores: binary cross-entropy).
"""

import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    import transformers as tf
except ImportError as e:
    print(f"golden_encoders.py: needs transformers, PyTorch and h5py: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
COMMON = dict(
    vocab=67, hidden=32, ffn=56, layers=2, heads=4, kv_heads=4, head_dim=8, max_seq=24, batch=2, seq=17,
    norm="layer", norm_eps=1e-5, pos="learned", act="gelu_erf", gated=False, tied=True, qkv_bias=True, out_bias=True,
    mlp_bias=True, qk_norm=False, window=0, rope_theta=10000.0, rope_scaling="none", rope_factor=1.0, rope_low_freq=1.0,
    rope_high_freq=4.0, rope_original_seq=0, rope_pairing="half", encoder=True, token_types=2, mask_token=66,
)
CONFIGS = {
    "bert": dict(COMMON, family="bert", head="masked", seed=41, layers=3),
    "roberta": dict(COMMON, family="roberta", head="masked", seed=42, pos_first=2, token_types=1),
    "bertclasses": dict(COMMON, family="bert", head="classes", seed=43, labels=3, tied=False),
    "robertascores": dict(COMMON, family="roberta", head="classes", seed=44, labels=1, tied=False, pos_first=2,
                          token_types=1, label_loss=1, batch=4),
    "bertscores": dict(COMMON, family="bert", head="classes", seed=45, labels=1, tied=False, label_loss=2, batch=4),
}
LAYER = {
    "attention.self.query": "attn.q", "attention.self.key": "attn.k", "attention.self.value": "attn.v",
    "attention.output.dense": "attn.o", "attention.output.LayerNorm": "attn_norm", "intermediate.dense": "mlp.up",
    "output.dense": "mlp.down", "output.LayerNorm": "mlp_norm",
}
OTHERS = {
    "embeddings.word_embeddings": "embed", "embeddings.position_embeddings": "pos",
    "embeddings.token_type_embeddings": "type", "embeddings.LayerNorm": "embed_norm",
    "cls.predictions.transform.dense": "masked.dense", "cls.predictions.transform.LayerNorm": "masked.norm",
    "cls.predictions": "head", "lm_head.dense": "masked.dense", "lm_head.layer_norm": "masked.norm", "lm_head": "head",
    "pooler.dense": "pooler", "classifier": "labels", "classifier.dense": "pooler", "classifier.out_proj": "labels",
}


PROBLEMS = ["single_label_classification", "regression", "multi_label_classification"]


def own_name(name):
    """The name that transformers' parameter has in dt."""
    for prefix in ("bert.", "roberta."):
        name = name.removeprefix(prefix)
    module, kind = name.rsplit(".", 1)
    if module.startswith("encoder.layer."):
        number, module = module.removeprefix("encoder.layer.").split(".", 1)
        return f"layers.{number}.{LAYER[module]}.{kind}"
    return f"{OTHERS[module]}.{kind}"


def build(c):
    kind = tf.BertConfig if c["family"] == "bert" else tf.RobertaConfig
    config = kind(
        vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], max_position_embeddings=c["max_seq"] + c.get("pos_first", 0),
        type_vocab_size=c["token_types"], layer_norm_eps=c["norm_eps"], hidden_act="gelu", num_labels=c.get("labels", 2),
        pad_token_id=1 if c["family"] == "roberta" else 0, attn_implementation="eager",
    )
    if c["head"] == "classes":
        config.problem_type = PROBLEMS[c.get("label_loss", 0)]
        kind = tf.BertForSequenceClassification if c["family"] == "bert" else tf.RobertaForSequenceClassification
        return kind(config).double().eval()
    return (tf.BertForMaskedLM if c["family"] == "bert" else tf.RobertaForMaskedLM)(config).double().eval()


def compute(c):
    rs = np.random.RandomState(c["seed"])
    net = build(c)
    out = {}
    with torch.no_grad():
        for name, p in net.named_parameters():
            x = rs.standard_normal(tuple(p.shape))
            if "Norm" in name or "layer_norm" in name:
                x = 0.2 * x + (1 if name.endswith("weight") else 0)
            elif name.endswith("bias"):
                x = 0.1 * x
            elif "embeddings" in name:
                x = 0.5 * x
            else:
                x = 1.2 * x / np.sqrt(p.shape[1])
            x = x.astype(np.float32)
            p.copy_(torch.from_numpy(x))
            out["param/" + own_name(name)] = x
    shape = (c["batch"], c["seq"])
    # 1 is the padding of RoBERTa, whose positions are not counted
    ids = rs.randint(2, c["vocab"], shape)
    types = rs.randint(0, c["token_types"], shape)
    targets = np.full(shape, -1)
    chosen = rs.rand(*shape) < 0.3
    targets[chosen] = ids[chosen]
    ids[chosen & (rs.rand(*shape) < 0.8)] = c["mask_token"]
    t_ids, t_types = torch.from_numpy(ids), torch.from_numpy(types)
    body = net.bert if c["family"] == "bert" else net.roberta
    with torch.no_grad():
        out["states"] = body(t_ids, token_type_ids=t_types).last_hidden_state.float().numpy()
    out["ids"], out["types"] = ids.astype(np.int32), types.astype(np.int32)
    if c["head"] == "classes":
        with torch.no_grad():
            out["label_logits"] = net(t_ids, token_type_ids=t_types).logits.float().numpy()
        labelled(c, net, rs, t_ids, t_types, out)
        return out
    labels = torch.from_numpy(np.where(targets < 0, -100, targets))
    r = net(t_ids, labels=labels)
    r.loss.backward()
    out["targets"] = targets.astype(np.int32)
    out["logits"] = r.logits.detach().float().numpy()
    out["loss"] = np.float64(r.loss.item())
    for name, p in net.named_parameters():
        out["grad/" + own_name(name)] = p.grad.float().numpy()
    return out


def labelled(c, net, rs, ids, types, out):
    """The loss and its gradients of padded rows."""
    lengths = rs.randint(3, c["seq"] + 1, c["batch"])
    lengths[0] = c["seq"]
    mask = torch.from_numpy((np.arange(c["seq"])[None] < lengths[:, None]).astype(np.int64))
    padded = torch.where(mask == 1, ids, torch.tensor(net.config.pad_token_id))
    if c["labels"] > 1:
        out["labels"] = rs.randint(0, c["labels"], c["batch"]).astype(np.int32)
        want = torch.from_numpy(out["labels"].astype(np.int64))
    else:
        out["scores"] = rs.rand(c["batch"]).astype(np.float32)
        want = torch.from_numpy(out["scores"].astype(np.float64)).reshape(-1, 1 if c["label_loss"] == 2 else c["batch"])
        want = want if c["label_loss"] == 2 else want[0]
    out["lengths"] = lengths.astype(np.int32)
    r = net(padded, attention_mask=mask, token_type_ids=types, labels=want)
    r.loss.backward()
    out["loss"] = np.float64(r.loss.item())
    for name, p in net.named_parameters():
        out["grad/" + own_name(name)] = p.grad.float().numpy()


def main():
    check, differs = "--check" in sys.argv[1:], False
    for name, c in CONFIGS.items():
        path = os.path.join(HERE, f"golden-{name}.h5")
        new = compute(c)
        if check:
            with h5py.File(path, "r") as f:
                for key, x in new.items():
                    old = f[key][()]
                    if old.shape != x.shape or not np.allclose(old, x, rtol=0, atol=1e-6 * (1 + np.abs(x).max())):
                        print(f"{name}: {key} differs", file=sys.stderr)
                        differs = True
            continue
        with h5py.File(path, "w", libver="earliest") as f:
            for key, value in c.items():
                f.attrs.create(key, np.bytes_(value) if isinstance(value, str) else int(value) if isinstance(value, bool) else value)
            for key, x in new.items():
                f.create_dataset(key, data=x, track_times=False)
    sys.exit(3 if differs else 0)


if __name__ == "__main__":
    main()
# SPDX-License-Identifier: Apache-2.0
