/*
 * Every op on two devices, the processor and a card, from the same memory: the same answer, and results that
 * agree to rounding. test_listed fails where an op of ops.list has no case. The ops' own tests compare with
 * f64 references; this one finds where devices disagree, refusals included.
 */
#include "check.h"
#include "kernels/quant_formats.h"

static struct dt_dev *cpu, *card;

/* What a call writes, as it was before, and as the card left it. */
struct output {
	void *host, *before, *there;
	size_t n;
	enum dt_dtype type; /* DT_U8: compared byte by byte */
};

struct run {
	struct output out[16];
	int n;
};

static void *copy_bytes(const void *p, size_t n)
{
	void *c = malloc(n + !n);

	assert_non_null(c);
	if (n)
		memcpy(c, p, n);
	return c;
}

static void writes(struct run *r, void *p, size_t n, enum dt_dtype type)
{
	if (p && n)
		r->out[r->n++] = (struct output){p, copy_bytes(p, n), NULL, n, type};
}

/* The card has run: its results are kept, and memory is as it was. */
static void next_device(struct run *r)
{
	for (int i = 0; i < r->n; i++) {
		r->out[i].there = copy_bytes(r->out[i].host, r->out[i].n);
		memcpy(r->out[i].host, r->out[i].before, r->out[i].n);
	}
}

static double half_unit(enum dt_dtype t)
{
	return t == DT_BF16 ? BF16_EPS : t == DT_F16 ? F16_EPS : 0;
}

static void compare(struct run *r, const char *op, int rc_card, int rc_cpu, double tol)
{
	if (rc_card != rc_cpu)
		fail_msg("%s: %d on the card, %d on the processor", op, rc_card, rc_cpu);
	for (int i = 0; i < r->n; i++) {
		struct output *o = &r->out[i];
		const struct dt_tensor got = dt_t1(o->there, o->type, (int64_t)o->n / dt_dtype_size(o->type));
		const struct dt_tensor want = dt_t1(o->host, o->type, got.dim[0]);

		if (!dt_dtype_size(o->type) ||
		    (o->type != DT_F32 && o->type != DT_BF16 && o->type != DT_F16)) {
			if (memcmp(o->host, o->there, o->n))
				fail_msg("%s: output %d differs", op, i);
		} else {
			double *w = values(want);

			for (int64_t j = 0; j < got.dim[0]; j++)
				if (isnan(w[j]) && isnan(get(got, j)))
					put(got, j, w[j] = 0); /* not written by either */
			/* 16 bits: each device rounds its own sum, and what follows from it once more */
			check_close(op, got, w, tol, tol + 3 * half_unit(o->type));
			free(w);
		}
		free_all(o->before, o->there);
	}
}

#define TYPE_OF(p) _Generic((p), float * : DT_F32, default : DT_U8)
#define IN(t)
#define IN_AT(p, n)
#define IN_LD(t)
#define OUT_LD(t)    OUT(t)
#define OUT(t)	     writes(&run, (t).data, bytes_of(t), (t).dtype);
#define OUT_AT(p, n) writes(&run, p, (size_t)(n) * sizeof *(p), TYPE_OF(p));

/* Which ops have had a case. */
enum {
#define DT_OP(name, params, args, memory) OP_##name,
#include "kernels/ops.list"
	OPS
};
static bool ran[OPS];

