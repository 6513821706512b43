#!/usr/bin/env python3
"""serve-anthropic.py URL KEY: tests the Messages API with Anthropic's own client and a chat model.

Exit status 77: the client is missing."""
import json
import sys

try:
    import anthropic
except ImportError:
    sys.exit(77)

client = anthropic.Anthropic(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0, timeout=300)
model = "tiny"
cool = {"extra_body": {"temperature": 0}}
talk = [{"role": "user", "content": "Say hello."}]

one = client.messages.create(model=model, max_tokens=20, messages=talk, system="Be brief.", **cool)
assert one.type == "message" and one.role == "assistant" and one.id.startswith("msg_")
assert one.content[0].type == "text" and one.content[0].text
assert one.stop_reason in ("end_turn", "max_tokens") and one.usage.output_tokens <= 20
count = client.messages.count_tokens(model=model, messages=talk, system="Be brief.")
assert count.input_tokens == one.usage.input_tokens + one.usage.cache_read_input_tokens
# content blocks, earlier turns, ignored thinking blocks, a stop sequence; max_tokens above the context length
two = client.messages.create(model=model, max_tokens=10**6, stop_sequences=["5"], **cool, system=[{"type": "text", "text": "Be brief."}],
                             messages=[{"role": "user", "content": [{"type": "text", "text": "Count: 1"}, {"type": "text", "text": ", 2"}]},
                                       {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"},
                                                                         {"type": "text", "text": "3, 4"}]},
                                       {"role": "user", "content": "Go on: 1, 2, 3, 4,"}])
assert two.stop_reason in ("stop_sequence", "end_turn")
assert two.stop_reason == "end_turn" or two.stop_sequence == "5"
# streamed: the same text, events in the right order
with client.messages.stream(model=model, max_tokens=20, messages=talk, system="Be brief.", **cool) as s:
    kinds = [e.type for e in s if e.type not in ("text", "input_json")]
    last = s.get_final_message()
assert last.content[0].text == one.content[0].text and last.usage.output_tokens == one.usage.output_tokens
assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]

tools = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}]
ask = dict(model=model, max_tokens=200, tools=tools, **cool)
talk = [{"role": "user", "content": "What is the weather in Paris?"}]
call = client.messages.create(messages=talk, tool_choice={"type": "any"}, **ask)
assert call.stop_reason == "tool_use" and [b.type for b in call.content] == ["tool_use"]
assert set(call.content[0].input) == {"city", "days"} and 1 <= call.content[0].input["days"] <= 9
with client.messages.stream(messages=talk, tool_choice={"type": "tool", "name": "get_weather"}, **ask) as s:
    last = s.get_final_message()
assert last.content[0].input == call.content[0].input and last.stop_reason == "tool_use"
talk += [{"role": "assistant", "content": [call.content[0].model_dump(include={"type", "id", "name", "input"})]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.content[0].id, "content": [{"type": "text", "text": "sunny"}]},
                                      {"type": "text", "text": "So?"}]}]
done = client.messages.create(messages=talk, **ask)
assert done.content and done.stop_reason in ("end_turn", "max_tokens", "tool_use")
print("said:", json.dumps(done.content[0].model_dump()), file=sys.stderr)

picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
for kind, wrong in ((anthropic.BadRequestError, dict(messages=[{"role": "user", "content": [picture]}])),
                    (anthropic.BadRequestError, dict(messages=[])),
                    (anthropic.NotFoundError, dict(messages=talk[:1], model="none"))):
    try:
        client.messages.create(**{"model": model, "max_tokens": 5, **wrong})
        raise AssertionError("taken")
    except kind as e:
        assert e.body["type"] == "error" and e.body["error"]["message"], e.body
        assert "picture" not in str(wrong) or "image" in e.body["error"]["message"]
print("well")
# SPDX-License-Identifier: Apache-2.0
