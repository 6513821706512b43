/* Compiled without contraction, as moe.h says. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <math.h>
#include <stdlib.h>

static float key(float s)
{
	return isnan(s) ? -INFINITY : s;
}

/* Chooses the groups of largest value, the first of equal ones. */
static void choose_groups(const struct dt_moe *p, const float *worth, bool *part)
{
	const int64_t each = p->experts / p->groups;
	float of[DT_MOE_MOST];

	for (int64_t g = 0; g < p->groups; g++) {
		float best = -INFINITY, next = -INFINITY;

		for (int64_t e = g * each; e < (g + 1) * each; e++) {
			const float k = key(worth[e]);

			next = k > best ? best : k > next ? k : next;
			best = k > best ? k : best;
		}
		of[g] = p->sigmoid && each > 1 ? best + next : best;
		part[g] = false;
	}
	for (int64_t n = 0; n < p->groups_used; n++) {
		int64_t best = -1;

		for (int64_t g = 0; g < p->groups; g++)
			if (!part[g] && (best < 0 || of[g] > of[best]))
				best = g;
		part[best] = true;
	}
}

/* Chooses the `used` experts of largest value by insertion; of equal ones the first. */
static void choose_best(const struct dt_moe *p, const float *worth, int32_t *expert)
{
	const int64_t each = p->groups > 1 ? p->experts / p->groups : p->experts;
	float top[DT_MOE_MOST];
	bool part[DT_MOE_MOST];
	int64_t n = 0, at;

	part[0] = true;
	if (p->groups > 1)
		choose_groups(p, worth, part);
	for (int32_t e = 0; e < p->experts; e++) {
		const float k = key(worth[e]);

		if (!part[e / each] || (n == p->used && !(k > top[n - 1])))
			continue;
		n += n < p->used;
		for (at = n - 1; at > 0 && k > top[at - 1]; at--) {
			top[at] = top[at - 1];
			expert[at] = expert[at - 1];
		}
		top[at] = k;
		expert[at] = e;
	}
}

/* Chooses the experts of one row and computes their weights. */
static void choose(const struct dt_moe *p, const float *s, const float *bias, int32_t *expert, float *weight)
{
	const double scale = p->scale > 0 ? (double)p->scale : 1;
	float worth[DT_MOE_MOST], best;
	double sum = 0;

	for (int64_t e = 0; e < p->experts; e++)
		worth[e] = (p->sigmoid ? 1 / (1 + expf(-s[e])) : s[e]) + (bias ? bias[e] : 0);
	choose_best(p, worth, expert);
	best = s[expert[0]];
	for (int64_t e = 0; e < p->experts && (bias || p->groups > 1); e++)
		best = s[e] > best ? s[e] : best;
	for (int64_t j = 0; j < p->used; j++) {
		weight[j] = p->sigmoid ? 1 / (1 + expf(-s[expert[j]])) : expf(s[expert[j]] - best);
		sum += (double)weight[j];
	}
	if (p->sigmoid)
		sum = p->unscaled ? 1 : sum + 1e-20;
	else if (p->unscaled) {
		sum = 0;
		for (int64_t e = 0; e < p->experts; e++)
			sum += (double)expf(s[e] - best);
	}
	for (int64_t j = 0; j < p->used; j++)
		weight[j] = (float)((double)weight[j] * scale / sum);
}

struct route {
	const struct dt_moe *p;
	int32_t *expert;
	float *weight;
	const float *score, *bias;
};

static void route_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct route *a = arg;
	const struct dt_moe *p = a->p;

	for (int64_t i = first; i < last; i++)
		choose(p, a->score + i * p->experts, a->bias, a->expert + i * p->used,
		       a->weight + i * p->used);
}

int dt_cpu_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		     struct dt_tensor bias, const struct dt_moe *p)
{
	struct route a = {p, expert, weight, score.data, bias.data};

	dt_cpu_rows(dev, dt_rows(score), p->experts * p->used, route_some, &a);
	return 0;
}

