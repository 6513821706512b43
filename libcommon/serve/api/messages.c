/* Translates bodies of Anthropic's Messages API to chat bodies. */
#include "serve/api/messages.h"

#include "serve/api/priv.h"
#include "serve/api/tokenize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	struct dt_api_error *e;
	json_t *out;   /* messages of the chat body */
	size_t at;     /* index of the current message */
	json_t *calls; /* tool calls of the current assistant message */
	char *text;    /* text of the current message */
	size_t n;
	bool any;	 /* the current message has text */
	json_t *thought; /* of the current message, NULL: none */
};

static int add_text(struct reader *r, const json_t *v)
{
	size_t n = json_string_length(v);
	char *p;

	if (!json_is_string(v))
		return dt_body_bad(r->e, "messages", "messages[%zu] has a text block without text", r->at);
	p = realloc(r->text, r->n + n + 1);
	if (!p)
		return dt_body_no_memory(r->e);
	memcpy(p + r->n, json_string_value(v), n);
	r->text = p;
	r->n += n;
	r->any = true;
	return 0;
}

/*
 * Concatenates the texts of content blocks; a plain string is returned as it is. A new reference; NULL with e
 * filled.
 */
static json_t *join(struct reader *r, const json_t *content, const char *where)
{
	size_t i, n = 0;
	json_t *v, *ret = NULL;
	char *s = NULL, *p;

	if (!content || json_is_null(content))
		return json_string("");
	if (json_is_string(content))
		return json_incref((json_t *)content);
	json_array_foreach((json_t *)content, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));
		const json_t *text = json_object_get(v, "text");
		size_t len = json_string_length(text);

		if (!type || strcmp(type, "text") || !json_is_string(text)) {
			dt_body_bad(r->e, "messages", "%s has a block of unsupported type '%.40s'", where,
				    type ? type : "");
			goto out;
		}
		p = realloc(s, n + len + 1);
		if (!p) {
			dt_body_no_memory(r->e);
			goto out;
		}
		s = p;
		memcpy(s + n, json_string_value(text), len);
		n += len;
	}
	if (json_is_array(content))
		ret = json_stringn_nocheck(s ? s : "", n);
	else
		dt_body_bad(r->e, "messages", "%s is neither a string nor an array of blocks", where);
out:
	free(s);
	return ret;
}

