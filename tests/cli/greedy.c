/*
 * greedy CKPT PRECISION N PROMPT: prints N greedy tokens after the bytes of PROMPT as a JSON array. A
 * reference for dt-serve: every token comes from one forward pass over the whole text, without KV cache
 * entries of earlier passes and with a batch of one sequence.
 */
#include "base/json.h"
#include "ckpt/source.h"
#include "nn/infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 512

int main(int argc, char **argv)
{
	int32_t ids[MAX], pos[MAX], table[MAX / 8], q_start[2] = {0, 0}, kv_len, want, state = 0;
	struct dt_infer_params p = {
		.max_tokens = MAX, .max_seqs = 1, .blocks = MAX / 8, .block_size = 8, .states = 1};
	struct dt_source *src;
	struct dt_dev *dev;
	struct dt_infer *m;
	struct dt_err err;
	int64_t slot[MAX];
	json_t *out = json_array();
	float *logits;
	int n, more;

	if (argc != 5)
		return 2;
	p.dtype = p.cache = strcmp(argv[2], "fp32") ? DT_BF16 : DT_F32;
	p.weights = -1;
	more = atoi(argv[3]);
	n = (int)strlen(argv[4]);
	for (int i = 0; i < MAX; i++) {
		ids[i] = i < n ? (unsigned char)argv[4][i] : 0;
		pos[i] = i;
		slot[i] = i;
	}
	for (int i = 0; i < MAX / 8; i++)
		table[i] = i;
	if (dt_dev_open(&dev, DT_DEV_CPU, 0, 1) < 0 ||
	    dt_source_open(argv[1], DT_SOURCE_AUTO, NULL, &src, &err) < 0 ||
	    dt_infer_open(&m, dev, src, &p, &err) < 0)
		return 1;
	logits = malloc((size_t)dt_infer_config(m)->vocab * sizeof(*logits));
	for (; more > 0 && n < MAX; more--, n++) {
		struct dt_infer_batch b = {.nseq = 1,
					   .ntokens = n,
					   .ids = ids,
					   .pos = pos,
					   .slot = slot,
					   .q_start = q_start,
					   .kv_len = &kv_len,
					   .block_table = table,
					   .max_blocks = MAX / 8,
					   .state = &state,
					   .want = &want,
					   .nwant = 1};
		int best = 0;

		q_start[1] = kv_len = n;
		want = n - 1;
		if (dt_infer_forward(m, &b, logits, &err) < 0)
			return 1;
		for (int i = 0; i < dt_infer_config(m)->vocab; i++)
			if (logits[i] > logits[best])
				best = i;
		ids[n] = best;
		json_array_append_new(out, json_integer(best));
	}
	dt_json_write_line(stdout, out, NULL);
	json_decref(out);
	free(logits);
	dt_infer_close(m);
	dt_source_close(src);
	dt_dev_close(dev);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
