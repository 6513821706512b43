/* Translates bodies of OpenAI's Responses API to chat bodies. */
#include "serve/api/responses.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <string.h>

static bool is_null(const json_t *v)
{
	return !v || json_is_null(v);
}

static int bad_item(struct dt_api_error *e, size_t at, const char *what)
{
	return dt_body_bad(e, "input", "input[%zu] %s", at, what);
}

static bool is_word(const json_t *v, const char *word)
{
	return json_is_string(v) && !strcmp(json_string_value(v), word);
}

/* Converts the parts of a message to those of a chat; only texts are supported. */
static json_t *content_of(const json_t *content, size_t at, struct dt_api_error *e)
{
	json_t *parts, *v;
	size_t i;

	if (json_is_string(content))
		return json_incref((json_t *)content);
	if (!json_is_array(content)) {
		bad_item(e, at, "has no content");
		return NULL;
	}
	parts = json_array();
	json_array_foreach((json_t *)content, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));
		const json_t *text = json_object_get(v, "text");
		bool known = type && (!strcmp(type, "input_text") || !strcmp(type, "output_text") ||
				      !strcmp(type, "text"));

		if (!known || !json_is_string(text)) {
			dt_body_bad(e, "input", "input[%zu] has a part of unsupported type '%.40s'", at,
				    type ? type : "");
			json_decref(parts);
			return NULL;
		}
		json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
	}
	return parts;
}

/* The text of a reasoning item, or of its summary; a new reference, NULL: there is none. */
static json_t *reasoning_of(const json_t *v)
{
	const json_t *parts = json_object_get(v, "content"), *part;
	json_t *all = json_string("");
	size_t i;

	if (json_array_size(parts) == 0)
		parts = json_object_get(v, "summary");
	json_array_foreach((json_t *)parts, i, part)
	{
		const char *text = json_string_value(json_object_get(part, "text"));
		json_t *more = json_sprintf("%s%s", json_string_value(all), text ? text : "");

		json_decref(all);
		all = more;
	}
	return all;
}

/*
 * Adds a tool call to the preceding assistant message, or to a new one. thought: the reasoning before it,
 * NULL: none.
 */
static int add_call(json_t *out, const json_t *v, json_t *thought, size_t at, struct dt_api_error *e)
{
	json_t *last = json_array_get(out, json_array_size(out) - 1), *call, *calls;
	const char *role = json_string_value(json_object_get(last, "role"));

	call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(v, "call_id"), "type", "function",
			 "function", "name", json_object_get(v, "name"), "arguments",
			 json_object_get(v, "arguments"));
	if (!call)
		return bad_item(e, at, "is a function_call without call_id, name or arguments");
	if (!role || strcmp(role, "assistant")) {
		last = json_pack("{s:s, s:n, s:[]}", "role", "assistant", "content", "tool_calls");
		json_array_append_new(out, last);
	}
	if (json_string_length(thought) > 0 && !json_object_get(last, "reasoning_content"))
		json_object_set(last, "reasoning_content", thought);
	calls = json_object_get(last, "tool_calls");
	if (!calls) {
		calls = json_array();
		json_object_set_new(last, "tool_calls", calls);
	}
	json_array_append_new(calls, call);
	return 0;
}

static int add_item(json_t *out, const json_t *v, json_t *thought, size_t at, struct dt_api_error *e)
{
	const char *type = json_string_value(json_object_get(v, "type"));
	const json_t *role = json_object_get(v, "role");
	json_t *content, *m;

	if (type && !strcmp(type, "reasoning"))
		return 0; /* it belongs to a call behind it, or the model reasons anew */
	if (type && !strcmp(type, "function_call"))
		return add_call(out, v, thought, at, e);
	if (type && !strcmp(type, "function_call_output")) {
		if (is_null(json_object_get(v, "output")) || !json_is_string(json_object_get(v, "call_id")))
			return bad_item(e, at, "is a function_call_output without call_id or text");
		content = content_of(json_object_get(v, "output"), at, e);
		if (!content)
			return -EINVAL;
		return json_array_append_new(out,
					     json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
						       json_object_get(v, "call_id"), "content", content));
	}
	if (type && strcmp(type, "message"))
		return dt_body_bad(e, "input", "input[%zu] has the unsupported type '%.40s'", at, type);
	if (!json_is_string(role))
		return bad_item(e, at, "has no role");
	if (strcmp(json_string_value(role), "user") && strcmp(json_string_value(role), "assistant") &&
	    strcmp(json_string_value(role), "system") && strcmp(json_string_value(role), "developer"))
		return bad_item(e, at, "has a role that is not user, assistant, system or developer");
	content = content_of(json_object_get(v, "content"), at, e);
	if (!content)
		return -EINVAL;
	m = json_pack("{s:O, s:o}", "role", role, "content", content);
	if (m && thought && is_word(role, "assistant"))
		json_object_set(m, "reasoning_content", thought);
	return json_array_append_new(out, m);
}

