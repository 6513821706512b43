/* Winograd convolutions: blocks of tiles that stay in L2, distributed over threads. */
#include "kernels/cpu/winograd.h"
#include "kernels/cpu/isa.h"

enum {
	TILES_LEAST = 24, /* with fewer tiles, threads share tiles and split the output channels */
	CHUNKS = 16,	  /* groups summed at a time: as much of the weights as fits L1 */
};

struct plane { /* an image batch as tiles */
	const float *at;
	int64_t height, width, channels;
	int64_t across, down; /* number of tiles */
	int64_t pad;
	const float *outside; /* pixels read outside the image */
};

static struct plane plane_of(struct dt_tensor t, int64_t h, int64_t w, int64_t c)
{
	return (struct plane){.at = t.data, .height = h, .width = w, .channels = c};
}

/* Sets the tiles of a convolution from `from` to `to`; returns their number. */
static int64_t cut(struct plane *from, struct plane *to, int64_t pad, int64_t batch)
{
	from->pad = pad;
	from->across = to->across = (to->width + 1) / 2;
	from->down = to->down = (to->height + 1) / 2;
	return batch * to->across * to->down;
}

struct convolution {
	struct plane from, to;
	struct dt_wino_parts windows;
	const float *bias;
	bool adds, relu;
	int64_t tiles, tile_cuts, group_cuts;
};

static const struct dt_wino_lanes *lanes(void)
{
#ifdef __x86_64__
	if (dt_isa()->avx512)
		return &dt_wino_v4;
	if (dt_isa()->avx2)
		return &dt_wino_v3;
#endif
	return &dt_wino_plain;
}

static struct dt_wino_parts parts(float **room, int64_t n, int64_t count)
{
	const struct dt_wino_parts r = {*room, dt_wino_part(n, count), count};

	*room += 16 * r.stride;
	return r;
}

/* Pointers to the side x side pixels of tile t. */
static void pixels(const float **px, const struct plane *p, int64_t t, int side)
{
	const int64_t x = t % p->across * 2 - p->pad, y = t / p->across % p->down * 2 - p->pad,
		      n = t / (p->across * p->down);

	for (int j = 0; j < side; j++)
		for (int i = 0; i < side; i++) {
			const bool in = y + j >= 0 && y + j < p->height && x + i >= 0 && x + i < p->width;

			px[j * side + i] =
				in ? p->at + ((n * p->height + y + j) * p->width + x + i) * p->channels
				   : p->outside;
		}
}

/* sum = the weights of groups [first, last) times n tiles. */
static void multiply(const struct dt_wino_parts *sum, const struct dt_wino_parts *tile,
		     const struct dt_wino_parts *window, int64_t n, int64_t first, int64_t last)
{
	const int64_t chunks = window->count / DT_WINO;

	for (int i = 0; i < 16; i++)
		for (int64_t k = 0; k < chunks; k += CHUNKS)
			for (int64_t g = first; g < last; g++) {
				const struct dt_wino_mul m = {
					.c = sum->at + i * sum->stride + (g - first) * sum->count * DT_WINO,
					.a = tile->at + i * tile->stride + k * tile->count * DT_WINO,
					.b = window->at + i * window->stride +
					     (g * window->count + k * DT_WINO) * DT_WINO,
					.rows = n,
					.chunks = dt_min64(CHUNKS, chunks - k),
					.words = DT_WINO,
					.a_row = DT_WINO,
					.a_word = 1,
					.a_chunk = tile->count * DT_WINO,
					.accumulate = k > 0,
				};

				lanes()->mul(&m);
			}
}

/* Groups [first, last) of n tiles from t on. */
static void block(const struct convolution *c, float *room, int64_t t, int64_t n, int64_t first, int64_t last)
{
	const struct dt_wino_parts tile = parts(&room, dt_wino_groups(c->from.channels), DT_WINO_TILES),
				   sum = parts(&room, DT_WINO_GROUPS, DT_WINO_TILES);
	const float *px[16];

	for (int64_t i = 0; i < n; i++) {
		pixels(px, &c->from, t + i, 4);
		lanes()->image(&tile, i, px, c->from.channels);
	}
	for (int64_t g = first, to; g < last; g = to) {
		to = dt_min64(last, g + DT_WINO_GROUPS);
		multiply(&sum, &tile, &c->windows, n, g, to);
		for (int64_t i = 0; i < n; i++) {
			struct dt_wino_out o = {.bias = c->bias, .adds = c->adds, .relu = c->relu};

			pixels(px, &c->to, t + i, 2);
			for (int k = 0; k < 4; k++)
				o.y[k] = (float *)px[k];
			lanes()->result(&sum, i, &o, g * DT_WINO, dt_min64(c->to.channels, to * DT_WINO));
		}
	}
}

/* The share of one thread: some of the tiles, or some output channels of these. */
static void share(const struct convolution *c, float *room, int64_t i)
{
	const int64_t all = dt_wino_groups(c->to.channels), tile = i % c->tile_cuts, group = i / c->tile_cuts,
		      last = (tile + 1) * c->tiles / c->tile_cuts;

	for (int64_t t = tile * c->tiles / c->tile_cuts; t < last; t += DT_WINO_TILES)
		block(c, room, t, dt_min64(DT_WINO_TILES, last - t), group * all / c->group_cuts,
		      (group + 1) * all / c->group_cuts);
}

