/* Formats conversations as each family's template does. */
#include "data/chat_priv.h"

#include <string.h>

static void put_trimmed(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	static const char space[] = " \t\n\v\f\r";
	size_t a = 0, b = m->n;

	while (a < b && memchr(space, m->s[a], 6))
		a++;
	while (b > a && memchr(space, m->s[b - 1], 6))
		b--;
	dt_chat_put_n(o, m->s + a, b - a);
}

static void chatml(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	const struct dt_chat_message own = {"system", (char *)o->c->system, strlen(o->c->system)};
	bool add = strcmp(m[0].role, "system") && (own.n > 0 || o->tools);

	for (size_t i = 0; i < n + add; i++) {
		const struct dt_chat_message *at = add ? (i ? &m[i - 1] : &own) : &m[i];
		bool more =
			/* consecutive results form one turn */
			at->tool && at != &own && at > m && at[-1].tool;

		if (!more) {
			dt_chat_special(o, "<|im_start|>");
			dt_chat_put(o, at->tool ? "user" : at->role);
		}
		dt_chat_put(o, "\n");
		dt_chat_turn(o, at);
		if (at->tool)
			dt_chat_hermes_result(o, at);
		else
			dt_chat_put_n(o, at->s, at->n);
		if (i == 0 && o->tools)
			dt_chat_hermes_tools(o, at->n > 0);
		if (at->calls)
			dt_chat_hermes_calls(o, at);
		if (at->tool && at + 1 < m + n && at[1].tool)
			continue;
		dt_chat_special(o, "<|im_end|>");
		dt_chat_turn(o, NULL);
		dt_chat_put(o, "\n");
	}
	if (o->whole)
		return;
	dt_chat_special(o, "<|im_start|>");
	dt_chat_put(o, "assistant\n");
	if (o->c->quiet) {
		dt_chat_special(o, "<think>");
		dt_chat_put(o, "\n\n");
		dt_chat_special(o, "</think>");
		dt_chat_put(o, "\n\n");
	}
	if (o->tools && o->tools->open) {
		dt_chat_special(o, "<tool_call>");
		dt_chat_put(o, "\n");
	}
}

static void header3(struct dt_chat_out *o, const char *role)
{
	dt_chat_special(o, "<|start_header_id|>");
	dt_chat_put(o, role);
	dt_chat_special(o, "<|end_header_id|>");
	dt_chat_put(o, "\n\n");
}

