#!/usr/bin/python3
"""Golden prompts with tools, from transformers.

    golden_tools.py TEMPLATES MISTRAL     writes golden-tools.json beside this script
    golden_tools.py --written             rewrites only the prompts whose template is in this script
        TEMPLATES  the folder chat_templates of the package trl: the published templates of model families
        MISTRAL    the template of Mistral-7B-Instruct-v0.3, as a file

Templates are run by transformers' Jinja. In requests the arguments of calls are text; templates receive them
as objects, as from other servers that support these templates.
"""

import copy
import json
import os
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


def prompts(tok, name, template, words, several):
    cases = []
    for messages, tools in CHATS:
        if not several and any(len(m.get("tool_calls", [])) > 1 for m in messages):
            continue
        given = copy.deepcopy(messages)
        shown = copy.deepcopy(tools)
        if name == "mistral":  # its template does not escape descriptions
            for t in shown:
                t["function"].pop("description", None)
        for c in (c for m in given for c in m.get("tool_calls", [])):
            c["function"]["arguments"] = json.loads(c["function"]["arguments"])
        text = tok.apply_chat_template(given, tools=shown, chat_template=template, tokenize=False,
                                       add_generation_prompt=True)
        cases.append({"form": name, "words": words, "messages": messages, "tools": shown,
                      "text": text.removeprefix("<s>")})
    return cases


def main():
    written = sys.argv[1:] == ["--written"]
    if len(sys.argv) != 3 and not written:
        print(__doc__, file=sys.stderr)
        return 2
    path = os.path.join(HERE, "tokenizer", "chat.json")
    tok = transformers.PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token="</s>")
    out = os.path.join(HERE, "golden-tools.json")
    cases = []
    if written:
        with open(out, encoding="utf-8") as f:
            cases = [c for c in json.load(f) if c["form"] not in WRITTEN]
    for name, (source, words, several) in ([] if written else FAMILIES.items()):
        with open(os.path.join(sys.argv[1], source + ".jinja") if source else sys.argv[2], encoding="utf-8") as f:
            cases += prompts(tok, name, f.read(), words, several)
    for name, (template, words, several) in WRITTEN.items():
        cases += prompts(tok, name, template, words, several)
    with open(out, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{len(cases)} prompts, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
