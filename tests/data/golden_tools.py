#!/usr/bin/python3
"""Golden prompts with tools, from transformers.

    golden_tools.py TEMPLATES MISTRAL     writes golden-tools.json beside this script
        TEMPLATES  the folder chat_templates of the package trl: the published templates of families
        MISTRAL    the template of Mistral-7B-Instruct-v0.3, as a file

A template is run by transformers' Jinja. Arguments of calls are text in requests; templates are given them as objects,
as the servers do that know these templates.
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
# name: template, words by which it is known, whether several calls stand in one turn
FAMILIES = {
    "hermes": ("qwen2_5", "'<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
                          "<|im_end|>\\n'", True),
    "mistral": (None, "[INST] [AVAILABLE_TOOLS]", True),
    "llama3": ("llama3_1", "<|start_header_id|> Cutting Knowledge Date", False),
}
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


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    path = os.path.join(HERE, "tokenizer", "chat.json")
    tok = transformers.PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token="</s>")
    cases = []
    for name, (source, words, several) in FAMILIES.items():
        with open(os.path.join(sys.argv[1], source + ".jinja") if source else sys.argv[2], encoding="utf-8") as f:
            template = f.read()
        for messages, tools in CHATS:
            if not several and any(len(m.get("tool_calls", [])) > 1 for m in messages):
                continue
            given = copy.deepcopy(messages)
            shown = copy.deepcopy(tools)
            if name == "mistral":  # its template does not escape texts
                for t in shown:
                    t["function"].pop("description", None)
            for c in (c for m in given for c in m.get("tool_calls", [])):
                c["function"]["arguments"] = json.loads(c["function"]["arguments"])
            text = tok.apply_chat_template(given, tools=shown, chat_template=template, tokenize=False,
                                           add_generation_prompt=True)
            cases.append({"form": name, "words": words, "messages": messages, "tools": shown,
                          "text": text.removeprefix("<s>")})
    with open(os.path.join(HERE, "golden-tools.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{len(cases)} prompts, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
