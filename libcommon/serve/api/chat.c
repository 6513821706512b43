#include "serve/api/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct family {
	const char *mark;  /* occurs in its template */
	const char *token; /* the tokenizer has it */
	const char *end;   /* of a turn */
	const char *special[6];
};

static const struct family families[DT_CHAT_N] = {
	[DT_CHAT_CHATML] = {"<|im_start|>", "<|im_start|>", "<|im_end|>", {"<|im_start|>", "<|im_end|>"}},
	[DT_CHAT_LLAMA3] = {"<|start_header_id|>",
			    "<|start_header_id|>",
			    "<|eot_id|>",
			    {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
	[DT_CHAT_GEMMA] = {"<start_of_turn>",
			   "<start_of_turn>",
			   "<end_of_turn>",
			   {"<start_of_turn>", "<end_of_turn>"}},
	[DT_CHAT_LLAMA2] = {"<<SYS>>", NULL, "</s>", {"<s>", "</s>"}},
	[DT_CHAT_MISTRAL] = {"[INST]", "[INST]", "</s>", {"[INST]", "[/INST]", "<s>", "</s>"}},
	[DT_CHAT_ZEPHYR] = {"<|user|>",
			    "<|user|>",
			    "</s>",
			    {"<|system|>", "<|user|>", "<|assistant|>", "</s>"}},
};

int dt_chat_recognise(const char *text, const struct dt_tokenizer *tok)
{
	static const enum dt_chat_kind order[] = {DT_CHAT_CHATML, DT_CHAT_LLAMA3,  DT_CHAT_GEMMA,
						  DT_CHAT_LLAMA2, DT_CHAT_MISTRAL, DT_CHAT_ZEPHYR};

	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		const struct family *f = &families[order[i]];

		if (text ? strstr(text, f->mark) != NULL
			 : f->token && dt_tokenizer_find(tok, f->token, strlen(f->token)) >= 0)
			return (int)order[i];
	}
	return -1;
}

/* The template's own words for the system, where it has some as plain text. */
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
		at += *at == '\n' ? 1 : 2; /* the line end itself, or as Jinja writes it */
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

	*c = (struct dt_chat){.kind = kind, .tok = tok, .end = -1};
	for (int i = 0; i < 6 && f->special[i]; i++) {
		int32_t id = dt_tokenizer_find(tok, f->special[i], strlen(f->special[i]));

		if (id >= 0)
			c->special[c->nspecial++] = (struct dt_chat_special){f->special[i], id};
	}
	if (f->end)
		c->end = dt_tokenizer_find(tok, f->end, strlen(f->end));
	if (text && kind == DT_CHAT_CHATML)
		find_system(c, text);
	c->dated = text && kind == DT_CHAT_LLAMA3 && strstr(text, "Cutting Knowledge Date");
}

/* ---- messages to ids ---- */

struct out {
	const struct dt_chat *c;
	int32_t *ids;
	size_t n, cap;
	char *text; /* not yet encoded */
	size_t text_n, text_cap;
	struct dt_err *err;
	int rc;
};

static void put_n(struct out *o, const char *s, size_t n)
{
	if (n == 0) /* s is NULL for a content without parts */
		return;
	if (o->text_n + n > o->text_cap) {
		size_t cap = 2 * o->text_cap + n + 64;
		char *p = realloc(o->text, cap);

		if (!p) {
			o->rc = dt_err_sys(o->err, -ENOMEM, "cannot read the messages");
			return;
		}
		o->text = p;
		o->text_cap = cap;
	}
	memcpy(o->text + o->text_n, s, n);
	o->text_n += n;
}

static void put(struct out *o, const char *s)
{
	put_n(o, s, strlen(s));
}

static void append(struct out *o, const int32_t *ids, size_t n)
{
	if (n == 0)
		return;
	if (o->n + n > o->cap) {
		size_t cap = 2 * o->cap + n + 64;
		int32_t *p = realloc(o->ids, cap * sizeof(*p));

		if (!p) {
			o->rc = dt_err_sys(o->err, -ENOMEM, "cannot read the messages");
			return;
		}
		o->ids = p;
		o->cap = cap;
	}
	memcpy(o->ids + o->n, ids, n * sizeof(*ids));
	o->n += n;
}

