/* layernorm and rmsnorm against f64, their backward against finite differences of that f64 forward. */
#include "group.h"

/* y = (r - mean) rstd w + b, or r rstd w with rms. */
static void ref_forward(double *y, double *mean, double *rstd, const double *r, const double *w,
			const double *b, int64_t rows, int64_t n, bool rms, double eps)
{
	for (int64_t i = 0; i < rows; i++) {
		double m = 0, v = 0;

		for (int64_t j = 0; j < n && !rms; j++)
			m += r[i * n + j] / (double)n;
		for (int64_t j = 0; j < n; j++)
			v += (r[i * n + j] - m) * (r[i * n + j] - m) / (double)n;
		mean[i] = m;
		rstd[i] = 1 / sqrt(v + eps);
		for (int64_t j = 0; j < n; j++)
			y[i * n + j] = (r[i * n + j] - m) * rstd[i] * w[j] + (b ? b[j] : 0);
	}
}

/* On a card rows of eights go by other kernels than the rest, and by a warp each up to 1024 and 2048. */
static const int64_t sizes[][2] = {{1, 1}, {3, 7},   {5, 33},	{70, 130}, {300, 65}, {2, 2500},
				   {6, 8}, {9, 768}, {3, 1024}, {5, 1600}, {2, 2048}, {2, 2056}};
#define SIZES 12

static void one_forward(int64_t rows, int64_t n, enum dt_dtype type, bool rms, bool with_delta,
			bool with_bias)
{
	const double eps = 1e-5;
	struct dt_tensor x = random_tensor(type, rows, n, 1, 2), delta = random_tensor(type, rows, n, 2, 1);
	struct dt_tensor w = random_tensor(type, 1, n, 3, 1.5), b = random_tensor(type, 1, n, 4, 1);
	struct dt_tensor y = tensor(type, rows, n), sum = tensor(type, rows, n);
	struct dt_tensor mean = tensor(DT_F32, 1, rows), rstd = tensor(DT_F32, 1, rows);
	double *r = values(x), *rw = values(w), *rb = values(b), *ry = reals(rows * n);
	double *rm = reals(rows), *rs = reals(rows);
	int err;

	if (with_delta)
		for (int64_t i = 0; i < rows * n; i++) {
			float s = (float)get(x, i) + (float)get(delta, i);

			r[i] = type == DT_F32	 ? s
			       : type == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(s))
						 : dt_f16_to_f32(dt_f32_to_f16(s));
		}
	ref_forward(ry, rm, rs, r, rw, with_bias && !rms ? rb : NULL, rows, n, rms, eps);
	if (rms)
		err = dev->ops->rmsnorm_forward(dev, y, rstd, with_delta ? sum : DT_NONE, x,
						with_delta ? delta : DT_NONE, w, false, (float)eps);
	else
		err = dev->ops->layernorm_forward(dev, y, mean, rstd, with_delta ? sum : DT_NONE, x,
						  with_delta ? delta : DT_NONE, w, with_bias ? b : DT_NONE,
						  (float)eps);
	assert_int_equal(err, 0);
	check_close("y", y, ry, 2e-5, 1e-5);
	check_close("rstd", rstd, rs, 1e-6, 2e-5);
	if (!rms)
		check_close("mean", mean, rm, 1e-6, 1e-6);
	if (with_delta)
		check_close("sum", sum, r, 0, 0);
	else
		assert_true(isnan(get(sum, 0))); /* not touched */
	free_all(x.data, delta.data, w.data, b.data, y.data, sum.data, mean.data, rstd.data, r, rw, rb, ry,
		 rm, rs);
}

static void test_forward(void **state)
{
	for (int v = 0; v < SIZES * 8 * TYPES; v++)
		one_forward(sizes[v / 8 / TYPES][0], sizes[v / 8 / TYPES][1], compute_types[v / 8 % TYPES],
			    v & 1, v & 2, v & 4);
}

