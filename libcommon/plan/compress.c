#include "plan/compress.h"

#include <math.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

struct dt_compress_shape dt_compress_shape(const struct dt_compress_opts *o, const struct dt_compress_part *p)
{
	const size_t n = p->n ? p->n : 1, rank = o->rank > 0 ? (size_t)o->rank : 4;
	struct dt_compress_shape s;

	s.rows = least(p->rows ? p->rows : (size_t)ceil(sqrt((double)n)), n);
	s.cols = (n + s.rows - 1) / s.rows;
	s.rank = least(rank, least(s.rows, s.cols));
	return s;
}

size_t dt_compress_entries(const struct dt_compress_opts *o, const struct dt_compress_part *p)
{
	return least((size_t)ceil((o->keep > 0 ? o->keep : 0.01) * (double)p->n), p->n);
}

static size_t aligned(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Sums sizes over the parts into w; returns the total number of elements. */
static size_t count(const struct dt_compress_opts *o, const struct dt_compress_part *part, int n,
		    struct dt_compress_work *w, size_t *ret_most)
{
	const size_t block = o->kind == DT_COMPRESS_INT8 ? DT_INT8_BLOCK : DT_SIGNS_BLOCK;
	size_t all = 0, most = 0;

	for (int i = 0; i < n; i++) {
		struct dt_compress_shape s = dt_compress_shape(o, &part[i]);

		if (part[i].plain) {
			w->plain += part[i].n;
			continue;
		}
		w->rows += s.rows * s.rank;
		w->cols += s.cols * s.rank;
		w->entries += dt_compress_entries(o, &part[i]);
		w->blocks += (part[i].n + block - 1) / block;
		most = part[i].n > most ? part[i].n : most;
		all += part[i].n;
	}
	*ret_most = most;
	return all;
}

void dt_compress_work(const struct dt_compress_opts *o, const struct dt_compress_part *part, int n, int ranks,
		      struct dt_compress_work *w)
{
	size_t most, all, p = 0, q = 0, sort = 0, sum = 0, gathered = 0;

	*w = (struct dt_compress_work){0};
	all = count(o, part, n, w, &most);
	switch (o->kind) {
	case DT_COMPRESS_BF16:
		w->mine_bytes = 2 * all;
		break;
	case DT_COMPRESS_POWERSGD:
		p = w->rows * sizeof(float);
		q = w->cols * sizeof(float);
		break;
	case DT_COMPRESS_TOP_K:
		w->mine_bytes = w->entries * 8;
		gathered = w->mine_bytes * (size_t)ranks;
		sort = most * sizeof(float);
		break;
	case DT_COMPRESS_ONE_BIT:
		w->mine_bytes = w->blocks * sizeof(struct dt_signs);
		gathered = w->mine_bytes * (size_t)ranks;
		break;
	case DT_COMPRESS_INT8:
		w->each = (w->blocks + (size_t)ranks - 1) / (size_t)ranks;
		w->mine_bytes = w->each * (size_t)ranks * sizeof(struct dt_int8);
		gathered = w->mine_bytes;
		sum = w->each * DT_INT8_BLOCK * sizeof(float);
		break;
	}
	w->p = w->small + aligned(w->plain * sizeof(float));
	w->q = w->p + aligned(p);
	w->sort = w->q + aligned(q);
	w->sum = w->sort + aligned(sort);
	w->mine = w->sum + aligned(sum);
	w->all = w->mine + aligned(w->mine_bytes);
	w->bytes = w->all + aligned(gathered);
}

double dt_compress_wire(const struct dt_compress_opts *o, const struct dt_compress_part *part, int n,
			int ranks)
{
	const double p = ranks, ring = 2 * (p - 1) / p;
	struct dt_compress_work w;
	double plain;

	dt_compress_work(o, part, n, ranks, &w);
	plain = ring * 4 * (double)w.plain;
	switch (o->kind) {
	case DT_COMPRESS_BF16:
	case DT_COMPRESS_INT8:
		return plain + ring * (double)w.mine_bytes;
	case DT_COMPRESS_POWERSGD:
		return plain + ring * 4 * (double)(w.rows + w.cols);
	default:
		return plain + (p - 1) * (double)w.mine_bytes;
	}
}

int dt_compress_parts(const struct dt_compress_opts *o, const struct dt_params *t, const struct dt_local *l,
		      struct dt_compress_part *ret)
{
	int n = 0;

	for (int i = 0; i < l->n; i++) {
		const struct dt_local_param *lp = &l->p[i];
		const struct dt_local_unit *u = &l->unit[lp->unit];
		struct dt_compress_part p = {.at = (size_t)(u->trained + (lp->flat - u->flat)),
					     .n = (size_t)lp->numel,
					     .rows = (size_t)lp->shape[0]};
		struct dt_compress_shape s;

		if (t->p[lp->index].frozen || !lp->numel)
			continue;
		s = dt_compress_shape(o, &p);
		p.plain = t->p[lp->index].ndim < 2 || p.n < 1024 ||
			  (o->kind == DT_COMPRESS_POWERSGD && s.rank * (s.rows + s.cols) >= p.n);
		ret[n++] = p;
	}
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
