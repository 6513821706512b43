/*
 * oneDNN's matmul behind a table of primitives by shape. Scratchpads are ours (one buffer for all), so that a
 * product of a shape seen before allocates no buffer.
 *
 * bf16 needs AVX-512 in oneDNN 2.6, and f16 is not there on any processor: the operands are then widened,
 * multiplied in f32, and the result rounded once. On arm64 it has loops that add in memory (four times the
 * instructions of tile.h's product), unless it is built with Arm's library: all products are tile.h's then.
 */
#include "kernels/cpu/tile.h"

#include <stdlib.h>

#define CACHE_MAX 1024 /* shapes; then the table starts over */
#define BLOCK	  512  /* rows of c that are added to at a time */
#define DEPTH	  2048 /* of k at a time, where k is more than DEEP */
#define DEEP	  16384

struct key {
	int64_t m, n, k, lda; /* lda: elements between a's rows as they lie */
	int32_t nthreads;
	uint8_t ta, tb, in, out, bias, accumulate, pad[6];
};

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARGS };

struct entry {
	struct key key;
	bool used, widen; /* widen: oneDNN has no such product on this processor */
	bool tiles;	  /* tile.h's product is faster */
	bool invariant;	  /* rows do not depend on how many there are */
	dnnl_primitive_t prim;
	dnnl_memory_t mem[ARGS];
	size_t scratch_n;
};

struct dt_matmul_cache {
	struct entry slot[2 * CACHE_MAX];
	int used;
	void *scratch; /* the largest scratchpad so far */
	size_t scratch_n;
	void *wide; /* f32 copies of 16-bit operands */
	size_t wide_n;
	void *panel; /* a panel of b a thread, where rows may not depend on m */
	size_t panel_n;
};

static void cache_clear(struct dt_matmul_cache *c)
{
	for (int i = 0; i < 2 * CACHE_MAX; i++) {
		struct entry *e = &c->slot[i];

		for (int j = 0; j < ARGS; j++)
			if (e->mem[j])
				dnnl_memory_destroy(e->mem[j]);
		if (e->prim)
			dnnl_primitive_destroy(e->prim);
	}
	memset(c->slot, 0, sizeof c->slot);
	c->used = 0;
}

void dt_cpu_matmul_release(struct dt_cpu *cpu)
{
	struct dt_matmul_cache *c = cpu->matmul;

	if (!c)
		return;
	cache_clear(c);
	free(c->scratch);
	free(c->wide);
	free(c->panel);
	free(c);
	cpu->matmul = NULL;
}

size_t dt_cpu_matmul_bytes(const struct dt_cpu *cpu)
{
	const struct dt_matmul_cache *c = cpu->matmul;

	return c ? c->scratch_n + c->wide_n + c->panel_n : 0;
}

/* Contents are not kept. */
static int grow(void **p, size_t *have, size_t n)
{
	if (n <= *have)
		return 0;
	n = (n + 4095) / 4096 * 4096;
	free(*p);
	*p = aligned_alloc(64, n);
	*have = *p ? n : 0;
	return *p ? 0 : -ENOMEM;
}

static dnnl_data_type_t dnnl_type(uint8_t t)
{
	return t == DT_F32 ? dnnl_f32 : dnnl_bf16;
}

static int dnnl_err(dnnl_status_t s)
{
	return s == dnnl_success	 ? 0
	       : s == dnnl_out_of_memory ? -ENOMEM
	       : s == dnnl_unimplemented ? -ENOTSUP
					 : -EIO;
}

