#!/usr/bin/python3
"""Golden results of the reference implementations of GPTQ (AutoGPTQ 0.7) and AWQ (AutoAWQ 0.2) on a whole
model, for the test of dt-eval.

    golden_quantised.py BIN           writes golden-quantised.json beside this script
    golden_quantised.py --check BIN   recomputes and compares; exit status 0, 3 on a difference, 77 without
    the peers
        BIN      the folder of dt-shard-ckpt and dt-eval

The model is eval/small: a Llama of 0.14 M parameters over bytes, trained by dt-train for 900 steps on
public-domain novels; eval/calibrate.txt and eval/heldout.txt are other chapters of such novels. The layers'
matrices are quantised to 4 bits in groups of 32, symmetrically (the grid of q4_0) or with zero points (q4_1);
the embedding is in all cases quantised by dt-shard-ckpt to that format. Each result is measured by dt-eval
ppl on the held-out text:

    rtn    rounding to nearest, by AutoGPTQ's quantizer
    gptq   AutoGPTQ's class GPTQ, layer by layer, each with the outputs of the quantised layers before it
    awq    AutoAWQ's search for scales and clipping, by its own class and for the layers that it lists

Calibration: windows of 128 bytes, from the beginning of calibrate.txt. PYTHONPATH names folders with the
peers' packages unpacked.
"""

import json
import os
import subprocess
import sys
import tempfile
import types

from golden_rounding import find, load

try:
    import torch
    import transformers
    import transformers.activations
    import transformers.pytorch_utils
