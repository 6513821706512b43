/*
 * Loops over the whole vocabulary are split into lanes and compiled for wider registers too. Nothing here may
 * be contracted (kernels/meson.build), so that a weight has the same bits on every processor and card.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <string.h>

#define LANES 16
#define BLOCK 512 /* ids whose weights are summed together */

#define DIGIT_BITS 11 /* of a rank */
#define DIGITS	   (1u << DIGIT_BITS)
#define FEW	   32 /* candidates that are sorted by insertion */

struct cand {
	uint64_t w;
	float logit;
	int32_t id;
};

struct room {
	uint64_t *weight;  /* [vocab] */
	struct cand *cand; /* [vocab] */
	uint64_t *block;   /* sums of BLOCK weights; shares memory with cand, which is not used meanwhile */
	float *raw;	   /* [vocab] original logits, before the edits */
};

_Static_assert(sizeof(uint64_t) + sizeof(struct cand) + sizeof(float) == DT_SAMPLE_ROOM, "dt_sample_room");

static struct room room_of(void *p, int64_t vocab)
{
	const size_t n = (size_t)(vocab + 15) / 16 * 16;
	struct room r = {.weight = p};

	r.cand = (struct cand *)(r.weight + n);
	r.block = (uint64_t *)r.cand;
	r.raw = (float *)(r.cand + n);
	return r;
}

static DT_SIMD float sample_max(const float *x, int64_t n)
{
	float lane[LANES], max = -INFINITY;
	int nan[LANES] = {0}, bad = 0;
	int64_t i = 0;

	for (int k = 0; k < LANES; k++)
		lane[k] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++) {
			lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
			nan[k] |= x[i + k] != x[i + k];
		}
	for (; i < n; i++) {
		max = x[i] > max ? x[i] : max;
		bad |= isnan(x[i]);
	}
	for (int k = 0; k < LANES; k++) {
		max = lane[k] > max ? lane[k] : max;
		bad |= nan[k];
	}
	return bad ? NAN : max;
}

float dt_sample_max(const float *x, int64_t n)
{
	return sample_max(x, n);
}

/* w [n]; returns their sum. */
static DT_SIMD uint64_t sample_weights(uint64_t *restrict w, const float *restrict logits, int64_t n,
				       float max, double cold, uint64_t least)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < n; i++) {
		const uint64_t e = dt_sample_weight(dt_sample_x(logits[i], max, cold));

		w[i] = e < least ? 0 : e;
		sum += w[i];
	}
	return sum;
}

uint64_t dt_sample_weights(uint64_t *w, const float *x, int64_t n, float max, double cold, uint64_t least)
{
	return sample_weights(w, x, n, max, cold, least);
}

uint64_t dt_sample_sum(const float *x, int64_t n, float max)
{
	uint64_t w[BLOCK], sum = 0;

	for (int64_t i = 0; i < n; i += BLOCK)
		sum += sample_weights(w, x + i, n - i < BLOCK ? n - i : BLOCK, max, 1, 1);
	return sum;
}