#define DT_OP(name, params, args, memory)                                                                    \
	static __attribute__((unused)) void both_##name(double tol, DT_LIST params)                          \
	{                                                                                                    \
		struct run run = {.n = 0};                                                                   \
		int rc;                                                                                      \
                                                                                                             \
		memory rc = card->ops->name(card, DT_LIST args);                                             \
		next_device(&run);                                                                           \
		compare(&run, #name, rc, cpu->ops->name(cpu, DT_LIST args), tol);                            \
		ran[OP_##name] = true;                                                                       \
	}
#include "kernels/ops.list"

/* Memory of one case. */
static void *room[160];
static int rooms;

static struct dt_tensor r(enum dt_dtype t, int64_t rows, int64_t cols)
{
	const struct dt_tensor x = random_tensor(t, rows, cols, (uint32_t)rooms, 1);

	assert_true(rooms < (int)(sizeof room / sizeof *room));
	return room[rooms++] = x.data, x;
}

static int32_t *ids(int64_t n, int64_t end)
{
	int32_t *p = malloc((size_t)n * sizeof *p + 1);

	for (int64_t i = 0; i < n; i++)
		p[i] = (int32_t)(i * 7919 % end);
	return room[rooms++] = p, p;
}

static float *floats(int64_t n)
{
	struct dt_tensor x = r(DT_F32, 1, n);
	float *p = x.data;

	for (int64_t i = 0; i < n; i++)
		p[i] = p[i] * p[i] + 0.5f; /* of scales and sums: positive */
	return p;
}

static struct dt_tensor positive(int64_t n)
{
	return dt_t1(floats(n), DT_F32, n);
}

static void norms(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_heads h = {1, 2, n}, part = {1, 2, n, positive(2 * m), 3 * n};
	struct dt_tensor rstd = positive(m), w = r(t, 1, n), dw = r(DT_F32, 1, n);

	both_layernorm_forward(1e-5, r(t, m, n), r(DT_F32, 1, m), r(DT_F32, 1, m), r(t, m, n), r(t, m, n),
			       r(t, m, n), w, r(t, 1, n), 1e-5f);
	both_layernorm_backward(1e-4, r(t, m, n), dw, r(DT_F32, 1, n), r(t, m, n), r(t, m, n), r(t, m, n),
				r(DT_F32, 1, m), rstd, w);
	both_rmsnorm_forward(1e-5, r(t, m, n), r(DT_F32, 1, m), DT_NONE, r(t, m, n), DT_NONE, w, true, 1e-5f);
	both_rmsnorm_backward(1e-4, r(t, m, n), dw, r(t, m, n), DT_NONE, r(t, m, n), rstd, w, false);
	both_heads_norm_forward(1e-5, r(t, m, 4 * n), DT_NONE, DT_NONE, r(t, m, 4 * n), w, false, 1e-5f, &h);
	both_heads_sums(1e-5, r(DT_F32, m, 2), r(t, m, 4 * n), DT_NONE, DT_NONE, DT_NONE, false, &h);
	both_heads_sums(1e-4, r(DT_F32, m, 2), r(t, m, 4 * n), r(t, m, 4 * n), positive(2 * m), w, true, &h);
	both_heads_norm_forward(1e-5, r(t, m, 4 * n), DT_NONE, DT_NONE, r(t, m, 4 * n), w, false, 1e-5f,
				&part);
	both_heads_norm_backward(1e-4, r(t, m, 4 * n), dw, r(t, m, 4 * n), r(t, m, 4 * n), positive(2 * m), w,
				 true, &part);
	both_heads_norm_backward(1e-4, r(t, m, 4 * n), dw, r(t, m, 4 * n), r(t, m, 4 * n), positive(2 * m), w,
				 true, &h);
	both_rmsnorm_forward(0, r(t, m, n), DT_NONE, DT_NONE, r(t, m, n + 1), DT_NONE, w, true,
			     1e-5f); /* refused */
}

static void products(enum dt_dtype t, int64_t m, int64_t n)
{
	const int64_t k = 2 * n + 1;
	const enum dt_dtype e = DT_E4M3;
	const double act = t == DT_F32 ? 1e-5 : 2e-2; /* f of a sum that a device has rounded */
	const float half = 0.5f;		      /* scales are powers of two */
	struct dt_tensor q = dt_t2(ids(m * k, 100), e, m, k), p = dt_t2(ids(n * k, 90), e, n, k);

	both_matmul(1e-5, r(DT_F32, m, n), r(t, m, k), false, r(t, n, k), true, r(t, 1, n), true);
	both_matmul(1e-5, r(t, m, n), r(t, k, m), true, r(t, k, n), false, DT_NONE, false);
	both_matmul(0, r(t, m, n), r(t, k, m), false, r(t, k, n), false, DT_NONE,
		    false); /* refused but for m = k */
	both_gram(act, r(t, m, m), r(t, m, k), 0.5f, r(t, m, m), -2, 3);
	both_gram(1e-5, r(t, m, m), r(t, m, k), 1, DT_NONE, 0, 0);
	both_gram(0, r(t, m, m), r(t, m, k), 1, r(DT_F16, m, m), 1, 0); /* refused */
	both_transpose(0, r(t, n, m), r(DT_F32, m, n));
	both_transpose(0, r(t, n, m), r(t, m, n));
	both_colsum(1e-5, r(DT_F32, 1, n), r(t, m, n));
	both_matmul_act(act, r(t, m, n), r(t, m, n), r(t, m, k), r(t, n, k), r(t, 1, n), DT_ACT_SILU);
	both_matmul_act_backward(act, r(t, m, n), r(t, m, k), r(t, k, n), r(t, m, n), DT_ACT_GELU_TANH);
	both_fp8_quantize(0, q, DT_NONE, floats(1), r(t, m, k));
	both_fp8_matmul(1e-3, r(t, m, n), q, &half, p, &half, DT_NONE, false);
}

static void rows(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_rope rope = {2, 2 * n, 2 * n, DT_ROPE_HALF, floats(9 * n), floats(9 * n), 9};
	const struct dt_optim adam = {DT_OPTIM_ADAMW, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 3, 0};
	const struct dt_round round = {{{1, 2}, {3, 4}}, 5};
	const struct dt_dropout drop = {.stream = {{1, 2}, {3, 4}},
					.below = 1u << 31,
					.scale = 2,
					.sample = 3,
					.seq = m,
					.positions = m + 2,
					.pos = ids(m, m + 2),
					.cols = n + 6,
					.col = 3};
	int64_t *token = (int64_t *)(void *)floats(2 * m);
	const struct dt_noise noise = {{{1, 2}, {3, 4}}, positive(m).data, token};
	uint8_t *packed = (uint8_t *)floats(54); /* 12 blocks of 18 bytes */
	const struct dt_blocks_part blocks = {DT_BLOCKS_Q4_0, packed, 216, 0, 64, 384};
	const struct dt_optim_part part[] = {
		{r(DT_F16, m, n), r(DT_F32, m, n), r(t, m, n), r(DT_F32, m, n), positive(m * n), 0.1f, 0.2f,
		 0},
		{DT_NONE, r(DT_F32, 1, 3), r(DT_F32, 1, 3), r(DT_F32, 1, 3), positive(3), 0.2f, 0, 0}};
	const struct dt_optim_parts parts = {2, part};
	struct dt_tensor sum = r(DT_F32, m, 2 * n);
	int out;

	for (int64_t i = 0; i < m; i++)
		token[i] = 1000000007LL * i + 3;
	dt_quantize(DT_FMT_Q4_0, r(DT_F32, 6, 64).data, 384, packed);
	sum = dt_t2(sum.data, DT_I64, m, n);
	memset(sum.data, 0, bytes_of(sum));
	both_rope(1e-5, r(t, m, 6 * n), &rope, ids(m, 9), true);
	both_act_forward(1e-5, r(t, m, n), r(t, m, n), DT_ACT_GELU_ERF);
	both_act_backward(1e-5, r(t, m, n), r(t, m, n), r(t, m, n), DT_ACT_RELU);
	both_gated_forward(1e-5, r(t, m, n), r(t, m, 2 * n), DT_ACT_SILU);
	both_gated_backward(1e-5, r(t, m, 2 * n), r(t, m, n), r(t, m, 2 * n), DT_ACT_SILU);
	both_embedding_forward(1e-6, r(t, m, n), ids(m, 50), ids(m, 9), r(t, 40, n), r(t, 9, n), 3);
	both_embedding_backward(1e-5, r(DT_F32, 40, n), r(DT_F32, 9, n), r(t, m, n), ids(m, 50), ids(m, 9),
				3);
	both_ce_stats(1e-5, floats(m), floats(m), floats(m), r(t, m, n), ids(m, n + 2), 1);
	both_ce_grad(1e-5, r(t, m, n), r(t, m, n), floats(m), floats(m), ids(m, n + 2), NULL, 0.5f, 1);
	both_ce_grad(1e-5, r(t, m, n), r(t, m, n), floats(m), floats(m), ids(m, n + 2), floats(m), 0.5f, 1);
	both_optim_step(1e-5, &adam, r(DT_BF16, m, n), r(DT_F32, m, n), r(t, m, n), r(DT_F32, m, n),
			positive(m * n));
	both_optim_steps(1e-5, &adam, &parts);
	both_add(0, r(t, m, n), r(t, m, n), r(t, m, n));
	both_add(0, r(t, m, n), r(t, m, n), r(t, m, n + 1)); /* refused */
	both_axpy(1e-6, r(t, m, n), 0.3f, r(DT_BF16, m, n));
	both_columns(1e-7, r(t, m, n), 1, r(DT_F32, m, n + 3), 2, n - 1, true);
	both_columns(0, r(t, m, n), 0, r(t, m, n), 1, n, false); /* refused */
	both_dropout(1e-7, r(t, m, n), r(t, m, n), &drop, true);
	both_dropout(0, r(t, m, n), r(t, m, n + 1), &drop, true); /* refused */
	both_noise(1e-7, r(t, m, n), &noise);
	both_noise(0, r(DT_I32, m, n), &noise); /* refused */
	both_unpack(0, r(t, 6, 64), &blocks);
	both_scale(0, r(t, m, n), 0.7f);
	both_fill(0, r(t, m, n), 0.7f);
	both_fill_spans(0, r(t, m, n), 2, (int64_t[]){0, 1, 2, m * n}, 0.7f);
	both_convert(0, r(t, m, n), r(DT_F32, m, n));
	both_softcap(1e-6, r(t, m, n), r(DT_F32, m, n), 0.6f);
	both_softcap_backward(1e-6, r(t, m, n), r(t, m, n), r(DT_F32, m, n), 2);
	both_fixed_add(0, &out, sum, r(DT_F32, m, n));
	both_fixed_join(0, sum, sum);
	both_fixed_get(0, r(DT_F32, m, n), sum);
	both_round_random(0, r(DT_BF16, m, n), r(DT_F32, m, n), &round);
}

/* Of mixtures, latent attention and images what serving does not need. */
static void training(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_moe p = {.experts = 11, .used = 3, .scale = 1.5f},
			    q = {.experts = 12, .used = 3, .sigmoid = true, .groups = 4, .groups_used = 2};
	const struct dt_moe_loss l = {0.3f, 0.2f, floats(11), m, NULL};
	double dropped = 0, counts[11] = {0};
	const struct dt_moe_place some = {11, 2, 7, 2, &dropped}, outside = {11, 5, 7, 0, NULL};
	const int64_t choices = 3 * m;
	int32_t *expert = ids(choices, 11), *first = ids(8, 1), *at = ids(choices, choices),
		*from = ids(choices, choices);
	const int32_t begin[] = {0, (int32_t)(m / 2), (int32_t)(m / 2), (int32_t)m};
	const struct dt_grouped g = {begin, 3, 3};
	const double tol = t == DT_F32 ? 1e-6 : t == DT_F16 ? 2e-3 : 1e-2;
	struct dt_latent_heads h = {m, 3, n, {1, 3 * n + 2, n}, {0, 3 * n + 1, n}, false};

	both_moe_route(1e-6, ids(choices, 2), floats(choices), r(DT_F32, m, 12), positive(12), &q);
	both_moe_route_backward(1e-6, r(DT_F32, m, 11), floats(choices), expert, r(DT_F32, m, 11), &p, &l);
	both_moe_place(0, first, at, from, expert, floats(choices), choices, &some);
	both_moe_place(0, first, at, from, expert, floats(choices), choices, &outside); /* refused */
	both_moe_count(1e-7, floats(33), 3, counts, expert, choices, 11, 5);
	both_moe_gather(0, r(t, choices, n), r(t, m, n), from, 3);
	both_moe_sum_backward(1e-5, r(t, choices, n), floats(choices), r(t, m, n), r(t, choices, n), at,
			      floats(choices), 3);
	both_grouped_matmul(1e-5, r(t, m, n + 2), r(t, m, n), r(t, 3 * n, n), r(t, 6, n), &g);
	both_grouped_matmul_dx(1e-5, r(t, m, n), r(t, m, n + 2), r(t, 3 * n, n), r(t, 6, n), &g);
	both_grouped_matmul_dw(1e-5, r(DT_F32, 3 * n, n), DT_NONE, r(t, m, n), r(t, m, n), &g, true);
	both_grouped_bias(tol, r(t, m, 5 * n), r(t, 1, 9 * n), r(t, 1, 6 * n), &g);
	both_grouped_bias(tol, r(t, m, n), r(DT_F32, 1, 3 * n), DT_NONE, &g);
	both_grouped_bias_backward(1e-5, r(DT_F32, 1, 9 * n), r(DT_F32, 1, 6 * n), r(t, m, 5 * n), &g);
	both_latent_heads(0, r(t, m, 3 * n + 2), r(t, m, 3 * n + 1), &h);
	both_image_tokens(tol, r(t, 6 * 3, n), r(t, 5 * 3, n), r(t, 1, n), r(t, 6, n));
	both_image_tokens_backward(1e-5, r(t, 5 * 3, n), r(DT_F32, 1, n), r(DT_F32, 6, n), r(t, 6 * 3, n), 6);
	both_image_tokens_backward(1e-5, r(t, 5 * 3, n), DT_NONE, DT_NONE, r(t, 6 * 3, n), 6);
	h.to = (struct dt_latent_place){2, n + 2, 0};
	h.sum = true;
	both_latent_heads(1e-6, r(t, m, n + 2), r(t, m, 3 * n + 1), &h);
}

/* Part of a matrix of n columns, in the middle of a row at both ends where there is room. */
static void factors(enum dt_dtype t, int64_t m, int64_t n)
{
	const int64_t skip = m * n > 8 ? 3 : 0, count = m * n - 2 * skip;
	const struct dt_factor sums = {m, n, skip, 0.5f, 0}, f = {m, n, skip, 0.5f, 1.7};
	struct dt_tensor g = r(DT_F32, 1, count);
	double a[256] = {1}, b[256] = {1};

	assert_true(m + n <= 256);
	assert_int_equal(card->ops->factor_sums(card, a, a + m, g, &sums), 0);
	assert_int_equal(cpu->ops->factor_sums(cpu, b, b + m, g, &sums), 0);
	for (int64_t i = 0; i < m + n; i++)
		if (!(fabs(a[i] - b[i]) <= 1e-12 * b[i]))
			fail_msg("factor_sums [%lld]: %.17g and %.17g", (long long)i, a[i], b[i]);
	ran[OP_factor_sums] = true;
	both_factor_direction(1e-6, g, positive(m), positive(n), &f);
	both_factor_direction(0, g, positive(m + 1), positive(n), &f); /* refused */
}

static void mixtures(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_moe p = {.experts = 11, .used = 3};
	const int64_t choices = 3 * m;
	int32_t *expert = ids(choices, 11), *first = ids(12, 1), *at = ids(choices, 2),
		*from = ids(choices, 2);

	both_moe_route(1e-6, ids(choices, 2), floats(choices), r(DT_F32, m, 11), DT_NONE, &p);
	both_moe_sort(0, first, at, from, expert, choices, 11);
	both_moe_sum(1e-6, r(t, m, n), r(DT_F32, choices, n), at, floats(choices), DT_NONE, 3);
	both_moe_sum(1e-6, r(t, m, n), r(t, choices, n), at, NULL, r(t, m, n), 3);
	training(t, m, n);
}

static void attention(enum dt_dtype t, int64_t m, int64_t n)
{
	struct dt_attn p = {1, m, 4, 2, n, m > 20 ? 9 : 0, 0.3f, n % 2 ? 1.5f : 0};
	const double tol = t == DT_F32 ? 1e-4 : t == DT_F16 ? 5e-3 : 4e-2;
	const int32_t start[] = {0, (int32_t)m}, len[] = {(int32_t)m};
	const int blocks = (int)(m / 16 + 1);
	int32_t *table = ids(blocks, blocks + 1);
	struct dt_tensor qkv = r(t, m, 8 * n), o = r(t, m, 4 * n), lse = r(DT_F32, 4, m);
	struct dt_tensor k = r(t, 16 * blocks, 2 * n), v = r(t, 16 * blocks, 2 * n);
	struct dt_paged g = {1, start, len, table, blocks, 16};
	int64_t slot[512];
	int32_t *pos = ids(m, 1), *first = ids(m, 1);
	const struct dt_attn_run run = {0, 0};
	const struct dt_attn_span span = {m, pos, first, 1, &run, m, m, 4 * n, 6 * n, false};

	for (int64_t i = 0; i < m; i++) {
		pos[i] = (int32_t)i;
		first[i] = (int32_t)(i / 5 * 5);
		table[i / 16] = (int32_t)(i / 16);
		slot[i] = i % 5 ? i : -1;
	}
	both_attention_forward(tol, o, lse, qkv, &p);
	both_attention_backward(tol, r(t, m, 8 * n), r(t, m, 4 * n), o, lse, qkv, &p);
	both_attention_span_forward(tol, o, lse, qkv, qkv, &p, &span);
	both_attention_span_backward(tol, r(t, m, 8 * n), r(DT_F32, m, 8 * n), r(t, m, 4 * n), o, lse, qkv,
				     qkv, &p, &span);
	both_attention_merge(1e-5, r(DT_F32, m, 4 * n), dt_t3(floats(4 * m), DT_F32, 1, 4, m),
			     r(DT_F32, m, 4 * n), dt_t3(floats(4 * m), DT_F32, 1, 4, m));
	both_attention_sink(tol, r(t, m, 4 * n), dt_t3(floats(4 * m), DT_F32, 1, 4, m), r(t, 1, 4));
	both_attention_sink_backward(1e-5, r(DT_F32, 1, 4), r(t, m, 4 * n), r(t, m, 4 * n),
				     dt_t3(floats(4 * m), DT_F32, 1, 4, m), r(DT_F32, 1, 4));
	both_kv_write(0, k, v, qkv, &p, slot);
	both_attention_paged(tol, o, qkv, k, v, &p, &g);
	g.sink = r(t, 1, p.heads);
	both_attention_paged(tol, o, qkv, k, v, &p, &g);
	p.kv_heads = 3;
	both_attention_forward(0, o, lse, qkv, &p); /* refused */
}

/* Of one chunk and of two; products of 16 bits round their operands. */
static void state_space(enum dt_dtype t, int64_t m, int64_t n)
{
	const int64_t seq = 3 * m, inner = 2 * n, conv = 4 * n;
	const struct dt_ssm p = {1, seq, 2, n, 1, n, 4};
	struct dt_tensor u = r(t, seq, conv), steps = r(t, seq, 2), w = r(t, conv, 4), b = r(t, 1, conv),
			 v = r(t, 1, 2), dw = r(DT_F32, conv, 4), db = r(DT_F32, 1, conv),
			 xbc = r(t, seq, conv), y = r(t, seq, inner), z = r(t, seq, inner),
			 du = r(t, seq, conv);
	const double tol = 2e-5,
		     tol_y = t == DT_F32    ? 2e-5
			     : t == DT_BF16 ? 2e-2
					    : 4e-3,
		     tol_p = tol_y * (double)n; /* sums over pairs of rows, which cancel */
	const int32_t q_start[] = {0, (int32_t)m}, zero[1] = {0};
	int32_t pos[512];
	const struct dt_ssm rows = {1, m, 2, n, 1, n, 4};
	const struct dt_ssm_slots s = {1, q_start, pos, zero, 2, floats(2 * dt_ssm_slot(&p))};

	for (int i = 0; i < 512; i++)
		pos[i] = i + (n % 2 ? 0 : 5);
	both_ssm_conv(tol, xbc, u, w, b, &p);
	both_ssm_conv(tol, xbc, u, w, DT_NONE, &p);
	both_ssm_conv_backward(tol, du, dw, db, xbc, u, w, b, &p);
	both_ssm_conv_backward(tol, du, dw, DT_NONE, xbc, u, w, DT_NONE, &p);
	both_ssm_scan(tol_y, y, u, steps, v, v, v, &p);
	both_ssm_scan_backward(tol_p, du, r(t, seq, 2), r(DT_F32, 1, 2), r(DT_F32, 1, 2), r(DT_F32, 1, 2), z,
			       u, steps, v, v, v, &p);
	both_ssm_conv_step(tol, r(t, m, conv), r(t, m, conv), w, b, &rows, &s);
	both_ssm_scan_step(tol, r(t, m, inner), r(t, m, conv), r(t, m, 2), v, v, v, &rows, &s);
	both_ssm_gate(tol, y, y, z);
	both_ssm_gate_backward(tol, y, z, y, r(t, seq, inner), z);
}

static void draws(enum dt_dtype t, int64_t m, int64_t n)
{
	struct dt_draw d[512];
	double a, b;
	struct dt_tensor x = r(t, m, n);

	for (int64_t i = 0; i < m; i++)
		d[i] = (struct dt_draw){.cold = i % 3,
					.top_p = i % 2 ? 0.7 : 1,
					.repetition = 1,
					.score = i % 4 == 0,
					.stream = {{1, 2}, {3, (uint32_t)i}},
					.index = (uint64_t)i};
	both_sample(0, NULL, r(DT_F32, 0, n), d, NULL, 0); /* empty */
	both_sample(1e-6, (struct dt_drawn *)(void *)floats(8 * m), r(DT_F32, m, n), d, NULL, 0);
	assert_int_equal(card->ops->sumsq(card, &a, x), 0);
	assert_int_equal(cpu->ops->sumsq(cpu, &b, x), 0);
	assert_true(fabs(a - b) <= 1e-12 * b);
	ran[OP_sumsq] = true;
	assert_int_equal(card->ops->sumsq_spans(card, &a, x, 1, (int64_t[]){0, dt_numel(x)}), 0);
	assert_true(fabs(a - b) <= 1e-12 * b);
	ran[OP_sumsq_spans] = true;
}

static void each(void (*fn)(enum dt_dtype, int64_t, int64_t))
{
	static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {17, 33}, {64, 24}, {70, 65}};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes * TYPES; i++) {
		fn(compute_types[i % TYPES], sizes[i / TYPES][0], sizes[i / TYPES][1]);
		while (rooms)
			free(room[--rooms]);
	}
}

