#!/usr/bin/python3
"""Golden prompts with tools, from transformers.

    golden_tools.py TEMPLATES MISTRAL HARMONY   writes golden-tools.json beside this script
    golden_tools.py --written                   rewrites only the prompts whose template is in this script
    golden_tools.py --harmony HARMONY           rewrites only the prompts of harmony
        TEMPLATES  the folder chat_templates of the package trl: the published templates of model families
        MISTRAL    the template of Mistral-7B-Instruct-v0.3, as a file
        HARMONY    the template of gpt-oss, as a file; the date in its prompts becomes DATE

Templates are run by transformers' Jinja. In requests the arguments of calls are text; templates receive them
as objects, as from other servers that support these templates.
"""

import copy
import json
import os
import re
import sys

try:
    import tokenizers
    import transformers
except ImportError as e:
    print(f"golden_tools.py: needs tokenizers and transformers: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
# name: template, words that identify it, whether one turn can have several calls
FAMILIES = {
    "hermes": ("qwen2_5", "'<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
                          "<|im_end|>\\n'", True),
    "mistral": (None, "[INST] [AVAILABLE_TOOLS]", True),
    "llama3": ("llama3_1", "<|start_header_id|> Cutting Knowledge Date", False),
}
# DeepSeek-V3's template for calls and results, written from its description. It does not list tools itself;
# this is done in the words of vLLM's template for it.
DEEPSEEK = """{{ bos_token }}{% set ns = namespace(told=false, said='') %}{% for m in messages %}{% if m.role == 'system' %}\
{% set ns.said = ns.said + m.content %}{% endif %}{% endfor %}{{ ns.said }}{% if tools %}\
{{ ('\\n\\n' if ns.said else '') + '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou \
are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}{% for t in tools %}{{ '\\n' }}\
{{ t | tojson }}{% endfor %}{{ '\\n</tools>\\n\\nFor function call returns, you should first print <｜tool▁calls▁begin｜>\\n\
For each function call, you should return object like:\\n<｜tool▁call▁begin｜>function<｜tool▁sep｜><function_name>\\n\
```json\\n<function_arguments_in_json_format>\\n```<｜tool▁call▁end｜>\\nAt the end of function call returns, you should \
print <｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{% endif %}{% for m in messages %}{% if m.role == 'user' %}\
{{ '<｜User｜>' + m.content }}{% set ns.told = false %}{% elif m.role == 'assistant' %}\
{{ ('' if ns.told else '<｜Assistant｜>') + m.content }}{% set ns.told = false %}\
{% for c in m.tool_calls or [] %}{{ ('<｜tool▁calls▁begin｜>' if loop.first else '\\n') + '<｜tool▁call▁begin｜>' + c.type + \
'<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' }}{{ c.function.arguments | tojson }}{{ '\\n```<｜tool▁call▁end｜>' }}\
{% if loop.last %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}{% endfor %}{{ '<｜end▁of▁sentence｜>' }}{% elif m.role == 'tool' %}\
{{ ('\\n' if ns.told else '<｜tool▁outputs▁begin｜>') + '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}\
{% if loop.last or loop.nextitem.role != 'tool' %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}{% set ns.told = true %}\
{% endif %}{% endfor %}{% if add_generation_prompt and not ns.told %}{{ '<｜Assistant｜>' }}{% endif %}"""
WRITTEN = {"deepseek": (DEEPSEEK, "<｜User｜> <｜Assistant｜>", True)}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of \"a place\", in °C",
           "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer",
                          "enum": [1, 2]}}, "required": ["place"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def call(number, name, arguments):
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "What is it like in Zürich?"}
SYSTEM = {"role": "system", "content": "Be short."}
ASKED = {"role": "assistant", "content": "", "tool_calls": [call(1, "weather", '{"place": "Zürich", "days": 1}')]}
TOLD = {"role": "tool", "tool_call_id": "call00001", "content": '{"degrees": -3.5, "sky": "clear"}'}
TWO = {"role": "assistant", "content": "", "tool_calls": [call(1, "weather", '{"place": "a"}'), call(2, "clock", "{}")]}
LATER = {"role": "tool", "tool_call_id": "call00002", "content": "noon"}
SAID = {"role": "assistant", "content": "Cold and clear."}
AGAIN = {"role": "user", "content": "And tomorrow?"}
CHATS = [([USER], [WEATHER]), ([SYSTEM, USER], [WEATHER, CLOCK]), ([USER, ASKED, TOLD], [WEATHER]),
         ([SYSTEM, USER, ASKED, TOLD, SAID, AGAIN], [WEATHER, CLOCK]), ([USER, TWO, TOLD, LATER], [WEATHER, CLOCK])]
