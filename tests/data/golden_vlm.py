#!/usr/bin/env python3
"""Golden values of models that read images, from transformers: tests/data/vlm/{smolvlm,idefics3} and golden-vlm.h5.

    golden_vlm.py            writes the folders and the file beside this script
    golden_vlm.py --check    recomputes what depends on the weights and compares; exit status 0, 3 if a value
                             differs, 77 without transformers, PyTorch, tokenizers, Pillow or h5py

Both have the processor of Idefics3: SmolVLM's writes the same texts, and needs a package for videos. A folder is
what save_pretrained makes of a tiny random model, its tokenizer and its processor. smolvlm: special tokens for rows and columns, the head tied; its tiles have the patches that positions were made for. idefics3:
tags of rows and columns are text, the head is not tied, images are scaled by the bicubic filter, and its tiles
have fewer patches than there are positions, which are found in fractions of the side.

vlm/MODEL.json has requests for servers: for each CASE its messages, the number of prompt tokens, and the bytes of
the greedy tokens.

golden-vlm.h5, for each model:
  /MODEL/tile        pixels of a tile [3, side, side] between 0 and 1, normalised
  /MODEL/states      last hidden states of the tower for it, behind the last norm [patches, hidden]
  /MODEL/rows        what the connector makes of them [rows, hidden of the decoder]
  /positions/N-P     positions of P x P patches where there are N x N, in rows (without numbers of them
                     for which f32 on some processors, but not on others, gives a patch the position before)
  /MODEL/CASE        a conversation with images: files of images in .../file0, file1, ...; /ids, /tiles [n, 3, side, side] f32, /logits of the last prompt
      token [vocab], /greedy token ids. Images of the case "whole" are not split
Weights are exact, in fp32. All else is computed in fp64 and stored as f32. Images are scaled by Pillow; in the
cases here every version of it scales rows first.
"""
import base64
import io
import json
import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    import transformers as tf
    from PIL import Image
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
except ImportError as e:
    print(f"golden_vlm.py: needs transformers, PyTorch, tokenizers, Pillow and h5py: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
GREEDY = 12
# What the published folders have; begin: the token that a conversation begins with.
TEMPLATE = (
    "BEGIN{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}"
    "{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}"
    "{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")
TEXT = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=12, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0)
MODELS = {
    "smolvlm": dict(
        config=tf.SmolVLMConfig, model=tf.SmolVLMForConditionalGeneration,
        images=SmolVLMImageProcessorPil, begin="<|im_start|>", tags=True, scale=3, tied=True, seed=61,
        vision=dict(hidden_size=32, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4, image_size=24,
                    patch_size=4),
        prep=dict(size={"longest_edge": 48}, max_image_size={"longest_edge": 24}, resample=1)),
    "idefics3": dict(
        config=tf.Idefics3Config, model=tf.Idefics3ForConditionalGeneration,
        images=Idefics3ImageProcessorPil, begin="<|begin_of_text|>", tags=False, scale=2, tied=False, seed=62,
        vision=dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, image_size=35,
                    patch_size=5, layer_norm_eps=1e-5),
        prep=dict(size={"longest_edge": 60}, max_image_size={"longest_edge": 20}, resample=3,
                  image_mean=[0.48, 0.46, 0.4], image_std=[0.27, 0.26, 0.28])),
}
CASES = {
    "one": ([(40, 48)], [("user", ["what is ", 0, " this?"])]),
    "two": ([(24, 24), (31, 19)], [("user", [0, "and", 1, "differ how?"])]),
    "turns": ([(17, 40)], [("system", ["be brief"]), ("user", [0, "name it"]), ("assistant", ["a cat"]),
                           ("user", ["sure?"])]),
    "whole": ([(19, 31)], [("user", [0, "see?"])]),
    "text": ([], [("user", ["just text <image> of words"])]),
}


