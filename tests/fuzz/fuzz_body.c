/* Bodies of every route, without a server. The first byte says which. */
#include "serve/api/openai.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static int no_forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	return -EIO;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static int (*const parse[])(const json_t *, const struct dt_api_model *, struct dt_completion *,
				    struct dt_api_error *) = {dt_completion_parse, dt_chat_parse,
							      dt_embedding_parse, dt_line_parse};
	static struct dt_engine_params p = {
		.model = {.forward = no_forward, .vocab = 300, .hidden = 3, .eos = {256}, .neos = 1},
		.max_seqs = 4,
		.max_tokens = 16,
		.max_len = 100,
		.blocks = 100,
		.block_size = 4,
		.queue = 8};
	static struct dt_tokenizer *tok;
	static struct dt_chat chat;
	struct dt_api_model m = {.engine = &p, .name = "tiny", .chat = &chat};
	struct dt_completion c;
	struct dt_api_error e;
	json_t *v;

	if (!tok) {
		if (dt_tokenizer_open("byte", &tok, NULL) < 0)
			abort();
		p.tok = tok;
		dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	}
	v = n ? json_loadb((const char *)data + 1, n - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL)
	      : NULL;
	m.batch = n && data[0] & 4;
	if (v && parse[data[0] % 4](v, &m, &c, &e) == 0) {
		if (c.call->n < 1 || c.call->n > p.max_seqs + p.queue)
			abort();
		for (int i = 0; i < c.call->n; i++)
			if (c.call->req[i].nprompt < 1 ||
			    c.call->req[i].nprompt + c.call->req[i].max_tokens > p.max_len)
				abort();
		dt_completion_release(&c);
	} else if (v) {
		json_t *o = dt_api_error_json(&e);

		if (!o || !e.msg[0] || e.status < 400 || e.status > 500)
			abort();
		json_decref(o);
	}
	json_decref(v);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