static bool before(struct cand a, struct cand b)
{
	return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static uint64_t rank_of(struct cand c)
{
	return dt_sample_rank(c.logit, c.id);
}

/* Moves those of c [*lo, *hi) whose digit is below `digit` to its front, and those above it to its end. */
static void part_by_digit(struct cand *c, int64_t *lo, int64_t *hi, int shift, uint64_t digit)
{
	for (int64_t i = *lo; i < *hi;) {
		const struct cand x = c[i];
		const uint64_t d = rank_of(x) >> shift & (DIGITS - 1);
		const int64_t to = d < digit ? (*lo)++ : d > digit ? --*hi : i;

		c[i] = c[to];
		c[to] = x;
		i += d <= digit;
	}
}

/* The lowest bit of the digit that begins with the highest bit in which ranks differ; 0: none differ. */
static int digit_shift(const struct cand *c, int64_t n)
{
	const uint64_t first = rank_of(c[0]);
	uint64_t differ = 1;
	int high;

	for (int64_t i = 1; i < n; i++)
		differ |= rank_of(c[i]) ^ first;
	high = 63 - __builtin_clzll(differ);
	return high >= DIGIT_BITS ? high - DIGIT_BITS + 1 : 0;
}

static void sort_few(struct cand *c, int64_t n)
{
	for (int64_t i = 1, k; i < n; i++) {
		const struct cand x = c[i];

		for (k = i; k > 0 && before(x, c[k - 1]); k--)
			c[k] = c[k - 1];
		c[k] = x;
	}
}

/*
 * The fewest of the best ranks whose weights, or whose number if counted, reach `enough`; all if they do not.
 * They are moved to the front of c [n], the last rank of them behind the others; returns how many they are.
 * By digits of the rank from the highest in which they differ on: only ranks with the digit at which `enough`
 * is reached are looked at again, so that time hardly depends on how many are kept.
 */
static int64_t keep_best(struct cand *c, int64_t n, uint64_t enough, bool counted)
{
	uint64_t part[DIGITS], sum;
	int64_t lo = 0, hi = n;

	while (hi - lo > FEW) {
		const int shift = digit_shift(c + lo, hi - lo);
		uint64_t digit = 0;

		memset(part, 0, sizeof(part));
		for (int64_t i = lo; i < hi; i++)
			part[rank_of(c[i]) >> shift & (DIGITS - 1)] += counted ? 1 : c[i].w;
		for (; digit < DIGITS && part[digit] < enough; digit++)
			enough -= part[digit];
		if (digit == DIGITS)
			return n;
		part_by_digit(c, &lo, &hi, shift, digit);
	}
	sort_few(c + lo, hi - lo);
	for (sum = 0; lo < hi && sum < enough; lo++)
		sum += counted ? 1 : c[lo].w;
	return lo;
}

static uint64_t sum_of(const struct cand *c, int64_t n)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += c[i].w;
	return sum;
}

/* Number of significant bits of a weight > 0; a higher class is more likely. */
static int class_of(uint64_t w)
{
	return 64 - __builtin_clzll(w);
}

/* Collects in cand all ids that top_k and top_p may keep, by class: few comparisons for unlikely ids. */
static int64_t candidates(const struct room *r, const float *logits, int64_t vocab, int64_t top_k,
			  double top_p, uint64_t total)
{
	int64_t count[DT_SAMPLE_BITS + 2] = {0}, have = 0, n = 0;
	uint64_t sum[DT_SAMPLE_BITS + 2] = {0}, part = 0, least;
	const uint64_t enough = dt_sample_share(top_p, total);
	int c = DT_SAMPLE_BITS + 1;

	for (int64_t i = 0; i < vocab; i++)
		if (r->weight[i]) {
			count[class_of(r->weight[i])]++;
			sum[class_of(r->weight[i])] += r->weight[i];
		}
	for (; c > 1; c--) {
		have += count[c];
		part += sum[c];
		if (top_k ? have >= top_k : part >= enough)
			break;
	}
	/* The larger of two logits may have a weight smaller by one, from rounding. */
	least = ((uint64_t)1 << (c - 1)) - 1;
	for (int64_t i = 0; i < vocab; i++)
		if (r->weight[i] && r->weight[i] >= least)
			r->cand[n++] = (struct cand){r->weight[i], logits[i], (int32_t)i};
	return n;
}

/* The id at which the running sum of weights in order passes u, which is below their sum. */
static int64_t find(const struct room *r, uint64_t u)
{
	int64_t i = 0;

	while (u >= r->block[i / BLOCK]) {
		u -= r->block[i / BLOCK];
		i += BLOCK;
	}
	while (u >= r->weight[i])
		u -= r->weight[i++];
	return i;
}