# harmony writes schemas as types of TypeScript
ARGS = {
    "text": {"type": "string"}, "maybe": {"type": "string", "nullable": True, "default": None},
    "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C", "description": "The unit\nof degrees"},
    "count": {"type": "integer", "minimum": 1, "default": 3}, "share": {"type": "number", "default": 0.1}, "wide": {"type": "array", "default": [
        1e16, 1.5e-07, -0.0, 123456.789, 1e15, 0.0001, 5e-324, 1.7976931348623157e308, 100.0, 2**53, 9.5e-5, 1e22]},
    "dry": {"type": "boolean", "default": False}, "words": {"type": "array", "items": {"type": "string"}},
    "sizes": {"type": "array", "items": {"type": "integer"}, "nullable": True, "default": [1, 2]},
    "flags": {"type": "array", "items": {"type": "boolean"}}, "ratios": {"type": "array", "items": {"type": "number"}},
    "list": {"type": "array"}, "nulls": {"type": "array", "nullable": True},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "short": {"type": "array", "items": {"type": "object", "properties": {"é": {"type": "string"}}}},
    "long": {"type": "array", "items": {"type": "object", "properties": {"first": {"type": "string"}, "second": {
             "type": "number"}}}},
    "both": {"type": "array", "items": {"type": ["object", "object"]}},
    "either": {"type": ["string", "null"], "default": "a \"b\" <c>"}, "one": {"type": ["integer"]},
    "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "ref": {"$ref": "#/$defs/x"}, "enum": {"enum": [1, 2]},
    "or": {"oneOf": [{"type": "string", "description": "a name", "default": "é"}, {"type": "integer", "default": 1},
           {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}], "default": "x"},
    "open": {"type": "object"}, "empty": {"type": "object", "properties": {}},
    "nested": {"type": "object", "description": "Has parts", "properties": {
        "a": {"type": "string", "description": "not shown"}, "b": {"type": "object", "properties": {
            "c": {"type": "array", "items": {"type": "string", "enum": ["x"]}}, "d": {"type": "string", "enum": ["p", "q"]}},
            "required": ["d"]}}, "required": ["a"], "default": {"a": "b\u001f"}},
}


def tool(name, properties, required):
    return {"type": "function", "function": {"name": name, "description": f"Does {name}", "parameters": {
            "type": "object", "properties": properties, "required": required}}}


MANY = [tool(f"f_{k}", {k: v}, [k] if i % 2 else []) for i, (k, v) in enumerate(ARGS.items())]
MANY += [tool("all", ARGS, ["text", "unit", "or"]), tool("none", {}, []),
         {"type": "function", "function": {"name": "bare", "description": "Has no schema"}}]
THOUGHT = dict(ASKED, reasoning_content="I need the \"weather\".")
WORDS = dict(ASKED, content="I ask.")
CODES = dict(TOLD, content="\u001b[1mé\n\t</a>\u007f\\\u001f")
TURN = [USER, THOUGHT, TOLD, dict(THOUGHT, reasoning_content="Once more."), TOLD]
HARMONY = [([USER], MANY), ([SYSTEM, USER], MANY), ([USER, THOUGHT, TOLD], [WEATHER]),
           ([USER, WORDS, CODES], [WEATHER]), (TURN, [WEATHER]), (TURN + [SAID, AGAIN], [WEATHER]),
           (TURN + [SAID, AGAIN, THOUGHT, TOLD], [WEATHER]), ([USER, dict(SAID, reasoning_content="Hm."), AGAIN], [WEATHER]),
           ([SYSTEM, USER, ASKED, TOLD], None), ([dict(SYSTEM, role="developer"), USER], [WEATHER])]


def harmony(tok, path):
    with open(path, encoding="utf-8") as f:
        template = f.read()
    cases = prompts(tok, "harmony", template, "<|channel|>", False, HARMONY)
    for c in cases:
        c["text"] = re.sub(r"(?<=Current date: )[-0-9]{10}", "DATE", c["text"])
    return cases


def prompts(tok, name, template, words, several, chats=tuple(CHATS)):
    cases = []
    for messages, tools in chats:
        if not several and any(len(m.get("tool_calls", [])) > 1 for m in messages):
            continue
        given = json.loads(json.dumps(messages))  # nothing is shared
        shown = copy.deepcopy(tools)
        if name == "mistral":  # its template does not escape descriptions
            for t in shown:
                t["function"].pop("description", None)
        for m in given if name == "harmony" else []:
            if "reasoning_content" in m:
                m["thinking"] = m.pop("reasoning_content")
        for c in (c for m in given for c in m.get("tool_calls", [])):
            c["function"]["arguments"] = json.loads(c["function"]["arguments"])
        text = tok.apply_chat_template(given, tools=shown, chat_template=template, tokenize=False,
                                       add_generation_prompt=True)
        cases.append({"form": name, "words": words, "messages": messages, "tools": shown,
                      "text": text.removeprefix("<s>")})
    return cases


def main():
    written = sys.argv[1:] == ["--written"]
    only = len(sys.argv) == 3 and sys.argv[1] == "--harmony"
    if len(sys.argv) != 4 and not written and not only:
        print(__doc__, file=sys.stderr)
        return 2
    path = os.path.join(HERE, "tokenizer", "chat.json")
    tok = transformers.PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token="</s>")
    out = os.path.join(HERE, "golden-tools.json")
    cases = []
    if written or only:
        with open(out, encoding="utf-8") as f:
            cases = [c for c in json.load(f) if c["form"] not in (WRITTEN if written else ["harmony"])]
    for name, (source, words, several) in ([] if written or only else FAMILIES.items()):
        with open(os.path.join(sys.argv[1], source + ".jinja") if source else sys.argv[2], encoding="utf-8") as f:
            cases += prompts(tok, name, f.read(), words, several)
    for name, (template, words, several) in ([] if only else WRITTEN.items()):
        cases += prompts(tok, name, template, words, several)
    if not written:
        cases += harmony(tok, sys.argv[-1])
    with open(out, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{len(cases)} prompts, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
