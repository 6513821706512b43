/*
 * How fast each op runs, as a ratio to what this machine can do in the same run: the square-matmul rate for
 * products and attention, the copy rate for ops bound by memory.
 *
 *   build/bench/kernels [--check FLOORS] [THREADS [SECONDS [OP]]]
 *
 * With one thread the clock is that thread's processor time, so that a busy machine disturbs it little.
 * --check exits 3 where a ratio is below its floor. A line of FLOORS is an instruction set as the first line
 * of the output names it, op, shape, type and ratio, with tabs between them. bench/kernels.floors holds those
 * of one thread; run by hand, never by tests.
 */
#include "base/table.h"
#include "kernels/ops.h"
#include "kernels/quant.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LARGE = 2 << 20 };
enum { ROWS = 1024, WIDTH = 768, HIDDEN = 3072, VOCAB = 50257, CHUNK = 512, SEQ = 1024, HEADS = 12 };

static struct dt_dev *dev;
static const struct dt_ops *ops;
static double seconds = 0.3, peak[2], copy_rate;
static const char *only;
static struct dt_table *table;

static struct floor {
	char row[160]; /* op, shape and type, separated by tabs */
	double least;
	bool met;
} floors[256];
static int floor_count, below;

/* Reads the lines of path for this machine's instruction set. Returns 0, or 1 after a message. */
static int read_floors(const char *path)
{
	const size_t isa = strlen(dt_dev_isa(dev));
	char line[256], *tab;
	FILE *f = fopen(path, "r");
	int number = 0;

	if (!f) {
		fprintf(stderr, "kernels: %s: %s\n", path, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof line, f)) {
		struct floor *to = &floors[floor_count];
		char *end;

		number++;
		if (*line == '#' || strncmp(line, dt_dev_isa(dev), isa) || line[isa] != '\t')
			continue;
		tab = strrchr(line, '\t');
		to->least = strtod(tab + 1, &end);
		if (floor_count == 255 || tab <= line + isa || end == tab + 1 || *end != '\n' ||
		    tab - line - (long)isa > (long)sizeof to->row) {
			fprintf(stderr, "kernels: %s:%d: not a floor, or too many\n", path, number);
			fclose(f);
			return 1;
		}
		*tab = 0;
		snprintf(to->row, sizeof to->row, "%s", line + isa + 1);
		floor_count++;
	}
	fclose(f);
	if (!floor_count)
		fprintf(stderr, "kernels: %s: no floors for %s\n", path, dt_dev_isa(dev));
	return !floor_count;
}

