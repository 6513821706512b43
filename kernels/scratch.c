/* The scratch of ops that sum rows in groups or need a few rows per thread, and what it depends on. */
#include "kernels/scratch.h"

#include "kernels/cpu/groups.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stdlib.h>

const char *dt_scratch_name(enum dt_scratch_buffer b)
{
	static const char *const name[DT_SCRATCH_N] = {"scratch of operations", "operands in f32",
						       "panels of products"};

	return name[b];
}

/* n vectors of `cols` f32. */
static size_t vectors(int64_t n, int64_t cols)
{
	return (size_t)(n * cols) * sizeof(float);
}

size_t dt_layernorm_forward_scratch(const struct dt_scratch_on *on, int64_t n)
{
	return vectors(on->threads * 4, n);
}

size_t dt_layernorm_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n)
{
	return vectors(on->threads * 4 + dt_groups(rows).n * 2, n);
}

size_t dt_rmsnorm_forward_scratch(const struct dt_scratch_on *on, int64_t n)
{
	return vectors(on->threads * 3, n);
}

size_t dt_rmsnorm_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n)
{
	return vectors(on->threads * 4 + dt_groups(rows).n, n);
}

size_t dt_heads_sums_scratch(const struct dt_scratch_on *on, int64_t head_dim)
{
	return vectors(on->threads * 2 + 1, head_dim);
}

size_t dt_colsum_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n)
{
	return vectors(dt_groups(rows).n, n);
}

size_t dt_sumsq_scratch(const struct dt_scratch_on *on, int64_t n)
{
	return (size_t)(dt_ceil_div(n, DT_SUMSQ_CHUNK) + 1) * sizeof(double);
}

size_t dt_fp8_quantize_scratch(const struct dt_scratch_on *on, bool turned)
{
	return turned ? (size_t)on->threads * DT_FP8_BLOCK : 0;
}

void dt_gram_scratch(const struct dt_scratch_on *on, int64_t m, int64_t k, enum dt_dtype t,
		     struct dt_scratch *s)
{
	dt_scratch_raise(s, DT_SCRATCH_OP, dt_gram_bytes(m));
	for (int64_t i = 0; i < m; i += DT_GRAM_ROWS) {
		const int64_t rows = m - i < DT_GRAM_ROWS ? m - i : DT_GRAM_ROWS;
		const struct dt_product p = {
			.m = rows, .n = i + rows, .k = k, .tb = true, .in = t, .out = DT_F32};

		dt_matmul_scratch(on, &p, s);
	}
}

void dt_fp8_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p, bool bias_f32,
			   struct dt_scratch *s)
{
	const struct dt_fp8_room r = dt_fp8_room(p, bias_f32);
	struct dt_product wide = *p;

	dt_scratch_raise(s, DT_SCRATCH_OP, r.a + r.b + r.c);
	wide.in = r.wide ? DT_F32 : DT_BF16;
	wide.out = p->out == DT_F16 ? DT_F32 : p->out;
	wide.tb = true;
	dt_matmul_scratch(on, &wide, s);
}

size_t dt_moe_route_backward_scratch(const struct dt_scratch_on *on, int64_t rows)
{
	return (size_t)(2 * dt_ceil_div(rows, DT_MOE_LOSS_ROWS)) * sizeof(double);
}

size_t dt_dora_norms_scratch(const struct dt_scratch_on *on, int64_t out, int64_t rank)
{
	return vectors(1, out * rank + 1);
}

size_t dt_dora_scale_scratch(const struct dt_scratch_on *on, int64_t n)
{
	return vectors(1, n + 1);
}

size_t dt_dora_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n)
{
	return vectors(1, n + dt_groups(rows).n * n + 1);
}

size_t dt_factor_direction_scratch(const struct dt_scratch_on *on, int64_t cols)
{
	return (size_t)cols * sizeof(double);
}

/* ---- the processor ---- */

#ifdef __x86_64__
/* The features that oneDNN looks for (oneDNN 2.6, src/cpu/x64/cpu_isa_traits.hpp). */
static void ask_processor(struct dt_scratch_on *on)
{
	const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25, bf16 = 1u << 5;
	unsigned a = 0, b = 0, c = 0, d = 0, e = 0, x = 0, y = 0, z = 0;
	const char *wish = getenv("DT_AMX");
	const bool plain = wish && !strcmp(wish, "plain");
	bool vnni;

	__builtin_cpu_init();
	on->brgemm = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
	vnni = on->brgemm && __builtin_cpu_supports("avx512vnni");
	__get_cpuid_count(7, 0, &a, &b, &c, &d);
	__get_cpuid_count(7, 1, &e, &x, &y, &z);
	on->pairs = vnni && (e & bf16);
	on->amx_onednn = on->pairs && (d & amx) == amx;
	on->amx_int8 = on->amx_onednn || (plain && __builtin_cpu_supports("avx2"));
	on->amx = on->pairs && on->amx_int8;
}
#else
static void ask_processor(struct dt_scratch_on *on)
{
#ifdef __aarch64__
	on->tiles_only = true;
#endif
}
#endif

struct dt_scratch_on dt_scratch_here(int threads)
{
	struct dt_scratch_on on = {.threads = threads};

	ask_processor(&on);
	return on;
}
/* SPDX-License-Identifier: Apache-2.0 */
