#include "train/trainer.h"

#include "base/clones.h"
#include "plan/listing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Buckets: zero in the middle, and on each side magnitudes from LOW to 2^HIGH, two buckets per power of two.
 * Smaller magnitudes count in the first bucket, larger ones in the last.
 */
enum { LOW = -40, HIGH = 16, SIDE = 2 * (HIGH - LOW), BUCKETS = 2 * SIDE + 1 };

/* Values that are summed over ranks, and values whose maximum over ranks is taken. */
struct tally {
	double sum[BUCKETS + 3]; /* counts per bucket, then number of values, sum, sum of squares */
	double most[2];		 /* largest value, largest negated value */
};
enum { NUM = BUCKETS, SUM, SQUARES };

struct tallies {
	struct tally *unit; /* [2, layers + 2]: gradients, weights */
	int64_t units;
	float *buf;
};

#define PIECE 65536 /* elements read at a time */
#define BLOCK 8192  /* elements that one thread counts: sums do not depend on the number of threads */
#define CHUNK 512   /* elements whose buckets are found before they are counted */

struct block {
	uint32_t count[BUCKETS];
	double sum, squares;
	float most[2];
};

/*
 * The bucket of x. Its magnitude's bits, less one, are compared: a power of two is the largest value of its
 * bucket. The mantissa of sqrt(2) is 0x3504f3 and a fraction.
 */
static inline int bucket(float x)
{
	uint32_t u;
	int i, half;

	memcpy(&u, &x, sizeof(u));
	u &= 0x7fffffff;
	half = ((u - 1) & 0x7fffff) >= 0x3504f3;
	i = 2 * ((int)((u - 1) >> 23) - 127 - LOW) + half;
	i = i < 0 ? 0 : i >= SIDE ? SIDE - 1 : i;
	return u == 0 ? SIDE : x > 0 ? SIDE + 1 + i : SIDE - 1 - i;
}

/* Upper limit of bucket b; for negative values it is the side nearer to zero. */
static double limit(int b)
{
	if (b <
	    SIDE) /* the next value below the bucket's smallest magnitude, which belongs to the neighbour */
		return b == SIDE - 1 ? -0x1p-1022 : -exp2((double)(2 * LOW + SIDE - 1 - b) / 2);
	return b == SIDE ? 0 : exp2((double)(2 * LOW + b - SIDE) / 2);
}

static DT_CLONES void count_block(struct block *k, const float *x, int64_t n, float scale)
{
	int at[CHUNK];

	for (int64_t c = 0; c < n; c += CHUNK) {
		const int m = n - c < CHUNK ? (int)(n - c) : CHUNK;
		double sum = 0, squares = 0;
		float high = k->most[0], low = k->most[1];

#pragma omp simd reduction(+ : sum, squares) reduction(max : high, low)
		for (int i = 0; i < m; i++) {
			const float v = x[c + i] * scale;

			at[i] = bucket(v);
			sum += (double)v;
			squares += (double)v * (double)v;
			high = v > high ? v : high;
			low = -v > low ? -v : low;
		}
		for (int i = 0; i < m; i++)
			k->count[at[i]]++;
		k->sum += sum;
		k->squares += squares;
		k->most[0] = high;
		k->most[1] = low;
	}
}

/* Counts n values, at most PIECE. */
static void count(struct tally *k, const float *x, int64_t n, double scale, int threads)
{
	struct block part[PIECE / BLOCK];
	const int blocks = (int)((n + BLOCK - 1) / BLOCK);

#pragma omp parallel for num_threads(threads) if (blocks > 1)
	for (int i = 0; i < blocks; i++) {
		part[i] = (struct block){.most = {-INFINITY, -INFINITY}};
		count_block(&part[i], x + (int64_t)i * BLOCK, i < blocks - 1 ? BLOCK : n - (int64_t)i * BLOCK,
			    (float)scale);
	}
	for (int i = 0; i < blocks; i++) {
		for (int b = 0; b < BUCKETS; b++)
			k->sum[b] += part[i].count[b];
		k->sum[SUM] += part[i].sum;
		k->sum[SQUARES] += part[i].squares;
		for (int m = 0; m < 2; m++)
			k->most[m] = fmax(k->most[m], (double)part[i].most[m]);
	}
	k->sum[NUM] += (double)n;
}

static float as_float(const void *p, enum dt_dtype type, int64_t i)
{
	uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
	float x;

	if (type == DT_F32)
		return ((const float *)p)[i];
	memcpy(&x, &bits, sizeof(x)); /* bf16: weights without masters */
	return x;
}

