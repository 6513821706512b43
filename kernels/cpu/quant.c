/* Products with packed weights: x rounded once, then tiles of outputs over the threads. */
#include "kernels/cpu/quant.h"

#include "kernels/backend.h"

#include <stdatomic.h>

#define GROUP  4	 /* panels a task */
#define ROWS   96	 /* rows a task: a multiple of what any micro-kernel holds in registers */
#define LITTLE (1 << 16) /* multiply-adds under which one thread does it all */

struct dt_quant_kernels dt_quant_kernels(void)
{
	struct dt_quant_kernels k = {dt_quant_mul_plain, dt_quant_mul_bf16_plain, dt_quant_mul_f32_plain,
				     dt_quant_row_plain};
#ifdef __x86_64__
	const unsigned isa = dnnl_get_effective_cpu_isa();

	if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
		k = (struct dt_quant_kernels){dt_quant_mul_avx2, dt_quant_mul_bf16_v3, dt_quant_mul_f32_v3,
					      dt_quant_row_plain};
	if ((isa & dnnl_cpu_isa_avx2_vnni) == dnnl_cpu_isa_avx2_vnni)
		k.quants = dt_quant_mul_avxvnni;
	if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) {
		k.bf16 = dt_quant_mul_bf16_v4;
		k.f32 = dt_quant_mul_f32_v4;
	}
	if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16)
		k.bf16 = dt_quant_mul_bf16_pairs;
	if ((isa & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni) {
		k.quants = dt_quant_mul_vnni;
		k.row = dt_quant_row_vnni;
	}
#endif
	return k;
}

/* A row of x as bytes and blocks. NaN and Inf, whose bits are the largest, make the scale NaN. */
static DT_SIMD void quantize_row(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type,
				 int64_t blocks)
{
	for (int64_t b = 0; b < blocks; b++, q += DT_QK, xb++) {
		float buf[DT_QK], inverse;
		const float *v = dt_load(buf, (const char *)x + b * DT_QK * dt_dtype_size(type), type, DT_QK);
		uint32_t max = 0;
		int32_t half[2] = {0, 0};

		for (int j = 0; j < DT_QK; j++) {
			uint32_t u;

			memcpy(&u, &v[j], 4);
			u &= 0x7fffffffu;
			max = u > max ? u : max;
		}
		memcpy(&xb->scale, &max, 4);
		inverse = max < DT_X_ZERO || max >= 0x7f800000u ? 0 : 127.f / xb->scale;
		xb->scale = max < DT_X_ZERO ? 0 : max >= 0x7f800000u ? __builtin_nanf("") : xb->scale / 127.f;
		for (int j = 0; j < DT_QK; j++) {
			/* Adding 1.5 x 2^23 leaves the nearest integer in the low bits. */
			const float t = (inverse ? v[j] : 0) * inverse + 0x1.8p23f;
			uint32_t u;

			memcpy(&u, &t, 4);
			q[j] = (int8_t)(u - 0x4b400000u);
		}
		for (int j = 0; j < DT_QK / 2; j++) {
			half[0] += q[j];
			half[1] += q[j + DT_QK / 2];
		}
		xb->sum = xb->scale * (float)(half[0] + half[1]);
		xb->start8 = -128 * (half[0] + half[1]);
		xb->start4 = -8 * (half[0] + half[1]);
		xb->start6[0] = -32 * half[0];
		xb->start6[1] = -32 * half[1];
	}
}

DT_QUANT_ROW(dt_quant_row_plain)
{
	quantize_row(q, xb, x, type, blocks);
}

/* A row of x as bf16, padded with zeros to whole blocks. */
static DT_SIMD void round_row(uint16_t *h, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	float buf[DT_CHUNK];

	memset(h + k, 0, (size_t)(blocks * DT_QK - k) * 2);
	if (type == DT_BF16) {
		memcpy(h, x, (size_t)k * 2);
		return;
	}
	for (int64_t j = 0; j < k; j += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, k - j);

		dt_narrow(h + j, dt_load(buf, (const char *)x + j * dt_dtype_size(type), type, n), n);
	}
}

/* Likewise as f32. */
static DT_SIMD void widen_row(float *f, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	memset(f + k, 0, (size_t)(blocks * DT_QK - k) * 4);
	if (type == DT_F32)
		memcpy(f, x, (size_t)k * 4);
	else
		dt_load(f, x, type, k);
}