static void check_floor(const char *op, const char *shape, const char *type, double ratio)
{
	char key[160];

	snprintf(key, sizeof key, "%s\t%s\t%s", op, shape, type);
	for (int i = 0; i < floor_count; i++)
		if (!strcmp(floors[i].row, key)) {
			floors[i].met = true;
			if (ratio >= floors[i].least)
				continue;
			fprintf(stderr, "kernels: %s, %s, %s: %.2f is below its floor of %.2f\n", op, shape,
				type, ratio, floors[i].least);
			below++;
		}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(dev->nthreads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Allocates huge pages, as the programs do (base/arena.h). */
static void *memory(size_t n)
{
	const size_t align = n < LARGE ? 64 : LARGE, whole = (n + align - 1) / align * align;
	void *p = aligned_alloc(align, whole);

	if (!p)
		exit(1);
	if (align == LARGE)
		madvise(p, whole, MADV_HUGEPAGE);
	memset(p, 0, n);
	return p;
}

/* Small numbers, so that no op meets denormals or infinities. */
static struct dt_tensor tensor(enum dt_dtype t, int64_t r, int64_t c)
{
	struct dt_tensor x = dt_t2(memory((size_t)(r * c * dt_dtype_size(t))), t, r, c);

	for (int64_t i = 0; i < r * c; i++) {
		float v = (float)((i * 2654435761u >> 12) % 2001) * 1e-3f - 1;

		if (t == DT_F32)
			((float *)x.data)[i] = v;
		else
			((uint16_t *)x.data)[i] = dt_f32_to_bf16(v);
	}
	return x;
}

/* Repeats EXPR for the given time; keeps the best run. */
#define TIME(best, expr)                                                                                     \
	do {                                                                                                 \
		double start_ = now();                                                                       \
		best = INFINITY;                                                                             \
		for (int i_ = 0; i_ < 3 || now() - start_ < seconds; i_++) {                                 \
			double t_ = now();                                                                   \
			int r_ = (expr);                                                                     \
			if (r_ < 0) {                                                                        \
				fprintf(stderr, "kernels: %s: %s\n", #expr, strerror(-r_));                  \
				exit(1);                                                                     \
			}                                                                                    \
			t_ = now() - t_;                                                                     \
			best = t_ < best ? t_ : best;                                                        \
		}                                                                                            \
	} while (0)

static bool wanted(const char *op)
{
	return !only || strstr(op, only);
}

/* Prints a row, and checks its floor. rate: in `unit` per second. */
static void row_of(const char *op, const char *shape, const char *type, double time, double rate,
		   const char *unit, double ceiling)
{
	check_floor(op, shape, type, rate / ceiling);
	dt_table_cell(table, "%s", op);
	dt_table_cell(table, "%s", shape);
	dt_table_cell(table, "%s", type);
	dt_table_cell(table, "%.3f", time * 1e3);
	dt_table_cell(table, "%.1f %s", rate * 1e-9, unit);
	dt_table_cell(table, "%.2f", rate / ceiling);
}

static void row(const char *op, const char *shape, enum dt_dtype t, double time, double flop, double bytes)
{
	row_of(op, shape, dt_dtype_name(t), time, flop ? flop / time : bytes / time,
	       flop ? "GFLOP/s" : "GB/s", flop ? peak[t] : copy_rate);
}

struct product {
	const char *what;
	int64_t m, n, k;
	bool ta, tb, accumulate, f32_out;
};

static void matmuls(enum dt_dtype t)
{
	static const struct product list[] = {
		{"square", 2048, 2048, 2048, false, false, false, false},
		{"x w^T", CHUNK, HIDDEN, WIDTH, false, true, false, false},
		{"x w^T", 4096, HIDDEN, WIDTH, false, true, false, false},
		{"x w^T", 4096, WIDTH, HIDDEN, false, true, false, false},
		{"dy w", CHUNK, WIDTH, HIDDEN, false, false, false, false},
		{"dy w", 4096, WIDTH, HIDDEN, false, false, false, false},
		{"dw += dy^T x", HIDDEN, WIDTH, CHUNK, true, false, true, true},
		{"dw += dy^T x", HIDDEN, WIDTH, 4096, true, false, true, true},
		{"head", CHUNK, VOCAB, WIDTH, false, true, false, true},
		{"head dx", CHUNK, WIDTH, VOCAB, false, false, false, false},
		{"head dw +=", VOCAB, WIDTH, CHUNK, true, false, true, true},
		{"decode x w^T", 1, HIDDEN, WIDTH, false, true, false, false},
		{"decode x w^T", 16, HIDDEN, WIDTH, false, true, false, false},
	};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("matmul"); i++) {
		const struct product *p = &list[i];
		struct dt_tensor a = tensor(t, p->ta ? p->k : p->m, p->ta ? p->m : p->k);
		struct dt_tensor b = tensor(t, p->tb ? p->n : p->k, p->tb ? p->k : p->n);
		struct dt_tensor c = tensor(p->f32_out ? DT_F32 : t, p->m, p->n);
		char shape[96];
		double best;

		TIME(best, ops->matmul(dev, c, a, p->ta, b, p->tb, DT_NONE, p->accumulate));
		snprintf(shape, sizeof shape, "%s %lldx%lldx%lld", p->what, (long long)p->m, (long long)p->n,
			 (long long)p->k);
		row("matmul", shape, t, best, 2. * (double)(p->m * p->n * p->k), 0);
		free(a.data);
		free(b.data);
		free(c.data);
	}
}

/* The convolutions of ResNet-18 on images of 32 x 32; flops are those of direct convolution. */
static void convolutions(enum dt_dtype t)
{
	static const struct dt_conv list[] = {
		{32, 3, 32, 32, 64, 3, 1, 1},	{32, 64, 32, 32, 64, 3, 1, 1},
		{32, 64, 32, 32, 128, 3, 2, 1}, {32, 128, 16, 16, 128, 3, 1, 1},
		{32, 256, 8, 8, 256, 3, 1, 1},	{32, 512, 4, 4, 512, 3, 1, 1},
	};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("conv"); i++) {
		const struct dt_conv *p = &list[i];
		const int64_t side = dt_window_out(p->height, p->kernel, p->stride, p->pad),
			      taps = p->channels * p->kernel * p->kernel, pixels = p->batch * side * side;
		struct dt_tensor x = tensor(t, p->batch * p->height * p->width, p->channels),
				 y = tensor(t, pixels, p->out), w = tensor(t, p->out, taps),
				 dw = tensor(DT_F32, p->out, taps);
		const double flop = 2. * (double)(pixels * p->out * taps);
		char shape[96];
		double best;

		snprintf(shape, sizeof shape, "%lld of %lldx%lld, %lld to %lld, /%lld", (long long)p->batch,
			 (long long)p->height, (long long)p->width, (long long)p->channels, (long long)p->out,
			 (long long)p->stride);
		TIME(best, ops->conv_forward(dev, y, x, w, p));
		row("conv_forward", shape, t, best, flop, 0);
		TIME(best, ops->conv_weights(dev, dw, y, x, false, p));
		row("conv_weights", shape, t, best, flop, 0);
		TIME(best, ops->conv_backward(dev, x, y, w, p));
		row("conv_backward", shape, t, best, flop, 0);
		free(x.data);
		free(y.data);
		free(w.data);
		free(dw.data);
	}
}

static void beside(char shape[96], int64_t m, int64_t n, int64_t k, int64_t experts, double ratio)
{
	snprintf(shape, 96, "%lldx%lldx%lld, %lld experts: %.2f of dense", (long long)m, (long long)n,
		 (long long)k, (long long)experts, ratio);
}

/*
 * Grouped products with uneven groups (expert e has e + 1 shares), preceded by dense products of the same
 * flops: as many rows, one weight. The shape is followed by the grouped product's share of the dense rate.
 */
static void experts(enum dt_dtype t)
{
	static const struct {
		int64_t experts, rows, n, k;
	} list[] = {{8, 4096, HIDDEN, WIDTH}, {64, 4096, 1024, WIDTH}};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("grouped"); i++) {
		const int64_t e = list[i].experts, m = list[i].rows, n = list[i].n, k = list[i].k;
		struct dt_tensor x = tensor(t, m, k), y = tensor(t, m, n), w = tensor(t, e * n, k),
				 dw = tensor(DT_F32, e * n, k);
		struct dt_tensor one = dt_t2(w.data, t, n, k), done = dt_t2(dw.data, DT_F32, n, k);
		const double flop = 2. * (double)(m * n * k);
		struct dt_grouped g = {.n = e, .experts = e};
		int32_t first[65] = {0};
		double best, dense, dense_dw;
		char shape[96];

		for (int64_t j = 1; j <= e; j++)
			first[j] = (int32_t)(m * j * (j + 1) / (e * (e + 1)));
		g.first = first;
		snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
		TIME(dense, ops->matmul(dev, y, x, false, one, true, DT_NONE, false));
		row("beside grouped: matmul", shape, t, dense, flop, 0);
		TIME(dense_dw, ops->matmul(dev, done, y, true, x, false, DT_NONE, true));
		row("beside grouped: matmul dw +=", shape, t, dense_dw, flop, 0);
		TIME(best, ops->grouped_matmul(dev, y, x, w, DT_NONE, &g));
		beside(shape, m, n, k, e, dense / best);
		row("grouped_matmul", shape, t, best, flop, 0);
		TIME(best, ops->grouped_matmul_dx(dev, x, y, w, DT_NONE, &g));
		beside(shape, m, n, k, e, dense / best);
		row("grouped_matmul_dx", shape, t, best, flop, 0);
		TIME(best, ops->grouped_matmul_dw(dev, dw, DT_NONE, y, x, &g, true));
		beside(shape, m, n, k, e, dense_dw / best);
		row("grouped_matmul_dw", shape, t, best, flop, 0);
		free(x.data);
		free(y.data);
		free(w.data);
		free(dw.data);
	}
}