static void llama3(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system"), asked = false;

	dt_chat_begin(o);
	if (o->c->dated || said || o->tools) {
		header3(o, "system");
		if (o->tools)
			dt_chat_put(o, "Environment: ipython\n");
		if (o->c->dated) /* the published template includes dates */
			dt_chat_put(o, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
		if (said)
			put_trimmed(o, &m[0]);
		dt_chat_special(o, "<|eot_id|>");
	}
	for (size_t i = said; i < n; i++) {
		header3(o, m[i].tool ? "ipython" : m[i].role);
		if (o->tools && !asked && !strcmp(m[i].role, "user")) {
			asked = true;
			dt_chat_llama3_tools(o);
		}
		dt_chat_turn(o, &m[i]);
		if (m[i].calls)
			dt_chat_llama3_calls(o, &m[i]);
		else if (m[i].tool)
			dt_chat_llama3_result(o, &m[i]);
		else
			put_trimmed(o, &m[i]);
		dt_chat_special(o, "<|eot_id|>");
		dt_chat_turn(o, NULL);
	}
	if (!o->whole)
		header3(o, "assistant");
}

static void llama2(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	for (size_t i = said; i < n; i++) {
		if (!strcmp(m[i].role, "assistant")) {
			dt_chat_turn(o, &m[i]);
			dt_chat_put(o, " ");
			put_trimmed(o, &m[i]);
			dt_chat_put(o, &m[i] == o->open ? "" : " ");
			dt_chat_special(o, "</s>");
			dt_chat_turn(o, NULL);
			continue;
		}
		dt_chat_special(o, "<s>");
		dt_chat_special(o, "[INST]");
		dt_chat_put(o, " ");
		if (said && i == 1) {
			dt_chat_put(o, "<<SYS>>\n");
			dt_chat_put_n(o, m[0].s, m[0].n);
			dt_chat_put(o, "\n<</SYS>>\n\n");
		}
		put_trimmed(o, &m[i]);
		dt_chat_put(o, " ");
		dt_chat_special(o, "[/INST]");
	}
}

static void mistral_said(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	if (o->c->v3)
		dt_chat_put(o, " ");
	dt_chat_put_n(o, m->s, m->n);
}

static void mistral(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");
	size_t last = n;

	for (size_t i = 0; i < n; i++)
		last = !strcmp(m[i].role, "user") ? i : last;
	dt_chat_begin(o);
	for (size_t i = said; i < n; i++) {
		if (m[i].tool) {
			dt_chat_mistral_result(o, &m[i]);
			continue;
		}
		if (!strcmp(m[i].role, "assistant")) {
			dt_chat_turn(o, &m[i]);
			if (m[i].calls)
				dt_chat_mistral_calls(o, &m[i]);
			else
				mistral_said(o, &m[i]);
			dt_chat_special(o, "</s>");
			dt_chat_turn(o, NULL);
			continue;
		}
		if (o->tools && i == last)
			dt_chat_mistral_tools(o);
		dt_chat_special(o, "[INST]");
		dt_chat_put(o, " ");
		if (said && i == (o->c->v3 ? n - 1 : 1)) { /* v0.3: only before the last message */
			dt_chat_put_n(o, m[0].s, m[0].n);
			dt_chat_put(o, "\n\n");
		}
		dt_chat_put_n(o, m[i].s, m[i].n);
		if (!o->c->v3)
			dt_chat_put(o, " ");
		dt_chat_special(o, "[/INST]");
	}
	if (o->tools && o->tools->open)
		dt_chat_special(o, "[TOOL_CALLS]");
}

static void gemma(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	bool said = !strcmp(m[0].role, "system");

	dt_chat_begin(o);
	for (size_t i = said; i < n; i++) {
		dt_chat_special(o, "<start_of_turn>");
		dt_chat_put(o, !strcmp(m[i].role, "assistant") ? "model" : m[i].role);
		dt_chat_put(o, "\n");
		if (said && i == 1) {
			dt_chat_put_n(o, m[0].s, m[0].n);
			dt_chat_put(o, "\n\n");
		}
		dt_chat_turn(o, &m[i]);
		put_trimmed(o, &m[i]);
		dt_chat_special(o, "<end_of_turn>");
		dt_chat_turn(o, NULL);
		dt_chat_put(o, "\n");
	}
	if (o->whole)
		return;
	dt_chat_special(o, "<start_of_turn>");
	dt_chat_put(o, "model\n");
}

/* Zephyr's format; Phi-3's differs only in the end of a turn. */
static void by_role(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n, const char *end)
{
	for (size_t i = 0; i < n; i++) {
		dt_chat_special(o, !strcmp(m[i].role, "user")	  ? "<|user|>"
				   : !strcmp(m[i].role, "system") ? "<|system|>"
								  : "<|assistant|>");
		dt_chat_put(o, "\n");
		dt_chat_turn(o, &m[i]);
		dt_chat_put_n(o, m[i].s, m[i].n);
		dt_chat_special(o, end);
		dt_chat_turn(o, NULL);
		dt_chat_put(o, "\n");
	}
	if (!o->whole) {
		dt_chat_special(o, "<|assistant|>");
		dt_chat_put(o, "\n");
	}
}

static void zephyr(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	by_role(o, m, n, "</s>");
}

static void phi3(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	by_role(o, m, n, "<|end|>");
	if (o->whole)
		dt_chat_special(o, "<|endoftext|>");
}

static void deepseek2(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	dt_chat_begin(o);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(m[i].role, "assistant")) {
			dt_chat_put(o, !strcmp(m[i].role, "user") ? "User: " : "");
			dt_chat_put_n(o, m[i].s, m[i].n);
			dt_chat_put(o, "\n\n");
			continue;
		}
		dt_chat_put(o, "Assistant:");
		dt_chat_turn(o, &m[i]);
		dt_chat_put(o, " ");
		dt_chat_put_n(o, m[i].s, m[i].n);
		dt_chat_special(o, DT_CHAT_DEEPSEEK_EOS);
		dt_chat_turn(o, NULL);
	}
	if (!o->whole)
		dt_chat_put(o, "Assistant:");
}

