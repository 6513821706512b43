/*
 * make-ckpt ROOT STEP LAYOUT SEED [WORD...]: writes a checkpoint of a tiny model, with the shards that the
 * ranks of LAYOUT would write.
 *
 * Words: compress (compressed pieces), bf16 (model weights in bf16, optimizer states in fp32), tied (a tied
 * head), keep1 (keep only the newest checkpoint), large (52 M parameters), crash (the process kills itself
 * after the first shard, before the commit).
 *
 * Each element is a function of seed, tensor name and index (value() below), so that a test can compute it.
 *
 * The distribution of pieces over ranks is this file's own: of ranks that hold the same box, one writes it,
 * chosen by owner(); under z1 the states of a tensor are cut into flat ranges over these ranks.
 */
#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "plan/layout.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words {
	bool compress, bf16, tied, keep1, large, crash;
};

static const struct dt_config tiny = {
	.name = "tiny",
	.family = "qwen2",
	.vocab = 50,
	.hidden = 24,
	.ffn = 40,
	.layers = 3,
	.heads = 6,
	.kv_heads = 2,
	.head_dim = 4,
	.max_seq = 64,
	.norm = DT_NORM_RMS,
	.norm_eps = 1e-5,
	.pos = DT_POS_ROPE,
	.rope_theta = 10000,
	.rope_factor = 1,
	.gated = true,
	.qkv_bias = true,
	.bos = -1,
	.eos = -1,
	.init_std = 0.02,
};

/* tests/cli/shard-ckpt.py computes the same values. */
static float value(uint64_t seed, const char *name, int64_t index)
{
	uint32_t x = dt_hash_str(name) * 2654435761u + (uint32_t)index * 40503u + (uint32_t)seed * 97u;

	return (float)(int32_t)(x % 20011u) / 1024.0f - 9.0f;
}

static void *fill(const struct dt_piece *p, uint64_t seed)
{
	int64_t n = 1, stride[2] = {p->ndim == 2 ? p->global[1] : 1, 1};
	char *data;

	for (int d = 0; d < p->ndim; d++)
		n *= p->shape[d];
	data = malloc((size_t)n * 4 + 1);
	for (int64_t i = 0; i < n; i++) {
		int64_t r = p->ndim == 2 ? i / p->shape[1] : i, c = p->ndim == 2 ? i % p->shape[1] : 0;
		int64_t at = (p->off[0] + r) * stride[0] + (p->ndim == 2 ? p->off[1] + c : 0);
		float x = value(seed, p->name, at);
		uint16_t h = dt_f32_to_bf16(x);

		if (p->dtype == DT_BF16)
			memcpy(data + 2 * i, &h, 2);
		else
			memcpy(data + 4 * i, &x, 4);
	}
	return data;
}

static bool held_before(const struct dt_params *t, const struct dt_config *c, const struct dt_layout *l,
			int rank, const struct dt_local_param *p, int *nth, int *total)
{
	*nth = *total = 0;
	for (int r = 0; r < dt_layout_world(l); r++) {
		struct dt_local lo;

		if (dt_local_build(t, c, l, dt_layout_coords(l, r), &lo, NULL) < 0)
			abort();
		for (int i = 0; i < lo.n; i++)
			if (lo.p[i].index == p->index && !memcmp(lo.p[i].off, p->off, sizeof(p->off)) &&
			    !memcmp(lo.p[i].shape, p->shape, sizeof(p->shape))) {
				if (r < rank)
					++*nth;
				++*total;
				break;
			}
		dt_local_release(&lo);
	}
	return *nth > 0;
}

/* Which of a piece's holders writes it. Neighbouring pieces have different ones. */
static int owner(const char *name, int64_t piece_no, int holders)
{
	return holders > 1 ? (int)(((uint64_t)dt_hash_str(name) + (uint64_t)piece_no) % (uint64_t)holders)
			   : 0;
}

