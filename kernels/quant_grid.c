/* Splits blocks into scales and integers; chooses scales by weighted least squares. */
#include "kernels/quant_grid.h"

#include "kernels/format/search.h"

#define TRIES 9 /* scales tried on either side of the default one */

static void shape_of(const struct dt_format_traits *t, struct dt_grid *g)
{
	g->block = t->info.block;
	g->levels = t->levels;
	g->zero = t->zero;
	g->values = t->values;
}

bool dt_grid_of(enum dt_format f, const void *block, struct dt_grid *g)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	if (!t->scales)
		return false;
	shape_of(t, g);
	t->scales(block, g->step, g->min);
	return true;
}

int dt_grid_nearest(const struct dt_grid *g, int i, float x)
{
	float step = g->step[i / 16], q = fabsf(step) > DT_LEAST ? (x + g->min[i / 16]) / step : 0;

	if (g->values) {
		int ret = 0;

		for (int c = 1; c < g->levels; c++)
			if (fabsf((float)g->values[c] - q) < fabsf((float)g->values[ret] - q))
				ret = c;
		return ret;
	}
	q = rintf(q) + (float)g->zero;
	return q > 0 ? q < (float)(g->levels - 1) ? (int)q : g->levels - 1 : 0; /* NaN gives 0 */
}

float dt_grid_value(const struct dt_grid *g, int i, int code)
{
	return g->step[i / 16] * (float)(g->values ? g->values[code] : code - g->zero) - g->min[i / 16];
}

void dt_grid_put(enum dt_format f, const uint8_t *code, void *block)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	t->put(t, code, block);
}

float dt_grid_error32(const struct dt_grid *g, const float *x, const float *w, uint8_t *code)
{
	float sum = 0;

	for (int i = 0; i < 32; i++) {
		float e;

		code[i] = (uint8_t)dt_grid_nearest(g, i, x[i]);
		e = dt_grid_value(g, i, code[i]) - x[i];
		sum += w[i] * e * e;
	}
	return sum;
}

void dt_half_step(const uint8_t *block, float step[16], float min[16])
{
	step[0] = step[1] = dt_half_at(block);
	min[0] = min[1] = 0;
}

/* ---- weighted scales of blocks of 32 ---- */

/* Sets the scale and the minimum, rounded as the block stores them. */
static void set(const struct dt_format_traits *t, float step, float min, struct dt_grid *g)
{
	uint8_t half[2];

	for (int j = 0; j < 2; j++) {
		g->step[j] = dt_put_half(half, step);
		g->min[j] = t->minimum ? -dt_put_half(half, -min) : 0;
	}
}

/* The least-squares scale and minimum for these codes. false: there is none. */
static bool fit(const struct dt_grid *g, bool minimum, const float *x, const float *w, const uint8_t *code,
		float *step, float *min)
{
	float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0, det;

	for (int i = 0; i < 32; i++) {
		float q = (float)(code[i] - g->zero);

		sw += w[i];
		sq += w[i] * q;
		sqq += w[i] * q * q;
		sx += w[i] * x[i];
		sxq += w[i] * x[i] * q;
	}
	if (!minimum) {
		*step = sqq > 0 ? sxq / sqq : 0;
		return sqq > 0;
	}
	det = sw * sqq - sq * sq;
	if (!(det > 0))
		return false;
	*step = (sw * sxq - sx * sq) / det;
	*min = (sq * sxq - sqq * sx) / det;
	return true;
}

void dt_weighted32(const struct dt_format_traits *f, const float *x, const float *w, uint8_t *out)
{
	float low = x[0], high = x[0], most = x[0], best = INFINITY, step, min = 0;
	uint8_t code[32], kept[32] = {0};
	struct dt_grid g, found = {0};

	shape_of(f, &g);
	for (int i = 1; i < 32; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	}
	for (int t = -TRIES; t <= TRIES; t++) {
		const float wide = f->span + (f->span < 0 ? -0.1f : 0.1f) * (float)t;

		for (int round = 0; round < 2; round++) { /* the scale as it is, then refitted to its codes */
			float e;

			if (round == 0) {
				step = f->minimum ? (high - low) / wide : most / wide;
				min = -low;
			} else if (!fit(&g, f->minimum, x, w, code, &step, &min)) {
				break;
			}
			set(f, step, min, &g);
			e = dt_grid_error32(&g, x, w, code);
			if (e < best) {
				best = e;
				found = g;
				memcpy(kept, code, sizeof(kept));
			}
		}
	}
	dt_put_half(out, found.step[0]);
	if (f->minimum)
		dt_put_half(out + 2, -found.min[0]);
	f->put(f, kept, out);
}

void dt_quantize_weighted(enum dt_format f, const float *src, int64_t n, const float *importance, void *dst)
{
	const struct dt_format_traits *t = dt_format_traits(f);
	const int block = t->info.block;
	uint8_t *out = dst;

	if (!t->weighted) {
		dt_quantize(f, src, n, dst);
		return;
	}
	for (; n > 0; n -= block, src += block, importance += block, out += t->info.bytes) {
		float x[256];

		dt_take_finite(src, block, x);
		t->weighted(t, x, importance, out);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