/* The f64 gradient by central differences along each input: sum over outputs of dy times the slope. */
static double slope(double *in, int64_t i, const double *r, const double *w, const double *b,
		    const double *dy, int64_t rows, int64_t n, bool rms)
{
	const double h = 1e-5, old = in[i];
	double *y = reals(rows * n), *m = reals(rows), *s = reals(rows), d = 0;

	for (int sign = -1; sign <= 1; sign += 2) {
		in[i] = old + sign * h;
		ref_forward(y, m, s, r, w, b, rows, n, rms, 1e-5);
		for (int64_t j = 0; j < rows * n; j++)
			d += sign * y[j] * dy[j] / (2 * h);
	}
	in[i] = old;
	free_all(y, m, s);
	return d;
}

static int call_backward(struct dt_dev *d, bool rms, struct dt_tensor dx, struct dt_tensor dw,
			 struct dt_tensor db, struct dt_tensor dy, struct dt_tensor res, struct dt_tensor x,
			 struct dt_tensor mean, struct dt_tensor rstd, struct dt_tensor w)
{
	return rms ? d->ops->rmsnorm_backward(d, dx, dw, dy, res, x, rstd, w, false)
		   : d->ops->layernorm_backward(d, dx, dw, db, dy, res, x, mean, rstd, w);
}

static void one_backward(int64_t rows, int64_t n, enum dt_dtype type, bool rms, bool with_res)
{
	struct dt_tensor x = random_tensor(type, rows, n, 1, 2), w = random_tensor(type, 1, n, 3, 1.5);
	struct dt_tensor dy = random_tensor(type, rows, n, 5, 1), res = random_tensor(type, rows, n, 6, 1);
	struct dt_tensor dx = tensor(type, rows, n), dw = random_tensor(DT_F32, 1, n, 7, 1);
	struct dt_tensor db = random_tensor(DT_F32, 1, n, 8, 1), y = tensor(type, rows, n);
	struct dt_tensor mean = tensor(DT_F32, 1, rows), rstd = tensor(DT_F32, 1, rows);
	struct dt_tensor dw1 = copy_of(dw), db1 = copy_of(db), alias = copy_of(res);
	double *r = values(x), *rw = values(w), *rb = reals(n), *rdy = values(dy);
	double *rdx = reals(rows * n), *rdw = values(dw), *rdb = values(db);
	struct dt_dev *one = open_device(1);

	for (int64_t i = 0; i < rows * n; i++)
		rdx[i] = slope(r, i, r, rw, rb, rdy, rows, n, rms) + (with_res ? get(res, i) : 0);
	for (int64_t j = 0; j < n; j++) {
		rdw[j] += slope(rw, j, r, rw, rb, rdy, rows, n, rms);
		rdb[j] += slope(rb, j, r, rw, rb, rdy, rows, n, rms);
	}
	if (rms)
		assert_int_equal(
			dev->ops->rmsnorm_forward(dev, y, rstd, DT_NONE, x, DT_NONE, w, false, 1e-5f), 0);
	else
		assert_int_equal(dev->ops->layernorm_forward(dev, y, mean, rstd, DT_NONE, x, DT_NONE, w,
							     DT_NONE, 1e-5f),
				 0);
	assert_int_equal(call_backward(dev, rms, dx, dw, db, dy, with_res ? res : DT_NONE, x, mean, rstd, w),
			 0);
	check_close("dx", dx, rdx, 1e-4, 1e-4);
	check_close("dw", dw, rdw, 1e-4, 1e-4);
	if (!rms)
		check_close("db", db, rdb, 1e-4, 1e-4);
	/* In place over dresid, on one thread: the same bits. */
	if (with_res) {
		assert_int_equal(call_backward(one, rms, alias, dw1, db1, dy, alias, x, mean, rstd, w), 0);
		check_same_bits("dx in place, one thread", dx, alias);
		check_same_bits("dw, one thread", dw, dw1);
		if (!rms)
			check_same_bits("db, one thread", db, db1);
	}
	dt_dev_close(one);
	free_all(x.data, w.data, dy.data, res.data, dx.data, dw.data, db.data, y.data, mean.data, rstd.data,
		 dw1.data, db1.data, alias.data, r, rw, rb, rdy, rdx, rdw, rdb);
}

static void test_backward(void **state)
{
	static const int64_t small[][2] = {{3, 2}, {2, 37}, {9, 16}};

	for (int v = 0; v < 3 * 4 * TYPES; v++)
		one_backward(small[v / 4 / TYPES][0], small[v / 4 / TYPES][1], compute_types[v / 4 % TYPES],
			     v & 1, v & 2);
}