/* Counting sort. */
int dt_cpu_moe_sort(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		    int64_t choices, int64_t experts)
{
	int32_t next[DT_MOE_MOST + 1] = {0};

	for (int64_t i = 0; i < choices; i++) {
		if (expert[i] < 0 || expert[i] >= experts)
			return -EINVAL;
		next[expert[i] + 1]++;
	}
	for (int64_t e = 0; e < experts; e++)
		next[e + 1] += next[e];
	memcpy(first, next, (size_t)(experts + 1) * sizeof *first);
	for (int64_t i = 0; i < choices; i++) {
		at[i] = next[expert[i]]++;
		from[at[i]] = (int32_t)i;
	}
	return 0;
}

static int heavier(const void *x, const void *y, void *arg)
{
	const float *weight = arg;
	const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;

	return weight[a] > weight[b] ? -1 : weight[a] < weight[b] ? 1 : a < b ? -1 : a > b;
}

static int earlier(const void *x, const void *y)
{
	const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;

	return a < b ? -1 : a > b;
}

/* Keeps in list the `capacity` choices of largest weight of n; sets the at of the others to DT_MOE_AWAY. */
static void drop(const float *weight, int32_t *at, int32_t *list, int64_t n, int64_t capacity)
{
	qsort_r(list, (size_t)n, sizeof *list, heavier, (void *)weight);
	for (int64_t i = capacity; i < n; i++)
		at[list[i]] = DT_MOE_AWAY;
	qsort(list, (size_t)capacity, sizeof *list, earlier);
}

int dt_cpu_moe_place(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		     const float *weight, int64_t choices, const struct dt_moe_place *p)
{
	int32_t next[DT_MOE_MOST + 1] = {0};
	int32_t to = 0;

	if (!dt_within(expert, choices, p->experts))
		return -EINVAL;
	for (int64_t i = 0; i < choices; i++)
		if (expert[i] >= p->begin && expert[i] < p->begin + p->n)
			next[expert[i] - p->begin + 1]++;
	for (int64_t e = 0; e < p->n; e++)
		next[e + 1] += next[e];
	for (int64_t i = 0; i < choices; i++) { /* choices by expert, in the memory of from, which is as
						 * long */
		const int64_t e = expert[i] - p->begin;

		at[i] = DT_MOE_AWAY;
		if (e >= 0 && e < p->n) {
			at[i] = 0;
			from[next[e]++] = (int32_t)i;
		}
	}
	for (int64_t e = 0, start = 0; e < p->n; start = next[e++]) {
		int64_t n = next[e] - start;

		if (p->capacity && n > p->capacity) {
			drop(weight, at, from + start, n, p->capacity);
			if (p->dropped)
				*p->dropped += (double)(n - p->capacity);
			n = p->capacity;
		}
		first[e] = to;
		for (int64_t i = start; i < start + n; i++) {
			at[from[i]] = to;
			from[to++] = from[i];
		}
	}
	first[p->n] = to;
	for (int64_t i = to; i < choices; i++)
		from[i] = DT_MOE_AWAY;
	return 0;
}

int dt_cpu_moe_count(struct dt_dev *dev, float *load, int64_t groups, double *count, const int32_t *expert,
		     int64_t choices, int64_t experts, double total)
{
	const int64_t each = choices / groups;

	if (!dt_within(expert, choices, experts))
		return -EINVAL;
	memset(load, 0, (size_t)(groups * experts) * sizeof *load);
	for (int64_t i = 0; i < choices; i++)
		load[i / each * experts + expert[i]]++;
	for (int64_t i = 0; i < groups * experts; i++) {
		if (count)
			count[i % experts] += (double)load[i];
		load[i] = (float)((double)load[i] / total);
	}
	return 0;
}

static bool places(const int32_t *at, int64_t n, int64_t rows)
{
	int out = 0;

	for (int64_t i = 0; i < n; i++)
		out |= at[i] != DT_MOE_AWAY && (at[i] < 0 || at[i] >= rows);
	return !out;
}

static DT_SIMD void copy_row(struct dt_tensor y, int64_t i, struct dt_tensor x, int64_t j)
{
	const int64_t n = dt_cols(y);

	memcpy(dt_at(y, i * n), dt_at(x, j * n), (size_t)(n * dt_dtype_size(y.dtype)));
}

struct gather {
	struct dt_tensor y, x;
	const int32_t *from;
	int64_t used;
};

static void gather_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct gather *a = arg;

	for (int64_t i = first; i < last; i++)
		if (a->from[i] != DT_MOE_AWAY)
			copy_row(a->y, i, a->x, a->from[i] / a->used);
}

