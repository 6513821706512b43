/* Text between a prompt and a suffix, by models that were trained to fill it in. */
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The tokens before the text, before the suffix, and before what is filled in. */
static const char *const marks[][3] = {
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma */
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},	/* StarCoder */
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, /* DeepSeek-Coder */
};

static bool find_marks(const struct dt_tokenizer *tok, int32_t ret[3])
{
	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		int found = 0;

		for (int k = 0; k < 3; k++) {
			ret[k] = dt_tokenizer_find(tok, marks[i][k], strlen(marks[i][k]));
			found += ret[k] >= 0;
		}
		if (found == 3)
			return true;
	}
	return false;
}

int dt_body_infill(struct dt_body *b, struct dt_prompt *p, const json_t *suffix)
{
	const struct dt_tokenizer *tok = b->m->engine->tok;
	const int32_t bos = b->special ? dt_tokenizer_bos(tok) : -1;
	int32_t mark[3], *part[2] = {NULL, NULL};
	const char *text[2] = {p->text.s, json_string_value(suffix)};
	const size_t bytes[2] = {p->text.n, json_string_length(suffix)};
	size_t n[2] = {0}, at = 0;
	const char *key = b->kind == DT_BODY_INFILL ? "input_suffix" : "suffix";
	struct dt_err err;
	int rc = 0;

	if (!find_marks(tok, mark))
		return dt_body_bad(b->e, key, "this model has no tokens to fill in text before a suffix");
	for (int i = 0; i < 2 && rc == 0; i++) /* marks within the texts are text */
		rc = dt_tokenizer_encode(tok, text[i], bytes[i], false, &part[i], &n[i], &err);
	if (rc < 0)
		rc = dt_body_bad(b->e, key, "%s", err.msg);
	else if (!(p->ids = malloc((n[0] + n[1] + 4) * sizeof(*p->ids))))
		rc = dt_body_no_memory(b->e);
	if (rc == 0) {
		if (bos >= 0)
			p->ids[at++] = bos;
		for (int i = 0; i < 2; i++) {
			p->ids[at++] = mark[i];
			memcpy(p->ids + at, part[i], n[i] * sizeof(*p->ids));
			at += n[i];
		}
		p->ids[at++] = mark[2];
		p->n = at;
	}
	free(part[0]);
	free(part[1]);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