/* Many rows: groups and threads. */
static void test_threads(void **state)
{
	const int64_t rows = 517, n = 193;
	struct dt_tensor x = random_tensor(DT_F32, rows, n, 1, 2), w = random_tensor(DT_F32, 1, n, 3, 1.5);
	struct dt_tensor dy = random_tensor(DT_F32, rows, n, 5, 1), y = tensor(DT_F32, rows, n);
	struct dt_tensor mean = tensor(DT_F32, 1, rows), rstd = tensor(DT_F32, 1, rows);
	struct dt_dev *devs[] = {open_device(1), open_device(2), open_device(7)};
	struct dt_tensor dx[3], dw[3], db[3];

	for (int rms = 0; rms < 2; rms++) {
		assert_int_equal(dev->ops->layernorm_forward(dev, y, mean, rstd, DT_NONE, x, DT_NONE, w,
							     DT_NONE, 1e-5f),
				 0);
		for (int i = 0; i < 3; i++) {
			dx[i] = tensor(DT_F32, rows, n);
			dw[i] = random_tensor(DT_F32, 1, n, 6, 1);
			db[i] = copy_of(dw[i]);
			assert_int_equal(call_backward(devs[i], rms, dx[i], dw[i], db[i], dy, DT_NONE, x,
						       mean, rstd, w),
					 0);
			check_same_bits("dx", dx[0], dx[i]);
			check_same_bits("dw", dw[0], dw[i]);
			check_same_bits("db", db[0], db[i]);
		}
		for (int i = 0; i < 3; i++)
			free_all(dx[i].data, dw[i].data, db[i].data);
	}
	for (int i = 0; i < 3; i++)
		dt_dev_close(devs[i]);
	free_all(x.data, w.data, dy.data, y.data, mean.data, rstd.data);
}

/* Backward by its formula in f64: rows that a card has in registers, and rows too wide for that. */
static void one_wide(int64_t rows, int64_t n, enum dt_dtype type, bool rms, bool with_res)
{
	struct dt_tensor x = random_tensor(type, rows, n, 1, 2), w = random_tensor(type, 1, n, 3, 1.5);
	struct dt_tensor dy = random_tensor(type, rows, n, 5, 1), dx = random_tensor(type, rows, n, 6, 1);
	struct dt_tensor dw = random_tensor(DT_F32, 1, n, 7, 1), db = random_tensor(DT_F32, 1, n, 8, 1);
	struct dt_tensor y = tensor(type, rows, n), again = copy_of(dx), dw1 = copy_of(dw), db1 = copy_of(db);
	struct dt_tensor mean = random_tensor(DT_F32, 1, rows, 9, 1), rstd = tensor(DT_F32, 1, rows);
	double *rdx = reals(rows * n), *rdw = values(dw), *rdb = values(db);

	for (int64_t i = 0; i < rows; i++) {
		const double m = rms ? 0 : get(mean, i), s = 0.5 + (double)(i % 7) / 8;
		double g = 0, gx = 0;

		put(rstd, i, s);
		for (int64_t j = 0; j < n; j++) {
			const double xh = (get(x, i * n + j) - m) * s, d = get(dy, i * n + j);

			g += rms ? 0 : d * get(w, j) / (double)n;
			gx += d * get(w, j) * xh / (double)n;
			rdw[j] += d * xh;
			rdb[j] += d;
		}
		for (int64_t j = 0; j < n; j++)
			rdx[i * n + j] =
				(with_res ? get(dx, i * n + j) : 0) +
				s * (get(dy, i * n + j) * get(w, j) - g - (get(x, i * n + j) - m) * s * gx);
	}
	assert_int_equal(call_backward(dev, rms, dx, dw, db, dy, with_res ? dx : DT_NONE, x, mean, rstd, w),
			 0);
	check_close("dx", dx, rdx, 2e-5, 1e-5);
	check_close("dw", dw, rdw, 2e-5, 1e-5);
	if (!rms)
		check_close("db", db, rdb, 2e-5, 1e-5);
	assert_int_equal(
		call_backward(dev, rms, again, dw1, db1, dy, with_res ? again : DT_NONE, x, mean, rstd, w),
		0);
	check_same_bits("dx again", dx, again);
	check_same_bits("dw again", dw, dw1);
	free_all(x.data, w.data, dy.data, dx.data, dw.data, db.data, y.data, again.data, dw1.data, db1.data,
		 mean.data, rstd.data, rdx, rdw, rdb);
}

