/*
 * Adapters on a device: the computing thread copies their values there before the first pass that uses one,
 * and copies the lanes of all linears with the other tables of a step.
 */
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static size_t aligned(int64_t n)
{
	return ((size_t)n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Copies n bytes to *at, and advances it; *ret: their address. */
static int put(struct dt_dev *dev, char **at, const void *from, int64_t n, const void **ret)
{
	*ret = *at;
	*at += aligned(n);
	return dt_dev_copy(dev, (void *)*ret, from, (size_t)n);
}

/* Copies a and b of every lane; *at ends where gains begin. */
static int place_numbers(struct dt_infer_placed *to, const struct dt_infer_adapter *a,
			 const struct dt_infer *m, char **at)
{
	const int64_t e = dt_dtype_size(m->p.dtype);
	int rc = 0;

	for (int i = 0; i < a->lanes && rc == 0; i++) {
		const struct dt_infer_lane *l = &a->lane[i];
		const struct dt_lora_lane *from = &a->of[l->local];
		struct dt_lora_lane *lane = &to->of[l->local];

		*lane = *from;
		rc = put(m->dev, at, from->a, l->rank * l->in * e, &lane->a);
		if (rc == 0)
			rc = put(m->dev, at, from->b, l->rank * l->out * e, &lane->b);
	}
	return rc;
}

static int place_gains(struct dt_infer_placed *to, const struct dt_infer_adapter *a, const struct dt_infer *m,
		       char **at)
{
	int rc = 0;

	for (int i = 0; i < a->lanes && rc == 0; i++) {
		const struct dt_lora_lane *from = &a->of[a->lane[i].local];
		struct dt_lora_lane *lane = &to->of[a->lane[i].local];
		const int64_t n = a->lane[i].rows * (int64_t)sizeof(float);

		if (from->gain)
			rc = put(m->dev, at, from->gain, n, (const void **)&lane->gain);
		if (rc == 0 && from->shift)
			rc = put(m->dev, at, from->shift, n, (const void **)&lane->shift);
	}
	return rc;
}

static size_t bytes_of(const struct dt_infer_adapter *a, const struct dt_infer *m)
{
	const int64_t e = dt_dtype_size(m->p.dtype);
	size_t n = 0;

	for (int i = 0; i < a->lanes; i++) {
		const struct dt_infer_lane *l = &a->lane[i];

		n += aligned(l->rank * l->in * e) + aligned(l->rank * l->out * e) +
		     2 * aligned(l->rows * (int64_t)sizeof(float));
	}
	return n;
}

int dt_infer_placed_open(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err)
{
	if (dt_dev_is_host(m->dev))
		return 0;
	a->placed = calloc(1, sizeof(*a->placed));
	return a->placed ? 0 : dt_err_sys(err, -ENOMEM, "cannot read an adapter");
}

int dt_infer_placed_numbers(const struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_placed *to = a->placed;
	int rc;

	if (!to || to->base)
		return 0;
	if (!to->of) /* else an earlier attempt failed */
		to->of = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*to->of));
	rc = to->of ? dt_dev_alloc(m->dev, (void **)&to->base, bytes_of(a, m) + ALIGN) : -ENOMEM;
	if (rc < 0) {
		to->base = NULL;
		return dt_err_sys(err, rc, "cannot allocate %zu bytes on the device for an adapter",
				  bytes_of(a, m));
	}
	to->dev = m->dev;
	to->gains = to->base;
	rc = place_numbers(to, a, m, &to->gains);
	if (rc == 0)
		rc = dt_dev_sync(m->dev);
	if (rc == 0)
		return 0;
	dt_dev_free(m->dev, to->base);
	to->base = to->gains = NULL;
	return dt_err_sys(err, rc, "cannot copy an adapter to the device");
}

/* Copies all to the device; with several ranks norms are measured first (dt_infer_adapter_measure). */
static int place(const struct dt_infer_adapter *a, struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_placed *to = a->placed;
	char *at;
	int rc = dt_infer_whole_place((struct dt_infer_adapter *)a, m, err);

	if (rc == 0)
		rc = dt_infer_placed_numbers(a, m, err);
	if (rc < 0 || !to->gains)
		return rc;
	for (int i = 0; i < a->lanes && !m->gone && rc == 0; i++)
		rc = dt_infer_adapter_measure(a, m, i, 1, err);
	if (rc < 0)
		return rc;
	at = to->gains;
	rc = place_gains(to, a, m, &at);
	if (rc == 0)
		rc = dt_dev_sync(m->dev);
	if (rc < 0) /* gains stay due: the next request tries again */
		return dt_err_sys(err, rc, "cannot copy an adapter to the device");
	to->gains = NULL;
	return 0;
}

void dt_infer_placed_free(struct dt_infer_placed *p)
{
	if (!p)
		return;
	if (p->base)
		dt_dev_free(p->dev, p->base);
	free(p->of);
	free(p);
}

/* ---- tables of a step ---- */

int dt_infer_side_number(struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	int *linear = m->side.linear = calloc((size_t)p->nstep + 1, sizeof(*linear));

	for (int s = 0; linear && s < p->nstep; s++)
		linear[s + 1] = linear[s] + (m->p.adapters && dt_infer_adapted(&p->step[s].n));
	return linear ? 0 : -ENOMEM;
}

size_t dt_infer_side_lanes(const struct dt_infer *m)
{
	const int linears = m->side.linear[m->plan.stage.chunk[0].nstep];

	return (size_t)linears * (size_t)m->p.max_seqs * sizeof(struct dt_lora_part);
}

/*
 * One part per sequence if each has one token, so that a recorded step can be replayed with other adapters;
 * else one per run of sequences with the same adapter.
 */
static int fill_node(struct dt_infer *m, const struct dt_node *n, const struct dt_infer_batch *b,
		     struct dt_lora_part *part)
{
	const bool apart = b->nseq == b->ntokens;
	int count = 0;

	for (int i = 0, next; i < b->nseq; i = next) {
		const struct dt_infer_adapter *a = b->adapter[i];

		for (next = i + 1; !apart && next < b->nseq && b->adapter[next] == a;)
			next++;
		if (!a && !apart)
			continue;
		dt_infer_lanes(m, n, a, part[count].lane);
		part[count].first = b->q_start[i];
		part[count].n = b->q_start[next] - b->q_start[i];
		count++;
	}
	return count;
}

int dt_infer_side_adapt(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	struct dt_infer_side *s = &m->side;
	struct dt_lora_part *part = s->parts;
	int rc = 0;

	for (int i = 0; i < b->nseq && rc == 0; i++)
		rc = b->adapter[i] ? place(b->adapter[i], m, err) : 0;
	if (rc < 0 || dt_infer_wholes(b)) /* windows have tables of their own */
		return rc;
	for (int k = 0; k < p->nstep; k++)
		if (dt_infer_adapted(&p->step[k].n)) {
			s->nparts = fill_node(m, &p->step[k].n, b, part);
			part += s->nparts;
		}
	rc = dt_dev_copy(m->dev, s->there + ((char *)s->parts - s->host), s->parts,
			 (size_t)((char *)part - (char *)s->parts));
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy to the device") : 0;
}

const struct dt_lora_part *dt_infer_side_parts(const struct dt_infer *m, const struct dt_node *n)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	const struct dt_step *step = (const struct dt_step *)((const char *)n - offsetof(struct dt_step, n));

	return m->side.parts + (size_t)m->side.linear[step - p->step] * (size_t)m->side.nparts;
}
/* SPDX-License-Identifier: Apache-2.0 */
