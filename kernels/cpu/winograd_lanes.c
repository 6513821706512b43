/*
 * The transforms and products of winograd.h. Compiled once per instruction set, with
 *   WINO_NAME  the table   WINO_LANES  floats per vector
 *   WINO_ROWS, WINO_VECS  rows of c held in registers, and vectors of a row at a time
 */
#include "kernels/cpu/winograd.h"

#define L WINO_LANES
#define V (DT_WINO / L) /* vectors per row of a panel */

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));
typedef int32_t ints __attribute__((vector_size(L * 4)));

DT_INLINE vec load(const float *p)
{
	return *(const vec *)p;
}

DT_INLINE void store(float *p, vec v)
{
	*(vec *)p = v;
}

/* One dimension of B^T d; results are four apart in `to`. */
#define FOUR(to, p, stride, a, b, c, d)                                                                      \
	do {                                                                                                 \
		store((to) + ((p) + 0) * (stride), (a) - (c));                                               \
		store((to) + ((p) + 1) * (stride), (b) + (c));                                               \
		store((to) + ((p) + 2) * (stride), (c) - (b));                                               \
		store((to) + ((p) + 3) * (stride), (b) - (d));                                               \
	} while (0)

DT_INLINE void image_vec(float *to, int64_t stride, const float *const px[16], int64_t at)
{
	vec a[4], b[4];

	DT_FOR (4, int x = 0; x < 4; x++)
		b[x] = load(px[8 + x] + at);
	DT_FOR (4, int x = 0; x < 4; x++)
		a[x] = load(px[x] + at) - b[x];
	FOUR(to, 0, stride, a[0], a[1], a[2], a[3]);
	DT_FOR (4, int x = 0; x < 4; x++)
		a[x] = load(px[4 + x] + at);
	FOUR(to, 4, stride, a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]);
	FOUR(to, 8, stride, b[0] - a[0], b[1] - a[1], b[2] - a[2], b[3] - a[3]);
	DT_FOR (4, int x = 0; x < 4; x++)
		a[x] -= load(px[12 + x] + at);
	FOUR(to, 12, stride, a[0], a[1], a[2], a[3]);
}

/* Copies pixels with fewer channels, from `at` on, than a panel has, padded with zeros. */
DT_INLINE void widen(float (*room)[DT_WINO], const float **full, const float *const *px, int n, int64_t at,
		     int64_t channels)
{
	for (int i = 0; i < n; i++) {
		memset(room[i], 0, sizeof room[i]);
		memcpy(room[i], px[i] + at, (size_t)(channels - at) * sizeof(float));
		full[i] = room[i];
	}
}

DT_INLINE void grad_vec(float *to, int64_t stride, const float *const px[4], int64_t at)
{
	const vec a = load(px[0] + at), b = load(px[1] + at), c = load(px[2] + at), d = load(px[3] + at);

#define GRAD(p, x, y)                                                                                        \
	do {                                                                                                 \
		const vec x_ = x, y_ = y;                                                                    \
		store(to + (p)*stride, x_);                                                                  \
		store(to + ((p) + 1) * stride, x_ + y_);                                                     \
		store(to + ((p) + 2) * stride, x_ - y_);                                                     \
		store(to + ((p) + 3) * stride, -y_);                                                         \
	} while (0)
	GRAD(0, a, b);
	GRAD(4, a + c, b + d);
	GRAD(8, a - c, b - d);
	GRAD(12, -c, -d);
}

/* Transforms a panel of n pixels, 16 of x or 4 of dy, whose channels begin at c. n is constant here and
 * below. */
DT_INLINE void panel(float *to, int64_t stride, const float *const *px, const int n, int64_t c)
{
	for (int v = 0; v < V; v++)
		if (n == 16)
			image_vec(to + v * L, stride, px, c + v * L);
		else
			grad_vec(to + v * L, stride, px, c + v * L);
}

DT_INLINE void panels(const struct dt_wino_parts *to, int64_t i, const float *const *px, const int n,
		      int64_t channels)
{
	const int64_t group = to->count * DT_WINO;
	float *at = to->at + i * DT_WINO, room[16][DT_WINO];
	const float *full[16];
	int64_t c = 0;

	for (; c + DT_WINO <= channels; c += DT_WINO, at += group)
		panel(at, to->stride, px, n, c);
	if (c == channels)
		return;
	widen(room, full, px, n, c, channels);
	panel(at, to->stride, full, n, 0);
}