static void test_wide(void **state)
{
	static const int64_t shapes[][2] = {{1, 8},	{9, 248},  {9, 256},  {5, 264}, {33, 768},
					    {17, 1600}, {6, 2048}, {6, 2056}, {5, 769}, {300, 24}};

	for (int v = 0; v < 10 * 4 * TYPES; v++)
		one_wide(shapes[v / 4 / TYPES][0], shapes[v / 4 / TYPES][1], compute_types[v / 4 % TYPES],
			 v & 1, v & 2);
}

/* b equals a: to the bit on the processor, whose loops are the same; to rounding on a card. */
static void check_equal(const char *what, struct dt_tensor a, struct dt_tensor b)
{
	double *want = values(a);

	if (on_device())
		check_close(what, b, want, 1e-5, 1e-5);
	else
		check_same_bits(what, a, b);
	free(want);
}

/* With plus_one the weights w are 1 + w in f32. */
static void one_plus_one(int64_t rows, int64_t n, enum dt_dtype type)
{
	struct dt_tensor x = random_tensor(type, rows, n, 1, 2), w = random_tensor(type, 1, n, 3, 0.5);
	struct dt_tensor dy = random_tensor(type, rows, n, 5, 1), w1 = tensor(DT_F32, 1, n);
	struct dt_tensor y[2] = {tensor(type, rows, n), tensor(type, rows, n)};
	struct dt_tensor dx[2] = {tensor(type, rows, n), tensor(type, rows, n)};
	struct dt_tensor dw[2] = {random_tensor(DT_F32, 1, n, 7, 1), random_tensor(DT_F32, 1, n, 7, 1)};
	struct dt_tensor rstd = tensor(DT_F32, 1, rows);

	for (int64_t j = 0; j < n; j++)
		put(w1, j, (float)get(w, j) + 1.f);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dev->ops->rmsnorm_forward(dev, y[i], rstd, DT_NONE, x, DT_NONE, i ? w : w1,
							   i == 1, 1e-5f),
				 0);
		assert_int_equal(dev->ops->rmsnorm_backward(dev, dx[i], dw[i], dy, DT_NONE, x, rstd,
							    i ? w : w1, i == 1),
				 0);
	}
	check_equal("y with plus_one", y[0], y[1]);
	check_equal("dx with plus_one", dx[0], dx[1]);
	check_equal("dw with plus_one", dw[0], dw[1]);
	free_all(x.data, w.data, dy.data, w1.data, y[0].data, y[1].data, dx[0].data, dx[1].data, dw[0].data,
		 dw[1].data, rstd.data);
}

static void test_plus_one(void **state)
{
	for (int v = 0; v < SIZES * TYPES; v++)
		one_plus_one(sizes[v / TYPES][0], sizes[v / TYPES][1], compute_types[v % TYPES]);
}

/* Copies the heads out of rows, or back in. */
static void move_heads(struct dt_tensor rows, struct dt_tensor heads, const struct dt_heads *p, bool back)
{
	const int64_t width = rows.dim[1], n = p->heads * p->head_dim;

	for (int64_t i = 0; i < rows.dim[0] * n; i++) {
		const int64_t at = i / n * width + p->first * p->head_dim + i % n;

		if (back)
			put(rows, at, get(heads, i));
		else
			put(heads, i, get(rows, at));
	}
}

