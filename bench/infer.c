/*
 * Speed of a model's forward pass, without a server: a prompt of 512 tokens, one stream, and 32 streams
 * together, in tokens/s; for one stream also the weight bytes read per second, relative to the device's read
 * and copy rates in the same run.
 *
 *   build/bench/infer MODEL [THREADS [SECONDS [CASE|all [DEVICE]]]]
 */
#include "nn/infer.h"
#include "base/progress.h"
#include "ckpt/source.h"
#include "kernels/device.h"
#include "model/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, PROMPT = 512, SEQS = 32, CONTEXT = 160 };

static struct dt_infer *model;
static double seconds = 1;

/* Seconds of one pass: seqs sequences with `before` tokens in the cache get n more. */
static double pass(int seqs, int before, int n, float *logits)
{
	static int32_t ids[PROMPT], pos[PROMPT], q_start[SEQS + 1], kv_len[SEQS],
		table[SEQS * PROMPT / BLOCK], want[SEQS], state[SEQS];
	static int64_t slot[PROMPT];
	const int blocks = PROMPT / BLOCK;
	const int64_t known = dt_infer_config(model)->vocab, vocab = known < 4000 ? known : 4000;
	struct dt_infer_batch b = {.nseq = seqs,
				   .ntokens = seqs * n,
				   .ids = ids,
				   .pos = pos,
				   .slot = slot,
				   .q_start = q_start,
				   .kv_len = kv_len,
				   .block_table = table,
				   .max_blocks = blocks,
				   .state = state,
				   .want = want,
				   .nwant = seqs};
	struct dt_err err;
	double t;

	for (int s = 0, at = 0; s < seqs; s++) {
		q_start[s] = at;
		kv_len[s] = before + n;
		state[s] = s;
		for (int i = 0; i < blocks; i++)
			table[s * blocks + i] = s * blocks + i;
		for (int i = 0; i < n; i++, at++) {
			ids[at] = (int32_t)((s * 131 + i * 17 + before) % vocab);
			pos[at] = before + i;
			slot[at] = (int64_t)s * PROMPT + before + i;
		}
		want[s] = at - 1;
		q_start[s + 1] = at;
	}
	t = dt_now();
	if (dt_infer_forward(model, &b, logits, &err) < 0) {
		fprintf(stderr, "infer: %s\n", err.msg);
		exit(1);
	}
	return dt_now() - t;
}

/* The median: other load on the machine shows as a few slow passes. */
static double median(int seqs, int before, int n, float *logits)
{
	static double v[1 << 14];
	const double begin = dt_now();
	int k = 0;

	pass(seqs, before, n, logits);
	while (k < 3 || (k < 1 << 14 && dt_now() - begin < seconds)) {
		double x = pass(seqs, before, n, logits);
		int i = k++;

		for (; i > 0 && v[i - 1] > x; i--)
			v[i] = v[i - 1];
		v[i] = x;
	}
	return v[k / 2];
}

/* Share of the weights that one token reads: in a mixture of experts only its own experts. */
static double read_share(const struct dt_config *c)
{
	double all = 0, idle = 0;
	struct dt_params table;

	if (!c->experts || dt_model_params(c, &table, NULL) < 0)
		return 1;
	for (int i = 0; i < table.n; i++) {
		double n = (double)dt_param_numel(&table.p[i]);

		all += n;
		if (table.p[i].experts > 1)
			idle += n * (1 - (double)c->experts_used / (double)c->experts);
	}
	dt_params_release(&table);
	return 1 - idle / all;
}

struct bench_case {
	const char *name;
	int seqs, before, n;
};

/* Times a case and prints its line. read, copy: the device's rates, bytes/s. */
static void run(const struct bench_case *c, double read, double copy, float *logits)
{
	double weights = (double)dt_infer_bytes(model).weights, t;

	if (c->seqs == 1) /* many tokens reach all experts */
		weights *= read_share(dt_infer_config(model));
	t = median(c->seqs, c->before, c->n, logits);
	printf("%-6s %8.3f ms  %8.1f tokens/s", c->name, t * 1e3, c->seqs * c->n / t);
	if (c->n == 1)
		printf("  %.1f GB/s, %.2f of read, %.2f of copy", weights / t * 1e-9, weights / t / read,
		       weights / t / copy);
	putchar('\n');
}

int main(int argc, char **argv)
{
	static const struct bench_case cases[] = {
		{"prompt", 1, 0, PROMPT}, {"one", 1, CONTEXT, 1}, {"many", SEQS, CONTEXT, 1}};
	struct dt_infer_params p = {.dtype = DT_BF16,
				    .cache = DT_BF16,
				    .weights = -1,
				    .max_tokens = PROMPT,
				    .max_seqs = SEQS,
				    .max_len = PROMPT,
				    .blocks = SEQS * PROMPT / BLOCK,
				    .states = SEQS,
				    .block_size = BLOCK};
	struct dt_dev *dev;
	struct dt_source *src;
	struct dt_err err;
	enum dt_dev_kind kind = DT_DEV_CPU;
	float *logits;
	double rate, copy;
	int index = 0;

	dt_dev_spin_less(argv);
	if (argc < 2 || argv[1][0] == '-' || (argc > 2 && strspn(argv[2], "0123456789") != strlen(argv[2]))) {
		fprintf(stderr, "usage: infer MODEL [THREADS [SECONDS [CASE|all [DEVICE]]]]\n");
		return 2;
	}
	seconds = argc > 3 ? atof(argv[3]) : seconds;
	if ((argc > 5 && dt_dev_parse(argv[5], &kind, &index) < 0) ||
	    dt_dev_open(&dev, kind, index, argc > 2 ? atoi(argv[2]) : 0) < 0) {
		fprintf(stderr, "infer: cannot open the device\n");
		return 1;
	}
	dev->batch_invariant = kind == DT_DEV_CPU; /* as in dt-serve */
	if (dt_source_open(argv[1], DT_SOURCE_AUTO, "none", &src, &err) < 0 ||
	    dt_infer_open(&model, dev, src, &p, &err) < 0) {
		fprintf(stderr, "infer: %s\n", err.msg);
		return 1;
	}
	logits = malloc((size_t)SEQS * (size_t)dt_infer_config(model)->vocab * sizeof(*logits));
	if (!logits)
		return 1;
	rate = dt_dev_read_rate(dev, 0.3);
	copy = dt_dev_copy_rate(dev, 0.3);
	printf("%s, %d threads, read %.1f GB/s, copy %.1f GB/s\n", dt_dev_isa(dev), dev->nthreads,
	       rate * 1e-9, copy * 1e-9);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc < 5 || !strcmp(argv[4], "all") || !strcmp(argv[4], cases[i].name))
			run(&cases[i], rate, copy, logits);
	free(logits);
	dt_infer_close(model);
	dt_source_close(src);
	dt_dev_close(dev);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