/* A tool result becomes a message of its own, before the rest of the user's message. */
static int add_result(struct reader *r, const json_t *v)
{
	const char *id = json_string_value(json_object_get(v, "tool_use_id"));
	json_t *text;

	if (!id)
		return dt_body_bad(r->e, "messages", "messages[%zu] has a tool_result without tool_use_id",
				   r->at);
	text = join(r, json_object_get(v, "content"), "a tool_result");
	if (!text)
		return -EINVAL;
	json_array_append_new(
		r->out, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", text));
	return 0;
}

static int add_call(struct reader *r, const json_t *v)
{
	const json_t *input = json_object_get(v, "input");
	char *args = json_is_object(input) ? json_dumps(input, 0) : NULL;
	json_t *call;

	if (!args)
		return dt_body_bad(r->e, "messages", "messages[%zu] has a tool_use without input", r->at);
	call = json_pack("{s:O?, s:s, s:{s:O?, s:s}}", "id", json_object_get(v, "id"), "type", "function",
			 "function", "name", json_object_get(v, "name"), "arguments", args);
	free(args);
	return call && json_array_append_new(r->calls, call) == 0 ? 0 : dt_body_no_memory(r->e);
}

/* Earlier thinking; templates that let the model think anew drop it. */
static int add_thought(struct reader *r, const json_t *v)
{
	const json_t *text = json_object_get(v, "thinking");
	json_t *all;

	if (!json_is_string(text))
		return 0;
	all = r->thought ? json_sprintf("%s%s", json_string_value(r->thought), json_string_value(text))
			 : json_incref((json_t *)text);
	json_decref(r->thought);
	r->thought = all;
	return all ? 0 : dt_body_no_memory(r->e);
}

static int add_block(struct reader *r, const json_t *v, bool user)
{
	const char *type = json_string_value(json_object_get(v, "type"));

	if (type && !strcmp(type, "text"))
		return add_text(r, json_object_get(v, "text"));
	if (type && user && !strcmp(type, "tool_result"))
		return add_result(r, v);
	if (type && !user && !strcmp(type, "tool_use"))
		return add_call(r, v);
	if (type && !user && !strcmp(type, "thinking"))
		return add_thought(r, v);
	if (type && !user && !strcmp(type, "redacted_thinking"))
		return 0;
	return dt_body_bad(r->e, "messages", "messages[%zu] has a block of unsupported type '%.40s'", r->at,
			   type ? type : "");
}

static int add_message(struct reader *r, const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	const json_t *content = json_object_get(m, "content");
	bool user = role && !strcmp(role, "user");
	json_t *v;
	size_t i;
	int rc = 0;

	if (!role || (!user && strcmp(role, "assistant")))
		return dt_body_bad(r->e, "messages", "the role of messages[%zu] is not user or assistant",
				   r->at);
	r->calls = json_array();
	r->n = 0;
	r->any = false;
	if (json_is_string(content))
		rc = add_text(r, content);
	else if (!json_is_array(content))
		rc = dt_body_bad(r->e, "messages", "messages[%zu] has no content", r->at);
	json_array_foreach(json_is_array(content) ? (json_t *)content : NULL, i, v)
	{
		rc = add_block(r, v, user);
		if (rc < 0)
			break;
	}
	if (rc == 0 && (r->any || !user)) {
		v = json_pack("{s:s, s:o}", "role", role, "content",
			      json_stringn_nocheck(r->text ? r->text : "", r->n));
		if (json_array_size(r->calls) > 0)
			json_object_set(v, "tool_calls", r->calls);
		if (r->thought)
			json_object_set(v, "reasoning_content", r->thought);
		json_array_append_new(r->out, v);
	}
	json_decref(r->calls);
	json_decref(r->thought);
	r->thought = NULL;
	return rc;
}

static int read_messages(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *list = json_object_get(body, "messages"), *system = json_object_get(body, "system");
	struct reader r = {.e = e, .out = json_array()};
	json_t *v;
	int rc = 0;

	if (!json_is_array(list) || json_array_size(list) == 0)
		rc = dt_body_bad(e, "messages", "'messages' is not an array of messages");
	if (rc == 0 && system && !json_is_null(system)) {
		v = join(&r, system, "'system'");
		rc = v ? 0 : -EINVAL;
		if (v)
			json_array_append_new(r.out, json_pack("{s:s, s:o}", "role", "system", "content", v));
	}
	for (; r.at < json_array_size(list) && rc == 0; r.at++)
		rc = add_message(&r, json_array_get(list, r.at));
	free(r.text);
	json_object_set_new(chat, "messages", r.out);
	return rc;
}

static int read_tools(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *list = json_object_get(body, "tools"), *choice = json_object_get(body, "tool_choice");
	const char *type = json_string_value(json_object_get(choice, "type"));
	json_t *out, *v;
	size_t i;

	if (json_array_size(list) == 0)
		return 0;
	out = json_array();
	json_object_set_new(chat, "tools", out);
	json_array_foreach((json_t *)list, i, v)
	{
		const char *kind = json_string_value(json_object_get(v, "type"));

		if (!json_is_object(json_object_get(v, "input_schema")) || (kind && strcmp(kind, "custom")))
			return dt_body_bad(e, "tools", "tools[%zu] is not a tool with an input_schema", i);
		json_array_append_new(out,
				      json_pack("{s:s, s:{s:O?, s:s, s:O}}", "type", "function", "function",
						"name", json_object_get(v, "name"), "description",
						json_string_value(json_object_get(v, "description")) ?: "",
						"parameters", json_object_get(v, "input_schema")));
	}
	if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
		json_object_set_new(chat, "parallel_tool_calls", json_false());
	if (!type || !strcmp(type, "auto"))
		return 0;
	if (!strcmp(type, "any"))
		v = json_string("required");
	else if (!strcmp(type, "none"))
		v = json_string("none");
	else if (!strcmp(type, "tool") && json_is_string(json_object_get(choice, "name")))
		v = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
			      json_object_get(choice, "name"));
	else
		return dt_body_bad(e, "tool_choice",
				   "the type of 'tool_choice' is not auto, any, tool or none");
	json_object_set_new(chat, "tool_choice", v);
	return 0;
}

/*
 * An assistant's message at the end is continued. output_config.format becomes the format of the answer: a
 * client that asks for JSON must not get text.
 */