static int describe(const struct key *k, dnnl_memory_desc_t md[ARGS], dnnl_engine_t engine,
		    dnnl_primitive_desc_t *ret)
{
	const dnnl_dims_t a = {k->m, k->k}, b = {k->k, k->n}, c = {k->m, k->n}, bias = {1, k->n};
	const dnnl_dims_t sa = {k->ta ? 1 : k->lda, k->ta ? k->lda : 1},
			  sb = {k->tb ? 1 : k->n, k->tb ? k->k : 1};
	const dnnl_dims_t sc = {k->n, 1};
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t post = NULL;
	dnnl_matmul_desc_t desc;
	dnnl_status_t s = dnnl_success;

	s = s ? s : dnnl_memory_desc_init_by_strides(&md[ARG_A], 2, a, dnnl_type(k->in), sa);
	s = s ? s : dnnl_memory_desc_init_by_strides(&md[ARG_B], 2, b, dnnl_type(k->in), sb);
	s = s ? s : dnnl_memory_desc_init_by_strides(&md[ARG_C], 2, c, dnnl_type(k->out), sc);
	s = s ? s : dnnl_memory_desc_init_by_strides(&md[ARG_BIAS], 2, bias, dnnl_type(k->in), sc);
	s = s ? s
	      : dnnl_matmul_desc_init(&desc, &md[ARG_A], &md[ARG_B], k->bias ? &md[ARG_BIAS] : NULL,
				      &md[ARG_C]);
	s = s ? s : dnnl_primitive_attr_create(&attr);
	s = s ? s : dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (k->accumulate) {
		s = s ? s : dnnl_post_ops_create(&post);
		s = s ? s : dnnl_post_ops_append_sum(post, 1.f);
		s = s ? s : dnnl_primitive_attr_set_post_ops(attr, post);
	}
	s = s ? s : dnnl_primitive_desc_create(ret, &desc, attr, engine, NULL);
	if (post)
		dnnl_post_ops_destroy(post);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return dnnl_err(s);
}

/* Whether oneDNN's name for an implementation stands for plain loops. */
static bool is_plain(const char *impl)
{
#ifdef __aarch64__
	return !strncmp(impl, "gemm:jit", 8) || !strncmp(impl, "ref", 3);
#else
	return false;
#endif
}

static int entry_make(struct dt_cpu *cpu, struct entry *e)
{
	dnnl_memory_desc_t md[ARGS] = {0};
	dnnl_primitive_desc_t pd = NULL;
	const dnnl_memory_desc_t *scratch;
	const char *impl = "";
	dnnl_status_t s;
	int r = e->key.in == DT_F16 ? -ENOTSUP : describe(&e->key, md, cpu->engine, &pd);

	if (r == -ENOTSUP && e->key.in != DT_F32) {
		e->widen = true;
		return 0;
	}
	if (r < 0)
		return r;
	if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl) != dnnl_success)
		impl = "";
	if (is_plain(impl)) {
		e->widen = e->key.in != DT_F32;
		e->tiles = e->key.in == DT_F32;
		dnnl_primitive_desc_destroy(pd);
		return 0;
	}
	scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	md[ARG_SCRATCH] = *scratch;
	e->scratch_n = dnnl_memory_desc_get_size(scratch);
	/* Its "brg" kernels add up k in one order whatever m, by blocks of f32 sums; its gemm ones do not. */
	e->invariant = !strncmp(impl, "brg", 3) && !e->key.ta;
	s = dnnl_primitive_create(&e->prim, pd);
	for (int i = 0; i < ARGS; i++)
		if (i != ARG_BIAS || e->key.bias)
			s = s ? s : dnnl_memory_create(&e->mem[i], &md[i], cpu->engine, DNNL_MEMORY_NONE);
	dnnl_primitive_desc_destroy(pd);
	return dnnl_err(s);
}

static int find(struct dt_cpu *cpu, const struct key *key, struct entry **ret)
{
	struct dt_matmul_cache *c = cpu->matmul;
	uint64_t h = 14695981039346656037u;
	struct entry *e;
	int r;

	for (size_t i = 0; i < sizeof *key; i++)
		h = (h ^ ((const unsigned char *)key)[i]) * 1099511628211u;
	for (size_t i = (size_t)(h >> 20);; i++) {
		e = &c->slot[i % (2 * CACHE_MAX)];
		if (!e->used)
			break;
		if (!memcmp(&e->key, key, sizeof *key)) {
			*ret = e;
			return 0;
		}
	}
	if (c->used == CACHE_MAX) {
		cache_clear(c);
		return find(cpu, key, ret);
	}
	e->key = *key;
	e->used = true; /* also when making it fails halfway: cache_clear releases what there is */
	c->used++;
	r = entry_make(cpu, e);
	if (r < 0) {
		cache_clear(c);
		return r;
	}
	*ret = e;
	return 0;
}