except ImportError as e:
    print(f"golden_quantised.py: needs torch and transformers: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = HERE + "/golden-quantised.json"
SEQ, GROUP, BITS = 128, 32, 4
FORMATS = {"q4_0": True, "q4_1": False}  # symmetric?


def gptq_class():
    for name in "auto_gptq", "auto_gptq.quantization":
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    transformers.Conv1D = transformers.pytorch_utils.Conv1D
    torch.cuda.synchronize = lambda: None
    load("auto_gptq.quantization.quantizer", "auto_gptq/quantization/quantizer.py")
    return load("auto_gptq.quantization.gptq", "auto_gptq/quantization/gptq.py").GPTQ


def awq_module():
    """Imports AutoAWQ's files for the search and for scales, without the parts of the package that need a
    GPU."""
    root = os.path.dirname(find("awq/__init__.py"))
    for name in "awq", "awq.modules", "awq.quantize", "awq.utils":
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [os.path.join(root, *name.split(".")[1:])]
    linear = sys.modules["awq.modules.linear"] = types.ModuleType("awq.modules.linear")
    for kind in "GEMM", "GEMV", "Marlin", "GEMVFast":
        setattr(linear, "WQLinear_" + kind, None)
    calib = sys.modules["awq.utils.calib_data"] = types.ModuleType("awq.utils.calib_data")
    calib.get_calib_dataset = None
    # a class that transformers 5 renamed
    if not hasattr(transformers.activations, "PytorchGELUTanh"):
        transformers.activations.PytorchGELUTanh = transformers.activations.GELUTanh
    import awq.quantize.quantizer as m

    m.get_best_device = sys.modules["awq.quantize.scale"].get_best_device = lambda: "cpu"
    m.clear_memory = lambda *_: None
    return m


class Caught(Exception):
    pass


class Walk:
    """The text's residual stream, propagated layer by layer."""

    def __init__(self, model, ids):
        def catch(_, args, kwargs):
            self.x = args[0] if args else kwargs.pop("hidden_states")
            self.kwargs = {k: v for k, v in kwargs.items() if k in ("position_embeddings", "attention_mask", "position_ids")}
            raise Caught

        hook = model.model.layers[0].register_forward_pre_hook(catch, with_kwargs=True)
        try:
            model(ids, use_cache=False)
        except Caught:
            hook.remove()

    def inputs(self, layer):
        """Returns the inputs of each linear of the layer, by name; does not advance the stream."""
        seen, hooks = {}, []
        for name, m in linears(layer).items():
            hooks.append(m.register_forward_hook(lambda _, args, __, name=name: seen.__setitem__(name, args[0].detach().clone())))
        self.forward(layer)
        for h in hooks:
            h.remove()
        return seen

    def forward(self, layer):
        out = layer(self.x, **self.kwargs)
        return out[0] if isinstance(out, tuple) else out

    def step(self, layer):
        self.x = self.forward(layer)


def linears(layer):
    return {n: m for n, m in layer.named_modules() if isinstance(m, torch.nn.Linear)}


def rtn(model, ids, sym):
    quantizer = sys.modules["auto_gptq.quantization.quantizer"].Quantizer
    for layer in model.model.layers:
        for m in linears(layer).values():
            for at in range(0, m.in_features, GROUP):
                q = quantizer()
                q.configure(BITS, perchannel=True, sym=sym, mse=False)
                q.find_params(m.weight.data[:, at:at + GROUP], weight=True)
                m.weight.data[:, at:at + GROUP] = q.quantize(m.weight.data[:, at:at + GROUP])


def gptq(model, ids, sym):
    cls, walk = sys.modules["auto_gptq.quantization.gptq"].GPTQ, Walk(model, ids)
    for layer in model.model.layers:
        x = walk.inputs(layer)
        for name, m in linears(layer).items():
            g = cls(m)
            g.quantizer.configure(BITS, perchannel=True, sym=sym, mse=False)
            for sample in x[name]:
                g.add_batch(sample, None)
            g.fasterquant(percdamp=0.01, group_size=GROUP)
        walk.step(layer)


def awq(model, ids, sym):
    """The three steps of AwqQuantizer.quantize, with the groups of layers that AutoAWQ's llama.py scales
    together."""
    m, walk = sys.modules["awq.quantize.quantizer"], Walk(model, ids)
    q = m.AwqQuantizer.__new__(m.AwqQuantizer)
    q.w_bit, q.group_size, q.zero_point, q.duo_scaling = BITS, GROUP, not sym, True
    q.max_chunk_memory, q.n_parallel_calib_samples = 1 << 30, None
    torch.Tensor.cpu = torch.Tensor.clone  # from a GPU, cpu() copies, which the search relies on
    for layer in model.model.layers:
        a, mlp = layer.self_attn, layer.mlp
        x, after = walk.inputs(layer), walk.forward(layer)
        groups = [(layer.input_layernorm, [a.q_proj, a.k_proj, a.v_proj], x["self_attn.q_proj"], a, dict(walk.kwargs)),
                  (a.v_proj, [a.o_proj], x["self_attn.o_proj"], None, {}),
                  (layer.post_attention_layernorm, [mlp.gate_proj, mlp.up_proj], x["mlp.gate_proj"], mlp, {}),
                  (mlp.up_proj, [mlp.down_proj], x["mlp.down_proj"], None, {})]
        scales = [q._search_best_scale(layer, *g) for g in groups]
        m.apply_scale(layer, scales, input_feat_dict=x)
        m.apply_clip(layer, q._search_best_clip(layer, linears(layer), x))
        for l in linears(layer).values():
            l.weight.data = q.pseudo_quantize_tensor(l.weight.data)[0]
        walk.x = after


def tell(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def perplexity(bin_dir, model):
    return json.loads(tell(bin_dir + "/dt-eval", "ppl", "--precision", "fp32", "--threads", "1", "--tokenizer", "byte",
                           "--text", HERE + "/eval/heldout.txt", "--seq", str(SEQ), "--json", model))["perplexity"]


def compute(bin_dir):
    gptq_class()
    awq_module()
    with open(HERE + "/eval/calibrate.txt", "rb") as f:
        text = f.read()
    ids = torch.tensor(list(text[:len(text) // SEQ * SEQ])).view(-1, SEQ)
    out = {"seq": SEQ, "tokens": ids.numel(), "float": perplexity(bin_dir, HERE + "/eval/small")}
    convert = bin_dir + "/dt-shard-ckpt"
    with tempfile.TemporaryDirectory() as tmp:
        for f, sym in FORMATS.items():
            tell(convert, "quantize", "--type", f, "--tokenizer", "byte", HERE + "/eval/small", f"{tmp}/{f}.gguf")
            tell(convert, "convert", "--to", "safetensors", "--type", "f32", "--tokenizer", "none", f"{tmp}/{f}.gguf", f"{tmp}/{f}")
            embedding = transformers.AutoModelForCausalLM.from_pretrained(f"{tmp}/{f}", dtype=torch.float32).model.embed_tokens
            out[f] = {}
            for how in rtn, gptq, awq:
                model = transformers.AutoModelForCausalLM.from_pretrained(HERE + "/eval/small", dtype=torch.float32)
                model.model.embed_tokens.weight.data.copy_(embedding.weight.data)
                with torch.no_grad():
                    how(model, ids, sym)
                model.save_pretrained(f"{tmp}/{f}-{how.__name__}")
                out[f][how.__name__] = perplexity(bin_dir, f"{tmp}/{f}-{how.__name__}")
    return out


def main(args):
    check = args[:1] == ["--check"]
    if len(args) != 1 + check:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    out = compute(args[-1])
    if check:
        with open(FILE, encoding="utf-8") as f:
            golden = json.load(f)
        far = [(f, how) for f in FORMATS for how in out[f] if abs(out[f][how] / golden[f][how] - 1) > 1e-3]
        print(f"differs: {far}" if far else "the same")
        sys.exit(3 if far else 0)
    with open(FILE, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
