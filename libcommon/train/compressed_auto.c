/* --grad-comm auto: measures which method is the fastest, before memory is planned for the run. */
#include "train/compressed.h"

#include "base/progress.h"
#include "base/units.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct way {
	const char *name;
	enum dt_compress_kind kind;
	int rank;
	bool plain;
} ways[] = {{"fp32", DT_COMPRESS_BF16, 0, true},
	    {"bf16", DT_COMPRESS_BF16, 0, false},
	    {"int8", DT_COMPRESS_INT8, 0, false},
	    {"powersgd:4", DT_COMPRESS_POWERSGD, 4, false}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), TRIES = 3, MOST = 4 << 20 };

/* Buffers for the measurement: values like gradients, on the device if there is one, and on the host. */
struct place {
	float *x, *on_card; /* on_card NULL: the CPU computes */
	void *narrow;	    /* device: room for the same values in bf16 */
	size_t n;
};

static int put(struct trainer *t, const struct place *p, struct dt_err *err)
{
	for (size_t k = 0; k < p->n; k++)
		p->x[k] = (float)((k * 2654435761u) % 2001) * 1e-6f - 1e-3f;
	return p->on_card ? device_put(t, p->on_card, p->x, p->n * sizeof(*p->x), err) : 0;
}

/* All-reduces in bf16, converted on the device; *codec: seconds of both conversions. */
static int narrow_sum(struct trainer *t, const struct place *p, double *codec, struct dt_err *err)
{
	const struct dt_tensor wide = dt_t1(p->on_card, DT_F32, (int64_t)p->n),
			       narrow = dt_t1(p->narrow, DT_BF16, (int64_t)p->n);
	double t0 = dt_now();
	int rc = dt_kernel_check(t->dev->ops->convert(t->dev, narrow, wide), "->convert(", err);

	if (rc == 0 && dt_dev_sync(t->dev) < 0)
		rc = dt_err_set(err, -EIO, "cannot measure on the GPU");
	*codec = 2 * (dt_now() - t0); /* and the conversion back */
	if (rc == 0)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), p->narrow, NULL, p->n, DT_BF16, DT_SUM,
				   "measurement", err);
	return rc < 0 ? rc : dt_kernel_check(t->dev->ops->convert(t->dev, wide, narrow), "->convert(", err);
}

/* Compressed all-reduce on the host; *codec: seconds of coding and of copies from and to the device. */
static int coded_sum(struct trainer *t, const struct place *p, struct dt_compress *z, double *codec,
		     struct dt_err *err)
{
	const size_t bytes = p->n * sizeof(*p->x);
	double t0 = dt_now(), copies;
	int rc = p->on_card ? device_get(t, p->x, p->on_card, bytes, err) : 0;

	copies = dt_now() - t0;
	if (rc == 0)
		rc = dt_compress_all_reduce(z, p->x, DT_SUM, "measurement", codec, err);
	t0 = dt_now();
	if (rc == 0 && p->on_card)
		rc = device_put(t, p->on_card, p->x, bytes, err);
	*codec += p->on_card ? copies + dt_now() - t0 : 0;
	return rc;
}

static int once(struct trainer *t, const struct place *p, const struct way *w, struct dt_compress *z,
		double *codec, struct dt_err *err)
{
	int rc = w->plain ? dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), p->on_card ? p->on_card : p->x,
					  NULL, p->n, DT_F32, DT_SUM, "measurement", err)
		 : z	  ? coded_sum(t, p, z, codec, err)
			  : narrow_sum(t, p, codec, err);

	if (rc == 0 && p->on_card && dt_dev_sync(t->dev) < 0)
		rc = dt_err_set(err, -EIO, "cannot measure on the GPU");
	return rc;
}

/* The shortest of TRIES all-reduces, in seconds; *ret_codec: the seconds of coding and copying in it. */
static int time_way(struct trainer *t, const struct place *p, const struct way *w, double *ret,
		    double *ret_codec, double *ret_wire, struct dt_err *err)
{
	const struct dt_compress_opts o = {.kind = w->kind, .rank = w->rank};
	const bool narrow = p->on_card && w->kind == DT_COMPRESS_BF16;
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	struct dt_compress *z = NULL;
	int rc = w->plain ? 0 : dt_compress_open(&z, c, &o, p->n, err);

	*ret = 1e30;
	*ret_wire = z ? dt_compress_wire_bytes(z) : 0;
	for (int i = 0; i <= TRIES && rc == 0; i++) { /* the first one is a warm-up */
		double codec = 0, t0;

		rc = put(t, p, err);
		if (rc == 0)
			rc = dt_barrier(c, "measurement of compression", err);
		t0 = dt_now();
		if (rc == 0)
			rc = once(t, p, w, narrow ? NULL : z, &codec, err);
		if (i > 0 && dt_now() - t0 < *ret) {
			*ret = dt_now() - t0;
			*ret_codec = codec;
		}
	}
	dt_compress_close(z);
	return rc;
}