static int execute(struct dt_cpu *cpu, struct entry *e, void *c, void *a, void *b, void *bias)
{
	struct dt_matmul_cache *t = cpu->matmul;
	void *const data[ARGS] = {a, b, c, bias, NULL};
	dnnl_exec_arg_t args[ARGS] = {{DNNL_ARG_SRC, e->mem[ARG_A]},
				      {DNNL_ARG_WEIGHTS, e->mem[ARG_B]},
				      {DNNL_ARG_DST, e->mem[ARG_C]},
				      {DNNL_ARG_SCRATCHPAD, e->mem[ARG_SCRATCH]},
				      {DNNL_ARG_BIAS, e->mem[ARG_BIAS]}};
	dnnl_status_t s = dnnl_success;
	int r = grow(&t->scratch, &t->scratch_n, e->scratch_n);

	if (r < 0)
		return r;
	for (int i = 0; i < ARG_SCRATCH; i++)
		if (e->mem[i])
			s = s ? s : dnnl_memory_set_data_handle(e->mem[i], data[i]);
	s = s ? s : dnnl_memory_set_data_handle(e->mem[ARG_SCRATCH], t->scratch);
	s = s ? s : dnnl_primitive_execute(e->prim, cpu->stream, e->mem[ARG_BIAS] ? 5 : 4, args);
	s = s ? s : dnnl_stream_wait(cpu->stream);
	return dnnl_err(s);
}

static struct dt_tensor wide_copy(char **at, struct dt_tensor t)
{
	struct dt_tensor w = t;

	if (!t.data || t.dtype == DT_F32)
		return t;
	w.dtype = DT_F32;
	w.data = *at;
	*at += (dt_numel(t) * 4 + 63) / 64 * 64;
	return w;
}

static int product(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
		   struct dt_tensor b, struct dt_tensor bias);

/* bf16 without AVX-512, and f16: everything of 16 bits gets an f32 copy. */
static int product_wide(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
			struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_cache *t = cpu->matmul;
	struct key wide = *key;
	int64_t n = dt_numel(a) + dt_numel(b) + dt_numel(c) + (bias.data ? dt_numel(bias) : 0);
	int r = grow(&t->wide, &t->wide_n, (size_t)n * 4 + 256);
	char *at = t->wide;

	if (r < 0)
		return r;
	struct dt_tensor wa = wide_copy(&at, a), wb = wide_copy(&at, b), wc = wide_copy(&at, c);
	struct dt_tensor wbias = wide_copy(&at, bias);

	wide.in = wide.out = DT_F32;
	r = dt_cpu_convert(dev, wa, a);
	r = r < 0 ? r : dt_cpu_convert(dev, wb, b);
	if (bias.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wbias, bias);
	if (key->accumulate && wc.data != c.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wc, c);
	r = r < 0 ? r : product(dev, &wide, wc, wa, wb, wbias);
	if (r == 0 && wc.data != c.data)
		r = dt_cpu_convert(dev, c, wc);
	return r;
}