/* A linear in fp8: quantisation relative to the copy rate; products relative to those of bf16, by which the
 * CPU computes them. */
static void eight_bits(void)
{
	enum { M = 4096, N = HIDDEN, K = WIDTH };
	struct dt_tensor x = tensor(DT_BF16, M, K), y = tensor(DT_BF16, M, N);
	struct dt_tensor x8 = dt_t2(memory(M * K), DT_E4M3, M, K), w8 = dt_t2(memory(N * K), DT_E4M3, N, K);
	struct dt_tensor xt = dt_t2(memory(M * K), DT_E4M3, K, M);
	float s = 1;
	double best;

	if (wanted("fp8")) {
		TIME(best, ops->fp8_quantize(dev, x8, DT_NONE, &s, x));
		row("fp8_quantize", "4096 x 768", DT_BF16, best, 0, 5. * M * K);
		TIME(best, ops->fp8_quantize(dev, x8, xt, &s, x));
		row("fp8_quantize", "4096 x 768, and transposed", DT_BF16, best, 0, 6. * M * K);
		TIME(best, ops->fp8_matmul(dev, y, x8, &s, w8, &s, DT_NONE, false));
		row("fp8_matmul", "x w^T 4096x3072x768", DT_BF16, best, 2. * M * N * K, 0);
	}
	free(x.data);
	free(y.data);
	free(x8.data);
	free(w8.data);
	free(xt.data);
}

