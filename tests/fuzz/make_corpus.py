#!/usr/bin/python3
"""Writes the seed files of tests/fuzz/corpus: make_corpus.py [DT-SHARD-CKPT]. Small models in every format, with the
program; what clients send to a server.

tokenizer_file/small.model is apart: SentencePiece's library trained it, 275 pieces of BPE with byte fallback."""
import base64
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def split(scope, model, to):
    """One file for fuzz_gguf_split.c: the length of the first part, the first, the second."""
    scope["split"](model + ".gguf", model, 2)
    parts = [open(f"{model}-0000{i}-of-00002.gguf", "rb").read() for i in (1, 2)]
    with open(to, "wb") as f:
        f.write(struct.pack("<I", len(parts[0])) + parts[0] + parts[1])


SUA = '[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"U"}]},{"role":"assistant","content":"A"},{"role":"user","content":"V"}]'
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
BODY = '{"prompt":"x","max_tokens":3,"temperature":0}'
FORM = ('--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{}\n\r\n--b--\r\n')
# What clients of the server send; of bodies the first byte says which route reads them (fuzz_body.c).
TEXTS = {
    "metrics": {
        "steps": '{"run_id":"52e0","step":1,"loss":5.54,"grad_norm":2.5,"lr":0.001,"categories":[{"name":"weights","bytes":64}]}\n'
                 '{"run_id":"52e0","step":2,"loss":null,"skipped":true,"details":{"ranks":{"compute_s":[0.1,0.2]},"units":[]}}\n',
        "events": '{"run_id":"ab","step":3,"event":"rollback","from_step":9,"skipped_samples":[1,2]}\n'
                  '{"step":1e400,"loss":-0.5e-3,"x":"a\\"b{","y":{"a":[1,{"b":"}"}]}}\n{"step": -12.5 , "lr": 123456789012345678901.5}\n',
    },
    "stream": {
        "completion": 'data: {"choices":[{"index":0,"text":"He"}]}\n\ndata: {"choices":[{"text":"llo\\u0000","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}\n\ndata: [DONE]\n\n',
        "chat": ': ping\r\nevent: x\r\ndata:{"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\ndata: {"choices":[{"delta":{"content":"\u20ac"}}]}\r\n\r\ndata: {"choices":[{"delta":{},"finish_reason":"length"}]}\r\n\r\ndata: [DONE]\r\n\r\n',
        "error": 'data: {"error":{"message":"the model \\u001b[31mis busy","type":"server_error"}}\n\n',
        "broken": 'data: {"choices":[{"text":\n\ndata: {"usage":{"prompt_tokens":-1,"completion_tokens":1e99}}\n',
    },
    "rollout": {
        "group": '{"rollout":1,"index":3,"step":120,"weights":"8f01","temperature":1,"prompt":"31>","prompt_ids":[52,50,63],"item":{"a":1},"answers":[{"ids":[50,52,257],"logprobs":[-0.5,-1e-3,0],"text":"13","finish":"stop","reward":1.0},{"ids":[50],"text":"1","finish":"length","reward":null,"reward_error":"timeout"}]}',
        "foreign": '{"rollout":1,"prompt_ids":[7],"answers":[{"ids":[1,2,3,4],"logprobs":[-1,-2,-3,-4e0],"finish":"\u20acstopped by a\u20ac","reward":-0.25},{"ids":[9],"logprobs":null,"reward":2}]}',
    },
    "schema": {
        "object": '{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{2,4}$"},"b":{"type":"number","exclusiveMinimum":0,"maximum":9.5},"c":{"enum":[1,"x",null]}},"required":["a"],"additionalProperties":false}',
        "array": '{"type":"array","prefixItems":[{"const":1}],"items":{"anyOf":[{"type":"integer","multipleOf":5},{"type":"null"}]},"minItems":1,"maxItems":4,"uniqueItems":false}',
        "tree": '{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"format":"date"}},"patternProperties":{"^x":{"minLength":2}},"propertyNames":{"maxLength":3},"minProperties":1}}}',
        "not": '{"type":"string","not":{"enum":["a","b"]},"allOf":[{"minLength":1},{"maxLength":3}],"oneOf":[{"pattern":"^a"},{"pattern":"^b"}]}',
        "dependent": '{"type":"object","properties":{"a":{"type":"boolean"},"b":{}},"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"required":["a"]}}}',
        "formats": '{"anyOf":[{"format":"date-time"},{"format":"ipv4"},{"format":"ipv6"},{"format":"uuid"},{"format":"email"},{"format":"duration"},{"format":"uri"}],"type":"string"}',
    },
    "regex": {
        "words": "^(?:ab|cd)*[a-z0-9_]{2,5}\\d+\\.$\0abcdzz09.",
        "classes": "[^a-c\\u00e0-\\u00ff]+?|\\W\\S\\D(x|y|)?\0-a\u00e9",
        "named": "^(?<year>\\d{4})-(?:0[1-9]|1[0-2])$\0002026-11",
        "empty": "^$|a{0,3}b{2,}\0aabbb",
    },
    "gbnf": {
        "json": 'root ::= v\nv ::= o | "[" (v ("," v)*)? "]" | s | [0-9]+ | "true"\no ::= "{" (s ":" v ("," s ":" v)*)? "}"\ns ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\/bfnrt])* "\\""\0{"a":[1,true]}',
        "lines": 'root ::= # c\n  ( "\\u00e9" | . "\\U0001f600"\n )+\n  | x{2,3} x{0} x{1,}\n\nx ::= ([a-c-]? "" [^\u00e9])*\0a\u00e9b',
        "empty": 'root ::= a* b\na ::= "" | "x" a\nb ::= (a | c?)+ "."\nc ::= "y"{,3}',
        "errors": 'root ::= <t> | r\nr ::= r "\\q" | [] {3,2}',
    },
    "body": {
        "completion": '0{"prompt":["ab",[1,2,3]],"model":"tiny","max_tokens":2,"n":2,"stop":["x","yz"],"stop_token_ids":[5],"logit_bias":{"7":-3.5},"logprobs":2,"echo":true,"seed":4,"top_p":0.9,"stream":true,"stream_options":{"include_usage":true},"user":"me"}',
        "chat": '1{"messages":%s,"logprobs":true,"top_logprobs":2,"max_completion_tokens":5,"response_format":{"type":"json_object"},"tools":[],"cache_salt":"a\\u0000b","min_p":0.1}' % SUA,
        "schema": '1{"messages":%s,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer","minimum":3}}}}' % SUA,
        "embedding": '2{"input":["a",[256,299]],"encoding_format":"base64"}',
        "tools": '1{"messages":[{"role":"user","content":"U"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"R"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],"tool_choice":"required"}',
        "messages": 'A{"max_tokens":5,"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"text","text":"U"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"R"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"stop_sequences":["x"]}',
        "responses": 'B{"input":[{"role":"user","content":[{"type":"input_text","text":"U"}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"R"}],"instructions":"S","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":{"type":"function","name":"f"},"max_output_tokens":5}',
        "format": 'B{"input":"U","text":{"format":{"type":"json_schema","name":"n","schema":{"enum":[1]}}},"store":true}',
        "native": 'K{"prompt":["ab",[1,2]],"n_predict":3,"n_probs":2,"return_tokens":true,"logit_bias":[[7,1.5],["ab",false]],"grammar":"root ::= [a-c]+","seed":-1,"repeat_last_n":64,"n_cmpl":2}',
        "infill": 'L{"input_prefix":"a","input_suffix":"b","input_extra":[],"prompt":"c","stream":true}',
        "rerank": 'C{"query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":false}',
        "score": 'D{"text_1":"q","text_2":["a","b"]}',
        "hermes": 'E<think>\nx</think>Text <tool_call>\n{"name": "f", "arguments": {"a": "}\\""}}\n</tool_call><tool_call>{"name":"g","arguments":{}}',
        "llama3": 'F {"name": "f", "parameters": {"a": [1]}}',
        "mistral": 'G[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"b": 2}}]',
        "inside": 'H{"name": "f", "arguments": {"a": 1}}',
        "line": '3{"prompt":"x","id":{"any":1},"min_tokens":1,"priority":-3}',
        "samplers": '0{"prompt":"x","dry_multiplier":0.8,"dry_base":1.5,"dry_allowed_length":1,"dry_penalty_last_n":-1,"dry_sequence_breakers":["\\n","a"],"xtc_probability":0.5,"xtc_threshold":0.1,"mirostat":2,"mirostat_tau":5,"mirostat_eta":0.1}',
        "images": 'N{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==","detail":"auto"}},{"type":"text","text":"# # # #"}]}],"max_tokens":2}',
        "chat_line": '7{"messages":%s,"id":7,"ignore_eos":true}' % SUA,
    },
    "chat": {
        "chatml": "{{ '<|im_start|>system\\nYou are Q.<|im_end|>\\n' }}\0" + SUA,
        "llama3": "'<|start_header_id|>' + message['role'] + 'Cutting Knowledge Date'\0" + SUA,
        "mistral": "[INST] [/INST] </s>\0" + SUA,
        "gemma": "<start_of_turn>\0" + SUA,
        "llama2": "[INST] <<SYS>>\0" + SUA,
        "zephyr": "<|user|> <|assistant|>\0" + SUA,
    },
    "route": {
        "request": HEAD + "Content-Length: %d\r\nConnection: keep-alive, X-A\r\nX-A: b\r\n\r\n%s" % (len(BODY), BODY),
        "response": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n",
        "length": "HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        "chunks": "5;a=b\r\nhello\r\n00a\r\n, my world\r\n0\r\nTrailer: x\r\n\r\nrest",
        "members": ' {"model": "a\\"b", "messages": %s, "stream":true ,"n":1.5e3,"o":{"a":[1,{}]}} ' % SUA,
    },
    "http": {
        "health": "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "length": HEAD + "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
        "chunks": HEAD + "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
        "two": HEAD + "Content-Length: %d\r\n\r\n%sHEAD /v1/models/tiny HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n" % (len(BODY), BODY),
        "stream": HEAD + 'Expect: 100-continue\r\nContent-Length: 42\r\n\r\n{"prompt":"x","max_tokens":3,"stream":true}',
        "nothing": HEAD + 'Content-Length: 43\r\n\r\n{"prompt":"x","max_tokens":0,"stream":true}',
        "preflight": "OPTIONS /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
        "key": "GET /metrics HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n",
        "page": "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /slots HTTP/1.1\r\nHost: localhost\r\n\r\nDELETE /v1/files/file-1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "upload": "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
                  "Content-Length: %d\r\n\r\n%s" % (len(FORM), FORM),
        "tokenize": "POST /tokenize HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 15\r\n\r\n" + '{"prompt":"hi"}',
    },
}