static void image(const struct dt_wino_parts *to, int64_t i, const float *const px[16], int64_t channels)
{
	panels(to, i, px, 16, channels);
}

static void grad(const struct dt_wino_parts *to, int64_t i, const float *const px[4], int64_t channels)
{
	panels(to, i, px, 4, channels);
}

/* G g G^T of the kernels in g, which is ordered by tap. */
DT_INLINE void window_vec(float *to, int64_t stride, const float (*g)[DT_WINO], int at)
{
	for (int y = 0; y < 4; y++) {
		vec r[3];

		for (int x = 0; x < 3; x++) {
			const vec a = load(g[x] + at), b = load(g[3 + x] + at), c = load(g[6 + x] + at);

			r[x] = y == 0 ? a : y == 1 ? 0.5f * (a + c + b) : y == 2 ? 0.5f * (a + c - b) : c;
		}
		store(to + 4 * y * stride, r[0]);
		store(to + (4 * y + 1) * stride, 0.5f * (r[0] + r[2] + r[1]));
		store(to + (4 * y + 2) * stride, 0.5f * (r[0] + r[2] - r[1]));
		store(to + (4 * y + 3) * stride, r[2]);
	}
}

static void windows(const struct dt_wino_parts *to, int64_t group, const struct dt_wino_windows *w)
{
	const int64_t first = group * DT_WINO, n = dt_min64(DT_WINO, w->outs - first);
	float *at = to->at + group * to->count * DT_WINO, g[9][DT_WINO] = {{0}};

	for (int64_t i = 0; i < to->count; i++, at += DT_WINO) {
		if (i == w->ins)
			memset(g, 0, sizeof g);
		for (int64_t o = 0; i < w->ins && o < n; o++) {
			const float *from = w->w + (first + o) * w->out + i * w->in;

			for (int tap = 0; tap < 9; tap++)
				g[tap][o] = from[w->turned ? 8 - tap : tap];
		}
		for (int v = 0; v < V; v++)
			window_vec(at + v * L, to->stride, g, v * L);
	}
}

/* A^T m A as 2 x 2 vectors. */
DT_INLINE void result_vec(vec y[4], const float *m, int64_t stride)
{
	vec r[2][4];

	DT_FOR (4, int x = 0; x < 4; x++) {
		const vec b = load(m + (4 + x) * stride), c = load(m + (8 + x) * stride);

		r[0][x] = load(m + x * stride) + (b + c);
		r[1][x] = (b - c) - load(m + (12 + x) * stride);
	}
	DT_FOR (2, int i = 0; i < 2; i++) {
		y[2 * i] = r[i][0] + (r[i][1] + r[i][2]);
		y[2 * i + 1] = (r[i][1] - r[i][2]) - r[i][3];
	}
}

/* One panel's channels of the 2 x 2 pixels. */
static void result_whole(const float *m, int64_t stride, const struct dt_wino_out *out, int64_t at)
{
	for (int v = 0; v < V; v++) {
		vec y[4];

		result_vec(y, m + v * L, stride);
		DT_FOR (4, int k = 0; k < 4; k++) {
			if (!out->y[k])
				continue;
			if (out->bias)
				y[k] += load(out->bias + at + v * L);
			if (out->adds)
				y[k] += load(out->y[k] + at + v * L);
			if (out->relu)
				y[k] = (vec)(~(y[k] < 0) & (ints)y[k]);
			store(out->y[k] + at + v * L, y[k]);
		}
	}
}

/* The same for the last n channels, fewer than a panel has. */
static void result_rest(const float *m, int64_t stride, const struct dt_wino_out *out, int64_t at, int64_t n)
{
	float room[4][DT_WINO];

	for (int v = 0; v < V; v++) {
		vec y[4];

		result_vec(y, m + v * L, stride);
		for (int k = 0; k < 4; k++)
			store(room[k] + v * L, y[k]);
	}
	for (int k = 0; k < 4; k++)
		for (int64_t j = 0; out->y[k] && j < n; j++) {
			float f = room[k][j];

			if (out->bias)
				f += out->bias[at + j];
			if (out->adds)
				f += out->y[k][at + j];
			out->y[k][at + j] = out->relu && f < 0 ? 0 : f;
		}
}