int dt_cpu_moe_gather(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *from,
		      int64_t used)
{
	const int64_t rows = dt_rows(y);

	if (!places(from, rows, dt_rows(x) * used))
		return -EINVAL;
	dt_cpu_rows(dev, rows, dt_cols(y), gather_some, &(struct gather){y, x, from, used});
	return 0;
}

/* sum += w x */
static DT_SIMD void add_weighted(float *restrict sum, float w, const void *x, enum dt_dtype t, int64_t n)
{
	float buf[DT_CHUNK];
	const float *f = dt_load(buf, x, t, n);

	for (int64_t i = 0; i < n; i++)
		sum[i] += w * f[i];
}

static DT_SIMD void round_part(struct dt_tensor y, int64_t at, const float *from, int64_t n)
{
	dt_store(dt_at(y, at), y.dtype, from, n);
}

struct sum {
	struct dt_tensor y, x, also;
	const int32_t *at;
	const float *weight;
	int64_t used;
};

/* Columns [c, c + n) of row i. */
static void sum_part(const struct sum *a, int64_t i, int64_t c, int64_t n)
{
	const int64_t cols = dt_cols(a->y);
	float buf[DT_CHUNK], *sum = dt_stage(buf, dt_at(a->y, i * cols + c), a->y.dtype);

	memset(sum, 0, (size_t)n * sizeof *sum);
	if (a->also.data)
		add_weighted(sum, 1, dt_at(a->also, i * cols + c), a->also.dtype, n);
	for (int64_t j = i * a->used; j < (i + 1) * a->used; j++)
		if (a->at[j] != DT_MOE_AWAY)
			add_weighted(sum, a->weight ? a->weight[j] : 1, dt_at(a->x, a->at[j] * cols + c),
				     a->x.dtype, n);
	round_part(a->y, i * cols + c, sum, n);
}

static void sum_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct sum *a = arg;
	const int64_t n = dt_cols(a->y);

	for (int64_t i = first; i < last; i++)
		for (int64_t c = 0; c < n; c += DT_CHUNK)
			sum_part(a, i, c, dt_min64(DT_CHUNK, n - c));
}

int dt_cpu_moe_sum(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		   const float *weight, struct dt_tensor also, int64_t used)
{
	struct sum a = {y, x, also, at, weight, used};
	const int64_t rows = dt_rows(y);

	if (!places(at, rows * used, dt_rows(x)))
		return -EINVAL;
	dt_cpu_rows(dev, rows, used * dt_cols(y), sum_some, &a);
	return 0;
}

/* Backward of choice i: a row of dx, and its dweight summed in f64. */
static DT_SIMD void choice_back(struct dt_tensor dx, float *dweight, struct dt_tensor dy, struct dt_tensor x,
				int64_t i, int64_t at, float w, int64_t used)
{
	const int64_t cols = dt_cols(dy), row = i / used;
	double dot = 0;

	for (int64_t c = 0; c < cols; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, cols - c);
		float bx[DT_CHUNK], by[DT_CHUNK], out[DT_CHUNK];
		const float *g = dt_load(by, dt_at(dy, row * cols + c), dy.dtype, n),
			    *f = dt_load(bx, dt_at(x, at * cols + c), x.dtype, n);
		float *o = dt_stage(out, dt_at(dx, at * cols + c), dx.dtype);

		for (int64_t j = 0; j < n; j++)
			dot += (double)g[j] * (double)f[j];
		for (int64_t j = 0; j < n; j++)
			o[j] = w * g[j];
		dt_store(dt_at(dx, at * cols + c), dx.dtype, o, n);
	}
	dweight[i] = (float)dot;
}

int dt_cpu_moe_sum_backward(struct dt_dev *dev, struct dt_tensor dx, float *dweight, struct dt_tensor dy,
			    struct dt_tensor x, const int32_t *at, const float *weight, int64_t used)
{
	const int64_t choices = dt_rows(dy) * used;

	if (!places(at, choices, dt_rows(x)))
		return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (choices * dt_cols(dy) > DT_SERIAL)
	for (int64_t i = 0; i < choices; i++)
		if (at[i] == DT_MOE_AWAY)
			dweight[i] = 0;
		else
			choice_back(dx, dweight, dy, x, i, at[i], weight[i], used);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
