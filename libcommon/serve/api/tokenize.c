/* /tokenize, /detokenize and /apply-template. The keys are vLLM's; "content" is llama.cpp's. */
#include "serve/api/tokenize.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES     64	 /* bytes of a token id as a JSON value and as text */
#define STRING_BYTES 400 /* the same for a token's text */

struct options {
	bool special, open, goes_on, strings;
};

/* Refuses unknown keys and models. */
static int check(const json_t *o, const char *const *known, const struct dt_api_model *m,
		 struct dt_api_error *e)
{
	struct dt_body b = {.o = o, .m = m, .e = e};
	int rc = dt_api_known(o, known, e);

	if (rc == 0)
		rc = dt_body_model(&b);
	dt_adapters_drop(b.adapter);
	return rc;
}

static int read_options(const json_t *o, bool chat, struct options *ret, struct dt_api_error *e)
{
	const struct {
		const char *name;
		bool *to, chat;
	} flag[] = {{"add_special_tokens", &ret->special, false},
		    {"add_special", &ret->special, false},
		    {"add_generation_prompt", &ret->open, true},
		    {"continue_final_message", &ret->goes_on, true},
		    {"return_token_strs", &ret->strings, false}};
	struct dt_err err;

	for (size_t i = 0; i < sizeof(flag) / sizeof(*flag); i++) {
		const json_t *v = json_object_get(o, flag[i].name);

		if (flag[i].chat && !chat && v && !json_is_null(v))
			return dt_body_bad(e, flag[i].name, "'%s' needs 'messages'", flag[i].name);
		if (v && !json_is_null(v) && dt_json_bool(o, flag[i].name, false, flag[i].to, &err) < 0)
			return dt_body_bad(e, flag[i].name, "%s", err.msg);
	}
	if (chat && ret->special)
		return dt_body_bad(e, "add_special_tokens",
				   "'add_special_tokens' needs 'prompt': a chat template adds its own");
	return 0;
}

/* Checks the tools. Without tools the prompt is the same as in a chat request. */
static int check_tools(const json_t *list, const struct dt_chat *chat, struct dt_api_error *e)
{
	const enum dt_tool_form form = dt_chat_tool_form(chat);
	struct dt_grammar *g = NULL;
	struct dt_err err;

	if (list && !json_is_null(list) && !json_is_array(list))
		return dt_body_bad(e, "tools", "'tools' is not an array");
	if (json_array_size(list) == 0)
		return 0;
	if (form == DT_TOOLS_NONE)
		return dt_body_bad(e, "tools", "the chat template of this model does not support tools");
	if (dt_tools_grammar(form, list, NULL, true, NULL, &g, &err) < 0)
		return dt_body_bad(e, "tools", "%s", err.msg);
	dt_grammar_drop(g);
	return 0;
}

static int read_chat(const json_t *o, const struct dt_api_model *m, const struct options *how,
		     struct dt_tokens *ret, struct dt_api_error *e)
{
	const json_t *list = json_object_get(o, "tools"), *messages = json_object_get(o, "messages");
	const struct dt_chat_tools tools = {.list = list}, *with = json_array_size(list) > 0 ? &tools : NULL;
	struct dt_chat_whole whole = {0};
	struct dt_chat own;
	struct dt_err err;
	int rc;

	if (!m->chat)
		return dt_api_fail(
			e, 400, "invalid_request_error", "no_chat_template",
			"this model has no known chat template: the server's --chat-template sets one");
	if (check_tools(list, m->chat, e) < 0 || dt_api_template(o, m->chat, &own, e) < 0)
		return -EINVAL;
	if (how->goes_on) {
		rc = dt_chat_encode_open(&own, messages, with, &ret->ids, &ret->n, &err);
	} else if (how->open) {
		rc = dt_chat_encode(&own, messages, with, &ret->ids, &ret->n, &err);
	} else {
		rc = dt_chat_encode_whole(&own, messages, with, 0, &whole, &err);
		free(whole.mask);
		ret->ids = whole.ids;
		ret->n = whole.n;
	}
	return rc < 0 ? dt_body_bad(e, "messages", "%s", err.msg) : 0;
}

static int read_text(const json_t *o, const struct dt_api_model *m, bool special, struct dt_tokens *ret,
		     struct dt_api_error *e)
{
	const json_t *text = json_object_get(o, "prompt") ?: json_object_get(o, "content");
	const struct dt_tokenizer *tok = m->engine->tok;
	const char *s = json_string_value(text);
	size_t n = json_string_length(text);
	struct dt_err err;
	int rc;

	if (!s)
		return dt_body_bad(e, "prompt", "key 'prompt' is missing or not a string");
	rc = special ? dt_api_encode(tok, s, n, m->engine->model.encoder, &ret->ids, &ret->n, &err)
		     : dt_tokenizer_encode(tok, s, n, true, &ret->ids, &ret->n, &err);
	return rc < 0 ? dt_body_bad(e, "prompt", "%s", err.msg) : 0;
}

