#include "train/compressed.h"

#include "base/json.h"
#include "base/progress.h"
#include "base/units.h"
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- all-reduce ---- */

int compressed_bind(struct trainer *t, struct dt_err *err)
{
	struct compressed *c = &t->compressed;
	void *work;
	int rc;

	if (!dt_run_compresses(&t->run))
		return 0;
	c->part = calloc((size_t)t->local.n + 1, sizeof(*c->part));
	c->local = calloc((size_t)t->local.n + 1, sizeof(*c->local));
	if (!c->part || !c->local)
		return dt_err_sys(err, -ENOMEM, "cannot compress gradients");
	c->n = dt_compress_parts(&t->run.compress.o, &t->table, &t->local, c->part);
	for (int i = 0, k = 0; i < t->local.n; i++)
		if (!t->table.p[t->local.p[i].index].frozen && t->local.p[i].numel)
			c->local[k++] = i;
	rc = host_buffer(t, DT_B_KEPT, &c->kept, err);
	if (rc < 0 || (rc = host_buffer(t, DT_B_ON_HOST, &c->grads, err)) < 0 ||
	    (rc = host_buffer(t, DT_B_COMPRESS, &work, err)) < 0)
		return rc;
	memset(c->kept, 0, (size_t)t->local.trained * sizeof(*c->kept));
	c->scale = t->optim.loss_scale;
	return dt_compress_open_parts(&c->z, dt_mesh_comm(&t->mesh, DT_ON_DATA), &t->run.compress.o, c->part,
				      c->n, c->kept, work, err);
}

void compressed_release(struct trainer *t)
{
	dt_compress_close(t->compressed.z);
	free(t->compressed.part);
	free(t->compressed.local);
}

void compressed_announce(const struct trainer *t)
{
	const struct compressed *c = &t->compressed;
	const double p = t->run.layout.dp;
	char sent[32], plain[32];

	if (t->run.compress.on && !c->z)
		dt_log_msg(&t->root_log,
			   "--grad-comm %s has no effect: one data-parallel rank sends no gradients",
			   t->run.compress.text);
	if (!c->z)
		return;
	dt_log_msg(&t->root_log,
		   "--grad-comm %s: %s per step and rank instead of %s; what a step does not send is added "
		   "to the gradients of the next",
		   t->run.compress.text,
		   dt_format_size((uint64_t)dt_compress_wire_bytes(c->z), sent, sizeof(sent)),
		   dt_format_size((uint64_t)(2 * (p - 1) / p * 4 * (double)t->local.trained), plain,
				  sizeof(plain)));
}

/* Rescales the kept errors to the loss scale of this step's gradients. */
static void rescale(struct trainer *t)
{
	struct compressed *c = &t->compressed;
	const float by = (float)(t->optim.loss_scale / c->scale);

	if (c->scale < t->optim.loss_scale || c->scale > t->optim.loss_scale)
		for (int64_t i = 0; i < t->local.trained; i++)
			c->kept[i] *= by;
	c->scale = t->optim.loss_scale;
}

/* Compressed all-reduce on the host; with a device, gradients are copied to the host and back. */
static int add_up(struct trainer *t, struct dt_err *err)
{
	const size_t bytes = (size_t)t->local.trained * sizeof(float);
	float *copy = t->compressed.grads, *g = (float *)t->grads.flat.p;
	int rc = copy ? device_get(t, copy, g, bytes, err) : 0;

	if (rc < 0)
		return rc;
	rescale(t);
	rc = dt_compress_all_reduce(t->compressed.z, copy ? copy : g, DT_SUM, "compressed gradients", NULL,
				    err);
	return rc == 0 && copy ? device_put(t, g, copy, bytes, err) : rc;
}

int compressed_reduce(struct trainer *t, struct dt_err *err)
{
	int32_t bad = t->grads.bad != NULL;
	double t0 = dt_now();
	int rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), &bad, NULL, 1, DT_I32, DT_MAX,
			       "gradients are finite", err);

	if (rc == 0 && !bad)
		rc = add_up(t, err);
	t->t.comm[TR_GRADS] += dt_now() - t0;
	return rc;
}

void compressed_drop(struct trainer *t)
{
	if (t->compressed.z)
		memset(t->compressed.kept, 0, (size_t)t->local.trained * sizeof(*t->compressed.kept));
}

/* ---- checkpoints ---- */

static const struct dt_param *param(const struct trainer *t, int k)
{
	return &t->table.p[t->local.p[t->compressed.local[k]].index];
}

int compressed_count(const struct trainer *t)
{
	return 2 * t->compressed.n;
}

/* The piece of a checkpoint with the error that rank `rank` keeps for part k. */
static struct dt_piece kept_piece(const struct trainer *t, int k, int rank)
{
	const struct dt_param *p = param(t, k);
	struct dt_piece r = {
		.dtype = DT_F32, .ndim = p->ndim, .data = t->compressed.kept + t->compressed.part[k].at};

	snprintf(r.name, sizeof(r.name), "error%d/%s", rank, p->name);
	for (int d = 0; d < p->ndim; d++)
		r.global[d] = r.shape[d] = p->shape[d];
	return r;
}

