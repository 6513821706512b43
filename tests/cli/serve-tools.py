#!/usr/bin/env python3
"""serve-tools.py URL: tests tool calls with OpenAI's own client and a chat model.

Exit status 77: the client is missing."""
import json
import sys

try:
    import openai
except ImportError:
    sys.exit(77)

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=(sys.argv + ["none"])[2], max_retries=0, timeout=300)
model = client.models.list().data[0].id
weather = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city in the coming days.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
                                                    "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["city", "days"], "additionalProperties": False}}}
clock = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"], "additionalProperties": False}}}
tools = [weather, clock]
talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Paris?"}]


def check(call):
    args = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(args) == {"city", "days"} and isinstance(args["city"], str) and 1 <= args["days"] <= 9, args
    else:
        assert call.function.name == "get_time" and args in ({"zone": "utc"}, {"zone": "local"}), args
    return args


# tool_choice "required": arguments fit the schema at any temperature
for seed in range(5):
    one = client.chat.completions.create(model=model, messages=talk, tools=tools, tool_choice="required", seed=seed, max_tokens=200,
                                         temperature=1.5)
    choice = one.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None and len(choice.message.tool_calls) == 1
    check(choice.message.tool_calls[0])
# a tool chosen by name
one = client.chat.completions.create(model=model, messages=talk, tools=tools, max_tokens=200,
                                     tool_choice={"type": "function", "function": {"name": "get_time"}})
assert one.choices[0].message.tool_calls[0].function.name == "get_time"
# streamed: the same call in pieces
ask = dict(model=model, messages=talk, tools=tools, tool_choice="required", temperature=0, max_tokens=200)
whole = client.chat.completions.create(**ask).choices[0].message.tool_calls[0]
name, args, finish = "", "", None
for part in client.chat.completions.create(**ask, stream=True):
    for piece in part.choices[0].delta.tool_calls or []:
        name += piece.function.name or ""
        args += piece.function.arguments or ""
    finish = part.choices[0].finish_reason or finish
assert (name, args, finish) == (whole.function.name, whole.function.arguments, "tool_calls")
# a loop: the call, its result, then the model answers
talk.append({"role": "assistant", "content": None, "tool_calls": [whole.model_dump()]})
talk.append({"role": "tool", "tool_call_id": whole.id, "content": json.dumps({"weather": "sunny", "celsius": 21})})
last = client.chat.completions.create(model=model, messages=talk, tools=tools, tool_choice="none", temperature=0, max_tokens=40)
assert last.choices[0].message.content and not last.choices[0].message.tool_calls
print("said:", last.choices[0].message.content.replace("\n", " "), file=sys.stderr)
# tool_choice "auto": a call is possible but not required
auto = client.chat.completions.create(model=model, messages=talk[:2], tools=tools, temperature=0, max_tokens=60)
assert auto.choices[0].finish_reason in ("stop", "length", "tool_calls")
for wrong in ([{"type": "web_search"}], [{"type": "function", "function": {"name": "a b"}}]):
    try:
        client.chat.completions.create(model=model, messages=talk[:2], tools=wrong)
        raise AssertionError("taken")
    except openai.BadRequestError as e:
        assert e.param == "tools"
# the Responses API: whole, streamed, with a schema, a loop of calls and results
one = client.responses.create(model=model, input="Say hello.", instructions="Be brief.", max_output_tokens=20, temperature=0)
assert one.object == "response" and one.output_text and one.usage.total_tokens == one.usage.input_tokens + one.usage.output_tokens
assert (one.status, one.incomplete_details and one.incomplete_details.reason) in (("completed", None), ("incomplete", "max_output_tokens"))
events = list(client.responses.create(model=model, input="Say hello.", instructions="Be brief.", max_output_tokens=20, temperature=0, stream=True))
assert [e.sequence_number for e in events] == list(range(len(events)))
assert events[0].type == "response.created" and events[-1].response.output_text == one.output_text
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == one.output_text
made = client.responses.create(model=model, input="A number.", max_output_tokens=30, text={"format": {
    "type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
                                                   "additionalProperties": False}}})
assert json.loads(made.output_text)["n"] in (1, 2)
flat = [{"type": "function", **t["function"]} for t in tools]
ask = dict(model=model, tools=flat, tool_choice="required", temperature=0, max_output_tokens=200)
items = [{"role": "user", "content": [{"type": "input_text", "text": "What is the weather in Paris?"}]}]
called = client.responses.create(input=items, **ask)
[call] = called.output
assert call.type == "function_call" and set(json.loads(call.arguments)) <= {"city", "days", "zone"}
with client.responses.stream(input=items, **ask) as s:
    pieces = "".join(e.delta for e in s if e.type == "response.function_call_arguments.delta")
    assert s.get_final_response().output[0].arguments == pieces == call.arguments
items += [call.model_dump(include={"type", "call_id", "name", "arguments"}),
          {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
ask["tool_choice"] = "none"
assert client.responses.create(input=items, **ask).output[0].type == "message"
for wrong in (dict(previous_response_id="resp_1"), dict(tools=[{"type": "web_search"}]), dict(input=[{"type": "image"}])):
    try:
        client.responses.create(**{"model": model, "input": "x", **wrong})
        raise AssertionError("taken")
    except openai.BadRequestError as e:
        assert e.param == list(wrong)[0], e.param
print("well")
# SPDX-License-Identifier: Apache-2.0