/* Counts a tensor of f32 or bf16 in memory or on the device, PIECE elements at a time. */
static int count_tensor(struct trainer *t, struct tally *k, struct dt_tensor x, double scale, float *buf,
			struct dt_err *err)
{
	const size_t size = (size_t)dt_dtype_size(x.dtype);
	int64_t n = dt_numel(x);
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i += PIECE) {
		int64_t m = n - i < PIECE ? n - i : PIECE;
		const void *p = (const char *)x.data + (size_t)i * size;

		if (!dt_dev_is_host(t->dev) && arena_has(t, p)) {
			rc = device_get(t, buf, p, (size_t)m * size, err);
			p = buf;
		}
		if (rc == 0 && x.dtype != DT_F32) { /* from the end: buf may be the source */
			float *wide = buf;

			for (int64_t j = m - 1; j >= 0; j--)
				wide[j] = as_float(p, x.dtype, j);
			p = buf;
		}
		if (rc == 0)
			count(k, p, m, scale, t->dev->nthreads);
	}
	return rc;
}

static int one_gradient(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
			void *arg, struct dt_err *err)
{
	struct tallies *k = arg;

	return count_tensor(t, &k->unit[t->table.p[lp->index].layer + 1], grad_part(t, lp->unit, first, n),
			    1 / t->grads.scale, k->buf, err);
}

static int one_weight(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, void *arg,
		      struct dt_err *err)
{
	struct tallies *k = arg;
	struct tally *unit = &k->unit[k->units + t->table.p[lp->index].layer + 1];
	int rc = 0;

	for (int64_t m; n > 0 && rc == 0; first += m, n -= m) {
		struct dt_tensor w;

		m = store_masters(t, lp->unit, first, n, &w, err);
		rc = m < 0 ? (int)m : count_tensor(t, unit, w, 1, k->buf, err);
	}
	return rc;
}

static void write(struct trainer *t, const struct tallies *k)
{
	static const char *const what[2] = {"gradients", "weights"};
	double limits[BUCKETS];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	for (int b = 0; b < BUCKETS; b++)
		limits[b] = b == BUCKETS - 1 ? 1.7976931348623157e308 : limit(b);
	for (int64_t i = 0; i < 2 * k->units; i++) {
		const struct tally *y = &k->unit[i];
		char tag[64], unit[16];

		if (!y->sum[NUM])
			continue;
		snprintf(tag, sizeof(tag), "%s/%s", what[i / k->units],
			 dt_unit_name((int)(i % k->units) - 1, t->config.layers, unit, sizeof(unit)));
		dt_tfevents_histogram(
			t->export.events, (double)now.tv_sec + (double)now.tv_nsec * 1e-9, t->loop.step, tag,
			&(struct dt_tf_histogram){-y->most[1], y->most[0], y->sum[NUM], y->sum[SUM],
						  y->sum[SQUARES], limits, y->sum, BUCKETS});
	}
}

/* Fills k with the tallies that histograms_gradients has left, or with empty ones. */
static int begin(struct trainer *t, struct tallies *k, struct dt_err *err)
{
	k->units = t->config.layers + 2;
	k->buf = malloc(PIECE * sizeof(*k->buf));
	k->unit = t->details.tally;
	t->details.tally = NULL;
	if (!k->unit) {
		k->unit = calloc(2 * (size_t)k->units, sizeof(*k->unit));
		for (int64_t i = 0; i < 2 * k->units && k->unit; i++)
			k->unit[i].most[0] = k->unit[i].most[1] = -INFINITY;
	}
	return k->unit && k->buf ? 0 : dt_err_sys(err, -ENOMEM, "cannot count values");
}

int histograms_gradients(struct trainer *t, struct dt_err *err)
{
	struct tallies k;
	int rc;

	free(t->details.tally); /* of a step that was undone */
	t->details.tally = NULL;
	rc = begin(t, &k, err);
	if (rc == 0)
		rc = grads_each(t, one_gradient, &k, err);
	free(k.buf);
	t->details.tally = k.unit;
	return trainer_agree(t, rc, err);
}

int histograms(struct trainer *t, bool gradients, struct dt_err *err)
{
	const bool counted = t->details.tally != NULL;
	struct tallies k;
	int rc;

	if (!t->run.tensorboard)
		return 0;
	rc = begin(t, &k, err);
	if (rc == 0 && gradients && !counted)
		rc = grads_each(t, one_gradient, &k, err);
	if (rc == 0)
		rc = grads_each(t, one_weight, &k, err);
	rc = trainer_agree(t, rc, err);
	for (int64_t i = 0; i < 2 * k.units && rc == 0; i++) {
		rc = dt_all_reduce(grads_holders(t), k.unit[i].sum, NULL, BUCKETS + 3, DT_F64, DT_SUM,
				   "histograms", err);
		if (rc == 0)
			rc = dt_all_reduce(grads_holders(t), k.unit[i].most, NULL, 2, DT_F64, DT_MAX,
					   "histograms", err);
	}
	if (rc == 0 && t->info.rank == 0)
		write(t, &k);
	free(k.unit);
	free(k.buf);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