static struct dt_piece factor_piece(const struct trainer *t, int k)
{
	struct dt_compress_shape s;
	const float *q = dt_compress_factor(t->compressed.z, k, &s);
	struct dt_piece r = {.dtype = DT_F32,
			     .ndim = 2,
			     .global = {(int64_t)s.cols, (int64_t)s.rank},
			     .shape = {(int64_t)s.cols, (int64_t)s.rank},
			     .data = q};

	snprintf(r.name, sizeof(r.name), "factor/%s", param(t, k)->name);
	return r;
}

static bool has_factors(const struct trainer *t)
{
	return t->run.compress.o.kind == DT_COMPRESS_POWERSGD;
}

int compressed_pieces(struct trainer *t, struct dt_piece *ret)
{
	int n = 0;

	if (!t->compressed.z)
		return 0;
	rescale(t);
	for (int k = 0; k < t->compressed.n; k++) {
		if (t->compressed.part[k].plain)
			continue;
		ret[n++] = kept_piece(t, k, t->mesh.at.dp);
		if (has_factors(t) && t->mesh.at.dp == 0)
			ret[n++] = factor_piece(t, k);
	}
	return n;
}

bool compressed_changes(const struct dt_piece *p)
{
	return !strncmp(p->name, "error", 5) || !strncmp(p->name, "factor/", 7);
}

/* Index of the tensor with the piece's name and shape in the checkpoint; -1: none. */
static int find(struct dt_ckpt *ck, const struct dt_piece *p)
{
	int at = dt_ckpt_find(ck, p->name);
	struct dt_ckpt_tensor have;

	if (at < 0)
		return -1;
	dt_ckpt_tensor(ck, at, &have);
	return have.ndim == p->ndim && !memcmp(have.shape, p->global, (size_t)p->ndim * sizeof(*p->global))
		       ? at
		       : -1;
}

/* Sums the errors that `ranks` ranks kept, and takes 1/dp of the sum. */
static int load_sum(struct trainer *t, struct dt_ckpt *ck, int k, int ranks, struct dt_err *err)
{
	const struct dt_compress_part *part = &t->compressed.part[k];
	float *to = t->compressed.kept + part->at, *x = malloc(part->n * sizeof(*x));
	int rc = x ? 0 : dt_err_sys(err, -ENOMEM, "cannot read the unsent gradients");

	memset(to, 0, part->n * sizeof(*to));
	for (int r = 0; r < ranks && rc == 0; r++) {
		struct dt_piece p = kept_piece(t, k, r);
		int at = find(ck, &p);

		rc = at < 0 ? dt_err_set(err, -ENOENT, "checkpoint '%s' has no '%s'", dt_ckpt_path(ck),
					 p.name)
			    : dt_ckpt_read(ck, at, p.off, p.shape, DT_F32, x, err);
		for (size_t i = 0; i < part->n && rc == 0; i++)
			to[i] += x[i] / (float)t->run.layout.dp;
	}
	free(x);
	return rc;
}

static int load_part(struct trainer *t, struct dt_ckpt *ck, int k, int ranks, struct dt_err *err)
{
	struct dt_piece p = kept_piece(t, k, t->mesh.at.dp);
	int at = find(ck, &p), rc = 0;

	if (ranks != t->run.layout.dp)
		rc = load_sum(t, ck, k, ranks, err);
	else if (at >= 0)
		rc = dt_ckpt_read(ck, at, p.off, p.shape, DT_F32, (void *)p.data, err);
	if (rc < 0 || !has_factors(t))
		return rc;
	p = factor_piece(t, k);
	at = find(ck, &p);
	return at < 0 ? 0 : dt_ckpt_read(ck, at, p.off, p.shape, DT_F32, (void *)p.data, err);
}

/* Says so if a checkpoint has unsent gradients for a run that does not compress. */
static void say_dropped(const struct trainer *t, const struct dt_ckpt *ck)
{
	struct dt_ckpt_tensor have;

	for (int i = 0; i < dt_ckpt_ntensors(ck); i++) {
		dt_ckpt_tensor(ck, i, &have);
		if (strncmp(have.name, "error0/", 7) != 0)
			continue;
		dt_log_msg(&t->root_log,
			   "the gradients that ranks had not sent at checkpoint '%s' are dropped: this run "
			   "does not compress gradients",
			   dt_ckpt_path(ck));
		return;
	}
}

int compressed_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	struct compressed *c = &t->compressed;
	int first = 0, ranks = 0, rc = 0;

	if (!c->z) {
		say_dropped(t, ck);
		return 0;
	}
	while (first < c->n && c->part[first].plain)
		first++;
	for (struct dt_piece p; first < c->n; ranks++) {
		p = kept_piece(t, first, ranks);
		if (find(ck, &p) < 0)
			break;
	}
	memset(c->kept, 0, (size_t)t->local.trained * sizeof(*c->kept));
	c->scale = t->optim.loss_scale;
	rc = dt_json_real(dt_ckpt_meta(ck), "error_scale", false, &c->scale, err);
	if (rc > 0 && !(c->scale > 0 && isfinite(c->scale)))
		return dt_err_set(err, -EBADMSG, "checkpoint '%s': error_scale is %g, which is not above 0",
				  dt_ckpt_path(ck), c->scale);
	rc = rc < 0 ? rc : 0;
	for (int k = first; k < c->n && ranks > 0 && rc == 0; k++)
		if (!c->part[k].plain)
			rc = load_part(t, ck, k, ranks, err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
