#!/usr/bin/env python3
"""serve-openai.py URL KEY POOR-KEY [files]: tests every endpoint of the server with OpenAI's own client.

POOR-KEY has a quota that its first request uses up. files: tests files and batches, too. Exit status 77: the
client is missing.
"""
import json
import sys
import time

try:
    import openai
except ImportError:
    sys.exit(77)

url, key, poor = sys.argv[1:4]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)


def fails(kind, call, **what):
    try:
        call()
    except kind as e:
        for name, value in what.items():
            assert getattr(e, name) == value, (name, getattr(e, name), value)
        return e
    raise AssertionError(f"no {kind.__name__}")


models = client.models.list()
model = models.data[0].id
assert [m.id for m in models] == [model] and models.data[0].object == "model"
more = {"ignore_eos": True}

# completions: whole, several choices, log-probabilities, streamed
one = client.completions.create(model=model, prompt="Hello", max_tokens=12, temperature=0, logprobs=2, extra_body=more)
assert one.object == "text_completion" and one.choices[0].finish_reason == "length"
assert one.usage.completion_tokens == 12 and len(one.choices[0].logprobs.token_logprobs) == 12
again = client.completions.create(model=model, prompt=["Hello", "Bye"], max_tokens=12, temperature=0, n=2, extra_body=more)
assert [c.index for c in again.choices] == [0, 1, 2, 3] and again.choices[0].text == one.choices[0].text
parts = list(
    client.completions.create(
        model=model, prompt="Hello", max_tokens=12, temperature=0, stream=True,
        stream_options={"include_usage": True}, extra_body=more
    )
)
assert "".join(c.text for p in parts for c in p.choices) == one.choices[0].text
assert parts[-1].usage.completion_tokens == 12 and parts[-1].choices == []

# chat: whole, streamed, with a schema
talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
said = client.chat.completions.create(
    model=model, messages=talk, max_completion_tokens=10, seed=4, logprobs=True, top_logprobs=3, extra_body=more
)
assert said.choices[0].message.role == "assistant" and len(said.choices[0].logprobs.content) == 10
assert len(said.choices[0].logprobs.content[0].top_logprobs) == 3
parts = list(
    client.chat.completions.create(
        model=model, messages=talk, max_completion_tokens=10, seed=4, stream=True,
        stream_options={"include_usage": True}, extra_body=more
    )
)
text = "".join(c.delta.content or "" for p in parts for c in p.choices)
assert text == said.choices[0].message.content and parts[0].choices[0].delta.role == "assistant"
assert parts[-1].usage.total_tokens == said.usage.total_tokens
schema = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 12}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
shaped = client.chat.completions.create(
    model=model, messages=talk, max_tokens=100,
    response_format={"type": "json_schema", "json_schema": {"name": "shape", "schema": schema, "strict": True}}
)
shape = json.loads(shaped.choices[0].message.content)
assert set(shape) == {"n", "ok"} and 3 <= shape["n"] <= 12, shape

# embeddings: the client requests base64 unless told otherwise
vector = client.embeddings.create(model=model, input=["one", "two"])
plain = client.embeddings.create(model=model, input="one", encoding_format="float")
assert len(vector.data) == 2 and vector.data[1].index == 1
assert all(abs(a - b) < 1e-6 for a, b in zip(vector.data[0].embedding, plain.data[0].embedding))

# files, and a batch of completions, whose answers equal those of single requests
if sys.argv[4:] == ["files"]:
    asks = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
             "body": {"model": model, "prompt": f"Hello {i}", "max_tokens": 8, "temperature": 0}} for i in range(5)]
    text = "".join(json.dumps(a) + "\n" for a in asks).encode()
    file = client.files.create(file=("in.jsonl", text), purpose="batch")
    assert client.files.retrieve(file.id).bytes == len(text) and client.files.content(file.id).read() == text
    assert [f.id for f in client.files.list()] == [file.id]
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    assert [b.id for b in client.batches.list()] == [batch.id]
    while batch.status not in ("completed", "failed", "cancelled"):
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed" and batch.request_counts.completed == 5, batch
    out = {o["custom_id"]: o["response"] for o in map(json.loads, client.files.content(batch.output_file_id).text.splitlines())}
    assert set(out) == {a["custom_id"] for a in asks} and all(r["status_code"] == 200 for r in out.values())
    alone = client.completions.create(**asks[3]["body"])
    assert out["r3"]["body"]["choices"][0]["text"] == alone.choices[0].text
    again = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    assert client.batches.cancel(again.id).status in ("cancelling", "cancelled", "completed")
    assert client.files.delete(file.id).deleted
    fails(openai.NotFoundError, lambda: client.files.retrieve(file.id), code="not_found")

# a stream abandoned halfway, then errors by class
stream = client.completions.create(model=model, prompt="x", max_tokens=300, stream=True, extra_body=more)
next(iter(stream))
stream.close()
call = client.completions.create
fails(openai.NotFoundError, lambda: call(model="other", prompt="x"), code="model_not_found", param="model")
fails(openai.BadRequestError, lambda: call(model=model, prompt="x", max_tokens=10**6), code="context_length_exceeded")
fails(openai.BadRequestError, lambda: call(model=model, prompt="x", temperature=-1), param="temperature")
fails(openai.NotFoundError, lambda: client.images.generate(prompt="x"), code="not_found")
stranger = openai.OpenAI(base_url=url + "/v1", api_key="nobody", max_retries=0)
fails(openai.AuthenticationError, stranger.models.list, code="invalid_api_key")
tenant = openai.OpenAI(base_url=url + "/v1", api_key=poor, max_retries=0)
tenant.completions.create(model=model, prompt="x", max_tokens=30, extra_body=more)
limit = fails(
    openai.RateLimitError, lambda: tenant.completions.create(model=model, prompt="x", max_tokens=30), code="rate_limit_exceeded"
)
assert int(limit.response.headers["Retry-After"]) > 0
# SPDX-License-Identifier: Apache-2.0
