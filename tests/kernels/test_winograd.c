/*
 * Winograd's convolutions against plain loops in f64, also of shapes that conv.h's ops leave to sums over the
 * window: odd sides, channels that fill no vector, paddings, more threads than tiles. Bits depend on neither
 * threads nor, of images, on the batch; the op takes them where they are counted as cheaper.
 */
#include "check.h"

#include "kernels/cpu/winograd.h"

static struct dt_dev *dev;

struct sides {
	int64_t h, w;
};

static struct sides out_of(const struct dt_conv *p)
{
	return (struct sides){dt_window_out(p->height, 3, 1, p->pad), dt_window_out(p->width, 3, 1, p->pad)};
}

struct reals {
	double *x, *w, *dy, *y, *dx, *dw;
};

/* One image's products at one pixel of y. */
static void products_at(const struct dt_conv *p, const struct reals *r, int64_t n, int64_t oy, int64_t ox)
{
	const struct sides o = out_of(p);

	for (int64_t tap = 0; tap < 9; tap++) {
		const int64_t iy = oy + tap / 3 - p->pad, ix = ox + tap % 3 - p->pad;
		const int64_t xi = ((n * p->height + iy) * p->width + ix) * p->channels,
			      yi = ((n * o.h + oy) * o.w + ox) * p->out;

		if (iy < 0 || ix < 0 || iy >= p->height || ix >= p->width)
			continue;
		for (int64_t k = 0; k < p->out; k++)
			for (int64_t c = 0; c < p->channels; c++) {
				const int64_t wi = (k * p->channels + c) * 9 + tap;

				r->y[yi + k] += r->x[xi + c] * r->w[wi];
				r->dx[xi + c] += r->dy[yi + k] * r->w[wi];
				r->dw[wi] += r->dy[yi + k] * r->x[xi + c];
			}
	}
}

static void products(const struct dt_conv *p, const struct reals *r)
{
	const struct sides o = out_of(p);

	for (int64_t n = 0; n < p->batch; n++)
		for (int64_t i = 0; i < o.h * o.w; i++)
			products_at(p, r, n, i / o.w, i % o.w);
}

struct tensors {
	struct dt_tensor x, w, dy, y, dx, dw;
};

static struct tensors tensors_of(const struct dt_conv *p)
{
	const struct sides o = out_of(p);
	const int64_t xr = p->batch * p->height * p->width, yr = p->batch * o.h * o.w, cols = p->channels * 9;

	return (struct tensors){.x = random_tensor(DT_F32, xr, p->channels, 1, 1),
				.w = random_tensor(DT_F32, p->out, cols, 2, 1),
				.dy = random_tensor(DT_F32, yr, p->out, 3, 1),
				.y = tensor(DT_F32, yr, p->out),
				.dx = tensor(DT_F32, xr, p->channels),
				.dw = tensor(DT_F32, p->out, cols)};
}

static void free_tensors(const struct tensors *t)
{
	free_all(t->x.data, t->w.data, t->dy.data, t->y.data, t->dx.data, t->dw.data);
}

/* The three of them, in memory that is NaN and exactly as large as it has to be. */
static void run(struct dt_dev *on, const struct dt_conv *p, const struct tensors *t)
{
	const size_t n = dt_wino_bytes(on->nthreads, p);
	float *room = aligned_alloc(64, (n + 63) / 64 * 64);

	assert_non_null(room);
	memset(room, 0xff, n);
	dt_wino_forward(on, room, &(struct dt_conv_operands){.image = t->x, .weight = t->w, .result = t->y},
			false, false, p);
	memset(room, 0xff, n);
	dt_wino_backward(on, room,
			 &(struct dt_conv_operands){.image = t->dx, .weight = t->w, .result = t->dy}, p);
	memset(room, 0xff, n);
	dt_wino_weights(on, room, &(struct dt_conv_operands){.image = t->x, .weight = t->dw, .result = t->dy},
			p);
	free(room);
}

/* So many roundings of what a sum of n products of numbers on [-1, 1) is like. */
static double allowed(double roundings, int64_t n)
{
	return roundings * 0x1p-24 * sqrt((double)n);
}