TINY = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "rope_theta": 10000}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
YARN = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16}
DEEPSEEK = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12,
            "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
            "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2}
GRANITE = {"embedding_multiplier": 12, "attention_multiplier": 0.125, "residual_multiplier": 0.22, "logits_scaling": 3}
# config.json of each further family: what TINY does not say. A name is its model_type, or says model_type itself.
FAMILIES = {
    "mistral": {"sliding_window": 7},
    "mixtral": EXPERTS,
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 3},
    "gemma3_text": {"head_dim": 8, "sliding_window": 7, "sliding_window_pattern": 3, "query_pre_attn_scalar": 24,
                    "rope_local_base_freq": 1000, "hidden_activation": "gelu_pytorch_tanh"},
    "olmo2": {},
    "olmo3": {"sliding_window": 7, "rope_scaling": YARN},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "smollm3": {"no_rope_layer_interval": 2},
    "glm4": {"head_dim": 12},
    "glm4_moe": {"head_dim": 12, "use_qk_norm": True, "n_routed_experts": 8, "num_experts_per_tok": 3, "attention_bias": True,
                 "moe_intermediate_size": 24, "num_nextn_predict_layers": 1},
    "minimax_m2": EXPERTS | {"head_dim": 12, "rotary_dim": 6},
    "gpt_oss": EXPERTS | {"head_dim": 16, "sliding_window": 7, "rope_scaling": YARN | {"truncate": False}},
    "granite": GRANITE,
    "granitemoe": GRANITE | EXPERTS,
    "granitemoeshared": GRANITE | EXPERTS | {"shared_intermediate_size": 40},
    "granitemoehybrid": GRANITE | EXPERTS | {"layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": "auto"},
    "phi3": {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 16,
             "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5], "long_factor": [1.2, 4]}},
    "gpt_neox": {"rotary_pct": 0.5, "use_parallel_residual": False},
    "cohere": {"logit_scale": 0.25},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 7, "sliding_window_pattern": 3},
    "starcoder2": {"sliding_window": 7},
    "deepseek_v2": DEEPSEEK | {"q_lora_rank": None, "topk_method": "group_limited_greedy"},
    "deepseek_v3": DEEPSEEK | {"norm_topk_prob": True, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1},
    "mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 6, "conv_kernel": 3, "time_step_limit": [0, 1e308]},
    "bert": {"architectures": ["BertForMaskedLM"], "type_vocab_size": 3, "hidden_act": "gelu_new"},
    "roberta": {"architectures": ["RobertaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}, "pad_token_id": 1},
    "xlm-roberta": {"architectures": ["XLMRobertaModel"], "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "idefics3": {"text_config": TINY, "vision_config": {"hidden_size": 24, "num_attention_heads": 3, "patch_size": 7}, "image_token_id": 39, "scale_factor": 2},
    "vit": {"image_size": 28, "patch_size": 7, "num_channels": 1, "num_labels": 3},
}


def families(out):
    os.makedirs(os.path.join(out, "config"), exist_ok=True)
    for name, own in FAMILIES.items():
        with open(os.path.join(out, "config", name + ".json"), "w") as f:
            json.dump({"model_type": name} | TINY | own, f)


def text(s):
    """A string of GGUF."""
    return struct.pack("<Q", len(s.encode())) + s.encode()


def write_gguf(path, nkeys, keys, tensors):
    """tensors: name, columns, rows (0: a vector, of ones), (GGUF's number of the type, elements and bytes of a block)."""
    infos, data, draw = b"", b"", random.Random(1)
    for name, columns, rows, (kind, block, size) in tensors:
        dims = (columns, rows) if rows else (columns,)
        infos += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, len(data))
        n = columns * max(rows, 1) // block * size
        data += draw.randbytes(n) if rows else struct.pack("<f", 1) * columns
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), nkeys) + keys + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def formats(out):
    """A Llama of one layer in GGUF, each of its matrices in a block format of its own (codes drawn at random)."""
    keys = b"".join(text(k) + v for k, v in [("general.architecture", struct.pack("<I", 8) + text("llama"))] + [
        ("llama." + k, struct.pack("<II", 4, v)) for k, v in (
            ("block_count", 1), ("context_length", 64), ("embedding_length", 256), ("feed_forward_length", 256),
            ("attention.head_count", 2), ("attention.head_count_kv", 1), ("attention.key_length", 32),
            ("attention.value_length", 32), ("rope.dimension_count", 32), ("vocab_size", 16))] + [
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<If", 6, 1e-5)),
        ("llama.rope.freq_base", struct.pack("<If", 6, 1e4))])
    tensors = [
        ("token_embd", 256, 16, (10, 256, 84)), ("output_norm", 256, 0, (0, 1, 4)), ("output", 256, 16, (23, 256, 136)),
        ("blk.0.attn_norm", 256, 0, (0, 1, 4)), ("blk.0.attn_q", 256, 64, (11, 256, 110)),
        ("blk.0.attn_k", 256, 32, (16, 256, 66)), ("blk.0.attn_v", 256, 32, (17, 256, 74)),
        ("blk.0.attn_output", 64, 256, (7, 32, 24)), ("blk.0.ffn_norm", 256, 0, (0, 1, 4)),
        ("blk.0.ffn_gate", 256, 256, (21, 256, 110)), ("blk.0.ffn_up", 256, 256, (18, 256, 98)),
        ("blk.0.ffn_down", 256, 256, (22, 256, 82))]
    tensors = [(name + ".weight", *rest) for name, *rest in tensors]
    write_gguf(os.path.join(out, "gguf", "formats"), 13, keys, tensors)