/* heads_norm against rmsnorm of the heads copied out and back in. */
static void one_heads(int64_t rows, int64_t width, struct dt_heads p, enum dt_dtype type, bool in_place,
		      bool plus_one)
{
	const int64_t all = rows * p.heads, d = p.head_dim;
	struct dt_tensor x = random_tensor(type, rows, width, 1, 2), w = random_tensor(type, 1, d, 3, 1.5);
	struct dt_tensor dy = random_tensor(type, rows, width, 5, 1), xh = tensor(type, all, d);
	struct dt_tensor dyh = tensor(type, all, d), yh = tensor(type, all, d),
			 rsh = tensor(DT_F32, rows, p.heads);
	struct dt_tensor y = random_tensor(type, rows, width, 9, 1), raw = tensor(type, rows, p.heads * d);
	struct dt_tensor rstd = tensor(DT_F32, rows, p.heads), dx = random_tensor(type, rows, width, 10, 1);
	struct dt_tensor dw[2] = {random_tensor(DT_F32, 1, d, 7, 1), random_tensor(DT_F32, 1, d, 7, 1)};
	struct dt_tensor x_in = copy_of(x), dy_in = copy_of(dy);
	struct dt_tensor want_y = copy_of(in_place ? x : y), want_dx = copy_of(in_place ? dy : dx);

	move_heads(x, xh, &p, false);
	move_heads(dy, dyh, &p, false);
	assert_int_equal(dev->ops->rmsnorm_forward(dev, yh, rsh, DT_NONE, xh, DT_NONE, w, plus_one, 1e-6f),
			 0);
	move_heads(want_y, yh, &p, true);
	assert_int_equal(dev->ops->heads_norm_forward(dev, in_place ? x_in : y, rstd, raw,
						      in_place ? x_in : x, w, plus_one, 1e-6f, &p),
			 0);
	check_equal("y", want_y, in_place ? x_in : y);
	check_equal("rstd", rsh, rstd);
	check_same_bits("raw", xh, raw);
	assert_int_equal(dev->ops->rmsnorm_backward(dev, dyh, dw[0], dyh, DT_NONE, xh, rsh, w, plus_one), 0);
	move_heads(want_dx, dyh, &p, true);
	assert_int_equal(dev->ops->heads_norm_backward(dev, in_place ? dy_in : dx, dw[1],
						       in_place ? dy_in : dy, in_place ? raw : x, rstd, w,
						       plus_one, &p),
			 0);
	check_equal("dx", want_dx, in_place ? dy_in : dx);
	check_equal("dw", dw[0], dw[1]);
	free_all(x.data, w.data, dy.data, xh.data, dyh.data, yh.data, rsh.data, y.data, raw.data, rstd.data,
		 dx.data, dw[0].data, dw[1].data, x_in.data, dy_in.data, want_y.data, want_dx.data);
}

static void test_heads(void **state)
{
	static const struct {
		int64_t rows, width;
		struct dt_heads p;
	} cases[] = {{1, 1, {0, 1, 1}},		 {3, 7 * 5, {2, 3, 7}},	 {5, 6 * 16, {0, 4, 16}},
		     {5, 6 * 16, {4, 2, 16}},	 {70, 5 * 8, {1, 3, 8}}, {9, 3 * 128, {1, 2, 128}},
		     {4, 3 * 40 + 3, {1, 2, 40}}};

	for (size_t v = 0; v < sizeof cases / sizeof *cases * TYPES * 4; v++)
		one_heads(cases[v / 4 / TYPES].rows, cases[v / 4 / TYPES].width, cases[v / 4 / TYPES].p,
			  compute_types[v / 4 % TYPES], v & 1, v & 2);
}

static void check_same(const char *what, struct dt_tensor got, struct dt_tensor want, double tol)
{
	double *v = values(want);

	check_close(what, got, v, tol, tol);
	free(v);
}