static void test_group(void **state)
{
	each((void (*)(enum dt_dtype, int64_t, int64_t)) * state);
}

/* Convolutions of a card are cuDNN's: test_conv.c runs those. Without it they say so, and write nothing. */
static void convolutions(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_conv conv = {1, n, m, 1, 2, 1, 1, 0};
	struct dt_tensor x = r(t, m, n), dw = r(DT_F32, 2, n);
	const int rc[] = {
		card->ops->conv_forward(card, r(t, m, 2), x, r(t, 2, n), &conv),
		card->ops->conv_bias(card, r(t, m, 2), x, r(t, 2, n), r(DT_F32, 1, 2), DT_NONE, true, &conv),
		card->ops->conv_backward(card, x, r(t, m, 2), r(t, 2, n), &conv),
		card->ops->conv_weights(card, dw, r(t, m, 2), x, false, &conv),
	};

	for (size_t i = 0; i < sizeof rc / sizeof *rc; i++)
		if (rc[i] != (dt_dev_convolves(card) ? 0 : -ENOTSUP))
			fail_msg("convolution %zu: %d", i, rc[i]);
	for (int i = OP_conv_forward; i <= OP_conv_weights; i++)
		ran[i] = true;
}

static void images(enum dt_dtype t, int64_t m, int64_t n)
{
	const struct dt_pooling pool = {1, n, m, 1, 1, 1, 0}, wide = {1, n, m, 1, m > 2 ? 3 : 1, 2, m > 2};
	const int64_t out = dt_window_out(m, wide.kernel, 2, wide.pad);
	struct dt_tensor x = r(t, m, n), y = r(t, m, n), mean = r(DT_F32, 1, n), sum = r(DT_F32, 1, n),
			 dot = r(DT_F32, 1, n), at = dt_t2(ids(m * n, 3), DT_U8, m, n);
	const struct dt_bn bn = {x, y, mean, positive(n), r(t, 1, n), n % 2};
	const struct dt_classes classes = {.targets = ids(m, n),
					   .others = ids(m, n),
					   .share = floats(m),
					   .smoothing = 0.1f,
					   .scale = 0.5f};

	convolutions(t, m, n);
	both_bn_stats(2e-5, sum, dot, x);
	both_bn_forward(2e-5, &bn, DT_NONE, r(t, 1, n));
	both_bn_forward(2e-5, &bn, r(t, m, n), r(t, 1, n));
	both_bn_sums(2e-4, sum, dot, x, &bn);
	both_bn_backward(2e-4, y, r(t, m, n), x, sum, dot, (double)m, &bn);
	both_bn_backward(2e-5, y, DT_NONE, x, sum, dot, 0, &bn);
	both_pool_max(0, y, at, x, &pool);
	both_pool_max_backward(0, x, y, at, &pool);
	both_pool_avg(1e-6, r(t, out, n), x, &wide);
	both_pool_avg_backward(1e-6, x, r(t, out, n), &wide);
	both_pixels(0, y, r(DT_F32, m, n), n);
	both_class_loss(1e-5, floats(m), ids(m, 2), r(t, m, n), r(DT_F32, m, n), &classes);
}

