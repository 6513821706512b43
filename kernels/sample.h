/*
 * Sampling: from logits to a token and its log-probability.
 *
 * sample: logits [rows, vocab] f32, overwritten; draw [rows] and edit [nedits] are host tables; out [rows] is
 * where the logits are. Each row independently, in the order of vLLM and Hugging Face:
 *
 *   edits     for the ids in edit[first, first + edits), which are distinct: bias added (-INFINITY bans a
 *             token); then where count != 0 the repetition penalty (Keskar et al. 2019): l / r above 0, l r
 *             below; where count > 0 (uses in the output), minus count * frequency + presence (OpenAI).
 *   weights   w = exp((l - max l) cold), cold = 1 / temperature; 0 below min_p and below 2^-43.
 *   ranks     sorted by larger logit, then lower id: of the w > 0 the first top_k stay, and of those the
 *             fewest whose share is top_p (Holtzman et al. 2020).
 *   the draw  u = 53 bits of Philox4x32-10 on [0, 1): the id at which the running sum of the remaining
 *             weights passes u times their sum: in order of ids if all stay, else from the last rank to the
 *             first.
 *
 * cold 0 is the argmax, the lowest id of equal ones. out: id, or -1 if no logit is finite, or one is NaN or
 * +Inf after the edits. For rows with score, also what the log-probability of id under softmax(logits) before
 * the edits needs (dt_drawn_log_sum); otherwise 0.
 *
 * A weight is an integer, w 2^42 rounded, from f64 arithmetic that rounds after each operation, and sums of
 * integers do not depend on their order. So every device draws the same token, whatever the other rows.
 * -EINVAL: an edit outside vocab or the table, vocab 0 or above 2^21, rows above 65535.
 */
#ifndef DT_KERNELS_SAMPLE_H
#define DT_KERNELS_SAMPLE_H

#include "kernels/device.h"
#include "kernels/philox.h"

#include <math.h>

#define DT_SAMPLE_BITS	42 /* a weight of 1 is 2^42 */
#define DT_SAMPLE_VOCAB ((int64_t)1 << 21)
#define DT_SAMPLE_ROWS	65535
#define DT_SAMPLE_LEAST (-31.) /* exponents below this give a weight that rounds to 0 */

struct dt_edit {
	int32_t id, count; /* count: uses in the output; -1: in the prompt only */
	float bias;
};

struct dt_draw {
	double cold; /* 1 / temperature, finite; 0: the argmax */
	double top_p, min_p;
	double repetition, presence, frequency;
	int32_t top_k;	      /* 0: off */
	int32_t first, edits; /* range in the table of edits */
	int32_t score;	      /* 1: out holds the token's log-probability */
	struct dt_philox_stream stream;
	uint64_t index; /* in units of 64-bit numbers of the stream */
};

struct dt_drawn {
	int32_t id;
	float logit, max; /* of id, and the row's largest, both before the edits */
	uint32_t reserved;
	uint64_t sum; /* sum of the row's weights at temperature 1 */
};

/* The most demanding kind of draw in a table; each kind includes those before it. */
enum dt_draw_kind { DT_DRAW_GREEDY, DT_DRAW_ANY, DT_DRAW_SCORED };

static inline enum dt_draw_kind dt_draw_kind(const struct dt_draw *d, int64_t rows)
{
	enum dt_draw_kind k = DT_DRAW_GREEDY;

	for (int64_t i = 0; i < rows; i++)
		if (d[i].score)
			return DT_DRAW_SCORED;
		else if (d[i].cold != 0 || d[i].edits > 0)
			k = DT_DRAW_ANY;
	return k;
}

/* For a row with score: log sum exp(logits), and log softmax(logits)[id]. */
static inline double dt_drawn_log_sum(const struct dt_drawn *d)
{
	return (double)d->max + log(ldexp((double)d->sum, -DT_SAMPLE_BITS));
}

static inline float dt_drawn_logprob(const struct dt_drawn *d)
{
	return (float)((double)d->logit - dt_drawn_log_sum(d));
}

/* The CPU implementation for one row; logits, edits (the whole table) and room are host memory. */
DT_C size_t dt_sample_room(int64_t vocab); /* bytes of room, 64-byte aligned */
enum { DT_SAMPLE_ROOM = 28 /* bytes of it per token */, DT_SAMPLE_WORKERS = 16 /* rows at a time */ };
/* Scratch of the op on the CPU. */
DT_C size_t dt_sample_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t vocab);
void dt_sample_row(void *room, struct dt_drawn *ret, float *logits, int64_t vocab, const struct dt_draw *d,
		   const struct dt_edit *edit);
/* The largest of x [n], NaN if there is one; and the sum of the weights of x at temperature 1, given that. */
float dt_sample_max(const float *x, int64_t n);
uint64_t dt_sample_sum(const float *x, int64_t n, float max);
/* w [n]: the weights of x [n], 0 where they are below least; returns their sum. */
uint64_t dt_sample_weights(uint64_t *w, const float *x, int64_t n, float max, double cold, uint64_t least);
/* A number for each id, all different, in order of rank: larger logit first, then lower id (low half). */
static inline uint64_t dt_sample_rank(float logit, int32_t id)
{
	const float x = logit + 0.f; /* -0 and 0 are equal */
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint64_t)(bits >> 31 ? bits : bits ^ 0x7fffffffu) << 32 | (uint32_t)id;
}