/* rows rows of n columns of y, from element `at` on, = tile + bias */
static DT_SIMD void finish_tile(struct dt_tensor y, int64_t at, const float *tile, int64_t rows,
				struct dt_tensor bias, int64_t col, int64_t n)
{
	float sum[GROUP * DT_PANEL], wide[GROUP * DT_PANEL];
	const float *add = bias.data ? dt_load(wide, dt_at(bias, col), bias.dtype, n) : NULL;
	const int64_t ld = dt_cols(y);

	for (int64_t r = 0; r < rows; r++, at += ld, tile += GROUP * DT_PANEL) {
		const float *from = tile;

		if (add) {
			for (int64_t j = 0; j < n; j++)
				sum[j] = tile[j] + add[j];
			from = sum;
		}
		if (y.dtype == DT_F32)
			memcpy(dt_at(y, at), from, (size_t)n * 4);
		else if (n == GROUP * DT_PANEL) /* of a known length: no remainder */
			dt_store(dt_at(y, at), y.dtype, from, GROUP * DT_PANEL);
		else
			dt_store(dt_at(y, at), y.dtype, from, n);
	}
}

/* How many groups of a thread's share are taken; a line of cache for itself. */
struct turn {
	_Alignas(64) atomic_llong taken;
};

struct job {
	struct dt_tensor y, x, bias;
	const struct dt_packed *w;	 /* the one of all rows; of a set the first */
	const struct dt_packed_set *set; /* NULL: none */
	const int32_t *first;		 /* of a set: its rows */
	struct dt_quant_kernels kernel;
	int64_t m;
	int8_t *q; /* [m, 32 blocks], and its blocks; absent without quantised parts */
	struct dt_xblock *xb;
	uint16_t *h;	   /* [m, 32 blocks], absent without bf16 parts */
	float *f;	   /* likewise for f32 */
	struct turn *turn; /* [weights that rows meet, parts, threads] */
};

/* Rows that meet a weight. */
struct rows {
	int64_t first, end;
};

/* Panels [p0, p0 + panels) of a part, rows [r0, r0 + rows), ROWS at most. */
static void task(const struct job *j, const struct dt_packed_part *part, int64_t p0, int64_t panels,
		 int64_t r0, int64_t rows)
{
	const int64_t blocks = j->w->blocks;
	const int64_t n = dt_min64(panels * DT_PANEL, part->rows - p0 * DT_PANEL);
	const int64_t col = part->first + p0 * DT_PANEL;
	const int64_t at = r0 * blocks * DT_QK;
	const void *x = part->format == DT_FMT_F32    ? (const void *)(j->f + at)
			: part->format == DT_FMT_BF16 ? (const void *)(j->h + at)
						      : j->q + at;
	dt_quant_mul_fn *mul = part->format == DT_FMT_F32    ? j->kernel.f32
			       : part->format == DT_FMT_BF16 ? j->kernel.bf16
							     : j->kernel.quants;
	_Alignas(64) float tile[ROWS * GROUP * DT_PANEL];

	mul(tile, GROUP * DT_PANEL, part->format, part->data + (size_t)p0 * part->panel_bytes,
	    part->panel_bytes, panels, x, j->q ? j->xb + r0 * blocks : NULL, rows, blocks);
	finish_tile(j->y, r0 * j->w->rows + col, tile, rows, j->bias, col, n);
}

/*
 * Thread t of n: its share of the panels, in pairs, which the micro-kernels take together; then what others
 * have not begun of theirs, as a thread may be kept from its processor.
 */
static void share(const struct job *j, const struct dt_packed_part *part, struct rows rows, struct turn *turn,
		  int t, int n)
{
	const int64_t pairs = (part->panels + 1) / 2;

	for (int i = 0; i < n; i++) {
		const int whose = (t + i) % n;
		const int64_t first = 2 * (pairs * whose / n);
		const int64_t last = dt_min64(part->panels, 2 * (pairs * (whose + 1) / n));
		int64_t p;

		while ((p = first + GROUP * atomic_fetch_add(&turn[whose].taken, 1)) < last)
			for (int64_t r = rows.first; r < rows.end; r += ROWS)
				task(j, part, p, dt_min64(GROUP, last - p), r, dt_min64(ROWS, rows.end - r));
	}
}