def picture(height, width, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (3.0 + c) + c + seed) * np.cos(y / (4.0 + c)) for c in range(3)]
    noisy = np.stack(planes, -1) + rng.integers(-20, 20, (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def tokenizer(m):
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("h", "e"), ("a", "t"), ("Ċ", "Ċ"), ("r", "o"), ("ro", "w"), ("Ġ", "t"), ("U", "s"), ("e", "r")]
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = [m["begin"], "<|endoftext|>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    if m["tags"]:
        special += ["<global-img>"] + [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return tf.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=m["begin"], eos_token="<end_of_utterance>",
                                      pad_token="<|endoftext|>", unk_token="<|endoftext|>")


def processor(m, tok):
    side = m["prep"]["max_image_size"]["longest_edge"] // m["vision"]["patch_size"] // m["scale"]
    return tf.Idefics3Processor(image_processor=m["images"](**m["prep"]), tokenizer=tok, image_seq_len=side * side,
                                chat_template=TEMPLATE.replace("BEGIN", m["begin"]))


def build(m, tok):
    text = tf.LlamaConfig(vocab_size=len(tok) + 3, pad_token_id=tok.pad_token_id, bos_token_id=tok.bos_token_id,
                          eos_token_id=tok.eos_token_id, **TEXT)
    config = m["config"](text_config=text.to_dict(), vision_config=m["vision"], scale_factor=m["scale"],
                         image_token_id=tok.convert_tokens_to_ids("<image>"), tie_word_embeddings=m["tied"])
    config._attn_implementation = "eager"
    net = m["model"](config).eval()
    rs = np.random.RandomState(m["seed"])
    with torch.no_grad():
        for name, p in net.named_parameters():
            scale = 1 / np.sqrt(p[0].numel()) if p.ndim > 1 else 0.3
            if "embed" in name and p.ndim == 2:
                scale = 0.1 if m["tied"] else 0.6
            x = rs.standard_normal(tuple(p.shape)) * scale * (2 if "lm_head" in name else 1)
            p.copy_(torch.tensor(x + (1 if "norm" in name and name.endswith("weight") else 0), dtype=torch.float32))
    net.tie_weights()
    return net


def conversation(case):
    sizes, turns = CASES[case]
    images = [picture(h, w, i + 7 * len(case)) for i, (h, w) in enumerate(sizes)]
    files = []
    for i, image in enumerate(images):
        out = io.BytesIO()
        image.save(out, "PNG")
        files.append(out.getvalue())
    theirs, ours = [], []
    for role, parts in turns:
        theirs.append({"role": role, "content": [
            {"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts]})
        ours.append({"role": role, "content": [
            {"type": "text", "text": p} if isinstance(p, str) else {"type": "image_url", "image_url": {
                "url": "data:image/png;base64," + base64.b64encode(files[p]).decode()}} for p in parts]})
    return images, files, theirs, ours


def without_images(m, tok, text):
    """Ids of a text whose special tokens are those of the template alone: others, such as <image>, are text."""
    plain, ids = tok.backend_tokenizer, []
    for special in (m["begin"], "<end_of_utterance>"):
        text = text.replace(special, f"\0{special}\0")
    for piece in text.split("\0"):
        if piece in (m["begin"], "<end_of_utterance>"):
            ids.append(tok.convert_tokens_to_ids(piece))
        elif piece:
            for word, _ in plain.pre_tokenizer.pre_tokenize_str(piece):
                ids += [t.id for t in plain.model.tokenize(word)]
    return ids


def bytes_of(tok, ids):
    """The bytes of each token, as the API gives them."""
    unicode = {u: b for b, u in bytes_to_unicode().items()}
    special = {i: t.content for i, t in tok.added_tokens_decoder.items()}
    names = {i: s for s, i in tok.get_vocab().items()}
    return [list(special[i].encode()) if i in special else [unicode[c] for c in names.get(i, "")] for i in ids]


def run(m, net, proc, case, put):
    images, files, theirs, ours = conversation(case)
    text = proc.apply_chat_template(theirs, add_generation_prompt=True)
    if images:
        got = proc(text=text, images=images, return_tensors="pt", add_special_tokens=False,
                   do_image_splitting=case != "whole")
    else:
        got = {"input_ids": torch.tensor([without_images(m, proc.tokenizer, text)])}
    inputs = {"input_ids": got["input_ids"]}
    if images:
        inputs["pixel_values"] = got["pixel_values"].double()
        inputs["pixel_attention_mask"] = got["pixel_attention_mask"]
        put("tiles", got["pixel_values"][0].float().numpy())
    with torch.no_grad():
        logits = net(**inputs).logits[0, -1].float().numpy()
        out = net.generate(**inputs, max_new_tokens=GREEDY, do_sample=False, eos_token_id=None, pad_token_id=0)
    put("ids", got["input_ids"][0].numpy().astype(np.int32))
    put("logits", logits)
    put("greedy", out[0, got["input_ids"].shape[1]:].numpy().astype(np.int32))
    for i, f in enumerate(files):
        put(f"file{i}", np.frombuffer(f, np.uint8))
    return {"messages": ours, "prompt_tokens": got["input_ids"].shape[1],
            "tokens": bytes_of(proc.tokenizer, out[0, got["input_ids"].shape[1]:].tolist())}


def tower(m, net, put):
    side = m["prep"]["max_image_size"]["longest_edge"]
    rs = np.random.RandomState(m["seed"] + 100)
    tile = torch.tensor(rs.uniform(-1, 1, (1, 3, side, side)).astype(np.float32))
    with torch.no_grad():
        states = net.model.vision_model(pixel_values=tile.double()).last_hidden_state
        put("tile", tile[0].numpy())
        put("states", states[0].float().numpy())
        put("rows", net.model.connector(states)[0].float().numpy())


def positions(side, patches):
    """What the embedding looks up: its table has each position's number, and pixels add nothing."""
    config = tf.Idefics3VisionConfig(hidden_size=1, image_size=side, patch_size=1, num_attention_heads=1)
    m = tf.models.idefics3.modeling_idefics3.Idefics3VisionEmbeddings(config)
    with torch.no_grad():
        m.position_embedding.weight.copy_(torch.arange(side * side)[:, None])
        m.patch_embedding.weight.zero_()
        m.patch_embedding.bias.zero_()
        all_of = torch.ones(1, patches, patches, dtype=torch.bool)
        return m(torch.zeros(1, 3, patches, patches), all_of).numpy().round().astype(np.int32).ravel()


def make(name, folder):
    """The sets of a model; its folder is written unless folder is None."""
    m, sets, messages = MODELS[name], {}, {}
    tok = tokenizer(m)
    proc = processor(m, tok)
    net = build(m, tok)
    if folder:
        net.save_pretrained(folder)
        proc.save_pretrained(folder)
        for file in os.listdir(folder):
            if file not in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                            "processor_config.json", "preprocessor_config.json", "chat_template.jinja"):
                os.remove(os.path.join(folder, file))
    net = net.double()
    tower(m, net, lambda key, x: sets.__setitem__(f"{name}/{key}", x))
    for case in CASES:
        messages[case] = run(m, net, proc, case, lambda key, x: sets.__setitem__(f"{name}/{case}/{key}", x))
    return sets, messages


def main():
    path = os.path.join(HERE, "golden-vlm.h5")
    check = "--check" in sys.argv
    sets = {}
    for name in MODELS:
        s, t = make(name, None if check else os.path.join(HERE, "vlm", name))
        sets.update(s)
        if not check:
            with open(os.path.join(HERE, "vlm", f"{name}.json"), "w") as f:
                json.dump(t, f, indent=1)
                f.write("\n")
    for side in (1, 2, 5, 7, 14, 16, 24, 26, 27, 32):
        for patches in (side, side - 3, side + 4, 2 * side, 26):
            if patches > 0:
                sets[f"positions/{side}-{patches}"] = positions(side, patches)
    if check:
        with h5py.File(path, "r") as f:
            for key, want in sets.items():
                if "/file" not in key and not np.allclose(f[key][()], want, rtol=0, atol=1e-5):
                    print(f"golden-vlm.h5: /{key} differs", file=sys.stderr)
                    return 3
        return 0
    with h5py.File(path, "w", libver=("earliest", "v108")) as f:
        for key, want in sets.items():
            f.create_dataset(key, data=want)
    return 0


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
