/* Two models in files beside each other, in one process. */
#include "eval/ppl.h"

#include "ckpt/source.h"
#include "data/unpack.h"

#include <stdlib.h>

#define MOST_TEXT ((size_t)1 << 30)
#define LEN	  2048 /* tokens of a window, unless the caller says */

/* Tokens of a window: as asked for, or the model's positions up to LEN. */
static int window_of(const struct dt_ppl_files *f, int64_t *ret, struct dt_err *err)
{
	struct dt_source *s;
	int rc;

	*ret = f->seq;
	if (f->seq)
		return 0;
	rc = dt_source_open(f->a, DT_SOURCE_AUTO, "none", &s, err);
	if (rc < 0)
		return rc;
	*ret = dt_source_config(s)->max_seq;
	*ret = *ret < LEN ? *ret : LEN;
	dt_source_close(s);
	return 0;
}

static int compare(struct dt_eval_model m[2], const struct dt_ppl_files *f, const struct dt_ppl_query *q,
		   struct dt_ppl_pair *ret, struct dt_err *err)
{
	const char *const path[2] = {f->a, f->b};
	struct dt_eval_opts o = {.weights = -1, .tokenizer = f->tokenizer, .threads = f->threads};
	int rc = window_of(f, &o.seq, err);

	for (int i = 0; i < 2 && rc == 0; i++)
		rc = dt_eval_model_open(&m[i], path[i], &o, err);
	return rc == 0 ? dt_ppl_compare(&m[0], &m[1], q, ret, err) : rc;
}

int dt_ppl_compare_files(const struct dt_ppl_files *f, struct dt_ppl_pair *ret, struct dt_err *err)
{
	struct dt_eval_model m[2] = {{0}, {0}};
	struct dt_ppl_query q = {.size = 1, .bos = true}; /* dt-eval's defaults */
	char *text = NULL;
	int rc = unpack_whole(f->text, MOST_TEXT, &text, &q.n, err);

	q.text = text;
	if (rc == 0)
		rc = compare(m, f, &q, ret, err);
	dt_eval_model_close(&m[0]);
	dt_eval_model_close(&m[1]);
	free(text);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
