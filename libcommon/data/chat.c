#include "data/chat_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct family {
	const char *mark;  /* a string that occurs in the family's template */
	const char *token; /* a token of the tokenizer */
	const char *also;  /* a second token, to tell apart families that share the rest; NULL: none */
	const char *end;   /* end of a turn */
	const char *special[DT_CHAT_SPECIALS];
};

static const struct family families[DT_CHAT_N] = {
	[DT_CHAT_CHATML] = {"<|im_start|>",
			    "<|im_start|>",
			    NULL,
			    "<|im_end|>",
			    {"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>",
			     "</tool_response>", "<think>", "</think>"}},
	[DT_CHAT_LLAMA3] = {"<|start_header_id|>",
			    "<|start_header_id|>",
			    NULL,
			    "<|eot_id|>",
			    {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
	[DT_CHAT_GEMMA] = {"<start_of_turn>",
			   "<start_of_turn>",
			   NULL,
			   "<end_of_turn>",
			   {"<start_of_turn>", "<end_of_turn>"}},
	[DT_CHAT_LLAMA2] = {"<<SYS>>", NULL, NULL, "</s>", {"<s>", "</s>"}},
	[DT_CHAT_MISTRAL] = {"[INST]",
			     "[INST]",
			     NULL,
			     "</s>",
			     {"[INST]", "[/INST]", "<s>", "</s>", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
			      "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"}},
	[DT_CHAT_ZEPHYR] =
		{"<|user|>", "<|user|>", NULL, "</s>", {"<|system|>", "<|user|>", "<|assistant|>", "</s>"}},
	[DT_CHAT_PHI3] = {"<|end|>",
			  "<|end|>",
			  "<|assistant|>",
			  "<|end|>",
			  {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"}},
	[DT_CHAT_DEEPSEEK2] =
		{"'User: '", NULL, "'Assistant: '", DT_CHAT_DEEPSEEK_EOS, {DT_CHAT_DEEPSEEK_EOS}},
	[DT_CHAT_DEEPSEEK3] = {"<｜Assistant｜>",
			       "<｜Assistant｜>",
			       "<｜User｜>",
			       DT_CHAT_DEEPSEEK_EOS,
			       {"<｜User｜>", "<｜Assistant｜>", DT_CHAT_DEEPSEEK_EOS, DT_CHAT_DEEPSEEK_CALLS,
				DT_CHAT_DEEPSEEK_CALL, DT_CHAT_DEEPSEEK_SEP, DT_CHAT_DEEPSEEK_CALLED,
				DT_CHAT_DEEPSEEK_END, DT_CHAT_DEEPSEEK_RESULTS, DT_CHAT_DEEPSEEK_RESULT,
				DT_CHAT_DEEPSEEK_GIVEN, DT_CHAT_DEEPSEEK_TOLD}},
	[DT_CHAT_HARMONY] = {"<|channel|>",
			     "<|channel|>",
			     NULL,
			     "<|return|>",
			     {"<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>",
			      "<|call|>"}},
	[DT_CHAT_IDEFICS] = {"<end_of_utterance>",
			     "<end_of_utterance>",
			     NULL,
			     "<end_of_utterance>",
			     {"<|im_start|>", "<|begin_of_text|>", "<end_of_utterance>",
			      "<fake_token_around_image>", "<image>", "<global-img>"}},
};

static bool has(const struct dt_tokenizer *tok, const char *s)
{
	return dt_tokenizer_find(tok, s, strlen(s)) >= 0;
}

int dt_chat_recognise(const char *text, const struct dt_tokenizer *tok)
{
	static const enum dt_chat_kind order[] = {DT_CHAT_IDEFICS,   DT_CHAT_HARMONY,  DT_CHAT_CHATML,
						  DT_CHAT_LLAMA3,    DT_CHAT_GEMMA,    DT_CHAT_LLAMA2,
						  DT_CHAT_MISTRAL,   DT_CHAT_PHI3,     DT_CHAT_ZEPHYR,
						  DT_CHAT_DEEPSEEK3, DT_CHAT_DEEPSEEK2};

	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		const struct family *f = &families[order[i]];

		if (text ? strstr(text, f->mark) && (!f->also || strstr(text, f->also))
			 : f->token && has(tok, f->token) && (!f->also || has(tok, f->also)))
			return (int)order[i];
	}
	return -1;
}

/* Finds the template's default system message, if it is plain text in the template. */
static void find_system(struct dt_chat *c, const char *text)
{
	static const char open[] = "<|im_start|>system", close[] = "<|im_end|>";
	const char *at = text;

	while ((at = strstr(at, open))) {
		const char *end;
		size_t n;

		at += strlen(open);
		if (strncmp(at, "\\n", 2) && *at != '\n')
			continue;
		/* a newline character, or "\n" as Jinja writes it */
		at += *at == '\n' ? 1 : 2;
		end = strstr(at, close);
		n = end ? (size_t)(end - at) : 0;
		if (n == 0 || n >= sizeof(c->system) || memchr(at, '\'', n) || memchr(at, '{', n) ||
		    memchr(at, '\\', n))
			continue;
		memcpy(c->system, at, n);
		c->system[n] = '\0';
		return;
	}
}

void dt_chat_init(struct dt_chat *c, enum dt_chat_kind kind, const char *text, const struct dt_tokenizer *tok)
{
	const struct family *f = &families[kind];

	*c = (struct dt_chat){.kind = kind, .tok = tok, .end = -1, .call = -1};
	for (int i = 0; i < DT_CHAT_SPECIALS && f->special[i]; i++) {
		int32_t id = dt_tokenizer_find(tok, f->special[i], strlen(f->special[i]));

		if (id >= 0)
			c->special[c->nspecial++] = (struct dt_chat_special){f->special[i], id};
	}
	if (f->end)
		c->end = dt_tokenizer_find(tok, f->end, strlen(f->end));
	if (kind == DT_CHAT_HARMONY)
		c->call = dt_tokenizer_find(tok, "<|call|>", 8);
	if (text && kind == DT_CHAT_CHATML)
		find_system(c, text);
	c->thinks = kind == DT_CHAT_HARMONY || dt_tokenizer_find(tok, "<think>", 7) >= 0;
	c->switches = c->thinks && kind == DT_CHAT_CHATML && (!text || strstr(text, "enable_thinking"));
	c->v3 = text && kind == DT_CHAT_MISTRAL && strstr(text, "[AVAILABLE_TOOLS]");
	c->llama = kind == DT_CHAT_IDEFICS &&
		   (text ? strstr(text, "<|begin_of_text|>") != NULL : !has(tok, "<|im_start|>"));
	c->dated = text && kind == DT_CHAT_LLAMA3 && strstr(text, "Cutting Knowledge Date");
}

/* ---- messages to ids ---- */

/* Notes an image of m behind its text so far. */
static int add_image(struct dt_chat_out *o, struct dt_chat_message *m, size_t at)
{
	size_t *p;

	if (o->images == o->c->nimages)
		return dt_err_set(o->err, -EINVAL, "message %zu has a part that is not text", at);
	if (o->c->kind != DT_CHAT_IDEFICS)
		return dt_err_set(
			o->err, -EINVAL,
			"message %zu has an image, which the chat template of this model does not take", at);
	if (!strcmp(m->role, "assistant"))
		return dt_err_set(o->err, -EINVAL, "message %zu is the assistant's, which has no images", at);
	p = realloc(m->image_at, ((size_t)m->nimages + 1) * sizeof(*p));
	if (!p)
		return dt_err_sys(o->err, -ENOMEM, "cannot read the messages");
	if (!m->nimages)
		m->first_image = o->images;
	m->image_at = p;
	p[m->nimages++] = m->n;
	o->images++;
	return 0;
}

/* Joins the texts of an array of content parts. */
static int join_parts(struct dt_chat_out *o, const json_t *parts, struct dt_chat_message *m, size_t at)
{
	struct dt_err *err = o->err;
	const json_t *p;
	size_t i;

	json_array_foreach(parts, i, p)
	{
		const json_t *text = json_object_get(p, "text"), *type = json_object_get(p, "type");
		size_t n = json_string_length(text);
		char *s;

		if (json_is_string(type) && !strcmp(json_string_value(type), "image_url")) {
			if (add_image(o, m, at) < 0)
				return -EINVAL;
			m->image_first |= i == 0;
			continue;
		}
		if (!json_is_string(text) || !json_is_string(type) || strcmp(json_string_value(type), "text"))
			return dt_err_set(err, -EINVAL, "message %zu has a part that is not text", at);
		s = realloc(m->s, m->n + n + 1);
		if (!s)
			return dt_err_sys(err, -ENOMEM, "cannot read the messages");
		memcpy(s + m->n, json_string_value(text), n);
		m->s = s;
		m->n += n;
	}
	return 0;
}

static int read_content(struct dt_chat_out *o, const json_t *content, struct dt_chat_message *m, size_t at)
{
	struct dt_err *err = o->err;
	json_t *wrap;
	int rc;

	m->s = calloc(1, 1);
	if (!m->s)
		return dt_err_sys(err, -ENOMEM, "cannot read the messages");
	if (m->calls && (!content || json_is_null(content)))
		return 0;
	if (json_is_array(content))
		return join_parts(o, content, m, at);
	if (!json_is_string(content))
		return dt_err_set(err, -EINVAL, "message %zu has no content", at);
	wrap = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
	rc = wrap ? join_parts(o, wrap, m, at) : dt_err_sys(err, -ENOMEM, "cannot read the messages");
	json_decref(wrap);
	return rc;
}

/* thought: allow a message with its reasoning. */
static int check_keys(const json_t *v, bool thought, size_t at, struct dt_err *err)
{
	static const char *const keys[] = {"role", "content", "name", "tool_calls", "tool_call_id"};
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)v, key, value)
	{
		bool known = json_is_null(value) || (json_is_array(value) && !json_array_size(value)) ||
			     (thought && !strcmp(key, "reasoning_content") && json_is_string(value));

		for (int i = 0; i < 5 && !known; i++)
			known = !strcmp(key, keys[i]);
		if (!known)
			return dt_err_set(err, -EINVAL, "message %zu has an unknown key '%.40s'", at, key);
	}
	return 0;
}

static int read_message(struct dt_chat_out *o, const json_t *v, struct dt_chat_message *m, size_t at)
{
	struct dt_err *err = o->err;
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	const char *role = json_string_value(json_object_get(v, "role"));

	if (check_keys(v, !o->whole && role && !strcmp(role, "assistant"), at, err) < 0)
		return -EINVAL;
	if (role && !strcmp(role, "developer"))
		role = "system";
	for (int i = 0; role && i < 4; i++)
		if (!strcmp(role, roles[i]))
			m->role = roles[i];
	if (!m->role)
		return dt_err_set(
			err, -EINVAL,
			"the role of message %zu is not one of system, developer, user, assistant, tool", at);
	m->tool = !strcmp(m->role, "tool");
	m->call_id = json_string_value(json_object_get(v, "tool_call_id"));
	m->thought = json_string_value(json_object_get(v, "reasoning_content"));
	if (m->thought && !*m->thought)
		m->thought = NULL;
	if (json_array_size(json_object_get(v, "tool_calls")) > 0) {
		m->calls = json_object_get(v, "tool_calls");
		if (dt_chat_check_calls(m, at, err) < 0)
			return -EINVAL;
	}
	return read_content(o, json_object_get(v, "content"), m, at);
}

/* Families whose templates have no separate system turn. */
static bool folds_system(enum dt_chat_kind k)
{
	return k == DT_CHAT_LLAMA2 || k == DT_CHAT_MISTRAL || k == DT_CHAT_GEMMA;
}

static int check_open(struct dt_chat_out *o, const struct dt_chat_message *last)
{
	if (strcmp(last->role, "assistant"))
		return dt_err_set(o->err, -EINVAL, "the last message to continue is not the assistant's");
	if (last->calls)
		return dt_err_set(o->err, -EINVAL, "a message with a tool call cannot be continued");
	if (o->tools && o->tools->open)
		return dt_err_set(o->err, -EINVAL,
				  "a tool call is required, which cannot continue a message");
	return 0;
}

/* goes_on: the last message is left open. */
static int encode(struct dt_chat_out *o, const json_t *messages, bool goes_on)
{
	const struct dt_chat *c = o->c;
	struct dt_err *err = o->err;
	size_t n = json_array_size(messages);
	struct dt_chat_message *m;

	if (!json_is_array(messages) || n == 0)
		return dt_err_set(err, -EINVAL, "'messages' is not an array of messages");
	m = calloc(n, sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot read the messages");
	for (size_t i = 0; i < n && o->rc >= 0; i++)
		o->rc = read_message(o, json_array_get(messages, i), &m[i], i);
	for (size_t i = 0; i < n && o->rc >= 0; i++)
		if ((o->tools || m[i].tool || m[i].calls) && dt_chat_tool_form(c) == DT_TOOLS_NONE)
			o->rc = dt_err_set(err, -EINVAL,
					   "the chat template of this model does not support tools");
	for (size_t i = 0; i < n && o->rc >= 0 && folds_system(c->kind); i++)
		if (!strcmp(m[i].role, "system") && (i > 0 || n == 1))
			o->rc = dt_err_set(err, -EINVAL,
					   "the chat template of this model requires that a system message "
					   "is first and followed by a user message");
	if (o->rc >= 0 && goes_on)
		o->rc = check_open(o, &m[n - 1]);
	if (o->rc >= 0) {
		o->messages = m;
		o->open = goes_on ? &m[n - 1] : NULL;
		dt_chat_template[c->kind](o, m, n);
		dt_chat_flush(o);
	}
	for (size_t i = 0; i < n; i++) {
		free(m[i].s);
		free(m[i].image_at);
	}
	free(m);
	free(o->text);
	free(o->flag);
	return o->rc < 0 ? o->rc : 0;
}

static int encode_prompt(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
			 bool goes_on, int32_t **ret, size_t *ret_n, struct dt_err *err)
{
	struct dt_chat_out o = {.c = c, .tools = tools, .err = err};
	int rc = encode(&o, messages, goes_on);

	free(o.mask);
	if (rc < 0) {
		free(o.ids);
		return rc;
	}
	*ret = o.ids;
	*ret_n = o.n;
	return 0;
}

int dt_chat_encode(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
		   int32_t **ret, size_t *ret_n, struct dt_err *err)
{
	return encode_prompt(c, messages, tools, false, ret, ret_n, err);
}

int dt_chat_encode_open(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
			int32_t **ret, size_t *ret_n, struct dt_err *err)
{
	return encode_prompt(c, messages, tools, true, ret, ret_n, err);
}

/* Returns the finished prompt in ret, or frees it after an error. */
static int finish(struct dt_chat_out *o, int rc, struct dt_chat_whole *ret)
{
	if (rc < 0) {
		free(o->ids);
		free(o->mask);
		return rc;
	}
	*ret = (struct dt_chat_whole){o->ids, o->mask, o->n};
	return 0;
}

int dt_chat_encode_whole(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
			 size_t from, struct dt_chat_whole *ret, struct dt_err *err)
{
	struct dt_chat_out o = {.c = c, .tools = tools, .err = err, .whole = true, .from = from};

	return finish(&o, encode(&o, messages, false), ret);
}

int dt_chat_encode_texts(const struct dt_chat *c, const char *prompt, size_t prompt_n, const char *answer,
			 size_t answer_n, struct dt_chat_whole *ret, struct dt_err *err)
{
	struct dt_chat_out o = {.c = c, .err = err, .whole = true};

	dt_chat_begin(&o);
	dt_chat_put_n(&o, prompt, prompt_n);
	o.target = true;
	dt_chat_put_n(&o, answer, answer_n);
	dt_chat_end_of_text(&o);
	dt_chat_flush(&o);
	free(o.text);
	free(o.flag);
	return finish(&o, o.rc, ret);
}
/* SPDX-License-Identifier: Apache-2.0 */