int dt_tokenize_parse(const json_t *body, const struct dt_api_model *m, struct dt_tokens *ret,
		      struct dt_api_error *e)
{
	static const char *const known[] = {"model",
					    "prompt",
					    "content",
					    "messages",
					    "tools",
					    "add_special_tokens",
					    "add_special",
					    "add_generation_prompt",
					    "continue_final_message",
					    "chat_template_kwargs",
					    "reasoning_effort",
					    "return_token_strs",
					    "user",
					    NULL};
	static const char *const chat_only[] = {"tools", "chat_template_kwargs", "reasoning_effort", NULL};
	const json_t *messages = json_object_get(body, "messages");
	const bool chat = messages && !json_is_null(messages);
	struct options o = {.special = !chat, .open = true};
	struct dt_tokens t = {0};
	int rc;

	if (check(body, known, m, e) < 0 || read_options(body, chat, &o, e) < 0)
		return -EINVAL;
	if (chat && (json_object_get(body, "prompt") || json_object_get(body, "content")))
		return dt_body_bad(e, "messages", "'messages' cannot be combined with 'prompt'");
	for (int i = 0; chat_only[i] && !chat; i++) {
		const json_t *v = json_object_get(body, chat_only[i]);

		if (json_object_size(v) > 0 || json_array_size(v) > 0 || json_is_string(v))
			return dt_body_bad(e, chat_only[i], "'%s' needs 'messages'", chat_only[i]);
	}
	rc = chat ? read_chat(body, m, &o, &t, e) : read_text(body, m, o.special, &t, e);
	if (rc < 0)
		return rc;
	t.strings = o.strings;
	*ret = t;
	return 0;
}

size_t dt_tokenize_cost(const struct dt_tokens *t)
{
	return t->n * (size_t)(ID_BYTES + (t->strings ? STRING_BYTES : 0));
}

json_t *dt_tokenize_json(const struct dt_tokens *t, const struct dt_api_model *m)
{
	json_t *ids = json_array(), *strings = t->strings ? json_array() : json_null();

	for (size_t i = 0; i < t->n; i++) {
		json_array_append_new(ids, json_integer(t->ids[i]));
		if (t->strings)
			json_array_append_new(strings, dt_api_token_name(m->engine->tok, t->ids[i]));
	}
	return json_pack("{s:o, s:I, s:i, s:o}", "tokens", ids, "count", (json_int_t)t->n, "max_model_len",
			 m->engine->max_len, "token_strs", strings);
}

int dt_detokenize(const json_t *body, const struct dt_api_model *m, json_t **ret, struct dt_api_error *e)
{
	static const char *const known[] = {"model", "tokens", "user", NULL};
	const json_t *list = json_object_get(body, "tokens");
	struct dt_body b = {.o = body, .m = m, .e = e};
	size_t n = json_array_size(list), len = 0;
	int32_t *ids;
	char *text;
	json_t *v;
	int rc = check(body, known, m, e);

	if (rc < 0)
		return rc;
	if (!json_is_array(list))
		return dt_body_bad(e, "tokens", "key 'tokens' is missing or not an array of token ids");
	ids = malloc((n + 1) * sizeof(*ids));
	rc = ids ? dt_body_ids(&b, "tokens", list, ids) : dt_body_no_memory(e);
	if (rc == 0 && dt_api_decode(m->engine->tok, ids, n, &text, &len) < 0)
		rc = dt_body_no_memory(e);
	free(ids);
	if (rc < 0)
		return rc;
	v = dt_api_text(text, len);
	free(text);
	*ret = json_pack("{s:o}", "prompt", v);
	return *ret ? 0 : dt_body_no_memory(e);
}

int dt_api_apply_template(const json_t *body, const struct dt_api_model *m, json_t **ret,
			  struct dt_api_error *e)
{
	struct dt_tokens t = {0};
	char *text = NULL;
	size_t n = 0;
	json_t *v;
	int rc;

	if (json_array_size(json_object_get(body, "messages")) == 0)
		return dt_body_bad(e, "messages", "key 'messages' is missing or empty");
	rc = dt_tokenize_parse(body, m, &t, e);
	if (rc == 0 && dt_api_decode(m->engine->tok, t.ids, t.n, &text, &n) < 0)
		rc = dt_body_no_memory(e);
	free(t.ids);
	if (rc < 0)
		return rc;
	v = dt_api_text(text, n);
	free(text);
	*ret = json_pack("{s:o}", "prompt", v);
	return *ret ? 0 : dt_body_no_memory(e);
}
/* SPDX-License-Identifier: Apache-2.0 */
