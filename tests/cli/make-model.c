/*
 * make-model CKPT [PRESET|CONFIG.json [VOCAB [WINDOW [CONTEXT]]]]: writes a checkpoint with random weights
 * and the byte tokenizer. Default: llama-tiny with a vocabulary of 260, more than the tokenizer has. The
 * context is 512 tokens unless given.
 */
#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "data/tokenizer.h"
#include "model/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct dt_config c;
	struct dt_tokenizer *tok;
	struct dt_params table;
	struct dt_piece *piece;
	json_t *list, *meta;
	struct dt_err err;
	const char *text;
	char *tmp;
	size_t n;

	if (argc < 2 || dt_config_load(argc > 2 ? argv[2] : "llama-tiny", &c, &err) < 0)
		return 1;
	c.max_seq = argc > 5 ? atoi(argv[5]) : 512;
	c.bos = c.eos = -1; /* taken from the tokenizer */
	c.window = argc > 4 ? atoi(argv[4]) : c.window;
	if (argc <= 2 || argc > 3)
		c.vocab = argc > 3 ? atoi(argv[3]) : 260;
	if (dt_config_check(&c, &err) < 0 || dt_model_params(&c, &table, &err) < 0 ||
	    dt_tokenizer_open("byte", &tok, &err) < 0)
		return 1;
	piece = calloc((size_t)table.n, sizeof(*piece));
	for (int i = 0; i < table.n; i++) {
		const struct dt_param *p = &table.p[i];
		struct dt_rng r = dt_rng_make(42, DT_RNG_INIT, dt_hash_str(p->name));
		float *w = malloc((size_t)dt_param_numel(p) * sizeof(*w));

		/*
		 * A large deviation makes logits far from uniform, so that greedy texts differ between
		 * prompts.
		 */
		dt_rng_fill_normal(&r, 0, w, (uint64_t)dt_param_numel(p), p->init == DT_INIT_ONES ? 1 : 0,
				   p->init == DT_INIT_NORMAL ? 0.25f : 0);
		piece[i].dtype = DT_F32;
		piece[i].ndim = p->ndim;
		piece[i].data = w;
		memcpy(piece[i].global, p->shape, (size_t)p->ndim * sizeof(*p->shape));
		memcpy(piece[i].shape, p->shape, (size_t)p->ndim * sizeof(*p->shape));
		snprintf(piece[i].name, sizeof(piece[i].name), "model/%s", p->name);
	}
	text = dt_tokenizer_text(tok, &n);
	meta = json_pack("{s:o, s:s, s:i, s:{s:s, s:s%}}", "model", dt_config_to_json(&c), "layout", "dp1",
			 "step", 1, "tokenizer", "hash", dt_tokenizer_hash(tok), "text", text, n);
	if (!meta || dt_ckpt_begin(argv[1], 1, &tmp, &err) < 0 ||
	    dt_ckpt_write_shard(tmp, 0, piece, table.n, false, &list, &err) < 0 ||
	    dt_ckpt_commit(argv[1], 1, meta, &list, 1, 0, &err) < 0) {
		fprintf(stderr, "make-model: %s\n", err.msg);
		return 1;
	}
	free(tmp);
	json_decref(list);
	json_decref(meta);
	for (int i = 0; i < table.n; i++)
		free((void *)piece[i].data);
	free(piece);
	dt_params_release(&table);
	dt_tokenizer_close(tok);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