static int64_t draw(const struct room *r, const float *logits, int64_t vocab, float max,
		    const struct dt_draw *d)
{
	const int64_t top_k = d->top_k > 0 && d->top_k < vocab ? d->top_k : 0;
	const uint64_t least = dt_sample_least(d->min_p);
	uint64_t total = 0;
	int64_t n;

	for (int64_t i = 0; i < vocab; i += BLOCK) {
		r->block[i / BLOCK] =
			sample_weights(r->weight + i, logits + i, vocab - i < BLOCK ? vocab - i : BLOCK, max,
				       d->cold, least);
		total += r->block[i / BLOCK];
	}
	if (!dt_sample_by_rank(d, vocab))
		return find(r, dt_sample_below(d, total));
	n = candidates(r, logits, vocab, top_k, d->top_p, total);
	if (top_k) {
		n = keep_best(r->cand, n, (uint64_t)top_k, true);
		total = sum_of(r->cand, n);
	}
	if (!top_k || d->top_p < 1)
		n = keep_best(r->cand, n, dt_sample_share(d->top_p, total), false);
	/* From the last rank on the running sum passes u where from the first one it reaches the rest. */
	total = sum_of(r->cand, n);
	n = keep_best(r->cand, n, total - dt_sample_below(d, total), false);
	return r->cand[n - 1].id;
}

/* Index of the first element of x [n] equal to max, which exists. */
static DT_SIMD int64_t sample_find(const float *x, int64_t n, float max)
{
	int64_t i = 0;
	int hit = 0;

	for (; i + 4 * LANES <= n; i += 4 * LANES) {
		for (int k = 0; k < 4 * LANES; k++)
			hit |= x[i + k] == max;
		if (hit)
			break;
	}
	while (x[i] != max)
		i++;
	return i;
}

void dt_sample_row(void *room, struct dt_drawn *ret, float *logits, int64_t vocab, const struct dt_draw *d,
		   const struct dt_edit *edit)
{
	const struct room r = room_of(room, vocab);
	struct dt_drawn out = {.id = -1};
	float max;

	if (d->edits)
		edit += d->first;
	if (d->score) {
		out.max = sample_max(logits, vocab);
		if (isfinite(out.max))
			out.sum = dt_sample_sum(logits, vocab, out.max);
	}
	for (int32_t i = 0; i < d->edits; i++) {
		r.raw[i] = logits[edit[i].id];
		logits[edit[i].id] = dt_sample_edit(r.raw[i], d, edit[i]);
	}
	max = sample_max(logits, vocab);
	if (isfinite(max))
		out.id = (int32_t)(d->cold == 0 ? sample_find(logits, vocab, max)
						: draw(&r, logits, vocab, max, d));
	if (d->score && out.id >= 0) {
		out.logit = logits[out.id];
		for (int32_t i = 0; i < d->edits; i++)
			if (edit[i].id == out.id)
				out.logit = r.raw[i];
	}
	*ret = out;
}

struct sampling {
	char *room; /* of the first thread */
	size_t each;
	struct dt_drawn *out;
	struct dt_tensor logits;
	const struct dt_draw *d;
	const struct dt_edit *edit;
};

/* Thread t of n: rows t, t + n, ... */
static void sample_some(void *arg, int t, int n)
{
	const struct sampling *a = arg;
	const int64_t rows = dt_rows(a->logits), vocab = dt_cols(a->logits);

	for (int64_t i = t; i < rows; i += n)
		dt_sample_row(a->room + a->each * (size_t)t, &a->out[i], (float *)a->logits.data + i * vocab,
			      vocab, &a->d[i], a->edit);
}

int dt_cpu_sample(struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits, const struct dt_draw *d,
		  const struct dt_edit *edit, int64_t nedits)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const int64_t rows = dt_rows(logits), vocab = dt_cols(logits),
		      workers = dt_min64(rows, dt_min64(dev->nthreads, DT_SAMPLE_WORKERS));
	const size_t each = (dt_sample_room(vocab) + 63) / 64 * 64;
	char *room = dt_cpu_scratch(dev, dt_sample_scratch(&on, rows, vocab));

	if (!room)
		return -ENOMEM;
	dt_cpu_together((int)workers, dev->steps, sample_some,
			&(struct sampling){room, each, out, logits, d, edit});
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
