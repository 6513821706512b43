/*
 * Bodies of every route, without a server, and texts in which calls of tools are looked for. The first byte
 * says which: 0 to 7 the chat's and its like, A to D and K, L those of other APIs, E to J texts, M an image
 * in a chat and N a chat, both to a model that reads images.
 */
#include "base/base64.h"
#include "serve/api/messages.h"
#include "serve/api/native.h"
#include "serve/api/openai.h"
#include "serve/api/rank.h"
#include "serve/api/responses.h"
#include "serve/api/tools.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static int no_forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	return -EIO;
}

static int rerank(const json_t *v, const struct dt_api_model *m, struct dt_completion *c,
		  struct dt_api_error *e)
{
	struct dt_rank r = {0};
	int rc = dt_rerank_parse(v, m, c, &r, e);

	dt_rank_release(&r);
	return rc;
}

static int score(const json_t *v, const struct dt_api_model *m, struct dt_completion *c,
		 struct dt_api_error *e)
{
	struct dt_rank r = {0};
	int rc = dt_score_parse(v, m, c, &r, e);

	dt_rank_release(&r);
	return rc;
}

/* What is found lies within the text, and grows with it. */
static void scan(enum dt_tool_form form, bool inside, const char *s, size_t n)
{
	size_t content = 0, from, args[DT_CALLS_MAX] = {0};
	int calls = 0;

	for (size_t k = 0; k <= n; k += n > 512 ? n : 1) {
		struct dt_tool_calls c;

		from = dt_tools_thought(s, k, k == n, &c);
		if (from > k || (c.thought && (c.thought < s || c.thought + c.nthought > s + k)))
			abort();
		dt_tools_scan(form, inside, s, k, false, &c);
		if (c.content > k || c.content < content || c.n < calls || c.n > DT_CALLS_MAX)
			abort();
		for (int i = 0; i < c.n; i++) {
			const struct dt_tool_call *call = &c.call[i];

			if (call->name < s || call->name + call->nname > s + k || call->args < s ||
			    call->args + call->nargs > s + k || call->nargs < args[i])
				abort();
			args[i] = call->nargs;
		}
		content = c.content;
		calls = c.n;
		if (n == 0)
			break;
	}
}

/* A chat about one image. */
static json_t *about(const unsigned char *image, size_t n)
{
	static const char begin[] = "data:image/png;base64,";
	char *url = malloc(sizeof(begin) + dt_base64_chars(n));
	json_t *v;

	if (!url)
		return NULL;
	strcpy(url, begin);
	dt_base64_encode(image, n, url + strlen(begin));
	v = json_pack("{s:[{s:s, s:[{s:s, s:{s:s%}}]}]}", "messages", "role", "user", "content", "type",
		      "image_url", "image_url", "url", url, strlen(begin) + dt_base64_chars(n));
	free(url);
	return v;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static const struct dt_vision vision = {.tile = 8,
						.longest = 24,
						.split = true,
						.filter = DT_VISION_LANCZOS,
						.scale = 1,
						.deviation = {1, 1, 1},
						.patches = 4,
						.join = 2,
						.rows = 4};
	static int (*const parse[])(const json_t *, const struct dt_api_model *, struct dt_completion *,
				    struct dt_api_error *) = {dt_completion_parse,
							      dt_chat_parse,
							      dt_embedding_parse,
							      dt_line_parse,
							      dt_messages_parse,
							      dt_responses_parse,
							      rerank,
							      score,
							      dt_native_parse,
							      dt_infill_parse};
	static struct dt_engine_params p = {
		.model = {.forward = no_forward, .vocab = 300, .hidden = 3, .eos = {256}, .neos = 1},
		.max_seqs = 4,
		.max_tokens = 16,
		.max_len = 4096,
		.blocks = 100,
		.block_size = 4,
		.queue = 8};
	static struct dt_engine_params sees;
	static struct dt_tokenizer *tok;
	static struct dt_chat chat, idefics;
	struct dt_api_model m = {.engine = &p, .name = "tiny", .chat = &chat};
	struct dt_completion c;
	struct dt_api_error e;
	json_t *v;
	int which;

	if (!tok) {
		if (dt_tokenizer_open("byte", &tok, NULL) < 0)
			abort();
		p.tok = tok;
		dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
		dt_chat_init(&idefics, DT_CHAT_IDEFICS, NULL, tok);
		sees = p;
		sees.vision = &vision;
		sees.images = 2;
		sees.model.tile_rows = (int)vision.rows;
		sees.image_token = '#'; /* as text may have it: the byte tokenizer has no special tokens */
	}
	if (n > 0 && data[0] >= 'E' && data[0] <= 'J') {
		scan((enum dt_tool_form)(1 + (data[0] - 'E') % 4), data[0] > 'G', (const char *)data + 1,
		     n - 1);
		return 0;
	}
	which = n > 0 ? data[0] % 4 : 0;
	if (n > 0 && data[0] >= 'A' && data[0] <= 'D')
		which = 4 + data[0] - 'A';
	else if (n > 0 && (data[0] == 'K' || data[0] == 'L'))
		which = 8 + data[0] - 'K';
	if (n > 0 && (data[0] == 'M' || data[0] == 'N')) {
		m.engine = &sees;
		m.chat = &idefics;
		which = 1;
	}
	v = n && data[0] == 'M' ? about(data + 1, n - 1)
	    : n ? json_loadb((const char *)data + 1, n - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL)
		: NULL;
	m.batch = n && which < 4 && data[0] & 4;
	if (v && parse[which](v, &m, &c, &e) == 0) {
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