static void convolve(struct dt_dev *dev, float *room, struct convolution *c, const struct dt_wino_windows *w)
{
	const int64_t in = dt_wino_groups(c->from.channels), out = dt_wino_groups(c->to.channels),
		      own = dt_wino_share(c->from.channels);

	c->from.outside = memset(room, 0, (size_t)(in * DT_WINO) * sizeof *room);
	room += in * DT_WINO;
	c->windows = parts(&room, out, in * DT_WINO);
	c->tile_cuts = dt_min64(dev->nthreads, dt_ceil_div(c->tiles, TILES_LEAST));
	c->group_cuts = dt_min64(dev->nthreads / c->tile_cuts, out);
#pragma omp parallel num_threads(dev->nthreads)
	{
#pragma omp for
		for (int64_t g = 0; g < out; g++)
			lanes()->windows(&c->windows, g, w);
#pragma omp for schedule(static, 1)
		for (int64_t i = 0; i < c->tile_cuts * c->group_cuts; i++)
			share(c, room + omp_get_thread_num() * own, i);
	}
}

void dt_wino_forward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o, bool adds, bool relu,
		     const struct dt_conv *p)
{
	const int64_t h = dt_window_out(p->height, 3, 1, p->pad), w = dt_window_out(p->width, 3, 1, p->pad);
	const struct dt_wino_windows windows = {
		.w = o->weight.data, .outs = p->out, .ins = p->channels, .out = p->channels * 9, .in = 9};
	struct convolution c = {.from = plane_of(o->image, p->height, p->width, p->channels),
				.to = plane_of(o->result, h, w, p->out),
				.bias = o->bias.data,
				.adds = adds,
				.relu = relu};

	c.tiles = cut(&c.from, &c.to, p->pad, p->batch);
	convolve(dev, room, &c, &windows);
}

void dt_wino_backward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		      const struct dt_conv *p)
{
	const int64_t h = dt_window_out(p->height, 3, 1, p->pad), w = dt_window_out(p->width, 3, 1, p->pad);
	const struct dt_wino_windows windows = {.w = o->weight.data,
						.outs = p->channels,
						.ins = p->out,
						.out = 9,
						.in = p->channels * 9,
						.turned = true};
	struct convolution c = {.from = plane_of(o->result, h, w, p->out),
				.to = plane_of(o->image, p->height, p->width, p->channels)};

	c.tiles = cut(&c.from, &c.to, 2 - p->pad, p->batch);
	convolve(dev, room, &c, &windows);
}

struct gradient {
	struct plane x, dy;
	struct dt_wino_parts tile, grad, sum;
};

/* Adds n more tiles to the sums of part i % 16 and group i / 16 of x. */
static void add_tiles(const struct gradient *g, int64_t i, int64_t n, bool accumulate)
{
	const struct dt_wino_parts *d = &g->tile, *e = &g->grad, *s = &g->sum;
	const int64_t of = i % 16, group = i / 16;

	for (int64_t k = 0; k < dt_wino_groups(g->dy.channels); k++) {
		const struct dt_wino_mul m = {
			.c = s->at + of * s->stride + (group * s->count + k * DT_WINO) * DT_WINO,
			.a = e->at + of * e->stride + k * e->count * DT_WINO,
			.b = d->at + of * d->stride + group * d->count * DT_WINO,
			.rows = DT_WINO,
			.chunks = 1,
			.words = n,
			.a_row = 1,
			.a_word = DT_WINO,
			.accumulate = accumulate,
		};

		lanes()->mul(&m);
	}
}

static void transform(const struct gradient *g, int64_t t, int64_t i)
{
	const float *px[16];

	pixels(px, &g->x, t, 4);
	lanes()->image(&g->tile, i, px, g->x.channels);
	pixels(px, &g->dy, t, 2);
	lanes()->grad(&g->grad, i, px, g->dy.channels);
}

void dt_wino_weights(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		     const struct dt_conv *p)
{
	const int64_t c = dt_wino_groups(p->channels), k = dt_wino_groups(p->out),
		      most = (c > k ? c : k) * DT_WINO, each = dt_wino_tiles_sum(dev->nthreads),
		      h = dt_window_out(p->height, 3, 1, p->pad), w = dt_window_out(p->width, 3, 1, p->pad);
	struct gradient g = {.x = plane_of(o->image, p->height, p->width, p->channels),
			     .dy = plane_of(o->result, h, w, p->out)};
	const int64_t tiles = cut(&g.x, &g.dy, p->pad, p->batch);
	float *dw = o->weight.data;

	g.x.outside = g.dy.outside = memset(room, 0, (size_t)most * sizeof *room);
	room += most;
	g.tile = parts(&room, c, each);
	g.grad = parts(&room, k, each);
	g.sum = parts(&room, c, k * DT_WINO);
#pragma omp parallel num_threads(dev->nthreads)
	{
		for (int64_t t = 0; t < tiles; t += each) {
			const int64_t n = dt_min64(each, tiles - t);

#pragma omp for
			for (int64_t i = 0; i < n; i++)
				transform(&g, t + i, i);
#pragma omp for
			for (int64_t i = 0; i < 16 * c; i++)
				add_tiles(&g, i, n, t > 0);
		}
#pragma omp for
		for (int64_t i = 0; i < p->out; i++)
			for (int64_t j = 0; j < c; j++)
				lanes()->window_grad(&g.sum, j, i, dw + (i * p->channels + j * DT_WINO) * 9,
						     dt_min64(DT_WINO, p->channels - j * DT_WINO),
						     o->accumulate);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