def encoder(out):
    """A BERT of one layer in GGUF that ranks texts: a vocabulary of WordPiece, and one class."""
    f32, tokens = (0, 1, 4), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b", "\u2581123"]
    number = lambda v: struct.pack("<II", 4, v)
    keys = {"general.architecture": struct.pack("<I", 8) + text("bert"), "bert.block_count": number(1), "bert.context_length": number(16),
            "bert.embedding_length": number(8), "bert.feed_forward_length": number(12), "bert.attention.head_count": number(2),
            "bert.attention.layer_norm_epsilon": struct.pack("<If", 6, 1e-12), "bert.attention.causal": struct.pack("<IB", 7, 0),
            "bert.pooling_type": number(4), "tokenizer.ggml.model": struct.pack("<I", 8) + text("bert"),
            "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, len(tokens)) + b"".join(map(text, tokens)),
            "tokenizer.ggml.token_type": struct.pack("<IIQ7i", 9, 5, 7, 3, 3, 3, 3, 1, 1, 1)}
    vectors = [(f"{name}.bias", n, 0, f32) for name, n in (("blk.0.attn_q", 8), ("blk.0.attn_k", 8), ("blk.0.attn_v", 8),
               ("blk.0.attn_output", 8), ("blk.0.ffn_up", 12), ("blk.0.ffn_down", 8), ("cls", 8), ("cls.output", 1))]
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        vectors += [(f"{name}.weight", 8, 0, f32), (f"{name}.bias", 8, 0, f32)]
    matrices = [(f"{name}.weight", columns, rows, f32) for name, columns, rows in (
        ("token_embd", 8, 7), ("position_embd", 8, 16), ("token_types", 8, 2), ("blk.0.attn_q", 8, 8), ("blk.0.attn_k", 8, 8),
        ("blk.0.attn_v", 8, 8), ("blk.0.attn_output", 8, 8), ("blk.0.ffn_up", 8, 12), ("blk.0.ffn_down", 12, 8), ("cls", 8, 8),
        ("cls.output", 8, 1))]
    write_gguf(os.path.join(out, "gguf", "bert"), len(keys), b"".join(text(k) + v for k, v in keys.items()), matrices + vectors)