static void flush(struct out *o)
{
	int32_t *ids;
	size_t n;

	if (o->rc < 0 || o->text_n == 0)
		return;
	o->rc = dt_tokenizer_encode(o->c->tok, o->text, o->text_n, false, &ids, &n, o->err);
	o->text_n = 0;
	if (o->rc < 0)
		return;
	append(o, ids, n);
	free(ids);
}

/* A special token of the template; its text where the tokenizer has no such token. */
static void special(struct out *o, const char *s)
{
	for (int i = 0; i < o->c->nspecial; i++)
		if (!strcmp(o->c->special[i].text, s)) {
			flush(o);
			if (o->rc >= 0)
				append(o, &o->c->special[i].id, 1);
			return;
		}
	put(o, s);
}

static void begin(struct out *o)
{
	int32_t bos = dt_tokenizer_bos(o->c->tok);

	if (bos >= 0)
		append(o, &bos, 1);
}

struct message {
	const char *role; /* system, user, assistant */
	char *s;
	size_t n;
};

static void put_trimmed(struct out *o, const struct message *m)
{
	static const char space[] = " \t\n\v\f\r";
	size_t a = 0, b = m->n;

	while (a < b && memchr(space, m->s[a], 6))
		a++;
	while (b > a && memchr(space, m->s[b - 1], 6))
		b--;
	put_n(o, m->s + a, b - a);
}

static void chatml(struct out *o, const struct message *m, size_t n)
{
	const struct message own = {"system", (char *)o->c->system, strlen(o->c->system)};
	bool add = own.n > 0 && strcmp(m[0].role, "system");

	for (size_t i = 0; i < n + add; i++) {
		const struct message *at = add ? (i ? &m[i - 1] : &own) : &m[i];

		special(o, "<|im_start|>");
		put(o, at->role);
		put(o, "\n");
		put_n(o, at->s, at->n);
		special(o, "<|im_end|>");
		put(o, "\n");
	}
	special(o, "<|im_start|>");
	put(o, "assistant\n");
}

static void header3(struct out *o, const char *role)
{
	special(o, "<|start_header_id|>");
	put(o, role);
	special(o, "<|end_header_id|>");
	put(o, "\n\n");
}

static void llama3(struct out *o, const struct message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	begin(o);
	if (o->c->dated || said) {
		header3(o, "system");
		if (o->c->dated) /* the dates of the published template */
			put(o, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
		if (said)
			put_trimmed(o, &m[0]);
		special(o, "<|eot_id|>");
	}
	for (size_t i = said; i < n; i++) {
		header3(o, m[i].role);
		put_trimmed(o, &m[i]);
		special(o, "<|eot_id|>");
	}
	header3(o, "assistant");
}

static void llama2(struct out *o, const struct message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	for (size_t i = said; i < n; i++) {
		if (!strcmp(m[i].role, "assistant")) {
			put(o, " ");
			put_trimmed(o, &m[i]);
			put(o, " ");
			special(o, "</s>");
			continue;
		}
		special(o, "<s>");
		special(o, "[INST]");
		put(o, " ");
		if (said && i == 1) {
			put(o, "<<SYS>>\n");
			put_n(o, m[0].s, m[0].n);
			put(o, "\n<</SYS>>\n\n");
		}
		put_trimmed(o, &m[i]);
		put(o, " ");
		special(o, "[/INST]");
	}
}

static void mistral(struct out *o, const struct message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	begin(o);
	for (size_t i = said; i < n; i++) {
		if (!strcmp(m[i].role, "assistant")) {
			put_n(o, m[i].s, m[i].n);
			special(o, "</s>");
			continue;
		}
		special(o, "[INST]");
		put(o, " ");
		if (said && i == 1) {
			put_n(o, m[0].s, m[0].n);
			put(o, "\n\n");
		}
		put_n(o, m[i].s, m[i].n);
		put(o, " ");
		special(o, "[/INST]");
	}
}

static void gemma(struct out *o, const struct message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	begin(o);
	for (size_t i = said; i < n; i++) {
		special(o, "<start_of_turn>");
		put(o, !strcmp(m[i].role, "assistant") ? "model" : m[i].role);
		put(o, "\n");
		if (said && i == 1) {
			put_n(o, m[0].s, m[0].n);
			put(o, "\n\n");
		}
		put_trimmed(o, &m[i]);
		special(o, "<end_of_turn>");
		put(o, "\n");
	}
	special(o, "<start_of_turn>");
	put(o, "model\n");
}

static void zephyr(struct out *o, const struct message *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		special(o, !strcmp(m[i].role, "user")	  ? "<|user|>"
			   : !strcmp(m[i].role, "system") ? "<|system|>"
							  : "<|assistant|>");
		put(o, "\n");
		put_n(o, m[i].s, m[i].n);
		special(o, "</s>");
		put(o, "\n");
	}
	special(o, "<|assistant|>");
	put(o, "\n");
}

