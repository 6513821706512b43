/* Reads a source's parameters into the weights that inference uses. */
#include "base/crc.h"
#include "ckpt/source.h"
#include "nn/infer_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct loader {
	struct dt_infer *m;
	struct dt_source *src;
	const struct dt_local *local; /* this rank's parts of parameters; indices are into these */
	const struct dt_params *table;
	struct dt_param *part; /* [local->n] each part as a parameter */
	uint64_t at;	       /* bytes of the arena used */
	struct dt_err *err;
};

static enum dt_format stored_as(const struct loader *l, int i)
{
	return dt_source_format(l->src, l->local->p[i].index);
}

static enum dt_format format_of(const struct loader *l, int i)
{
	const struct dt_infer_params *p = &l->m->p;

	return dt_infer_format(&l->part[i], p->weights, stored_as(l, i), p->dtype);
}

static enum dt_dtype plain_type(const struct loader *l, const struct dt_param *p)
{
	return dt_infer_plain_type(&l->m->config, p, l->m->p.dtype);
}

static uint64_t place(const struct loader *l, int i, uint64_t *at)
{
	return dt_infer_place(&l->m->config, &l->part[i], l->m->p.dtype, at);
}

/* Reads rows [first, first + rows) of this rank's part. */
static int read_rows(struct loader *l, int i, int64_t first, int64_t rows, enum dt_dtype as, void *dst)
{
	const struct dt_local_param *at = &l->local->p[i];
	const int64_t off[2] = {at->off[0] + first, at->off[1]}, shape[2] = {rows, at->shape[1]};

	return dt_source_read(l->src, at->index, off, shape, as, dst, l->err);
}

/*
 * Rows of this rank's part as stored, without dequantization: their address in the source or, if columns are
 * sharded, a copy in *copy (to be freed). NULL with *rc 0: the source does not store them in this form.
 */
static const char *raw_rows(struct loader *l, int i, int64_t first, int64_t rows, void **copy, int *rc)
{
	const struct dt_local_param *at = &l->local->p[i];
	const struct dt_param *whole = &l->table->p[at->index];
	const char *raw = dt_source_raw(l->src, at->index, at->off[0] + first, rows);
	enum dt_format have = stored_as(l, i);
	int64_t block = dt_format_info(have)->block, cols = whole->shape[1];
	size_t stride, bytes;
	char *to;

	if (!raw)
		return NULL;
	if (at->shape[1] == cols)
		return raw;
	if (at->off[1] % block || at->shape[1] % block) {
		*rc = dt_err_set(l->err, -ENOTSUP,
				 "'%s' is stored in blocks of %lld columns, which tp%d would split",
				 whole->name, (long long)block, l->m->ranks.layout.tp);
		return NULL;
	}
	stride = dt_format_bytes(have, cols);
	bytes = dt_format_bytes(have, at->shape[1]);
	*copy = to = malloc((size_t)rows * bytes);
	if (!to)
		*rc = dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", whole->name);
	raw += dt_format_bytes(have, at->off[1]);
	for (int64_t r = 0; to && r < rows; r++)
		memcpy(to + (size_t)r * bytes, raw + (size_t)r * stride, bytes);
	return to;
}

/* The same rows as numbers: bf16 if stored as such, else f32. */
static const char *read_copy(struct loader *l, int i, int64_t first, int64_t rows, bool bf16, void **copy,
			     int *rc)
{
	*copy = malloc((size_t)(rows * l->part[i].shape[1]) * (bf16 ? 2 : 4));
	*rc = *copy ? read_rows(l, i, first, rows, bf16 ? DT_BF16 : DT_F32, *copy)
		    : dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", l->part[i].name);
	return *copy;
}

/* Adds n bytes to two 32-bit checksums over the weights used. */
static void add(struct loader *l, const void *data, size_t n)
{
	const size_t most = (size_t)1 << 30;
	const char *p = data;

	while (l->m->p.name && n > 0) {
		const size_t k = n < most ? n : most;

		l->m->sum = dt_infer_mix(l->m->sum, (uint64_t)dt_crc32(0, p, k) << 32 | dt_crc32c(p, k));
		p += k;
		n -= k;
	}
}