static const struct dt_conv shapes[] = {
	{2, 16, 8, 8, 16, 3, 1, 1},   {3, 17, 7, 9, 33, 3, 1, 1},   {1, 3, 5, 5, 7, 3, 1, 1},
	{2, 40, 1, 1, 24, 3, 1, 1},   {1, 5, 3, 4, 1, 3, 1, 0},	    {2, 31, 6, 5, 20, 3, 1, 2},
	{5, 64, 13, 11, 48, 3, 1, 1}, {1, 300, 2, 2, 260, 3, 1, 1}, {70, 24, 4, 4, 40, 3, 1, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void one(const struct dt_conv *p)
{
	const struct sides o = out_of(p);
	const struct tensors t = tensors_of(p);
	const struct reals r = {values(t.x),	      values(t.w),	    values(t.dy),
				reals(dt_numel(t.y)), reals(dt_numel(t.x)), reals(dt_numel(t.w))};

	products(p, &r);
	run(dev, p, &t);
	check_close("y", t.y, r.y, allowed(12, p->channels * 9), 0);
	check_close("dx", t.dx, r.dx, allowed(12, p->out * 9), 0);
	check_close("dw", t.dw, r.dw, allowed(24, p->batch * o.h * o.w), 0);
	free_all(r.x, r.w, r.dy, r.y, r.dx, r.dw);
	free_tensors(&t);
}

static void test_shapes(void **state)
{
	for (int i = 0; i < SHAPES; i++)
		one(&shapes[i]);
}

static void test_bits(void **state)
{
	static const int threads[] = {1, 7};

	for (int i = 0; i < SHAPES; i++) {
		const struct dt_conv *p = &shapes[i];
		const struct tensors t = tensors_of(p);

		run(dev, p, &t);
		for (int k = 0; k < 2; k++) {
			const struct tensors u = tensors_of(p);
			struct dt_dev *other;

			assert_int_equal(dt_dev_open(&other, DT_DEV_CPU, 0, threads[k]), 0);
			run(other, p, &u);
			check_same_bits("y", t.y, u.y);
			check_same_bits("dx", t.dx, u.dx);
			check_same_bits("dw", t.dw, u.dw);
			dt_dev_close(other);
			free_tensors(&u);
		}
		free_tensors(&t);
	}
}

/* The first image alone. */
static void test_alone(void **state)
{
	for (int i = 0; i < SHAPES; i++) {
		struct dt_conv p = shapes[i];
		const struct tensors all = tensors_of(&p);
		struct tensors first;

		run(dev, &p, &all);
		p.batch = 1;
		first = tensors_of(&p);
		run(dev, &p, &first);
		assert_memory_equal(all.y.data, first.y.data, bytes_of(first.y));
		assert_memory_equal(all.dx.data, first.dx.data, bytes_of(first.dx));
		free_tensors(&all);
		free_tensors(&first);
	}
}

static void test_taken(void **state)
{
	static const struct {
		struct dt_conv p;
		bool taken;
	} cases[] = {
		{{128, 64, 32, 32, 64, 3, 1, 1}, true},	  {{128, 512, 4, 4, 512, 3, 1, 1}, true},
		{{1, 256, 14, 14, 256, 3, 1, 1}, true},	  {{2, 64, 7, 7, 72, 3, 1, 1}, true},
		{{128, 3, 32, 32, 64, 3, 1, 1}, false},	  {{128, 64, 32, 32, 128, 3, 2, 1}, false},
		{{128, 64, 32, 32, 128, 1, 1, 0}, false}, {{2, 512, 1, 1, 512, 3, 1, 1}, false},
		{{2, 64, 9, 9, 64, 5, 1, 2}, false},	  {{2, 16, 32, 32, 16, 3, 1, 1}, false},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (dt_wino_takes(&cases[i].p) != cases[i].taken)
			fail_msg("%lld channels, %lld x %lld: taken is not %d",
				 (long long)cases[i].p.channels, (long long)cases[i].p.height,
				 (long long)cases[i].p.width, cases[i].taken);
}

/* The ops of a shape that is taken have these bits. */
static void test_ops(void **state)
{
	const struct dt_conv p = {2, 64, 7, 7, 72, 3, 1, 1};
	const struct tensors t = tensors_of(&p);
	struct dt_tensor y = tensor(DT_F32, t.y.dim[0], t.y.dim[1]),
			 dx = tensor(DT_F32, t.x.dim[0], t.x.dim[1]),
			 dw = tensor(DT_F32, t.w.dim[0], t.w.dim[1]);

	run(dev, &p, &t);
	assert_int_equal(dev->ops->conv_forward(dev, y, t.x, t.w, &p), 0);
	check_same_bits("y", y, t.y);
	assert_int_equal(dev->ops->conv_backward(dev, dx, t.dy, t.w, &p), 0);
	check_same_bits("dx", dx, t.dx);
	assert_int_equal(dev->ops->conv_weights(dev, dw, t.dy, t.x, false, &p), 0);
	check_same_bits("dw", dw, t.dw);
	assert_int_equal(dev->ops->conv_weights(dev, dw, t.dy, t.x, true, &p), 0);
	for (int64_t i = 0; i < dt_numel(dw); i++)
		assert_true(get(dw, i) == 2 * get(t.dw, i));
	free_all(y.data, dx.data, dw.data);
	free_tensors(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_bits), cmocka_unit_test(test_alone),
		cmocka_unit_test(test_taken),  cmocka_unit_test(test_ops),
	};
	int rc;

	if (on_device()) {
		print_message("skipped: of the processor alone\n");
		return 77;
	}
	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