/*
 * Weights that are packed belong to a device: test_packed.c, test_step.c and test_moe.c compare those;
 * test_lora.c, test_distill.c and test_round.c run on each by themselves.
 */
static bool is_apart(const char *name)
{
	static const char *const apart[] = {"packed_", "step_", "lora_", "distill_", "dora_", "round_blocks"};

	for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
		if (!strncmp(name, apart[i], strlen(apart[i])))
			return true;
	return false;
}

static void test_listed(void **state)
{
	static const char *const names[] = {
#define DT_OP(name, params, args, memory) #name,
#include "kernels/ops.list"
	};

	for (int i = 0; i < OPS; i++)
		if (!ran[i] && !is_apart(names[i]))
			fail_msg("%s has no case here", names[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{"norms", test_group, NULL, NULL, (void *)norms},
		{"products", test_group, NULL, NULL, (void *)products},
		{"rows", test_group, NULL, NULL, (void *)rows},
		{"factors", test_group, NULL, NULL, (void *)factors},
		{"mixtures", test_group, NULL, NULL, (void *)mixtures},
		{"attention", test_group, NULL, NULL, (void *)attention},
		{"state_space", test_group, NULL, NULL, (void *)state_space},
		{"draws", test_group, NULL, NULL, (void *)draws},
		{"images", test_group, NULL, NULL, (void *)images},
		cmocka_unit_test(test_listed),
	};
	int rc = dt_dev_open(&card, DT_DEV_CUDA, 0, 0);

	if (rc < 0) {
		printf("skipped: %s\n", dt_dev_why(rc));
		return 77;
	}
	card->ops = &on_device_ops;
	if (dt_dev_open(&cpu, DT_DEV_CPU, 0, 2) < 0)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(card);
	dt_dev_close(cpu);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