def texts(out):
    for folder, files in TEXTS.items():
        os.makedirs(os.path.join(out, folder), exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(out, folder, name), "wb") as f:
                f.write(text.encode())


def images(out):
    """Encoded images of the golden set, and what they come in: IDX, tar, CIFAR. The first bytes as the harnesses say."""
    import io
    import tarfile

    import h5py

    for folder in ("image", "image_source"):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
    write = lambda *path_and_data: open(os.path.join(out, *path_and_data[:-1]), "wb").write(path_and_data[-1])
    tar = io.BytesIO()
    with h5py.File(os.path.join(HERE, "../data/golden-images.h5")) as f, tarfile.open(fileobj=tar, mode="w") as t:
        for name in ("jpeg-444-progressive", "jpeg-grey", "jpeg-cmyk", "jpeg-exif-6", "png-16", "png-palette", "png-bits",
                     "png-alpha", "pgm"):
            data = f["decode"][name]["bytes"][()].tobytes()
            write("image", name, b"\x42" + data)
            if name in ("png-palette", "jpeg-exif-6"):
                write("body", name, b"M" + data)
            if name in ("png-bits", "jpeg-grey"):
                for end, content in ((".png", data), (".cls", b"3\n")):
                    member = tarfile.TarInfo("class/" + name + "x" * 110 * (name == "png-bits") + end)
                    member.size = len(content)
                    t.addfile(member, io.BytesIO(content))
    write("image_source", "tar", b"\1\0\0" + tar.getvalue()[:-8192])
    idx = struct.pack(">IIII", 2051, 3, 4, 5) + bytes(range(60))
    write("image_source", "idx", b"\0" + struct.pack(">H", len(idx)) + idx + struct.pack(">II", 2049, 3) + b"\0\1\2")
    write("image_source", "cifar10", b"\2\0\0" + b"\7" + bytes(3072))