static void prepare(const struct job *j, int64_t r)
{
	const struct dt_packed *w = j->w;
	const void *x = dt_at(j->x, r * w->k);

	if (j->q)
		j->kernel.row(j->q + r * w->blocks * DT_QK, j->xb + r * w->blocks, x, j->x.dtype, w->blocks);
	if (j->f)
		widen_row(j->f + r * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
	if (j->h)
		round_row(j->h + r * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
}

/* A thread's part of all products. Nobody waits between those of a set: each has rows and columns of its own.
 */
static void multiply(const struct job *j, int t, int n, int stride)
{
	struct turn *turn = j->turn;

	for (int e = 0; e < (j->set ? j->set->n : 1); e++) {
		const struct dt_packed *w = j->set ? j->set->w[e] : j->w;
		const struct rows rows =
			j->set ? (struct rows){j->first[e], j->first[e + 1]} : (struct rows){0, j->m};

		if (rows.first == rows.end)
			continue;
		for (int i = 0; i < w->nparts; i++, turn += stride)
			share(j, &w->part[i], rows, turn, t, n);
	}
}

static void run(struct dt_dev *dev, const struct job *j)
{
	const struct dt_packed *w = j->w;
	const int threads = j->m * w->rows * w->k < LITTLE ? 1 : dev->nthreads;
	/* Few rows are rounded before the others wake. */
	const bool first = j->m * w->k < DT_SERIAL;

	for (int64_t r = 0; first && r < j->m; r++)
		prepare(j, r);
#pragma omp parallel num_threads(threads)
	{
		if (!first)
#pragma omp for schedule(static)
			for (int64_t r = 0; r < j->m; r++)
				prepare(j, r);
		multiply(j, omp_get_thread_num(), omp_get_num_threads(), dev->nthreads);
	}
}

/* Room for what run needs, for products with so many weights; -ENOMEM. */
static int place(struct dt_dev *dev, struct job *j, int64_t weights)
{
	const int64_t cells = j->m * j->w->blocks, turns = weights * j->w->nparts * dev->nthreads;
	bool quantized = false, has[DT_FMT_N] = {false};
	char *at;

	for (int i = 0; i < j->w->nparts; i++) {
		quantized = quantized || !dt_is_float(j->w->part[i].format);
		has[j->w->part[i].format] = true;
	}
	at = dt_cpu_scratch(dev,
			    (size_t)turns * sizeof *j->turn + (size_t)cells * (DT_QK * 7 + sizeof *j->xb));
	if (!at)
		return -ENOMEM;
	j->turn = (struct turn *)at;
	at += (size_t)turns * sizeof *j->turn;
	for (int64_t i = 0; i < turns; i++)
		atomic_init(&j->turn[i].taken, 0);
	j->f = has[DT_FMT_F32] ? (float *)at : NULL;
	j->h = has[DT_FMT_BF16] ? (uint16_t *)(at + cells * DT_QK * 4) : NULL;
	j->q = quantized ? (int8_t *)at + cells * DT_QK * 6 : NULL;
	j->xb = (struct dt_xblock *)(at + cells * DT_QK * 7);
	return 0;
}

static bool fit(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w)
{
	return dev->kind == (w->dev ? w->dev->kind : DT_DEV_CPU) && dt_is_compute(x.dtype) &&
	       dt_is_compute(y.dtype) && dt_cols(x) == w->k && dt_cols(y) == w->rows &&
	       dt_rows(y) == dt_rows(x);
}

int dt_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		     struct dt_tensor bias)
{
	struct job j = {.y = y, .x = x, .bias = bias, .w = w, .kernel = dt_quant_kernels(), .m = dt_rows(x)};
	int rc;

	if (!fit(dev, y, x, w) || (bias.data && (!dt_is_compute(bias.dtype) || dt_numel(bias) != w->rows)))
		return -EINVAL;
	if (!j.m || !w->rows)
		return 0;
	if (w->dev)
		return dt_backend_cuda.packed_matmul(dev, y, x, w, bias);
	rc = place(dev, &j, 1);
	if (rc == 0)
		run(dev, &j);
	return rc;
}

int dt_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed_set *s, const int32_t *first)
{
	struct job j = {.y = y,
			.x = x,
			.w = s->w[0],
			.set = s,
			.first = first,
			.kernel = dt_quant_kernels(),
			.m = dt_rows(x)};
	int64_t met = 0;
	int rc;

	if (!fit(dev, y, x, s->w[0]))
		return -EINVAL;
	if (!j.m || !j.w->rows)
		return 0;
	if (s->dev)
		return dt_backend_cuda.packed_set_matmul(dev, y, x, s, first);
	for (int i = 0; i < s->n; i++) {
		if (first[i] > first[i + 1])
			return -EINVAL;
		met += first[i] < first[i + 1];
	}
	if (first[0] != 0 || first[s->n] != j.m)
		return -EINVAL;
	rc = place(dev, &j, met);
	if (rc == 0)
		run(dev, &j);
	return rc;
}