static void result(const struct dt_wino_parts *from, int64_t i, const struct dt_wino_out *out, int64_t first,
		   int64_t last)
{
	const float *m = from->at + i * DT_WINO;
	int64_t c = first;

	for (; c + DT_WINO <= last; c += DT_WINO, m += from->count * DT_WINO)
		result_whole(m, from->stride, out, c);
	if (c < last)
		result_rest(m, from->stride, out, c, last - c);
}

static void window_grad(const struct dt_wino_parts *from, int64_t group, int64_t i, float *dw,
			int64_t channels, bool accumulate)
{
	const float *m = from->at + (group * from->count + i) * DT_WINO;
	float g[9][DT_WINO];

	for (int v = 0; v < V; v++) {
		vec r[3][4];

		for (int x = 0; x < 4; x++) {
			const vec a = load(m + v * L + x * from->stride),
				  b = load(m + v * L + (4 + x) * from->stride),
				  c = load(m + v * L + (8 + x) * from->stride),
				  d = load(m + v * L + (12 + x) * from->stride);

			r[0][x] = a + 0.5f * (b + c);
			r[1][x] = 0.5f * (b - c);
			r[2][x] = 0.5f * (b + c) + d;
		}
		for (int y = 0; y < 3; y++) {
			store(g[3 * y] + v * L, r[y][0] + 0.5f * (r[y][1] + r[y][2]));
			store(g[3 * y + 1] + v * L, 0.5f * (r[y][1] - r[y][2]));
			store(g[3 * y + 2] + v * L, 0.5f * (r[y][1] + r[y][2]) + r[y][3]);
		}
	}
	for (int64_t c = 0; c < channels; c++)
		for (int tap = 0; tap < 9; tap++)
			dw[c * 9 + tap] = (accumulate ? dw[c * 9 + tap] : 0) + g[tap][c];
}

/* rows is a constant after inlining; sum stays in registers. */
DT_INLINE void block(float *c, const float *a, const float *b, const struct dt_wino_mul *m, int64_t words,
		     const int rows, const int vecs)
{
	const int64_t a_row = m->a_row, a_word = m->a_word;
	vec sum[WINO_ROWS][V];

	DT_FOR (16, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = m->accumulate ? load(c + r * DT_WINO + v * L) : (vec){0};
	for (int64_t k = 0; k < m->chunks; k++) {
		const float *from = a + k * m->a_chunk;

		for (int64_t w = 0; w < words; w++) {
			DT_FOR (16, int r = 0; r < rows; r++)
				DT_FOR (4, int v = 0; v < vecs; v++)
					sum[r][v] += from[r * a_row] * load(b + v * L);
			from += a_word;
			b += DT_WINO;
		}
	}
	DT_FOR (16, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			store(c + r * DT_WINO + v * L, sum[r][v]);
}

DT_INLINE void rows_of(float *c, const float *a, const float *b, const struct dt_wino_mul *m, int64_t words)
{
	int64_t r = 0;

	for (; r + WINO_ROWS <= m->rows; r += WINO_ROWS)
		block(c + r * DT_WINO, a + r * m->a_row, b, m, words, WINO_ROWS, WINO_VECS);
#if WINO_ROWS > 4
	for (; r + 4 <= m->rows; r += 4)
		block(c + r * DT_WINO, a + r * m->a_row, b, m, words, 4, WINO_VECS);
#endif
	for (; r + 2 <= m->rows; r += 2)
		block(c + r * DT_WINO, a + r * m->a_row, b, m, words, 2, WINO_VECS);
	for (; r < m->rows; r++)
		block(c + r * DT_WINO, a + r * m->a_row, b, m, words, 1, WINO_VECS);
}

static void mul(const struct dt_wino_mul *m)
{
	for (int j = 0; j < V; j += WINO_VECS)
		rows_of(m->c + j * L, m->a, m->b + j * L, m, m->words);
}

const struct dt_wino_lanes WINO_NAME = {image, grad, windows, result, window_grad, mul};
/* SPDX-License-Identifier: Apache-2.0 */