static int read_input(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *input = json_object_get(body, "input"), *says = json_object_get(body, "instructions");
	json_t *out = json_array(), *v, *thought = NULL;
	size_t i;
	int rc = 0;

	json_object_set_new(chat, "messages", out);
	if (json_is_string(says))
		json_array_append_new(out, json_pack("{s:s, s:O}", "role", "system", "content", says));
	if (json_is_string(input))
		json_array_append_new(out, json_pack("{s:s, s:O}", "role", "user", "content", input));
	else if (!json_is_array(input) || json_array_size(input) == 0)
		return dt_body_bad(e, "input", "'input' is neither a string nor an array of items");
	json_array_foreach(json_is_array(input) ? (json_t *)input : NULL, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));

		rc = add_item(out, v, thought, i, e);
		json_decref(thought);
		thought = type && !strcmp(type, "reasoning") ? reasoning_of(v) : NULL;
		if (rc < 0)
			break;
	}
	json_decref(thought);
	return rc;
}

/* Converts tools: their members are at top level here, and in an object "function" in a chat. */
static int read_tools(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *list = json_object_get(body, "tools"), *choice = json_object_get(body, "tool_choice");
	json_t *out, *v, *f;
	size_t i;

	if (json_array_size(list) > 0) {
		out = json_array();
		json_object_set_new(chat, "tools", out);
		json_array_foreach((json_t *)list, i, v)
		{
			const char *type = json_string_value(json_object_get(v, "type"));

			if (!type || strcmp(type, "function"))
				return dt_body_bad(e, "tools",
						   "tools[%zu] has the type '%.40s', not function", i,
						   type ? type : "");
			f = json_copy(v);
			json_object_del(f, "type");
			json_array_append_new(out,
					      json_pack("{s:s, s:o}", "type", "function", "function", f));
		}
	}
	if (json_is_object(choice))
		json_object_set_new(chat, "tool_choice",
				    json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name",
					      json_object_get(choice, "name")));
	else if (json_is_string(choice))
		json_object_set(chat, "tool_choice", (json_t *)choice);
	return 0;
}