/* Writes an assistant message; in a prompt without its reasoning. */
static void put_answer(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	static const char close[] = "</think>";
	const size_t len = strlen(close);
	size_t at = o->whole ? 0 : m->n;

	while (at > 0 && !(at >= len && !memcmp(m->s + at - len, close, len)))
		at--;
	dt_chat_put_n(o, m->s + at, m->n - at);
}

/*
 * All system messages come first. An answer directly follows results of tools. R1's template ends prompts
 * with <think>; here the model writes it, so that the answer shows where reasoning begins.
 */
static void deepseek3(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	bool said = false, told;

	dt_chat_begin(o);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(m[i].role, "system"))
			continue;
		dt_chat_put(o, said ? "\n\n" : "");
		dt_chat_put_n(o, m[i].s, m[i].n);
		said = true;
	}
	if (o->tools)
		dt_chat_deepseek_tools(o, said);
	for (size_t i = 0; i < n; i++) {
		told = i > 0 && m[i - 1].tool;
		if (m[i].tool) {
			dt_chat_deepseek_result(o, &m[i], !told, i + 1 == n || !m[i + 1].tool);
		} else if (!strcmp(m[i].role, "user")) {
			dt_chat_special(o, "<｜User｜>");
			dt_chat_put_n(o, m[i].s, m[i].n);
		} else if (!strcmp(m[i].role, "assistant")) {
			if (!told)
				dt_chat_special(o, "<｜Assistant｜>");
			dt_chat_turn(o, &m[i]);
			put_answer(o, &m[i]);
			if (m[i].calls)
				dt_chat_deepseek_calls(o, &m[i]);
			dt_chat_special(o, DT_CHAT_DEEPSEEK_EOS);
			dt_chat_turn(o, NULL);
		}
	}
	if (!o->whole && !m[n - 1].tool)
		dt_chat_special(o, "<｜Assistant｜>");
	if (o->tools && o->tools->open)
		dt_chat_deepseek_open(o);
}

/* The token that begins a text differs: that of Llama 3 in Idefics3, ChatML's in SmolVLM. */
static void idefics(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	dt_chat_special(o, o->c->llama ? "<|begin_of_text|>" : "<|im_start|>");
	for (size_t i = 0; i < n; i++) {
		const char first[2] = {(char)(m[i].role[0] - 'a' + 'A'), 0};

		dt_chat_put(o, first);
		dt_chat_put(o, m[i].role + 1);
		dt_chat_put(o, m[i].image_first ? ":" : ": ");
		dt_chat_turn(o, &m[i]);
		dt_chat_content(o, &m[i]);
		dt_chat_special(o, "<end_of_utterance>");
		dt_chat_turn(o, NULL);
		dt_chat_put(o, "\n");
	}
	if (!o->whole)
		dt_chat_put(o, "Assistant:");
}

static void plain(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	dt_chat_begin(o);
	for (size_t i = 0; i < n; i++) {
		dt_chat_turn(o, &m[i]);
		dt_chat_put_n(o, m[i].s, m[i].n);
		if (o->target)
			dt_chat_end_of_text(o);
		dt_chat_turn(o, NULL);
		dt_chat_put(o, "\n");
	}
}

void (*const dt_chat_template[DT_CHAT_N])(struct dt_chat_out *, const struct dt_chat_message *, size_t) = {
	[DT_CHAT_NONE] = plain,
	[DT_CHAT_CHATML] = chatml,
	[DT_CHAT_LLAMA2] = llama2,
	[DT_CHAT_LLAMA3] = llama3,
	[DT_CHAT_GEMMA] = gemma,
	[DT_CHAT_ZEPHYR] = zephyr,
	[DT_CHAT_MISTRAL] = mistral,
	[DT_CHAT_PHI3] = phi3,
	[DT_CHAT_DEEPSEEK2] = deepseek2,
	[DT_CHAT_DEEPSEEK3] = deepseek3,
	[DT_CHAT_HARMONY] = dt_chat_harmony,
	[DT_CHAT_IDEFICS] = idefics,
};
/* SPDX-License-Identifier: Apache-2.0 */