static int read_answer(const json_t *body, json_t *chat, struct dt_api_error *e)
{
	const json_t *list = json_object_get(chat, "messages");
	const json_t *last = json_array_get(list, json_array_size(list) - 1);
	const json_t *format = json_object_get(json_object_get(body, "output_config"), "format");
	const char *role = json_string_value(json_object_get(last, "role"));
	const char *type = json_string_value(json_object_get(format, "type"));

	if (role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls"))
		json_object_set_new(chat, "continue_final_message", json_true());
	if (!format || json_is_null(format))
		return 0;
	if (!type || strcmp(type, "json_schema") || !json_is_object(json_object_get(format, "schema")))
		return dt_body_bad(
			e, "output_config",
			"'output_config.format' is not {\"type\": \"json_schema\", \"schema\": {...}}");
	json_object_set_new(chat, "response_format",
			    json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema",
				      json_object_get(format, "schema")));
	return 0;
}

/* The chat body; NULL with e filled. */
static json_t *to_chat(const json_t *body, const struct dt_api_model *m, struct dt_api_error *e)
{
	static const char *const same[] = {"model", "stream", "temperature", "top_p", "top_k"};
	const char *thinking = json_string_value(json_object_get(json_object_get(body, "thinking"), "type"));
	json_t *chat = json_object();

	if (!json_is_object(body))
		dt_body_bad(e, "", "the request is not a JSON object");
	else if (read_messages(body, chat, e) == 0 && read_tools(body, chat, e) == 0 &&
		 read_answer(body, chat, e) == 0) {
		for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
			if (json_object_get(body, same[i]))
				json_object_set(chat, same[i], json_object_get(body, same[i]));
		/* the rest of the context, whatever the server's defaults say; the caller reduces it */
		json_object_set_new(chat, "n_predict", json_integer(-1));
		if (json_object_get(body, "stop_sequences"))
			json_object_set(chat, "stop", json_object_get(body, "stop_sequences"));
		if (thinking && !strcmp(thinking, "disabled") && m->chat && m->chat->switches)
			json_object_set_new(chat, "reasoning_effort", json_string("none"));
		return chat;
	}
	json_decref(chat);
	return NULL;
}

/* Words an error of the chat for this API, whose clients know a long prompt by the message. */
static void own_words(struct dt_api_error *e, const struct dt_api_model *m)
{
	dt_api_rename_key(e, "stop", "stop_sequences");
	dt_api_rename_key(e, "response_format", "output_config.format");
	if (e->prompt > 0)
		snprintf(e->msg, sizeof(e->msg), "prompt is too long: %zu tokens > %d maximum", e->prompt,
			 m->engine->max_len - 1);
}

int dt_messages_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		      struct dt_api_error *e)
{
	json_int_t most = json_integer_value(json_object_get(body, "max_tokens"));
	json_t *chat = to_chat(body, m, e);
	int rc;

	if (!chat)
		return -EINVAL;
	rc = most >= 1 ? dt_chat_parse(chat, m, ret, e)
		       : dt_body_bad(e, "max_tokens", "'max_tokens' is missing or not a positive integer");
	json_decref(chat);
	if (rc < 0) {
		own_words(e, m);
		return rc;
	}
	ret->messages = true;
	if (ret->call->req[0].max_tokens > most)
		ret->call->req[0].max_tokens = (int)most;
	return 0;
}

/* A prompt longer than the context is counted too: clients ask for this to learn whether it fits. */
int dt_messages_count(const json_t *body, const struct dt_api_model *m, json_t **ret, struct dt_api_error *e)
{
	static const char *const read[] = {"model", "messages", "tools", "continue_final_message",
					   "reasoning_effort"};
	json_t *chat = to_chat(body, m, e), *asked = json_object();
	struct dt_tokens t;
	int rc;

	for (size_t i = 0; chat && i < sizeof(read) / sizeof(*read); i++)
		json_object_set(asked, read[i], json_object_get(chat, read[i]));
	if (json_is_string(
		    json_object_get(chat, "tool_choice")) && /* the prompt does not mention the tools */
	    !strcmp(json_string_value(json_object_get(chat, "tool_choice")), "none"))
		json_object_del(asked, "tools");
	rc = chat ? dt_tokenize_parse(asked, m, &t, e) : -EINVAL;
	json_decref(chat);
	json_decref(asked);
	if (rc < 0)
		return rc;
	free(t.ids);
	*ret = json_pack("{s:I}", "input_tokens", (json_int_t)t.n);
	return *ret ? 0 : dt_body_no_memory(e);
}
/* SPDX-License-Identifier: Apache-2.0 */
