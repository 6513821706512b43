/* Attention, and the ops that memory bounds. */
#include "kernels.h"

void attention(enum dt_dtype t)
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
	dev->steps = true; /* as in dt-serve */
	TIME(best, ops->attention_paged(dev, o, x, kc, vc, &p, &one));
	row("attention_paged", "1 token, 1024 keys", t, best, 0, 2. * SEQ * WIDTH * dt_dtype_size(t));
	start[1] = SEQ;
	TIME(best, ops->attention_paged(dev, o, x, kc, vc, &p, &one));
	row("attention_paged", "1024 tokens", t, best, 2 * flop, 0);
	dev->steps = false;
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
void long_contexts(void)
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
	dev->steps = true; /* as in dt-serve */
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
	dev->steps = false;
	free(x.data);
	free(o.data);
}

void norms(enum dt_dtype t)
{
	const int64_t n = 8 * ROWS;
	const double all = (double)dt_dtype_size(t) * (double)n * WIDTH;
	struct dt_tensor x = tensor(t, n, WIDTH), y = tensor(t, n, WIDTH), z = tensor(t, n, WIDTH),
			 s = tensor(t, n, WIDTH);
	struct dt_tensor w = tensor(t, 1, WIDTH), b = tensor(t, 1, WIDTH), dw = tensor(DT_F32, 1, WIDTH);
	struct dt_tensor db = tensor(DT_F32, 1, WIDTH), mean = tensor(DT_F32, 1, n),
			 rstd = tensor(DT_F32, 1, n);
	double best;

	if (wanted("layernorm")) {
		TIME(best, ops->layernorm_forward(dev, y, mean, rstd, s, x, z, w, b, 1e-5f));
		row("layernorm_forward", "8192 x 768, residual", t, best, 0, 4 * all);
		TIME(best, ops->layernorm_backward(dev, y, dw, db, z, s, x, mean, rstd, w));
		row("layernorm_backward", "8192 x 768", t, best, 0, 4 * all);
	}
	if (wanted("rmsnorm")) {
		TIME(best, ops->rmsnorm_forward(dev, y, rstd, s, x, z, w, false, 1e-5f));
		row("rmsnorm_forward", "8192 x 768, residual", t, best, 0, 4 * all);
		TIME(best, ops->rmsnorm_backward(dev, y, dw, z, s, x, rstd, w, false));
		row("rmsnorm_backward", "8192 x 768", t, best, 0, 4 * all);
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
}

void streams(enum dt_dtype t)
{
	const int64_t n = 8 * ROWS;
	const double all = (double)dt_dtype_size(t) * (double)n * WIDTH;
	struct dt_tensor x = tensor(t, n, WIDTH), y = tensor(t, n, WIDTH), z = tensor(t, n, WIDTH);
	struct dt_tensor gate = tensor(t, n / 2, 2 * WIDTH), half = tensor(t, n / 2, WIDTH);
	struct dt_tensor sums = tensor(DT_F32, 1, WIDTH);
	double best, sq;

	if (wanted("act")) {
		TIME(best, ops->act_forward(dev, y, x, DT_ACT_GELU_TANH));
		row("act_forward", "gelu_tanh 8192 x 768", t, best, 0, 2 * all);
		TIME(best, ops->act_backward(dev, y, z, x, DT_ACT_GELU_TANH));
		row("act_backward", "gelu_tanh 8192 x 768", t, best, 0, 3 * all);
	}
	if (wanted("gated")) {
		TIME(best, ops->gated_forward(dev, half, gate, DT_ACT_SILU));
		row("gated_forward", "silu 4096 x 768", t, best, 0, 1.5 * all);
		TIME(best, ops->gated_backward(dev, gate, half, gate, DT_ACT_SILU));
		row("gated_backward", "silu 4096 x 768", t, best, 0, 2.5 * all);
	}
	if (wanted("colsum")) {
		TIME(best, ops->colsum(dev, sums, x));
		row("colsum", "8192 x 768", t, best, 0, all);
	}
	if (wanted("add")) {
		TIME(best, ops->add(dev, y, x, z));
		row("add", "8192 x 768", t, best, 0, 3 * all);
	}
	if (wanted("sumsq")) {
		TIME(best, ops->sumsq(dev, &sq, x));
		row("sumsq", "8192 x 768", t, best, 0, all);
	}
	free(x.data);
	free(y.data);
	free(z.data);
	free(gate.data);
	free(half.data);
	free(sums.data);
}

void losses(enum dt_dtype t)
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
void optimizers(void)
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

void embedding(void)
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
/* SPDX-License-Identifier: Apache-2.0 */