static void attention(enum dt_dtype t)
{
	const struct dt_attn p = {1, SEQ, HEADS, HEADS, 64, 0, 0.125f};
	const double pairs = (double)SEQ * (SEQ + 1) / 2 * HEADS, flop = pairs * 64 * 2;
	struct dt_tensor x = tensor(t, SEQ, 3 * WIDTH), dx = tensor(t, SEQ, 3 * WIDTH),
			 o = tensor(t, SEQ, WIDTH);
	struct dt_tensor g = tensor(t, SEQ, WIDTH), lse = tensor(DT_F32, HEADS, SEQ);
	struct dt_tensor kc = tensor(t, SEQ, WIDTH), vc = tensor(t, SEQ, WIDTH);
	int32_t start[2] = {0, 1}, len[1] = {SEQ}, blocks[SEQ / 16];
	const struct dt_paged one = {1, start, len, blocks, SEQ / 16, 16};
	double best;

	for (int i = 0; i < SEQ / 16; i++)
		blocks[i] = i;
	if (!wanted("attention"))
		goto done;
	TIME(best, ops->attention_forward(dev, o, lse, x, &p));
	row("attention_forward", "T 1024, 12 x 64", t, best, 2 * flop, 0);
	TIME(best, ops->attention_backward(dev, dx, g, o, lse, x, &p));
	row("attention_backward", "T 1024, 12 x 64", t, best, 5 * flop, 0);
	TIME(best, ops->attention_paged(dev, o, x, kc, vc, &p, &one));
	row("attention_paged", "1 token, 1024 keys", t, best, 0, 2. * SEQ * WIDTH * dt_dtype_size(t));
	start[1] = SEQ;
	TIME(best, ops->attention_paged(dev, o, x, kc, vc, &p, &one));
	row("attention_paged", "1024 tokens", t, best, 2 * flop, 0);
done:
	free(x.data);
	free(dx.data);
	free(o.data);
	free(g.data);
	free(lse.data);
	free(kc.data);
	free(vc.data);
}

/* One sequence that decodes at the end of a long context, and a prompt: 32 heads, 8 key heads; the types of
 * the KV cache next to each other. */
