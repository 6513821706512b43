/* Parses completion, chat and embedding bodies, and plain lines of a batch. */
#include "serve/api/native.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_suffix(struct dt_body *b)
{
	const json_t *v = json_object_get(b->o, "suffix"), *prompt = json_object_get(b->o, "prompt");
	size_t i;
	json_t *p;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_string(v))
		return dt_body_bad(b->e, "suffix", "'suffix' is not a string");
	if (json_string_length(v) == 0)
		return 0;
	if (b->echo)
		return dt_body_bad(b->e, "suffix", "'suffix' cannot be combined with 'echo'");
	json_array_foreach((json_t *)prompt, i, p)
	{
		if (!json_is_string(p))
			return dt_body_bad(b->e, "suffix", "'suffix' needs a 'prompt' that is a text");
	}
	return 0;
}

static int read_completion(struct dt_body *b, struct dt_completion *c)
{
	c->echo = b->echo;
	c->ids = b->ids;
	if (c->ids && c->stream)
		return dt_body_bad(b->e, "return_token_ids",
				   "'return_token_ids' cannot be combined with 'stream'");
	if (check_suffix(b) < 0)
		return -EINVAL;
	if (b->best_of && b->best_of != b->n)
		return dt_body_bad(b->e, "best_of", "'best_of' is only supported if it equals 'n'");
	if (b->ask.logprobs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "logprobs", "'logprobs' exceeds the vocabulary size");
	if (b->ask.prompt_logprobs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "prompt_logprobs", "'prompt_logprobs' exceeds the vocabulary size");
	if (b->ask.prompt_logprobs >= 0 && (c->stream || (c->echo && b->ask.logprobs >= 0)))
		return dt_body_bad(b->e, "prompt_logprobs", "'prompt_logprobs' cannot be combined with %s",
				   c->stream ? "'stream'" : "'echo' with 'logprobs'");
	if (b->ask.prompt_temperature != 1 && b->ask.prompt_logprobs < 0)
		return dt_body_bad(b->e, "prompt_logprobs_temperature",
				   "'prompt_logprobs_temperature' needs 'prompt_logprobs'");
	b->default_tokens = 16;
	b->ask.score_prompt = (c->echo && b->ask.logprobs >= 0) || b->ask.prompt_logprobs >= 0;
	if (dt_body_ask(b, NULL) < 0 || dt_body_prompts(b, "prompt") < 0)
		return -EINVAL;
	if (b->logprobs_from > 0 && (!c->echo || b->ask.logprobs < 0 || b->nprompts > 1))
		return dt_body_bad(b->e, "echo_logprobs_from",
				   "'echo_logprobs_from' needs 'echo', 'logprobs' and a single prompt");
	return 0;
}

/* Encodes the messages; with continue_final_message up to the end of the last one's content. */
static int read_messages(struct dt_body *b, const struct dt_chat *chat)
{
	const json_t *messages = json_object_get(b->o, "messages");
	const struct dt_chat_tools *tools = b->tools.list ? &b->tools : NULL;
	struct dt_prompt *p = b->prompt = calloc(1, sizeof(*b->prompt));
	struct dt_chat_whole whole = {0};
	struct dt_chat own = *chat;
	struct dt_chat_image *image = NULL;
	struct dt_err err;
	int rc;

	if (!p)
		return dt_body_no_memory(b->e);
	b->nprompts = 1;
	if (dt_body_images(b, messages, &image, &own.nimages) < 0)
		return -EINVAL;
	own.image = image;
	own.tile_rows = b->m->engine->model.tile_rows;
	chat = &own;
	if (b->goes_on) {
		rc = dt_chat_encode_open(chat, messages, tools, &p->ids, &p->n, &err);
	} else if (b->opens) {
		rc = dt_chat_encode(chat, messages, tools, &p->ids, &p->n, &err);
	} else {
		rc = dt_chat_encode_whole(chat, messages, tools, 0, &whole, &err);
		free(whole.mask);
		p->ids = whole.ids;
		p->n = whole.n;
	}
	free(image);
	if (rc < 0)
		return dt_body_bad(b->e, "messages", "%s", err.msg);
	return b->images ? dt_body_place_images(b, p) : 0;
}

