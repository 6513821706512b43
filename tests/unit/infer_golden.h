/*
 * Models of golden files for tests of inference: their weights as a checkpoint, and passes over two of their
 * sequences with scattered cache blocks.
 */
#ifndef DT_TESTS_INFER_GOLDEN_H
#define DT_TESTS_INFER_GOLDEN_H

#include "ckpt/ckpt.h"
#include "ckpt/source.h"
#include "golden.h"
#include "nn/infer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4, BLOCKS = 40, ROWS = 64 };

/* A checkpoint of c in folder dir: value(p, arg) has the weights of p, to be freed. */
static inline struct dt_source *tests_checkpoint(const struct dt_config *c,
						 float *(*value)(const struct dt_param *p, void *arg),
						 void *arg, const char *dir, const char *name)
{
	struct dt_params table;
	struct dt_source *src = NULL;
	struct dt_piece *piece;
	struct dt_err err = {0};
	json_t *list = NULL, *meta;
	char path[128], *tmp;

	assert_int_equal(dt_model_params(c, &table, &err), 0);
	piece = calloc((size_t)table.n, sizeof(*piece));
	for (int i = 0; i < table.n; i++) {
		const struct dt_param *p = &table.p[i];

		piece[i].data = value(p, arg);
		piece[i].dtype = DT_F32;
		piece[i].ndim = p->ndim;
		memcpy(piece[i].global, p->shape, (size_t)p->ndim * sizeof(*p->shape));
		memcpy(piece[i].shape, p->shape, (size_t)p->ndim * sizeof(*p->shape));
		snprintf(piece[i].name, sizeof(piece[i].name), "model/%s", p->name);
	}
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	meta = json_pack("{s:o, s:s, s:i}", "model", dt_config_to_json(c), "layout", "dp1", "step", 1);
	if (dt_ckpt_begin(path, 1, &tmp, &err) < 0 ||
	    dt_ckpt_write_shard(tmp, 0, piece, table.n, false, &list, &err) < 0 ||
	    dt_ckpt_commit(path, 1, meta, &list, 1, 0, &err) < 0 ||
	    dt_source_open(path, DT_SOURCE_AUTO, NULL, &src, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	free(tmp);
	json_decref(list);
	json_decref(meta);
	for (int i = 0; i < table.n; i++)
		free((void *)piece[i].data);
	free(piece);
	dt_params_release(&table);
	return src;
}

static inline float *golden_value(const struct dt_param *p, void *golden)
{
	char path[128];

	snprintf(path, sizeof(path), "param/%s", p->name);
	return golden_f32(golden, path, NULL);
}

/* A folder of a group of tests, from its setup to its teardown. */
static inline char *tests_dir(void)
{
	static char dir[] = "/tmp/dt-infer-XXXXXX";

	return dir;
}
static inline int make_dir(void **state)
{
	return mkdtemp(tests_dir()) ? 0 : -1;
}
static inline int remove_dir(void **state)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -r %s", tests_dir());
	return system(cmd);
}

/* DT_TEST_DEVICE=cuda: the card's; such a build has an emulated one. */
static inline bool on_card(void)
{
	const char *s = getenv("DT_TEST_DEVICE");

	return s && !strcmp(s, "cuda");
}

/* The golden weights so. */
static inline struct dt_source *golden_checkpoint(struct golden *g, const char *dir, const char *name)
{
	struct dt_config c;

	golden_config(g, &c);
	return tests_checkpoint(&c, golden_value, g, dir, name);
}

/*
 * What pass() has drawn, if anything: draw, edit, nedits and drawn of a batch; adapters of its sequences; and
 * its final hidden states, hidden and given.
 */
static struct dt_infer_batch draws;

/* Of each sequence, the number of last rows of a pass whose logits are wanted; and one row that is not. */
static int lasts[2] = {ROWS, ROWS}, without = -1;

static inline bool is_wanted(int s, int at, int to)
{
	return to - at <= lasts[s] && at != without;
}

/* Computes positions [from, to) of both sequences in one pass; logits of the wanted ones of these rows. */
static inline void pass(struct dt_infer *m, const int32_t *ids, int seq, int from, int to, float *out)
{
	int32_t id[ROWS], pos[ROWS], want[ROWS], q_start[3] = {0, to - from, 2 * (to - from)},
						 kv_len[2] = {to, to};
	int32_t table[2 * BLOCKS / 2], state[2] = {1, 0};
	int64_t slot[ROWS], vocab = dt_infer_config(m)->vocab;
	int n = 2 * (to - from), blocks = BLOCKS / 2, wanted = 0;
	struct dt_infer_batch b = {.nseq = 2,
				   .ntokens = n,
				   .ids = id,
				   .pos = pos,
				   .slot = slot,
				   .q_start = q_start,
				   .kv_len = kv_len,
				   .block_table = table,
				   .max_blocks = blocks,
				   .state = state,
				   .want = want,
				   .draw = draws.draw,
				   .edit = draws.edit,
				   .nedits = draws.nedits,
				   .drawn = draws.drawn,
				   .adapter = draws.adapter,
				   .hidden = draws.hidden,
				   .given = draws.given};
	float *logits = malloc((size_t)(n * vocab) * sizeof(*logits));
	struct dt_err err;

	for (int s = 0; s < 2; s++)
		for (int i = 0; i < blocks; i++)
			table[s * blocks + i] = (7 * (s * blocks + i) + 3) % BLOCKS;
	for (int i = 0; i < n; i++) {
		int s = i / (to - from), at = from + i % (to - from);

		id[i] = ids[s * seq + at];
		pos[i] = at;
		slot[i] = (int64_t)table[s * blocks + at / BLOCK] * BLOCK + at % BLOCK;
		if (is_wanted(s, at, to))
			want[wanted++] = i;
	}
	b.nwant = wanted;
	if (dt_infer_forward(m, &b, logits, &err) < 0)
		fail_msg("%s", err.msg);
	for (int i = 0; i < wanted; i++) {
		int s = want[i] / (to - from), at = from + want[i] % (to - from);

		memcpy(out + (s * seq + at) * vocab, logits + i * vocab, (size_t)vocab * sizeof(*out));
	}
	free(logits);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