static void long_contexts(void)
{
	enum { KEYS = 16384, KV = 8, DIM = 128, QUERY = 32, PROMPT = 1024 };
	static const enum dt_dtype cache[] = {DT_BF16, DT_I8, DT_F32};
	const struct dt_attn p = {.heads = QUERY, .kv_heads = KV, .head_dim = DIM, .scale = 0.088f};
	static int32_t blocks[KEYS / 16];
	static int64_t slot[KEYS];
	int32_t start[2] = {0, 1}, len[1] = {KEYS};
	const struct dt_paged one = {1, start, len, blocks, KEYS / 16, 16};
	const double flop = (double)PROMPT * (PROMPT + 1) / 2 * QUERY * 4 * DIM;
	struct dt_tensor x, o;
	double best, bf16 = 0;

	if (!wanted("context"))
		return;
	x = tensor(DT_BF16, KEYS, (QUERY + 2 * KV) * DIM);
	o = tensor(DT_BF16, PROMPT, QUERY * DIM);
	for (int i = 0; i < KEYS; i++)
		slot[i] = i;
	for (int i = 0; i < KEYS / 16; i++)
		blocks[i] = i;
	for (int i = 0; i < 3; i++) {
		const int64_t cols = dt_kv_row(&p, cache[i]),
			      bytes = 2 * KEYS * cols * dt_dtype_size(cache[i]);
		struct dt_tensor k = dt_t3(memory((size_t)bytes / 2), cache[i], KEYS / 16, 16, cols), v = k;
		char what[64];

		v.data = memory((size_t)bytes / 2);
		TIME(best, ops->kv_write(dev, k, v, x, &p, slot));
		snprintf(what, sizeof what, "kv_write of 16384 rows, %s cache", dt_dtype_name(cache[i]));
		row("context", what, DT_BF16, best, 0, (double)bytes + 4. * KEYS * KV * DIM);
		start[1] = 1;
		len[0] = KEYS;
		TIME(best,
		     ops->attention_paged(dev, dt_t2(o.data, DT_BF16, 1, QUERY * DIM),
					  dt_t2(x.data, DT_BF16, 1, (QUERY + 2 * KV) * DIM), k, v, &p, &one));
		bf16 = i ? bf16 : best;
		snprintf(what, sizeof what, "1 token, 16384 keys, %s cache", dt_dtype_name(cache[i]));
		row("context", what, DT_BF16, best, 0, (double)bytes);
		row_of("context", what, "of bf16", best, 1e9 / best, "/s", 1e9 / bf16);
		start[1] = len[0] = PROMPT;
		TIME(best,
		     ops->attention_paged(dev, o, dt_t2(x.data, DT_BF16, PROMPT, (QUERY + 2 * KV) * DIM), k,
					  v, &p, &one));
		snprintf(what, sizeof what, "1024 tokens, %s cache", dt_dtype_name(cache[i]));
		row("context", what, DT_BF16, best, flop, 0);
		free(k.data);
		free(v.data);
	}
	free(x.data);
	free(o.data);
}