/* ---- code shared by all devices, so that they give the same bits ---- */

#define DT_SAMPLE_INLINE static inline __attribute__((always_inline)) DT_HOST_DEVICE

/* a b and a + b, each rounded: otherwise a card's compiler would contract them to an fma. */
DT_SAMPLE_INLINE double dt_f64_mul(double a, double b)
{
#ifdef __CUDA_ARCH__
	return __dmul_rn(a, b);
#else
	return a * b;
#endif
}

DT_SAMPLE_INLINE double dt_f64_add(double a, double b)
{
#ifdef __CUDA_ARCH__
	return __dadd_rn(a, b);
#else
	return a + b;
#endif
}

/*
 * e^x 2^42, rounded, for x <= 0: 2^n e^r with |r| <= ln 2 / 2, e^r by its series up to r^13 / 13!, whose
 * remainder is below 2^-55.
 */
DT_SAMPLE_INLINE uint64_t dt_sample_weight(double x)
{
	const double shift = 0x1.8p52; /* adding it leaves the nearest integer in the low bits */
	const double t = dt_f64_add(dt_f64_mul(x, 1.4426950408889634), shift), n = dt_f64_add(t, -shift);
	const double high = dt_f64_add(x, -dt_f64_mul(n, 0x1.62e42fefap-1)); /* ln 2 in two parts */
	const double r = dt_f64_add(high, -dt_f64_mul(n, 0x1.cf79abc9e3b3ap-40));
	double p = 1 / 6227020800.;
	uint64_t u;

	p = dt_f64_add(dt_f64_mul(p, r), 1 / 479001600.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 39916800.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 3628800.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 362880.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 40320.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 5040.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 720.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 120.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 24.);
	p = dt_f64_add(dt_f64_mul(p, r), 1 / 6.);
	p = dt_f64_add(dt_f64_mul(p, r), 0.5);
	p = dt_f64_add(dt_f64_mul(p, r), 1);
	p = dt_f64_add(dt_f64_mul(p, r), 1);
	memcpy(&u, &t, 8);
	u = (u + 1023 + DT_SAMPLE_BITS) << 52; /* the low bits of t are n */
	double scale;

	memcpy(&scale, &u, 8);
	p = dt_f64_mul(p, scale);
	p = dt_f64_add(x < DT_SAMPLE_LEAST ? 0 : p, 0x1p52); /* the integer is in the low 52 bits */
	memcpy(&u, &p, 8);
	return u & 0xfffffffffffff;
}

/* The exponent of a logit's weight, and the weight, 0 below min_p. */
DT_SAMPLE_INLINE double dt_sample_x(float logit, float max, double cold)
{
	return dt_f64_mul((double)logit - (double)max, cold);
}

DT_SAMPLE_INLINE uint64_t dt_sample_ceil(double x)
{
	const uint64_t n = (uint64_t)x;

	return n + ((double)n < x);
}

DT_SAMPLE_INLINE uint64_t dt_sample_least(double min_p)
{
	const uint64_t n = dt_sample_ceil(dt_f64_mul(min_p < 1 ? min_p : 1, 0x1p42));

	return n < 1 ? 1 : n;
}

/* Sum of weights that must remain for top_p, from 1 to total. */
DT_SAMPLE_INLINE uint64_t dt_sample_share(double top_p, uint64_t total)
{
	const double t = dt_f64_mul(top_p < 1 ? top_p : 1, (double)total);
	const uint64_t n = t < 0x1p63 ? dt_sample_ceil(t) : total;

	return n < 1 ? 1 : n < total ? n : total;
}

/* Whether top_k or top_p may drop weights of this row. */
DT_SAMPLE_INLINE bool dt_sample_by_rank(const struct dt_draw *d, int64_t vocab)
{
	return (d->top_k > 0 && d->top_k < vocab) || d->top_p < 1;
}

/* u times sum, rounded down. */
DT_SAMPLE_INLINE uint64_t dt_sample_below(const struct dt_draw *d, uint64_t sum)
{
	const struct dt_philox b = dt_philox_block(&d->stream, d->index / 2);
	const int at = (int)(d->index % 2) * 2;
	const uint64_t u = ((uint64_t)b.v[at] << 32 | b.v[at + 1]) >> 11 << 11;

#ifdef __CUDA_ARCH__
	return __umul64hi(u, sum);
#else
	__extension__ typedef unsigned __int128 wide;

	return (uint64_t)((wide)u * sum >> 64);
#endif
}

DT_SAMPLE_INLINE float dt_sample_edit(float logit, const struct dt_draw *d, struct dt_edit e)
{
	double x;

	if (e.bias == -INFINITY)
		return -INFINITY;
	x = (double)(logit + e.bias);
	if (e.count)
		x = x > 0 ? x / d->repetition : dt_f64_mul(x, d->repetition);
	if (e.count > 0)
		x = dt_f64_add(x, -dt_f64_add(dt_f64_mul(e.count, d->frequency), d->presence));
	return (float)x;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