def adapters(out):
    """PEFT's two files and llama.cpp's GGUF, for the base of fuzz_adapter.c; the first byte as that says."""
    folder = os.path.join(out, "adapter")
    os.makedirs(folder, exist_ok=True)
    write = lambda name, data: open(os.path.join(folder, name), "wb").write(data)
    write("config", b'0{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_rslora": true, "rank_pattern": {"q_proj": 2}, '
          b'"alpha_pattern": {}, "target_modules": ["q_proj"], "bias": "none"}')
    head, at = {}, 0
    for module in ("self_attn.q_proj", "mlp.down_proj"):
        for half, shape in (("A", [2, 8]), ("B", [8, 2])):
            head["base_model.model.model.layers.0.%s.lora_%s.weight" % (module, half)] = {
                "dtype": "F32", "shape": shape, "data_offsets": [at, at + 64]}
            at += 64
    head = json.dumps(head).encode()
    write("tensors", b"1" + struct.pack("<Q", len(head)) + head + bytes(range(64)) * (at // 64))
    gguf = b"GGUF" + struct.pack("<IQQ", 3, 2, 4)
    for key, value in (("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "llama")):
        gguf += text(key) + struct.pack("<I", 8) + text(value)
    gguf += text("adapter.lora.alpha") + struct.pack("<If", 6, 4.0)
    for i, (half, dims) in enumerate((("a", (8, 2)), ("b", (2, 8)))):
        gguf += text("blk.0.attn_q.weight.lora_" + half) + struct.pack("<IQQIQ", 2, *dims, 0, 64 * i)
    write("gguf", b"2" + gguf + bytes(-len(gguf) % 32) + bytes(128))


def main(tool):
    source = open(os.path.join(HERE, "../cli/convert.py")).read()
    source = re.sub(r"^H, HEADS.*$", "H, HEADS, KV, D, F, L, V, T = 32, 2, 1, 16, 32, 1, 40, 8", source, flags=re.M)
    source = source[: source.rindex("globals()")]
    scope = {"__name__": "corpus"}
    exec(source, scope)
    out = os.path.join(HERE, "corpus")
    texts(out)
    images(out)
    adapters(out)
    with tempfile.TemporaryDirectory() as tmp:
        for family in ["gpt2", "llama", "qwen2", "qwen3"]:
            folder = os.path.join(tmp, family)
            scope["make"](family, "BF16", folder)
            run = lambda *a: subprocess.run([tool, "convert", *a], check=True, capture_output=True)
            for d in ["gguf", "gguf_split", "safetensors", "config", "bin", "manifest"]:
                os.makedirs(os.path.join(out, d), exist_ok=True)
            shutil.copy(os.path.join(folder, "config.json"), os.path.join(out, "config", family + ".json"))
            st = os.path.join(folder, "model.safetensors")
            shutil.copy(st, os.path.join(out, "safetensors", family))
            run("--type", "q8_0", folder, os.path.join(tmp, family + ".gguf"))
            shutil.copy(os.path.join(tmp, family + ".gguf"), os.path.join(out, "gguf", family))
            split(scope, os.path.join(tmp, family), os.path.join(out, "gguf_split", family))
            run("--type", "bf16", "--compress", folder, os.path.join(tmp, family + "-dt"))
            m = os.path.join(tmp, family + "-dt/latest/manifest.json")
            shutil.copy(m, os.path.join(out, "manifest", family + ".json"))
            own = json.load(open(m))["model"]
            json.dump(own, open(os.path.join(out, "config", family + "-own.json"), "w"))
        if os.path.exists(os.path.join(out, "bin", "llmc")):
            os.remove(os.path.join(out, "bin", "llmc"))
        run("--to", "llmc", os.path.join(tmp, "gpt2"), os.path.join(out, "bin", "llmc"))
    tok = os.path.join(out, "tokenizer")
    os.makedirs(tok, exist_ok=True)
    alphabet = [chr(c) for c in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))] + [
        chr(256 + i) for i in range(68)]
    vocab = {c: i for i, c in enumerate(alphabet)} | {"He": 256, "ll": 257, "Hell": 258}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    json.dump({"version": "1.0", "added_tokens": [{"id": 259, "content": "</s>", "special": True, "normalized": False,
                                                  "lstrip": False, "rstrip": False, "single_word": False}],
               "normalizer": {"type": "NFC"}, "pre_tokenizer": level, "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "vocab": vocab, "merges": ["H e", ["l", "l"], "He ll"]}},
              open(os.path.join(tok, "small.json"), "w"))


def vocabularies(out):
    """BERT's WordPiece, as tokenizer.json and in GGUF; Unigram, likewise, with the map of characters of golden_ug.py."""
    tok = os.path.join(out, "tokenizer")
    special = {"special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    json.dump({"version": "1.0", "added_tokens": [{"id": i, "content": c} | special for i, c in enumerate(["[UNK]", "[CLS]", "[SEP]"])],
               "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                              "lowercase": True},
               "pre_tokenizer": {"type": "BertPreTokenizer"},
               "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
               "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
               "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                         "vocab": {c: i for i, c in enumerate("[UNK] [CLS] [SEP] h ##e ##llo hell ##o w ##orld , 1 ##2 ##23 ' s".split())}}},
              open(os.path.join(tok, "wordpiece.json"), "w"))
    unigram = json.load(open(os.path.join(HERE, "../data/tokenizer/ug-t5.json")))
    unigram["model"]["vocab"] = [[t, -i / 4] for i, t in enumerate("<pad> </s> <unk> \u2581 \u2581Hello H el lo , \u2581w orld <0x20> <0x31>".split())]
    unigram["model"]["byte_fallback"] = True
    unigram["added_tokens"] = unigram["added_tokens"][:3]
    json.dump(unigram, open(os.path.join(tok, "unigram.json"), "w"))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b", "\u2581123"]
    kv = [("general.architecture", 8, text("bert")), ("tokenizer.ggml.model", 8, text("bert")),
          ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + b"".join(map(text, tokens))),
          ("tokenizer.ggml.token_type", 9, struct.pack("<IQ7i", 5, len(tokens), 3, 3, 3, 3, 1, 1, 1)),
          ("tokenizer.ggml.normalizer.lowercase", 7, b"\1"),
          *[(f"tokenizer.ggml.{k}_token_id", 4, struct.pack("<I", i)) for i, k in enumerate(["padding", "unknown", "cls", "seperator"])]]
    pieces, n = unigram["model"]["vocab"], len(unigram["model"]["vocab"])
    charsmap = base64.b64decode(next(o["precompiled_charsmap"] for o in unigram["normalizer"]["normalizers"] if o["type"] == "Precompiled"))
    t5 = [("general.architecture", 8, text("bert")), ("tokenizer.ggml.model", 8, text("t5")),
          ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, n) + b"".join(text(t) for t, _ in pieces)),
          ("tokenizer.ggml.scores", 9, struct.pack(f"<IQ{n}f", 6, n, *(x for _, x in pieces))),
          ("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{n}i", 5, n, 3, 3, 2, *[1] * (n - 5), 6, 6)),
          ("tokenizer.ggml.precompiled_charsmap", 9, struct.pack("<IQ", 0, len(charsmap)) + charsmap),
          *[(f"tokenizer.ggml.{k}", 7, b"\1") for k in ("add_bos_token", "add_sep_token", "remove_extra_whitespaces")],
          *[(f"tokenizer.ggml.{k}_token_id", 4, struct.pack("<I", i)) for i, k in enumerate(["bos", "eos", "unknown"])]]
    for name, keys in ("bert", kv), ("unigram", t5):
        with open(os.path.join(out, "tokenizer_file", name + ".gguf"), "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(text(k) + struct.pack("<I", t) + v for k, t, v in keys))


def blocks(out):
    """Blocks of a cache on disk (serve/engine/kvdisk.c): the one that fuzz_kvdisk.c asks for, and others."""
    os.makedirs(os.path.join(out, "kvdisk"), exist_ok=True)
    for name, cache, ids in [("right", 7, (1, 2, 3, 4)), ("tokens", 7, (1, 2, 3, 5)), ("cache", 8, (1, 2, 3, 4))]:
        head = b"dt-kv\n1\n" + struct.pack("<QQQQII", cache, 5, 6, 16, 4, 0)
        with open(os.path.join(out, "kvdisk", name), "wb") as f:
            f.write(head + struct.pack("<4i", *ids) + b"keys and values.")


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    texts(os.path.join(HERE, "corpus"))
    vocabularies(os.path.join(HERE, "corpus"))
    blocks(os.path.join(HERE, "corpus"))
    families(os.path.join(HERE, "corpus"))
    formats(os.path.join(HERE, "corpus"))
    encoder(os.path.join(HERE, "corpus"))
    images(os.path.join(HERE, "corpus"))
    adapters(os.path.join(HERE, "corpus"))
# SPDX-License-Identifier: Apache-2.0