static void streams(enum dt_dtype t)
{
	const int64_t n = 8 * ROWS;
	const double e = dt_dtype_size(t), all = (double)n * WIDTH;
	struct dt_tensor x = tensor(t, n, WIDTH), y = tensor(t, n, WIDTH), z = tensor(t, n, WIDTH),
			 s = tensor(t, n, WIDTH);
	struct dt_tensor w = tensor(t, 1, WIDTH), b = tensor(t, 1, WIDTH), dw = tensor(DT_F32, 1, WIDTH);
	struct dt_tensor db = tensor(DT_F32, 1, WIDTH), mean = tensor(DT_F32, 1, n),
			 rstd = tensor(DT_F32, 1, n);
	struct dt_tensor gate = tensor(t, n / 2, 2 * WIDTH), half = tensor(t, n / 2, WIDTH);
	double best, sq;

	if (wanted("layernorm")) {
		TIME(best, ops->layernorm_forward(dev, y, mean, rstd, s, x, z, w, b, 1e-5f));
		row("layernorm_forward", "8192 x 768, residual", t, best, 0, 4 * e * all);
		TIME(best, ops->layernorm_backward(dev, y, dw, db, z, s, x, mean, rstd, w));
		row("layernorm_backward", "8192 x 768", t, best, 0, 4 * e * all);
	}
	if (wanted("rmsnorm")) {
		TIME(best, ops->rmsnorm_forward(dev, y, rstd, s, x, z, w, false, 1e-5f));
		row("rmsnorm_forward", "8192 x 768, residual", t, best, 0, 4 * e * all);
		TIME(best, ops->rmsnorm_backward(dev, y, dw, z, s, x, rstd, w, false));
		row("rmsnorm_backward", "8192 x 768", t, best, 0, 4 * e * all);
	}
	if (wanted("act")) {
		TIME(best, ops->act_forward(dev, y, x, DT_ACT_GELU_TANH));
		row("act_forward", "gelu_tanh 8192 x 768", t, best, 0, 2 * e * all);
		TIME(best, ops->act_backward(dev, y, z, x, DT_ACT_GELU_TANH));
		row("act_backward", "gelu_tanh 8192 x 768", t, best, 0, 3 * e * all);
	}
	if (wanted("gated")) {
		TIME(best, ops->gated_forward(dev, half, gate, DT_ACT_SILU));
		row("gated_forward", "silu 4096 x 768", t, best, 0, 1.5 * e * all);
		TIME(best, ops->gated_backward(dev, gate, half, gate, DT_ACT_SILU));
		row("gated_backward", "silu 4096 x 768", t, best, 0, 2.5 * e * all);
	}
	if (wanted("colsum")) {
		TIME(best, ops->colsum(dev, dw, x));
		row("colsum", "8192 x 768", t, best, 0, e * all);
	}
	if (wanted("add")) {
		TIME(best, ops->add(dev, y, x, z));
		row("add", "8192 x 768", t, best, 0, 3 * e * all);
	}
	if (wanted("sumsq")) {
		TIME(best, ops->sumsq(dev, &sq, x));
		row("sumsq", "8192 x 768", t, best, 0, e * all);
	}
	free(x.data);
	free(y.data);
	free(z.data);
	free(s.data);
	free(w.data);
	free(b.data);
	free(dw.data);
	free(db.data);
	free(mean.data);
	free(rstd.data);
	free(gate.data);
	free(half.data);
}

static void losses(enum dt_dtype t)
{
	static float max[CHUNK], sum[CHUNK], hit[CHUNK];
	static int32_t target[CHUNK];
	struct dt_tensor l = tensor(t, CHUNK, VOCAB);
	const double bytes = (double)CHUNK * VOCAB * dt_dtype_size(t);
	double best;

	if (wanted("ce")) {
		TIME(best, ops->ce_stats(dev, max, sum, hit, l, target, 0));
		row("ce_stats", "512 x 50257", t, best, 0, bytes);
		TIME(best, ops->ce_grad(dev, l, l, max, sum, target, NULL, 1, 0));
		row("ce_grad", "512 x 50257, in place", t, best, 0, 2 * bytes);
	}
	free(l.data);
}