static int rank_pieces(const struct dt_params *t, const struct dt_config *c, const struct dt_layout *l,
		       int rank, uint64_t seed, struct words w, struct dt_piece *out)
{
	static const char *const kinds[] = {"model", "m", "v"};
	struct dt_local lo;
	int n = 0, nth, total;

	if (dt_local_build(t, c, l, dt_layout_coords(l, rank), &lo, NULL) < 0)
		abort();
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < lo.n; i++) {
			const struct dt_param *q = &t->p[lo.p[i].index];
			struct dt_piece p = {.ndim = q->ndim, .dtype = k == 0 && w.bf16 ? DT_BF16 : DT_F32},
					part[9];

			snprintf(p.name, sizeof(p.name), "%s/%s", kinds[k], q->name);
			for (int d = 0; d < q->ndim; d++) {
				p.global[d] = q->shape[d];
				p.off[d] = lo.p[i].off[d];
				p.shape[d] = lo.p[i].shape[d];
			}
			held_before(t, c, l, rank, &lo.p[i], &nth, &total);
			p.data = fill(&p, seed);
			if (k > 0 && l->zero >= 1 && lo.p[i].numel) {
				/* each of the `total` holders writes its range of the flattened tensor */
				int64_t a = lo.p[i].numel * nth / total,
					b = lo.p[i].numel * (nth + 1) / total;
				int m = dt_pieces_of_range(&p, a, b - a, part);

				for (int j = 0; j < m; j++)
					out[n++] = part[j];
			} else if (nth == owner(p.name, lo.p[i].index, total) || !lo.p[i].numel) {
				out[n++] = p;
			}
		}
	dt_local_release(&lo);
	return n;
}

/* The process ends after one save and does not free its memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

int main(int argc, char **argv)
{
	struct dt_config c = tiny;
	struct dt_params t;
	struct dt_layout l;
	struct dt_err err = {0};
	struct words w = {0};
	static json_t *lists[256];
	static struct dt_piece pieces[65536];
	json_t *meta;
	int64_t step;
	char *tmp;

	if (argc < 5)
		return 2;
	for (int i = 5; i < argc; i++) {
		w.compress |= !strcmp(argv[i], "compress");
		w.bf16 |= !strcmp(argv[i], "bf16");
		w.tied |= !strcmp(argv[i], "tied");
		w.keep1 |= !strcmp(argv[i], "keep1");
		w.large |= !strcmp(argv[i], "large");
		w.crash |= !strcmp(argv[i], "crash");
	}
	c.tied = w.tied;
	if (w.large) {
		c.vocab = 20000;
		c.hidden = 768;
		c.head_dim = 128;
		c.ffn = 2048;
	}
	step = atoll(argv[2]);
	if (dt_layout_parse(argv[3], &l, &err) < 0 || dt_model_params(&c, &t, &err) < 0 ||
	    dt_layout_check(&l, &c, &err) < 0 || dt_ckpt_begin(argv[1], step, &tmp, &err) < 0)
		goto fail;
	for (int r = 0; r < dt_layout_world(&l); r++) {
		int n = rank_pieces(&t, &c, &l, r, strtoull(argv[4], NULL, 10), w, pieces);

		if (dt_ckpt_write_shard(tmp, r, pieces, n, w.compress, &lists[r], &err) < 0)
			goto fail;
		if (w.crash)
			raise(SIGKILL);
	}
	meta = json_pack("{s:o, s:s, s:I, s:{s:I}}", "model", dt_config_to_json(&c), "layout", argv[3],
			 "step", (json_int_t)step, "data", "cursor", (json_int_t)step * 17);
	if (dt_ckpt_commit(argv[1], step, meta, lists, dt_layout_world(&l), w.keep1 ? 1 : 0, &err) < 0 ||
	    err.code)
		goto fail;
	return 0;
fail:
	fprintf(stderr, "make-ckpt: %s\n", err.msg);
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