static int append(struct loader *l, int i, int64_t first, int64_t rows, struct dt_packed **to)
{
	const struct dt_param *p = &l->part[i];
	enum dt_format as = format_of(l, i), have = stored_as(l, i);
	void *copy = NULL;
	int rc = 0;
	const char *raw = raw_rows(l, i, first, rows, &copy, &rc);

	if (rc == 0 && !raw) {
		have = as == DT_FMT_BF16 ? DT_FMT_BF16 : DT_FMT_F32;
		raw = read_copy(l, i, first, rows, have == DT_FMT_BF16, &copy, &rc);
	}
	if (rc < 0) {
		free(copy);
		return rc;
	}
	add(l, raw, dt_format_bytes(have, rows * p->shape[1]));
	if (!*to)
		rc = dt_packed_open(to, l->m->dev, p->shape[1]);
	if (rc == 0)
		rc = dt_packed_append(*to, l->m->dev, as, have, raw, rows);
	free(copy);
	if (rc == -EINVAL && p->shape[1] % dt_format_info(as)->block == 0)
		return dt_err_set(l->err, rc, "'%s' contains NaN or Inf, and cannot be kept as %s", p->name,
				  dt_format_info(as)->name);
	if (rc == -EINVAL || rc == -ENOTSUP)
		return dt_err_set(l->err, rc, "'%s' with rows of %lld cannot be kept as %s", p->name,
				  (long long)p->shape[1], dt_format_info(as)->name);
	return rc < 0 ? dt_err_sys(l->err, rc, "cannot load '%s'", p->name) : 0;
}

/* Loads each expert's rows of one of the three tensors; up follows gate. */
static int load_experts(struct loader *l, int i)
{
	const struct dt_param *p = &l->part[i];
	struct dt_packed **w = l->m->expert[l->m->owner[i]];
	int64_t rows = p->shape[0] / p->experts;
	int rc = 0;

	for (int64_t e = 0; e < p->experts && rc == 0; e++)
		rc = append(l, i, e * rows, rows, &w[e]);
	return rc;
}

static int load_plain(struct loader *l, int i)
{
	const struct dt_param *p = &l->part[i];
	enum dt_dtype type = plain_type(l, p);
	char *data = l->m->weights.base + place(l, i, &l->at), *read = data;
	size_t bytes = (size_t)dt_param_numel(p) * (size_t)dt_dtype_size(type);
	int rc;

	if (!dt_dev_is_host(l->m->dev) && !(read = malloc(bytes)))
		return dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", p->name);
	rc = read_rows(l, i, 0, p->shape[0], type, read);
	add(l, read, bytes);
	if (rc == 0 && type == DT_F32 && dt_infer_rounds(l->m, p))
		for (int64_t k = 0; k < p->shape[0]; k++)
			((float *)(void *)read)[k] =
				dt_bf16_to_f32(dt_f32_to_bf16(((float *)(void *)read)[k]));
	if (read != data) {
		if (rc == 0)
			rc = dt_infer_put(l->m, data, read, bytes, l->err);
		free(read);
	}
	if (rc == 0)
		l->m->w[i] = p->ndim == 2 ? dt_t2(data, type, p->shape[0], p->shape[1])
					  : dt_t1(data, type, p->shape[0]);
	return rc;
}

/* A head's keys are [plain, rank], multiplied from the other side; its values are [v, rank]. */
static int load_heads(struct loader *l, int i)
{
	const struct dt_param *p = &l->part[i];
	const struct dt_config *c = &l->m->config;
	const int64_t plain = c->head_dim - c->rope_dim, v = c->v_dim, rank = p->shape[1];
	const enum dt_format as = format_of(l, i);
	struct dt_infer_heads *to = &l->m->heads[i];
	float *whole = malloc((size_t)(p->shape[0] * rank) * 4), *turned = malloc((size_t)(plain * rank) * 4);
	int rc;

	to->n = (int)(p->shape[0] / (plain + v));
	if (!to->w)
		to->w = calloc(2 * (size_t)to->n, sizeof(*to->w));
	rc = to->w && whole && turned ? read_rows(l, i, 0, p->shape[0], DT_F32, whole)
				      : dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", p->name);
	if (rc == 0)
		add(l, whole, (size_t)(p->shape[0] * rank) * 4);
	for (int h = 0; h < to->n && rc == 0; h++) {
		const float *head = whole + h * (plain + v) * rank;

		for (int64_t r = 0; r < rank; r++)
			for (int64_t k = 0; k < plain; k++)
				turned[r * plain + k] = head[k * rank + r];
		if ((!to->w[h] && (rc = dt_packed_open(&to->w[h], l->m->dev, plain)) < 0) ||
		    (!to->w[to->n + h] && (rc = dt_packed_open(&to->w[to->n + h], l->m->dev, rank)) < 0) ||
		    (rc = dt_packed_append(to->w[h], l->m->dev, as, DT_FMT_F32, turned, rank)) < 0 ||
		    (rc = dt_packed_append(to->w[to->n + h], l->m->dev, as, DT_FMT_F32, head + plain * rank,
					   v)) < 0)
			dt_err_sys(l->err, rc, "cannot load '%s'", p->name);
	}
	free(whole);
	free(turned);
	return rc;
}

static int load_one(struct loader *l, int i)
{
	const struct dt_param *p = &l->part[i];

	if (p->role == DT_W_KV_B)
		return load_heads(l, i);

	if (l->m->owner[i] < 0)
		return load_plain(l, i);
	return p->experts ? load_experts(l, i) : append(l, i, 0, p->shape[0], &l->m->packed[l->m->owner[i]]);
}