/* Every optimizer, by the bytes it must move: weights, gradients, states, and a copy in bf16. */
static void optimizers(void)
{
	const int64_t n = 16 << 20;
	struct dt_tensor p = tensor(DT_F32, 1, n), g = tensor(DT_F32, 1, n), s[2], c = tensor(DT_BF16, 1, n);
	double best;

	s[0] = tensor(DT_F32, 1, n);
	s[1] = tensor(DT_F32, 1, n);
	for (int k = 0; k < DT_OPTIM_N; k++) {
		const struct dt_optim_rule *r = dt_optim_rule((enum dt_optim_kind)k);
		const bool direction = r->flags & DT_OPTIM_DIRECTION;
		const struct dt_optim o = {(enum dt_optim_kind)k, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 10};
		struct dt_tensor state[2] = {DT_NONE, DT_NONE};
		/* a direction overwrites the gradient, and at most reads the weights */
		double each = direction ? 8 + (k == DT_OPTIM_MUON ? 0 : 4) : 8 + 4 + 2;
		char shape[64];

		if (r->flags & DT_OPTIM_FACTORED) /* it uses other ops */
			continue;
		for (int i = 0; i < 2; i++) {
			const int64_t bytes = dt_optim_state_bytes(&r->state[i], 1, n);

			if (r->state[i].shape == DT_STATE_NONE || r->state[i].shape == DT_STATE_REST)
				continue;
			state[i] = r->state[i].dtype == DT_F32 ? s[i] : dt_t1(s[i].data, DT_U8, bytes);
			each += 2 * (double)bytes / (double)n;
		}
		ops->fill(dev, s[0], 0);
		ops->fill(dev, s[1], r->state[1].shape == DT_STATE_BLOCKS ? 0 : 1);
		TIME(best, ops->optim_step(dev, &o, direction ? DT_NONE : c, p, g, state[0], state[1]));
		snprintf(shape, sizeof(shape), "%s 16 Mi%s", r->name, direction ? "" : ", bf16 copy");
		row("optim_step", shape, DT_F32, best, 0, each * (double)n);
	}
	free(p.data);
	free(g.data);
	free(s[0].data);
	free(s[1].data);
	free(c.data);
}

static void embedding(void)
{
	static int32_t ids[ROWS * 8];
	struct dt_tensor wte, dwte, y;
	double best;

	if (wanted("embedding")) {
		wte = tensor(DT_BF16, VOCAB, WIDTH);
		dwte = tensor(DT_F32, VOCAB, WIDTH);
		y = tensor(DT_BF16, ROWS * 8, WIDTH);
		for (int64_t i = 0; i < ROWS * 8; i++)
			ids[i] = (int32_t)(i * 7919 % VOCAB);
		TIME(best, ops->embedding_forward(dev, y, ids, NULL, wte, DT_NONE, 0));
		row("embedding_forward", "8192 x 768", DT_BF16, best, 0, 4. * ROWS * 8 * WIDTH);
		TIME(best, ops->embedding_backward(dev, dwte, DT_NONE, y, ids, NULL, 0));
		row("embedding_backward", "8192 x 768", DT_BF16, best, 0, 10. * ROWS * 8 * WIDTH);
		free(wte.data);
		free(dwte.data);
		free(y.data);
	}
}

/* oneDNN's product of the same sizes, with weights reordered at each call or used as they are. */
static void onednn_beside(int64_t rows, int64_t n, int64_t k)
{
	struct dt_tensor x = tensor(DT_BF16, rows, k), w = tensor(DT_BF16, n, k), y = tensor(DT_F32, rows, n);
	char shape[96];
	double best;

	TIME(best, dev->ops->matmul(dev, y, x, false, w, true, DT_NONE, false));
	snprintf(shape, sizeof shape, "oneDNN, bf16 %lldx%lldx%lld", (long long)rows, (long long)n,
		 (long long)k);
	row("packed", shape, DT_BF16, best, 2. * (double)(rows * n * k), 0);
	free(x.data);
	free(w.data);
	free(y.data);
}