static void take_way(struct trainer *t, const struct way *w)
{
	struct dt_run_compress *r = &t->run.compress;

	r->on = !w->plain && w->kind != DT_COMPRESS_BF16;
	t->run.grad_comm = !w->plain && w->kind == DT_COMPRESS_BF16 ? DT_BF16 : DT_F32;
	r->o = (struct dt_compress_opts){.kind = w->kind, .rank = w->rank};
}

/* Logs the time of each method, and the link bandwidth below which it pays. */
static void tell_ways(struct trainer *t, size_t n, const double *s, const double *codec, const double *wire,
		      int best)
{
	const double p = dt_comm_size(dt_mesh_comm(&t->mesh, DT_ON_DATA)),
		     plain = 2 * (p - 1) / p * 4 * (double)n;
	char text[400], size[32];
	int k = snprintf(text, sizeof(text), "fp32 %.3g ms", s[0] * 1e3);

	for (int i = 1; i < WAYS; i++)
		k += snprintf(text + k, sizeof(text) - (size_t)k,
			      ", %s %.3g ms (faster on links below %.3g GB/s)", ways[i].name, s[i] * 1e3,
			      dt_compress_break_even(plain, wire[i], codec[i]) * 1e-9);
	dt_log_msg(&t->root_log, "--grad-comm auto: all-reduce of %s of gradients: %s; using %s",
		   dt_format_size(4 * (uint64_t)n, size, sizeof(size)), text, ways[best].name);
}

/* Allocates the buffers, and opens the device for the measurement alone. */
static int begin(struct trainer *t, struct place *p, struct dt_err *err)
{
	const size_t wide = (p->n * sizeof(float) + 255) / 256 * 256;
	int rc;

	p->x = malloc(p->n * sizeof(*p->x));
	if (!p->x)
		return dt_err_sys(err, -ENOMEM, "cannot measure compression");
	if (!t->run.on_card)
		return 0;
	t->plan.arena_bytes = wide + p->n * sizeof(uint16_t);
	rc = device_open(t, 1, err);
	if (rc == 0)
		rc = arena_open(t, err);
	p->on_card = (float *)(void *)t->arena.base;
	p->narrow = rc == 0 ? t->arena.base + wide : NULL;
	return rc;
}

static void end(struct trainer *t, struct place *p)
{
	free(p->x);
	arena_close(t);
	if (t->dev)
		dt_dev_close(t->dev);
	t->dev = NULL;
	t->plan.arena_bytes = 0;
}

static int measure(struct trainer *t, double *s, double *codec, double *wire, size_t *ret_n,
		   struct dt_err *err)
{
	struct place p = {.n = MOST};
	struct dt_params table = {0};
	int rc = dt_model_params(&t->config, &table, err);

	if (rc == 0 && dt_params_trained(&table) < (int64_t)p.n)
		p.n = (size_t)dt_params_trained(&table);
	dt_params_release(&table);
	rc = trainer_agree(t, rc < 0 ? rc : begin(t, &p, err), err);
	for (int i = 0; i < WAYS && rc == 0; i++)
		rc = time_way(t, &p, &ways[i], &s[i], &codec[i], &wire[i], err);
	end(t, &p);
	*ret_n = p.n;
	return rc;
}

int compressed_choose(struct trainer *t, struct dt_err *err)
{
	double s[WAYS] = {0}, codec[WAYS] = {0}, wire[WAYS] = {0};
	size_t n = 0;
	int rc, best = 0;

	if (!dt_run_compresses(&t->run) || !t->run.compress.automatic)
		return 0;
	rc = measure(t, s, codec, wire, &n, err);
	if (rc == 0)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), s, NULL, WAYS, DT_F64, DT_MAX,
				   "measurement of compression", err);
	for (int i = 1; i < WAYS; i++)
		best = s[i] < s[best] ? i : best;
	if (rc == 0) {
		tell_ways(t, n, s, codec, wire, best);
		take_way(t, &ways[best]);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