static int read_format(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *f = json_object_get(json_object_get(body, "text"), "format");
	const char *type = json_string_value(json_object_get(f, "type"));

	if (!f || json_is_null(f))
		return 0;
	if (type && !strcmp(type, "json_schema")) {
		json_t *schema;

		if (is_null(json_object_get(f, "schema")))
			return dt_body_bad(e, "text.format", "'text.format' has no schema");
		schema = json_copy((json_t *)f);

		json_object_del(schema, "type");
		json_object_set_new(chat, "response_format",
				    json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", schema));
	} else {
		json_object_set(chat, "response_format", (json_t *)f);
	}
	return 0;
}

/* Refuses by name options that would have no effect. */
static int check_wishes(const json_t *body, struct dt_api_error *e)
{
	const json_t *reasoning = json_object_get(body, "reasoning"), *text = json_object_get(body, "text"),
		     *include = json_object_get(body, "include"), *cut = json_object_get(body, "truncation"),
		     *summary = json_object_get(reasoning, "summary"),
		     *verbosity = json_object_get(text, "verbosity");
	json_t *v;
	size_t i;

	if (!is_null(summary) && !is_word(summary, "auto"))
		return dt_body_bad(e, "reasoning.summary", "'reasoning.summary' is not supported");
	if (!is_null(verbosity) && !is_word(verbosity, "medium"))
		return dt_body_bad(e, "text.verbosity", "'text.verbosity' is not supported");
	if (!is_null(cut) && !is_word(cut, "disabled"))
		return dt_body_bad(e, "truncation", "'truncation' is not supported");
	if (!is_null(include) && !json_is_array(include))
		return dt_body_bad(e, "include", "'include' is not an array");
	json_array_foreach((json_t *)include, i, v)
	{
		/* reasoning is returned as plain text */
		if (!is_word(v, "reasoning.encrypted_content"))
			return dt_body_bad(e, "include", "'%.60s' in 'include' is not supported",
					   json_is_string(v) ? json_string_value(v) : "?");
	}
	return dt_api_metadata(json_object_get(body, "metadata"), e);
}

/* The request's parameters that the response repeats. */
static json_t *echo_of(const json_t *body)
{
	static const char *const keys[] = {"instructions", "max_output_tokens",	  "metadata", "tools",
					   "tool_choice",  "parallel_tool_calls", "text"};
	json_t *o = json_object();

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (!is_null(json_object_get(body, keys[i])))
			json_object_set(o, keys[i], json_object_get(body, keys[i]));
	return o;
}

/* Keys that a chat body has too. */
static const struct {
	const char *from, *to;
} same[] = {{"model", "model"},
	    {"stream", "stream"},
	    {"temperature", "temperature"},
	    {"top_p", "top_p"},
	    {"max_output_tokens", "max_tokens"},
	    {"parallel_tool_calls", "parallel_tool_calls"}};

/* Keys that are not supported: null, and the number 0, have no effect. */
static bool is_idle(const char *key, const json_t *v, struct dt_api_error *e)
{
	static const char *const idle[] = {"conversation", "prompt", "top_logprobs", "context_management",
					   "moderation"};

	for (size_t i = 0; i < sizeof(idle) / sizeof(*idle); i++)
		if (!strcmp(idle[i], key)) {
			dt_body_bad(e, key, "'%s' is not supported", key);
			return json_is_null(v) || (json_is_integer(v) && json_integer_value(v) == 0);
		}
	dt_body_bad(e, key, "unknown key '%.60s'", key);
	return false;
}

static bool is_known(const char *key)
{
	static const char *const known[] = {"input",
					    "instructions",
					    "tools",
					    "tool_choice",
					    "text",
					    "store",
					    "metadata",
					    "user",
					    "truncation",
					    "include",
					    "reasoning",
					    "service_tier",
					    "safety_identifier",
					    "prompt_cache_key",
					    "prompt_cache_options",
					    "prompt_cache_retention",
					    "max_tool_calls", /* of tools that run at the server: none */
					    "background",
					    "previous_response_id",
					    "stream_options",
					    NULL};

	for (int i = 0; known[i]; i++)
		if (!strcmp(known[i], key))
			return true;
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		if (!strcmp(same[i].from, key))
			return true;
	return false;
}

/* The chat body; NULL with e filled. */
static json_t *to_chat(const json_t *body, struct dt_api_error *e)
{
	json_t *chat = json_object(), *v;
	const char *key;

	json_object_foreach((json_t *)body, key, v)
	{
		if (!is_known(key) && !is_idle(key, v, e))
			goto fail;
	}
	v = json_object_get(body, "previous_response_id");
	if (v && !json_is_null(v)) {
		dt_body_bad(e, "previous_response_id",
			    "this server does not store responses: send the whole input");
		goto fail;
	}
	if (json_is_true(json_object_get(body, "background"))) {
		dt_body_bad(e, "background", "'background' is not supported");
		goto fail;
	}
	if (check_wishes(body, e) < 0 || read_input(body, chat, e) < 0 || read_tools(body, chat, e) < 0 ||
	    read_format(body, chat, e) < 0)
		goto fail;
	v = json_object_get(json_object_get(body, "reasoning"), "effort");
	if (!is_null(v))
		json_object_set(chat, "reasoning_effort", v);
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		if (json_object_get(body, same[i].from))
			json_object_set(chat, same[i].to, json_object_get(body, same[i].from));
	return chat;
fail:
	json_decref(chat);
	return NULL;
}

int dt_responses_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e)
{
	json_t *chat;
	int rc;

	if (!json_is_object(body))
		return dt_body_bad(e, "", "the request is not a JSON object");
	chat = to_chat(body, e);
	if (!chat)
		return -EINVAL;
	rc = dt_chat_parse(chat, m, ret, e);
	json_decref(chat);
	if (rc < 0) {
		dt_api_rename_key(e, "messages", "input");
		dt_api_rename_key(e, "max_tokens", "max_output_tokens");
		dt_api_rename_key(e, "reasoning_effort", "reasoning.effort");
		dt_api_rename_key(e, "response_format", "text.format");
		return rc;
	}
	ret->responses = true;
	ret->asked = echo_of(body);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