/* Packed weights larger than the last-level cache: one row vs. the read rate, more rows vs. the bf16 rate */
static void weights(void)
{
	static const enum dt_format formats[] = {DT_FMT_Q8_0, DT_FMT_Q4_0, DT_FMT_Q4_1,
						 DT_FMT_Q4_K, DT_FMT_Q6_K, DT_FMT_BF16};
	static const int64_t rows[] = {1, 2, 4, 8, 16, 32, 512};
	const int64_t n = 32768, k = 4096;
	double read_rate, best;

	if (!wanted("packed"))
		return;
	read_rate = dt_dev_read_rate(dev, seconds);
	printf("read %.1f GB/s: the ceiling of packed products of one row\n", read_rate * 1e-9);
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
		const size_t bytes = dt_format_bytes(formats[f], n * k);
		uint8_t *blocks = memory(bytes);
		struct dt_tensor x = tensor(DT_F32, 512, k), y = tensor(DT_F32, 512, n);
		struct dt_packed *w;

		/* Small as f16 and as bf16; no bf16 is subnormal, which some processors multiply slowly. */
		for (size_t i = 0; i < bytes; i++)
			blocks[i] = (uint8_t)((i * 2654435761u >> 12 & 0x3b) |
					      (formats[f] == DT_FMT_BF16 && i % 2 ? 0x38 : 0));
		if (dt_packed_open(&w, dev, k) < 0 ||
		    dt_packed_append(w, dev, formats[f], formats[f], blocks, n) < 0)
			exit(1);
		free(blocks);
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			char shape[96];

			x.dim[0] = y.dim[0] = rows[i];
			TIME(best, dev->ops->packed_matmul(dev, y, x, w, DT_NONE));
			snprintf(shape, sizeof shape, "%s %lldx%lldx%lld", dt_format_info(formats[f])->name,
				 (long long)rows[i], (long long)n, (long long)k);
			row("packed", shape, DT_BF16, best, 2. * (double)(rows[i] * n * k), 0);
			if (formats[f] == DT_FMT_BF16 && rows[i] >= 32)
				onednn_beside(rows[i], n, k);
			if (rows[i] == 1) {
				char what[48];

				snprintf(what, sizeof what, "%s, of the read rate",
					 dt_format_info(formats[f])->name);
				row_of("packed", what, "-", best, (double)dt_packed_bytes(w) / best, "GB/s",
				       read_rate);
			}
		}
		dt_packed_close(w);
		free(x.data);
		free(y.data);
	}
}

/* By the same clock as the ops: with one thread, its processor time. */
static double measure_copy(void)
{
	const size_t n = (size_t)192 << 20;
	char *m;
	double best;

	if (dev->nthreads > 1)
		return dt_dev_copy_rate(dev, seconds);
	m = memory(2 * n);
	TIME(best, (memcpy(m + n, m, n), 0));
	free(m);
	return 2. * (double)n / best;
}

int main(int argc, char **argv)
{
	const char *path = argc > 2 && !strcmp(argv[1], "--check") ? argv[2] : NULL;

	if (path) {
		argc -= 2;
		argv += 2;
	} else if (argc > 1 && argv[1][0] == '-') {
		fprintf(stderr, "usage: kernels [--check FLOORS] [THREADS [SECONDS [OP]]]\n");
		return 2;
	}
	if (dt_dev_open(&dev, DT_DEV_CPU, 0, argc > 1 ? atoi(argv[1]) : 0) < 0)
		return 1;
	ops = dev->ops;
	seconds = argc > 2 ? atof(argv[2]) : seconds;
	only = argc > 3 ? argv[3] : NULL;
	if (path && read_floors(path))
		return 1;
	table = dt_table_new("op|shape|type|>time ms|>rate|>of peak");
	for (int t = 0; t < 2; t++) {
		struct dt_tensor a = tensor((enum dt_dtype)t, 1024, 1024),
				 c = tensor((enum dt_dtype)t, 1024, 1024);
		double best;

		TIME(best, ops->matmul(dev, c, a, false, a, false, DT_NONE, false));
		peak[t] = 2. * 1024 * 1024 * 1024 / best;
		free(a.data);
		free(c.data);
	}
	copy_rate = measure_copy();
	printf("%s, %d threads: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s (1024 cubed), copy %.1f GB/s\n",
	       dt_dev_isa(dev), dev->nthreads, peak[0] * 1e-9, peak[1] * 1e-9, copy_rate * 1e-9);
	for (int t = 0; t < 2; t++) {
		matmuls((enum dt_dtype)t);
		convolutions((enum dt_dtype)t);
		experts((enum dt_dtype)t);
		attention((enum dt_dtype)t);
		streams((enum dt_dtype)t);
		losses((enum dt_dtype)t);
	}
	eight_bits();
	long_contexts();
	if (wanted("optim"))
		optimizers();
	embedding();
	weights();
	dt_table_print(table, stdout);
	dt_table_free(table);
	dt_dev_close(dev);
	for (int i = 0; i < floor_count; i++)
		if (!only && !floors[i].met) {
			fprintf(stderr, "kernels: no such row: %s\n", floors[i].row);
			return 1;
		}
	return below ? 3 : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
