/*
 * Times ops on a device next to reference operations in the same run: sampling on the device, a linear layer
 * fused with its activation next to the two separate ops, attention, and optimizer updates of many
 * parameters.
 *
 *   build/bench/device [DEVICE [SECONDS [OP]]]      cpu, cuda, cuda:N; OP: draws, gelu,
 *   attention or updates
 */
#include "base/progress.h"
#include "base/table.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 128256, CALLS = 20 };

static struct dt_dev *dev;
static double seconds = 0.3, read_rate, matmul_rate;
static struct dt_table *table;

static void need(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "device: %s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

/* Seconds per call of EXPR, the best of several rounds. */
#define TIME(best, calls, expr)                                                                              \
	do {                                                                                                 \
		const double begin_ = dt_now();                                                              \
		best = INFINITY;                                                                             \
		for (int i_ = 0; i_ < 3 || dt_now() - begin_ < seconds; i_++) {                              \
			double t_ = dt_now();                                                                \
			for (int k_ = 0; k_ < (calls); k_++)                                                 \
				need(expr, #expr);                                                           \
			need(dt_dev_sync(dev), "sync");                                                      \
			t_ = (dt_now() - t_) / (calls);                                                      \
			best = t_ < best ? t_ : best;                                                        \
		}                                                                                            \
	} while (0)

/* n numbers from -scale to scale, on the device. */
static struct dt_tensor tensor(enum dt_dtype t, int64_t rows, int64_t cols, float scale)
{
	struct dt_tensor x = dt_t2(NULL, t, rows, cols);
	const size_t bytes = (size_t)(rows * cols * dt_dtype_size(t));
	char *host = malloc(bytes);

	need(host ? dt_dev_alloc(dev, &x.data, bytes) : -12, "memory");
	for (int64_t i = 0; i < rows * cols; i++) {
		float v = ((float)(((uint64_t)i * 2654435761u >> 12) % 20011) * 1e-4f - 1) * scale;

		if (t == DT_F32)
			((float *)host)[i] = v;
		else
			((uint16_t *)host)[i] = dt_f32_to_bf16(v);
	}
	need(dt_dev_copy(dev, x.data, host, bytes), "copy");
	need(dt_dev_sync(dev), "copy");
	free(host);
	return x;
}

static void row(const char *what, const char *shape, double time, double rate, const char *unit, double share)
{
	dt_table_cell(table, "%s", what);
	dt_table_cell(table, "%s", shape);
	dt_table_cell(table, "%.4f", time * 1e3);
	dt_table_cell(table, "%.1f %s", rate * 1e-9, unit);
	dt_table_cell(table, "%.2f", share);
}

static void draws(int rows)
{
	static const struct {
		const char *what;
		int reads;
		struct dt_draw d;
	} cases[] = {
		{"greedy", 1, {.cold = 0, .top_p = 1, .repetition = 1}},
		{"temperature 1", 2, {.cold = 1, .top_p = 1, .repetition = 1}},
		{"top_p 0.9", 3, {.cold = 1, .top_p = 0.9, .repetition = 1}},
		{"top_k 50", 3, {.cold = 1, .top_p = 1, .top_k = 50, .repetition = 1}},
	};
	struct dt_tensor logits = tensor(DT_F32, rows, VOCAB, 12);
	const double bytes = (double)rows * VOCAB * 4;
	struct dt_draw *d = calloc((size_t)rows, sizeof *d);
	struct dt_drawn *out;
	void *host;
	char shape[64];
	double t;

	need(d ? dt_dev_alloc(dev, (void **)&out, (size_t)rows * sizeof *out) : -12, "memory");
	need(dt_dev_host_alloc(dev, &host, (size_t)bytes), "memory");
	TIME(t, 3, dt_dev_copy(dev, host, logits.data, (size_t)bytes));
	snprintf(shape, sizeof shape, "%d x %d, to the host", rows, VOCAB);
	row("logits", shape, t, bytes / t, "GB/s", bytes / t / read_rate);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		for (int i = 0; i < rows; i++) {
			d[i] = cases[c].d;
			d[i].index = (uint64_t)i;
		}
		TIME(t, CALLS, dev->ops->sample(dev, out, logits, d, NULL, 0));
		snprintf(shape, sizeof shape, "%d x %d, %s", rows, VOCAB, cases[c].what);
		row("sample", shape, t, cases[c].reads * bytes / t, "GB/s",
		    cases[c].reads * bytes / t / read_rate);
	}
	dt_dev_free(dev, logits.data);
	dt_dev_free(dev, out);
	dt_dev_host_free(dev, host);
	free(d);
}

static void gelu(int64_t m, int64_t n, int64_t k)
{
	const enum dt_dtype b = DT_BF16;
	struct dt_tensor x = tensor(b, m, k, 1), w = tensor(b, n, k, 0.1f), bias = tensor(b, 1, n, 1);
	struct dt_tensor back = tensor(b, k, n, 0.1f), u = tensor(b, m, n, 1), y = tensor(b, m, n, 1);
	const struct dt_ops *o = dev->ops;
	const double flop = 2. * (double)(m * n * k);
	char shape[64];
	double t;

	snprintf(shape, sizeof shape, "%lldx%lldx%lld bf16", (long long)m, (long long)n, (long long)k);
	TIME(t, 3, o->matmul(dev, u, x, false, w, true, bias, false));
	row("matmul alone", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	TIME(t, 3,
	     o->matmul(dev, u, x, false, w, true, bias, false) | o->act_forward(dev, y, u, DT_ACT_GELU_TANH));
	row("matmul, act", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	TIME(t, 3, o->matmul_act(dev, y, u, x, w, bias, DT_ACT_GELU_TANH));
	row("matmul_act", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	TIME(t, 3,
	     o->matmul(dev, y, x, false, back, false, DT_NONE, false) |
		     o->act_backward(dev, y, y, u, DT_ACT_GELU_TANH));
	row("matmul, act, backward", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	TIME(t, 3, o->matmul_act_backward(dev, y, x, back, u, DT_ACT_GELU_TANH));
	row("matmul_act_backward", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	dt_dev_free(dev, x.data);
	dt_dev_free(dev, w.data);
	dt_dev_free(dev, bias.data);
	dt_dev_free(dev, back.data);
	dt_dev_free(dev, u.data);
	dt_dev_free(dev, y.data);
}

/* Counts products only: 4 d flops per visible (query, key) pair forward, 10 d backward. */
static void attention(int64_t batch, int64_t seq, int64_t heads, int64_t kv, int64_t d)
{
	const struct dt_attn p = {batch, seq, heads, kv, d, 0, 1 / sqrtf((float)d), 0, 0};
	const double flop = (double)(batch * heads * seq) * (double)(seq + 1) / 2 * (double)d * 4;
	struct dt_tensor x = tensor(DT_BF16, batch * seq, (heads + 2 * kv) * d, 2), dx = x;
	struct dt_tensor o = tensor(DT_BF16, batch * seq, heads * d, 1),
			 g = tensor(DT_BF16, batch * seq, heads * d, 1);
	struct dt_tensor lse = tensor(DT_F32, batch * heads, seq, 1);
	char shape[64];
	double t;

	need(dt_dev_alloc(dev, &dx.data, (size_t)(batch * seq * (heads + 2 * kv) * d) * 2), "memory");
	snprintf(shape, sizeof shape, "%lld x %lld, %lld/%lld x %lld bf16", (long long)batch, (long long)seq,
		 (long long)heads, (long long)kv, (long long)d);
	TIME(t, 3, dev->ops->attention_forward(dev, o, lse, x, &p));
	row("attention_forward", shape, t, flop / t, "GFLOP/s", flop / t / matmul_rate);
	TIME(t, 3, dev->ops->attention_backward(dev, dx, g, o, lse, x, &p));
	row("attention_backward", shape, t, 2.5 * flop / t, "GFLOP/s", 2.5 * flop / t / matmul_rate);
	dt_dev_free(dev, x.data);
	dt_dev_free(dev, dx.data);
	dt_dev_free(dev, o.data);
	dt_dev_free(dev, g.data);
	dt_dev_free(dev, lse.data);
}

/* One call per part. */
static int alone(const struct dt_optim *o, const struct dt_optim_parts *l)
{
	int rc = 0;

	for (int i = 0; i < l->n && rc == 0; i++) {
		const struct dt_optim_part *q = &l->part[i];

		rc = dev->ops->optim_step(dev, o, q->copy, q->p, q->g, q->s1, q->s2);
	}
	return rc;
}

enum { PARTS = 16, LAYERS = 12 };

/* AdamW over layers of GPT-2 124M, six matrices with biases and two norms each: 30 bytes per element. */
static void updates(int layers)
{
	const struct dt_optim o = {DT_OPTIM_ADAMW, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 10, 0};
	const int64_t d = 768, m = 4 * d * d,
		      sizes[PARTS] = {d, d, d * d, d, d * d, d, d * d, d, d * d, d, d, d, m, 4 * d, m, d},
		      n = layers * (12 * d * d + 13 * d);
	struct dt_tensor copy = tensor(DT_BF16, 1, n, 1), f[4];
	struct dt_optim_part part[PARTS * LAYERS];
	const struct dt_optim_parts l = {PARTS * layers, part};
	double t;
	int k = 0;

	for (int i = 0; i < 4; i++)
		f[i] = tensor(DT_F32, 1, n, 1);
	need(dev->ops->fill(dev, f[3], 1), "fill");
	for (int64_t at = 0; k < l.n; at += sizes[k++ % PARTS]) {
		const int64_t some = sizes[k % PARTS];
		float *p[4];

		for (int i = 0; i < 4; i++)
			p[i] = (float *)f[i].data + at;
		part[k] = (struct dt_optim_part){dt_t1((uint16_t *)copy.data + at, DT_BF16, some),
						 dt_t1(p[0], DT_F32, some),
						 dt_t1(p[1], DT_F32, some),
						 dt_t1(p[2], DT_F32, some),
						 dt_t1(p[3], DT_F32, some),
						 1e-4f,
						 some > 4 * d ? 0.1f : 0,
						 0};
	}
	TIME(t, 3, dev->ops->optim_step(dev, &o, copy, f[0], f[1], f[2], f[3]));
	row("optim_step", "adamw, all at once", t, 30 * (double)n / t, "GB/s",
	    30 * (double)n / t / read_rate);
	TIME(t, 3, dev->ops->optim_steps(dev, &o, &l));
	row("optim_steps", "a list of its parameters", t, 30 * (double)n / t, "GB/s",
	    30 * (double)n / t / read_rate);
	TIME(t, 3, alone(&o, &l));
	row("optim_step", "one after another", t, 30 * (double)n / t, "GB/s", 30 * (double)n / t / read_rate);
	dt_dev_free(dev, copy.data);
	for (int i = 0; i < 4; i++)
		dt_dev_free(dev, f[i].data);
}

static bool wanted(const char *op, const char *only)
{
	return !only || !strcmp(op, only);
}

int main(int argc, char **argv)
{
	const char *only = argc > 3 ? argv[3] : NULL;
	enum dt_dev_kind kind = DT_DEV_CPU;
	int index = 0;

	dt_dev_spin_less(argv);
	if ((argc > 1 && dt_dev_parse(argv[1], &kind, &index) < 0) || dt_dev_open(&dev, kind, index, 0) < 0) {
		fprintf(stderr, "device: cannot open the device\n");
		return 1;
	}
	seconds = argc > 2 ? atof(argv[2]) : seconds;
	read_rate = dt_dev_read_rate(dev, seconds);
	matmul_rate = dt_dev_matmul_rate(dev, DT_BF16, seconds);
	printf("%s, read %.1f GB/s, bf16 products %.1f GFLOP/s\n", dt_dev_isa(dev), read_rate * 1e-9,
	       matmul_rate * 1e-9);
	table = dt_table_new("op|shape|>time ms|>rate|>of peak");
	if (wanted("draws", only)) {
		draws(1);
		draws(64);
	}
	if (wanted("gelu", only)) {
		gelu(kind == DT_DEV_CPU ? 1024 : 32768, 3072, 768);
		if (kind != DT_DEV_CPU)
			gelu(8192, 6400, 1600);
	}
	if (wanted("attention", only)) {
		attention(kind == DT_DEV_CPU ? 1 : 32, 1024, 12, 12, 64);
		if (kind != DT_DEV_CPU) {
			attention(8, 1024, 25, 25, 64);
			attention(4, 4096, 32, 8, 128);
		}
	}
	if (wanted("updates", only))
		updates(kind == DT_DEV_CPU ? 1 : LAYERS);
	dt_table_print(table, stdout);
	dt_table_free(table);
	dt_dev_close(dev);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