static int loader_open(struct loader *l, struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	const struct dt_local *local = &m->plan.stage.local;

	*l = (struct loader){.m = m,
			     .src = src,
			     .local = local,
			     .table = dt_source_params(src),
			     .part = calloc((size_t)local->n + 1, sizeof(*l->part)),
			     .err = err};
	if (!l->part)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	for (int i = 0; i < local->n; i++)
		l->part[i] = dt_infer_part(&l->table->p[local->p[i].index], &local->p[i]);
	return 0;
}

/* Notes the formats of the local parts. */
static int note_formats(struct loader *l)
{
	const size_t n = (size_t)l->local->n + 1;
	struct dt_infer *m = l->m;

	m->format = calloc(n, sizeof(*m->format));
	m->others = m->p.adapters ? calloc(n, sizeof(*m->others)) : NULL;
	if (!m->format || (m->p.adapters && !m->others))
		return dt_err_sys(l->err, -ENOMEM, "cannot load the model");
	for (int i = 0; i < l->local->n; i++) {
		m->format[i] = format_of(l, i);
		if (m->others)
			m->others[i] = dt_infer_format(&l->part[i], m->p.weights, DT_FMT_F32, m->p.dtype);
	}
	return 0;
}

/* -ENOTSUP: weights on disk cannot be reloaded. */
static int check_reload(const struct dt_infer *m, struct dt_err *err)
{
	return m->disk ? dt_err_set(err, -ENOTSUP, "weights on disk cannot be replaced") : 0;
}

int dt_infer_reload_layer(struct dt_infer *m, struct dt_source *src, int layer, struct dt_err *err)
{
	struct loader l = {0};
	int rc = check_reload(m, err);

	if (rc == 0 && !dt_dev_is_host(m->dev))
		rc = dt_err_set(err, -ENOTSUP, "a single layer can be replaced on the CPU only");
	if (rc == 0)
		rc = loader_open(&l, m, src, err);
	for (int i = 0; rc == 0 && i < l.local->n; i++)
		if (l.part[i].layer == layer && m->packed[i])
			dt_packed_rewind(m->packed[i]);
	for (int i = 0; rc == 0 && i < l.local->n; i++)
		if (l.part[i].layer == layer && !l.part[i].experts && l.part[i].role != DT_W_KV_B)
			rc = load_one(&l, i);
		else
			place(&l, i, &l.at);
	free(l.part);
	return rc;
}

int dt_infer_reload(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	struct loader l = {0};
	int rc = check_reload(m, err);

	const bool card = !dt_dev_is_host(m->dev);

	if (rc == 0)
		rc = loader_open(&l, m, src, err);
	if (rc == 0 && card) { /* the device's tables and recorded steps have addresses of weights */
		dt_infer_side_forget(m);
		dt_infer_weights_part(m);
	}
	for (int i = 0; rc == 0 && i < l.local->n; i++) {
		if (m->packed[i])
			dt_packed_rewind(m->packed[i]);
		for (int64_t e = 0; m->expert[i] && e < m->config.experts; e++)
			if (m->expert[i][e])
				dt_packed_rewind(m->expert[i][e]);
		for (int h = 0; h < 2 * m->heads[i].n; h++)
			dt_packed_rewind(m->heads[i].w[h]);
	}
	for (int i = 0; rc == 0 && i < l.local->n; i++)
		rc = load_one(&l, i);
	if (rc == 0 && card)
		rc = dt_infer_weights_join(m, err);
	free(l.part);
	return rc;
}

int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	const struct dt_local *local = &m->plan.stage.local;
	struct loader l;
	uint64_t bytes = 0;
	int rc = loader_open(&l, m, src, err);

	if (rc == 0 && (rc = dt_infer_weights_open(m)) < 0)
		dt_err_sys(err, rc, "cannot load the model");
	if (rc < 0) {
		free(l.part);
		return rc;
	}
	for (int i = 0; i < local->n; i++)
		place(&l, i, &bytes);
	rc = dt_infer_area(m, &m->weights, bytes, err);
	if (rc == 0)
		rc = note_formats(&l);
	if (rc == 0)
		rc = dt_infer_disk_open(m, l.part, m->format, err);
	for (int i = 0; i < local->n && rc == 0; i++) {
		rc = load_one(&l, i);
		if (rc == 0 && (i + 1 == local->n || l.part[i + 1].layer != l.part[i].layer))
			rc = dt_infer_disk_put(m, l.part[i].layer, err);
	}
	if (rc == 0)
		rc = dt_infer_weights_join(m, err);
	if (rc == 0)
		rc = dt_infer_disk_start(m, err);
	free(l.part);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