/* Vectors of which two ranks have a half each, against the same vectors whole: the halves are two heads. */
static void one_in_parts(int64_t rows, int64_t half, enum dt_dtype type, bool plus_one)
{
	const double tol = type == DT_F32 ? 1e-6 : 1e-2;
	const struct dt_heads whole = {0, 1, 2 * half};
	struct dt_tensor x = random_tensor(type, rows, 2 * half, 1, 2),
			 dy = random_tensor(type, rows, 2 * half, 2, 1);
	struct dt_tensor w = random_tensor(type, 1, 2 * half, 3, 1.5), y[2], dx[2], dw[2], rstd[2];
	struct dt_tensor sums[2] = {tensor(DT_F32, rows, 1), tensor(DT_F32, rows, 1)};

	for (int i = 0; i < 2; i++) {
		y[i] = tensor(type, rows, 2 * half), dx[i] = tensor(type, rows, 2 * half);
		dw[i] = random_tensor(DT_F32, 1, 2 * half, 4, 1), rstd[i] = tensor(DT_F32, rows, 1);
	}
	assert_int_equal(
		dev->ops->heads_norm_forward(dev, y[0], rstd[0], DT_NONE, x, w, plus_one, 1e-6f, &whole), 0);
	assert_int_equal(
		dev->ops->heads_norm_backward(dev, dx[0], dw[0], dy, x, rstd[0], w, plus_one, &whole), 0);
	for (int back = 0; back < 2; back++) {
		for (int k = 0; k < 2; k++) {
			const struct dt_heads part = {k, 1, half};
			struct dt_tensor wk =
				dt_t1((char *)w.data + k * half * dt_dtype_size(type), type, half);

			assert_int_equal(dev->ops->heads_sums(dev, sums[k], x, back ? dy : DT_NONE,
							      back ? rstd[1] : DT_NONE, wk, plus_one, &part),
					 0);
		}
		for (int64_t r = 0; r < rows; r++)
			((float *)sums[0].data)[r] += ((float *)sums[1].data)[r];
		for (int k = 0; k < 2; k++) {
			const struct dt_heads part = {k, 1, half, sums[0], 2 * half};
			struct dt_tensor wk =
				dt_t1((char *)w.data + k * half * dt_dtype_size(type), type, half);
			struct dt_tensor dwk = dt_t1((float *)dw[1].data + k * half, DT_F32, half);

			assert_int_equal(back ? dev->ops->heads_norm_backward(dev, dx[1], dwk, dy, x, rstd[1],
									      wk, plus_one, &part)
					      : dev->ops->heads_norm_forward(dev, y[1], rstd[1], DT_NONE, x,
									     wk, plus_one, 1e-6f, &part),
					 0);
		}
	}
	check_same("y", y[1], y[0], tol);
	check_same("rstd", rstd[1], rstd[0], 1e-6);
	check_same("dx", dx[1], dx[0], tol);
	check_same("dw", dw[1], dw[0], 1e-5);
	free_all(x.data, dy.data, w.data, sums[0].data, sums[1].data, y[0].data, y[1].data, dx[0].data,
		 dx[1].data, dw[0].data, dw[1].data, rstd[0].data, rstd[1].data);
}

static void test_heads_in_parts(void **state)
{
	static const int64_t cases[][2] = {{1, 1}, {3, 7}, {5, 32}, {70, 40}, {9, 1030}};

	for (size_t v = 0; v < sizeof cases / sizeof *cases * TYPES * 2; v++)
		one_in_parts(cases[v / 2 / TYPES][0], cases[v / 2 / TYPES][1], compute_types[v / 2 % TYPES],
			     v & 1);
}

static void test_heads_refused(void **state)
{
	struct dt_tensor x = random_tensor(DT_F32, 2, 12, 1, 1), w = random_tensor(DT_F32, 1, 4, 2, 1);
	struct dt_tensor before = copy_of(x), rstd = random_tensor(DT_F32, 2, 3, 3, 1);
	const struct dt_heads past = {1, 3, 4}, negative = {-1, 2, 4}, good = {1, 2, 4};

	assert_int_equal(dev->ops->heads_norm_forward(dev, x, DT_NONE, DT_NONE, x, w, false, 1e-5f, &past),
			 -EINVAL);
	assert_int_equal(
		dev->ops->heads_norm_forward(dev, x, DT_NONE, DT_NONE, x, w, false, 1e-5f, &negative),
		-EINVAL);
	assert_int_equal(dev->ops->heads_norm_forward(dev, x, rstd, DT_NONE, x, w, false, 1e-5f, &good),
			 -EINVAL);
	assert_int_equal(dev->ops->heads_norm_backward(dev, x, DT_NONE, x, x, DT_NONE, w, false, &good),
			 -EINVAL);
	check_same_bits("a refused call writes nothing", before, x);
	free_all(x.data, w.data, before.data, rstd.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forward),	       cmocka_unit_test(test_backward),
		cmocka_unit_test(test_wide),	       cmocka_unit_test(test_threads),
		cmocka_unit_test(test_plus_one),       cmocka_unit_test(test_heads),
		cmocka_unit_test(test_heads_in_parts), cmocka_unit_test(test_heads_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