static int read_chat(struct dt_body *b, struct dt_completion *c)
{
	const struct dt_chat *chat = b->m->chat;
	struct dt_chat own;

	c->chat = true;
	c->thinks = chat && chat->thinks;
	if (!chat) {
		dt_api_fail(b->e, 400, "invalid_request_error", "no_chat_template",
			    "this model has no known chat template: the server's --chat-template sets one");
		return -EINVAL;
	}
	if (b->top_logprobs > 0 && !b->chat_logprobs)
		return dt_body_bad(b->e, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
	if (b->top_logprobs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "top_logprobs", "'top_logprobs' exceeds the vocabulary size");
	if (dt_api_template(b->o, chat, &own, b->e) < 0)
		return -EINVAL;
	b->default_tokens = INT32_MAX;
	b->ask.logprobs = !b->chat_logprobs ? -1 : b->top_logprobs > 0 ? b->top_logprobs : 0;
	if (dt_body_ask(b, chat) < 0 || dt_body_tools(b, chat, c) < 0)
		return -EINVAL;
	if (chat->kind == DT_CHAT_HARMONY) /* the names of channels are between special tokens */
		b->ask.skip_special = false;
	if (!b->opens && b->tools.open)
		return dt_body_bad(b->e, "add_generation_prompt",
				   "'add_generation_prompt': false cannot be combined with a required tool "
				   "call");
	return read_messages(b, &own);
}

static int read_embedding(struct dt_body *b, struct dt_completion *c)
{
	const json_t *v = json_object_get(b->o, "encoding_format");
	const char *format = json_string_value(v);

	if (v && !json_is_null(v) && (!format || (strcmp(format, "float") && strcmp(format, "base64"))))
		return dt_body_bad(b->e, "encoding_format", "'encoding_format' must be float or base64");
	c->base64 = format && !strcmp(format, "base64");
	b->ask.embed = true;
	b->default_tokens = 0;
	return dt_body_prompts(b, "input");
}

static int read_native(struct dt_body *b, struct dt_completion *c)
{
	if (dt_native_read(b, c) < 0 || dt_body_ask(b, NULL) < 0)
		return -EINVAL;
	return b->kind == DT_BODY_INFILL ? dt_native_infill(b) : dt_body_prompts(b, "prompt");
}

static int read_body(struct dt_body *b, struct dt_completion *c)
{
	int rc;

	if (!json_is_object(b->o))
		return dt_body_bad(b->e, "", "the request is not a JSON object");
	if (b->m->engine->model.encoder && b->kind != DT_BODY_EMBEDDING)
		return dt_api_fail(b->e, 400, "invalid_request_error", "encoder",
				   "this model is an encoder: it embeds and ranks texts, but generates none");
	if (dt_body_keys(b) < 0 || dt_body_model(b) < 0 || dt_body_stream(b, c) < 0 || dt_body_salt(b) < 0)
		return -EINVAL;
	if (b->kind == DT_BODY_EMBEDDING)
		rc = read_embedding(b, c);
	else if (b->kind == DT_BODY_CHAT || b->kind == DT_BODY_CHAT_LINE)
		rc = read_chat(b, c);
	else if (b->kind == DT_BODY_NATIVE || b->kind == DT_BODY_INFILL)
		rc = read_native(b, c);
	else
		rc = read_completion(b, c);
	return rc < 0 ? rc : dt_body_call(b, c);
}

static void body_release(struct dt_body *b)
{
	for (size_t i = 0; i < b->nprompts; i++) {
		free(b->prompt[i].ids);
		free(b->prompt[i].text.s);
	}
	free(b->prompt);
	dt_ask_release(&b->ask);
	dt_call_images_free(b->images);
	dt_adapters_drop(b->adapter);
}

/* The body with the server's defaults for missing keys. A new reference. */
static json_t *with_defaults(const json_t *o, const struct dt_api_model *m, enum dt_body_kind kind)
{
	static const char *const limit[] = {"max_completion_tokens", "max_tokens", "n_predict"};
	bool given = false;
	json_t *all;

	if (!m->defaults || kind == DT_BODY_EMBEDDING || !json_is_object(o))
		return json_incref((json_t *)o);
	all = json_copy((json_t *)o);
	if (json_object_update_missing(all, m->defaults) < 0) {
		json_decref(all);
		return NULL;
	}
	/* Three names of one limit: the body's own value overrides a default. */
	for (int i = 0; i < 3; i++)
		given |= json_object_get(o, limit[i]) != NULL;
	for (int i = 0; i < 3 && given; i++)
		if (!json_object_get(o, limit[i]))
			json_object_del(all, limit[i]);
	return all;
}

static int parse(const json_t *o, const struct dt_api_model *m, enum dt_body_kind kind,
		 struct dt_completion *ret, struct dt_api_error *e)
{
	struct dt_completion c = {0};
	struct dt_body b = {.m = m,
			    .e = e,
			    .kind = kind,
			    .n = 1,
			    .parallel = true,
			    .opens = true,
			    .special = true,
			    .n_predict = -2,
			    .top_logprobs = -1,
			    .max_tokens = -1,
			    .max_completion_tokens = -1,
			    .ask = DT_ASK_DEFAULT};
	json_t *all = with_defaults(o, m, kind);
	int rc;

	b.o = all;
	b.ask.sampling.seed = m->seed;
	if (kind == DT_BODY_NATIVE || kind == DT_BODY_INFILL)
		dt_native_defaults(&b);
	rc = all ? read_body(&b, &c) : dt_body_no_memory(e);
	body_release(&b);
	json_decref(all);
	if (rc < 0)
		dt_completion_release(&c);
	else
		*ret = c;
	return rc;
}

int dt_api_try_defaults(const struct dt_api_model *m, struct dt_err *err)
{
	json_t *o = m->defaults ? json_pack("{s:[i]}", "prompt", 0) : NULL;
	struct dt_completion c;
	struct dt_api_error e;
	int rc = 0;

	if (o && parse(o, m, DT_BODY_TEXT, &c, &e) == 0)
		dt_completion_release(&c);
	else if (o && json_object_get(m->defaults, e.param))
		rc = dt_err_set(err, -EINVAL, "--defaults: %s", e.msg);
	json_decref(o);
	return rc;
}

int dt_completion_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
			struct dt_api_error *e)
{
	return parse(o, m, DT_BODY_TEXT, ret, e);
}

int dt_line_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e)
{
	return parse(o, m, json_object_get(o, "messages") ? DT_BODY_CHAT_LINE : DT_BODY_LINE, ret, e);
}

int dt_chat_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e)
{
	return parse(o, m, DT_BODY_CHAT, ret, e);
}

int dt_embedding_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e)
{
	return parse(o, m, DT_BODY_EMBEDDING, ret, e);
}

int dt_native_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		    struct dt_api_error *e)
{
	return parse(o, m, DT_BODY_NATIVE, ret, e);
}

int dt_infill_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		    struct dt_api_error *e)
{
	return parse(o, m, DT_BODY_INFILL, ret, e);
}

void dt_completion_release(struct dt_completion *c)
{
	for (int i = 0; c->prompt && i < c->nprompts; i++)
		free(c->prompt[i].s);
	free(c->prompt);
	json_decref(c->fields);
	json_decref(c->asked);
	dt_call_drop(c->call);
	*c = (struct dt_completion){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