/* Columns j0 .. j0 + 64 of rows i0 .. i1 of c, f32; b's go into panel [k, 64], sums into tile [64, 64]. */
static void product_panel(const struct dt_tile *t, const struct key *key, struct dt_tensor c,
			  struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias, int64_t j0,
			  int64_t i0, int64_t i1, uint32_t *panel, float *tile)
{
	const int64_t cols = dt_min64(DT_TILE, key->n - j0);
	const float *fb = b.data, *add = bias.data;
	float *fc = c.data;

	if (key->tb) {
		const void *row[DT_TILE];

		for (int64_t j = 0; j < cols; j++)
			row[j] = fb + (j0 + j) * key->k;
		dt_tile_pack_lanes(t, panel, row, DT_F32, cols, key->k);
	} else {
		for (int64_t k = 0; k < key->k; k++) {
			memset(panel + k * DT_TILE, 0, DT_TILE * 4);
			memcpy(panel + k * DT_TILE, fb + k * key->n + j0, (size_t)cols * 4);
		}
	}
	for (int64_t i = i0; i < i1; i += DT_TILE) {
		const int64_t rows = dt_min64(DT_TILE, i1 - i);

		t->mul(tile, DT_TILE, (const uint32_t *)a.data + i * (key->ta ? 1 : key->lda),
		       key->ta ? 1 : key->lda, key->ta ? key->lda : 1, panel, DT_TILE, rows, DT_TILE, key->k,
		       false);
		for (int64_t r = 0; r < rows; r++)
			for (int64_t j = 0; j < cols; j++) {
				float *out = fc + (i + r) * key->n + j0 + j;

				*out = tile[r * DT_TILE + j] + (add ? add[j0 + j] : 0) +
				       (key->accumulate ? *out : 0);
			}
	}
}

/* Without oneDNN: every element by one chain of multiply-adds over k, whatever the number of rows. */
static int product_rows(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
			struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_matmul_cache *t = ((struct dt_cpu *)dev->impl)->matmul;
	const struct dt_tile *tile = dt_tile(DT_F32);
	const int64_t words = DT_TILE * (key->k + DT_TILE);
	/* Fewer panels than threads: rows in parts as well, each of which packs the panel again. */
	const int64_t panels = dt_ceil_div(key->n, DT_TILE), tiles = dt_ceil_div(key->m, DT_TILE),
		      parts = dt_min64(tiles, dt_ceil_div(dev->nthreads, panels));
	int r = grow(&t->panel, &t->panel_n, (size_t)(dev->nthreads * words) * 4);

	if (r < 0)
		return r;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic) collapse(2)
	for (int64_t j = 0; j < panels; j++)
		for (int64_t i = 0; i < parts; i++) {
			uint32_t *panel = (uint32_t *)t->panel + omp_get_thread_num() * words;

			product_panel(tile, key, c, a, b, bias, j * DT_TILE, tiles * i / parts * DT_TILE,
				      dt_min64(key->m, tiles * (i + 1) / parts * DT_TILE), panel,
				      (float *)(panel + DT_TILE * key->k));
		}
	return 0;
}

static int product(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
		   struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct entry *e;
	int r = find(cpu, key, &e);

	if (r < 0)
		return r;
	if (e->widen || (dev->batch_invariant && !e->invariant && key->in != DT_F32))
		return product_wide(dev, key, c, a, b, bias);
	if (e->tiles || (dev->batch_invariant && !e->invariant))
		return product_rows(dev, key, c, a, b, bias);
	return execute(cpu, e, c.data, a.data, b.data, bias.data);
}

/*
 * A bf16 product added to a large c, or with a transposed, goes in blocks of rows: oneDNN 2.6 sweeps c once
 * more than it must, and a's copy outgrows the cache. Measured from 512 x 768 x 768 to 4096 x 11008 x 1024,
 * 512 rows are 15 to 45 % faster than all at once; f32 gains nothing.
 */
static int product_blocks(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
			  struct dt_tensor b, struct dt_tensor bias)
{
	int r = 0;

	/* Whatever the number of threads: it decides the order of accumulation. */
	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct key block = *key;
		struct entry *e;

		block.m = dt_min64(BLOCK, key->m - i);
		r = find(dev->impl, &block, &e);
		if (r == 0 && e->widen)
			return product(dev, key, c, a, b, bias);
		if (r == 0)
			r = execute(dev->impl, e, dt_at(c, i * key->n), dt_at(a, key->ta ? i : i * key->k),
				    b.data, bias.data);
	}
	return r;
}

/*
 * dx = dy w over a whole vocabulary: a part of k at a time into f32 sums, so that w's part stays in the cache
 * for all rows. 5 to 10 % faster at k = 50257. Not for x w^T, nor for what comes in blocks already.
 */
static bool is_deep(const struct key *key)
{
	return !key->ta && !key->tb && !key->bias && !key->accumulate && key->in == DT_BF16 &&
	       key->out == DT_BF16 && key->k > DEEP;
}

