#include "eval/model.h"

#include "ckpt/adapter.h"
#include "kernels/row_sums.h"
#include "nn/device.h"
#include "plan/inferplan.h"
#include "serve/api/served.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK	     16
#define MOST_ROWS    512
#define LOGITS_BYTES (128 << 20) /* of one pass, approximately */

int dt_eval_threads(int64_t asked)
{
	if (asked > 0)
		omp_set_num_threads((int)asked);
	return omp_get_max_threads();
}

static int allocate(struct dt_eval_model *m, int blocks, struct dt_err *err)
{
	size_t rows = (size_t)m->rows;

	m->pos = calloc(rows, sizeof(*m->pos));
	m->want = calloc(rows, sizeof(*m->want));
	m->slot = calloc(rows, sizeof(*m->slot));
	m->table = calloc((size_t)blocks, sizeof(*m->table));
	m->logits = malloc(rows * (size_t)m->vocab * sizeof(*m->logits));
	if (!m->pos || !m->want || !m->slot || !m->table || !m->logits)
		return dt_err_sys(err, -ENOMEM, "cannot evaluate '%s'", m->path);
	for (int i = 0; i < m->rows; i++)
		m->want[i] = i;
	for (int i = 0; i < blocks; i++)
		m->table[i] = i;
	return 0;
}

static int load(struct dt_eval_model *m, struct dt_source *src, const struct dt_eval_opts *o,
		struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(src);
	struct dt_infer_params p = {.dtype = o->fp32 ? DT_F32 : DT_BF16,
				    .cache = o->fp32 ? DT_F32 : DT_BF16,
				    .weights = o->weights,
				    .states = 1,
				    .disk_dir = o->weights_disk,
				    .disk_memory = o->weights_memory};
	int rc;

	m->vocab = c->vocab;
	m->len = o->seq ? o->seq : c->max_seq;
	if (m->len > dt_config_positions(c))
		return dt_err_set(err, -EINVAL, "--seq %lld exceeds the %lld positions of '%s'",
				  (long long)m->len, (long long)dt_config_positions(c), m->path);
	m->rows = (int)(LOGITS_BYTES / 4 / m->vocab);
	m->rows = m->rows > MOST_ROWS ? MOST_ROWS : m->rows < BLOCK ? BLOCK : m->rows;
	if (m->rows > m->len)
		m->rows = (int)m->len;
	p.max_tokens = p.max_seqs = m->rows;
	p.max_len = (int)m->len;
	p.block_size = (int)dt_infer_block(c, BLOCK, m->len);
	p.blocks = m->blocks = (int)((m->len + p.block_size - 1) / p.block_size);
	rc = dt_config_servable(c, err);
	if (rc == 0)
		rc = dt_served_tokenizer(src, o->tokenizer, &m->tok, err);
	if (rc == 0)
		rc = dt_nn_device_open(&m->dev, o->device, o->local_rank, dt_eval_threads(o->threads), err);
	if (rc < 0)
		return rc;
	m->dev->batch_invariant = true; /* results must not depend on how a text is split into passes */
	rc = dt_infer_open(&m->infer, m->dev, src, &p, err);
	return rc < 0 ? rc : allocate(m, p.blocks, err);
}

int dt_eval_positions(const char *path, int64_t *ret_default, int64_t *ret_most, struct dt_err *err)
{
	struct dt_source *s;
	int rc = dt_source_open(path, DT_SOURCE_AUTO, "none", &s, err);

	if (rc < 0)
		return rc;
	*ret_default = dt_source_config(s)->max_seq;
	*ret_most = dt_config_positions(dt_source_config(s));
	dt_source_close(s);
	return 0;
}

int dt_eval_model_open(struct dt_eval_model *m, const char *path, const struct dt_eval_opts *o,
		       struct dt_err *err)
{
	struct dt_source *src;
	int rc;

	m->path = strdup(path);
	if (!m->path)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	rc = dt_source_open(path, DT_SOURCE_AUTO, o->tokenizer, &src, err);
	if (rc == 0 && o->lora)
		rc = dt_source_adapt(&src, o->lora, o->any_base, err);
	if (rc < 0)
		return rc;
	rc = load(m, src, o, err);
	dt_source_close(src);
	return rc;
}

int dt_eval_model_open_like(struct dt_eval_model *m, const char *path, const char *like,
			    const struct dt_eval_opts *o, struct dt_err *err)
{
	struct dt_eval_opts with = *o;
	int rc = dt_eval_model_open(m, path, o, err);

	if (rc != -ENOENT || o->tokenizer)
		return rc;
	dt_eval_model_close(m);
	with.tokenizer = like;
	return dt_eval_model_open(m, path, &with, err);
}

void dt_eval_model_close(struct dt_eval_model *m)
{
	if (m->infer)
		dt_infer_close(m->infer);
	if (m->dev)
		dt_dev_close(m->dev);
	if (m->tok)
		dt_tokenizer_close(m->tok);
	free(m->pos);
	free(m->want);
	free(m->slot);
	free(m->table);
	free(m->logits);
	free(m->path);
	memset(m, 0, sizeof(*m));
}

int dt_eval_extend(struct dt_eval_model *m, const int32_t *ids, int64_t from, int n, int skip,
		   struct dt_err *err)
{
	const int32_t start[2] = {0, n}, kv_len = (int32_t)(from + n), state = 0;
	struct dt_infer_batch b = {.nseq = 1,
				   .ntokens = n,
				   .ids = ids + from,
				   .pos = m->pos,
				   .slot = m->slot,
				   .q_start = start,
				   .kv_len = &kv_len,
				   .block_table = m->table,
				   .state = &state,
				   .max_blocks = m->blocks,
				   .want = m->want + skip,
				   .nwant = n - skip};

	for (int i = 0; i < n; i++) {
		m->pos[i] = (int32_t)(from + i);
		m->slot[i] = from + i; /* block k of the sequence is block k of the cache */
	}
	return dt_infer_forward(m->infer, &b, m->logits, err);
}

double dt_eval_logprob(const float *logits, int64_t vocab, int32_t id, double *ret_log_sum)
{
	const double sum = dt_row_log_sum(logits, vocab);

	if (ret_log_sum)
		*ret_log_sum = sum;
	return (double)logits[id] - sum;
}
/* SPDX-License-Identifier: Apache-2.0 */
