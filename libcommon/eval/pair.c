/* Compares two model files in one process. */
#include "eval/ppl.h"

#include "ckpt/source.h"
#include "data/unpack.h"
#include "serve/api/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXT ((size_t)1 << 30)
#define LEN	  2048 /* tokens of a window by default */

/* Tokens of a window: as given, else the model's positions, at most LEN. */
static int window_of(const struct dt_ppl_files *f, int64_t *ret, struct dt_err *err)
{
	int64_t most;
	int rc = f->seq ? 0 : dt_eval_positions(f->a, ret, &most, err);

	if (rc == 0)
		*ret = f->seq ? f->seq : *ret < LEN ? *ret : LEN;
	return rc;
}

static int compare(struct dt_eval_model m[2], const struct dt_ppl_files *f, const struct dt_ppl_query *q,
		   struct dt_ppl_pair *ret, struct dt_err *err)
{
	struct dt_eval_opts o = {.weights = -1, .tokenizer = f->tokenizer, .threads = f->threads};
	int rc = window_of(f, &o.seq, err);

	if (rc == 0)
		rc = dt_eval_model_open(&m[0], f->a, &o, err);
	if (rc == 0)
		rc = dt_eval_model_open_like(&m[1], f->b, f->a, &o, err);
	return rc == 0 ? dt_ppl_compare(&m[0], &m[1], q, ret, err) : rc;
}

int dt_ppl_read_text(struct dt_ppl_files *f, struct dt_err *err)
{
	struct dt_tokenizer *tok = NULL;
	struct dt_source *s;
	int rc = unpack_whole(f->text, MOST_TEXT, &f->read, &f->n, err);

	if (rc < 0 || (rc = dt_source_open(f->a, DT_SOURCE_AUTO, f->tokenizer, &s, err)) < 0)
		return rc;
	rc = dt_served_tokenizer(s, f->tokenizer, &tok, err);
	dt_source_close(s);
	if (tok)
		dt_tokenizer_close(tok);
	return rc;
}

void dt_ppl_files_release(struct dt_ppl_files *f)
{
	free(f->read);
	f->read = NULL;
}

int dt_ppl_compare_files(const struct dt_ppl_files *f, struct dt_ppl_pair *ret, struct dt_err *err)
{
	struct dt_eval_model m[2] = {{0}, {0}};
	struct dt_ppl_query q = {.size = 1, .bos = true, .text = f->read, .n = f->n}; /* dt-eval's defaults */
	int rc = compare(m, f, &q, ret, err);

	dt_eval_model_close(&m[0]);
	dt_eval_model_close(&m[1]);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