static int product_deep(struct dt_dev *dev, const struct key *key, struct dt_tensor c, struct dt_tensor a,
			struct dt_tensor b)
{
	struct dt_matmul_cache *t = ((struct dt_cpu *)dev->impl)->matmul;
	int r = grow(&t->wide, &t->wide_n, (size_t)dt_min64(key->m, BLOCK) * (size_t)key->n * 4);

	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct key part = *key;

		part.m = dt_min64(BLOCK, key->m - i);
		part.out = DT_F32;
		for (int64_t k = 0; r == 0 && k < key->k; k += DEPTH) {
			struct entry *e;

			part.k = dt_min64(DEPTH, key->k - k);
			part.accumulate = k > 0;
			r = find(dev->impl, &part, &e);
			if (r == 0 && (e->widen || (dev->batch_invariant && !e->invariant)))
				return product(dev, key, c, a, b, DT_NONE);
			if (r == 0)
				r = execute(dev->impl, e, t->wide, dt_at(a, i * key->k + k),
					    dt_at(b, k * key->n), NULL);
		}
		r = r < 0 ? r
			  : dt_cpu_convert(dev, dt_t2(dt_at(c, i * key->n), c.dtype, part.m, key->n),
					   dt_t2(t->wide, DT_F32, part.m, key->n));
	}
	return r;
}

/* k = 0: c = (accumulate ? c : 0) + bias */
static int product_empty(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor bias, bool accumulate)
{
	const int64_t n = dt_cols(c);
	int r = accumulate ? 0 : dt_cpu_fill(dev, c, 0);

	for (int64_t i = 0; bias.data && r == 0 && i < dt_rows(c); i++)
		r = dt_cpu_axpy(dev, dt_t1(dt_at(c, i * n), c.dtype, n), 1, bias);
	return r;
}

int dt_cpu_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		  bool tb, struct dt_tensor bias, bool accumulate)
{
	struct dt_cpu *cpu = dev->impl;
	struct key key = {.m = ta ? dt_cols(a) : dt_rows(a),
			  .k = ta ? dt_rows(a) : dt_cols(a),
			  .n = tb ? dt_rows(b) : dt_cols(b),
			  .lda = dt_cols(a),
			  .nthreads = dev->nthreads,
			  .ta = ta,
			  .tb = tb,
			  .in = (uint8_t)a.dtype,
			  .out = (uint8_t)c.dtype,
			  .bias = bias.data != NULL,
			  .accumulate = accumulate};
	int threads, r;

	if (!key.k)
		return product_empty(dev, c, bias, accumulate);
	if (!cpu->matmul && !(cpu->matmul = calloc(1, sizeof *cpu->matmul)))
		return -ENOMEM;
	threads = omp_get_max_threads();
	omp_set_num_threads(dev->nthreads);
	if ((accumulate || ta) && !(ta && dev->batch_invariant) && a.dtype == DT_BF16 && key.m > BLOCK)
		r = product_blocks(dev, &key, c, a, b, bias);
	else if (is_deep(&key))
		r = product_deep(dev, &key, c, a, b);
	else
		r = product(dev, &key, c, a, b, bias);
	omp_set_num_threads(threads);
	return r;
}

bool dt_cpu_matmul_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n,
			      bool tb, bool bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct key key = {.m = m,
			  .k = k,
			  .n = n,
			  .lda = k,
			  .nthreads = dev->nthreads,
			  .tb = tb,
			  .in = (uint8_t)dtype,
			  .out = (uint8_t)dtype,
			  .bias = bias};
	struct entry *e;

	if (dev->batch_invariant || !m || !k || !n)
		return true;
	if ((!cpu->matmul && !(cpu->matmul = calloc(1, sizeof *cpu->matmul))) || find(cpu, &key, &e) < 0)
		return false;
	if (e->widen) {
		key.in = key.out = DT_F32;
		if (find(cpu, &key, &e) < 0)
			return false;
	}
	return e->invariant;
}
/* SPDX-License-Identifier: Apache-2.0 */