static void plain(struct out *o, const struct message *m, size_t n)
{
	begin(o);
	for (size_t i = 0; i < n; i++) {
		put_n(o, m[i].s, m[i].n);
		put(o, "\n");
	}
}

/* ---- reading messages ---- */

/* The texts of an array of parts, one after the other. */
static int join_parts(const json_t *parts, struct message *m, size_t at, struct dt_err *err)
{
	const json_t *p;
	size_t i;

	json_array_foreach(parts, i, p)
	{
		const json_t *text = json_object_get(p, "text"), *type = json_object_get(p, "type");
		size_t n = json_string_length(text);
		char *s;

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

static int read_message(const json_t *v, struct message *m, size_t at, struct dt_err *err)
{
	static const char *const roles[] = {"system", "user", "assistant"};
	const json_t *content = json_object_get(v, "content"), *parts = NULL;
	const char *role = json_string_value(json_object_get(v, "role")), *key;
	json_t *wrap;
	int rc;

	json_object_foreach((json_t *)v, key, wrap)
	{
		bool known = !strcmp(key, "role") || !strcmp(key, "content") || !strcmp(key, "name");

		known |= json_is_null(wrap) || (!strcmp(key, "tool_calls") && json_array_size(wrap) == 0);
		if (!known)
			return dt_err_set(err, -EINVAL, "message %zu has an unknown key '%.40s'", at, key);
	}
	if (role && !strcmp(role, "developer"))
		role = "system";
	for (int i = 0; role && i < 3; i++)
		if (!strcmp(role, roles[i]))
			m->role = roles[i];
	if (!m->role)
		return dt_err_set(err, -EINVAL,
				  "message %zu has no role that is one of system, user, assistant", at);
	if (json_is_array(content))
		parts = content;
	if (!parts && !json_is_string(content))
		return dt_err_set(err, -EINVAL, "message %zu has no content", at);
	if (parts)
		return join_parts(parts, m, at, err);
	wrap = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
	rc = wrap ? join_parts(wrap, m, at, err) : dt_err_sys(err, -ENOMEM, "cannot read the messages");
	json_decref(wrap);
	return rc;
}

/* Families without a turn of the system's own. */
static bool folds_system(enum dt_chat_kind k)
{
	return k == DT_CHAT_LLAMA2 || k == DT_CHAT_MISTRAL || k == DT_CHAT_GEMMA;
}

int dt_chat_encode(const struct dt_chat *c, const json_t *messages, int32_t **ret, size_t *ret_n,
		   struct dt_err *err)
{
	static void (*const apply[DT_CHAT_N])(struct out *, const struct message *, size_t) = {
		[DT_CHAT_NONE] = plain,	    [DT_CHAT_CHATML] = chatml, [DT_CHAT_LLAMA2] = llama2,
		[DT_CHAT_LLAMA3] = llama3,  [DT_CHAT_GEMMA] = gemma,   [DT_CHAT_ZEPHYR] = zephyr,
		[DT_CHAT_MISTRAL] = mistral};
	struct out o = {.c = c, .err = err};
	size_t n = json_array_size(messages);
	struct message *m;

	if (!json_is_array(messages) || n == 0)
		return dt_err_set(err, -EINVAL, "'messages' is not an array of messages");
	m = calloc(n, sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot read the messages");
	for (size_t i = 0; i < n && o.rc >= 0; i++)
		o.rc = read_message(json_array_get(messages, i), &m[i], i, err);
	for (size_t i = 0; i < n && o.rc >= 0 && folds_system(c->kind); i++)
		if (!strcmp(m[i].role, "system") && (i > 0 || n == 1))
			o.rc = dt_err_set(
				err, -EINVAL,
				"with this model's template the system speaks first, and the user next");
	if (o.rc >= 0) {
		apply[c->kind](&o, m, n);
		flush(&o);
	}
	for (size_t i = 0; i < n; i++)
		free(m[i].s);
	free(m);
	free(o.text);
	if (o.rc < 0) {
		free(o.ids);
		return o.rc;
	}
	*ret = o.ids;
	*ret_n = o.n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
