/* oneDNN's matmul, with a cache by shape; see matmul.h. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul_path.h"

#include <stdlib.h>

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARGS };

int dt_matmul_ready(struct dt_cpu *cpu)
{
	if (!cpu->matmul)
		cpu->matmul = calloc(1, sizeof *cpu->matmul);
	return cpu->matmul ? 0 : -ENOMEM;
}

static void cache_clear(struct dt_matmul_cache *c)
{
	for (int i = 0; i < 2 * DT_MATMUL_SHAPES; i++) {
		struct dt_matmul_entry *e = &c->slot[i];

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
	free(c);
	cpu->matmul = NULL;
}

size_t dt_cpu_matmul_bytes(const struct dt_cpu *cpu)
{
	const struct dt_matmul_cache *c = cpu->matmul;

	return c ? c->scratch_n : 0;
}

/* Grows *p, of size *have, to at least n bytes; contents are lost. -ENOMEM. */
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

/* The name of an implementation, for example brg:avx512_core_bf16. */
static const char *name_of(const_dnnl_primitive_desc_t pd)
{
	const char *name = "";

	return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success ? name : "";
}

/*
 * The first implementation that takes the product; with a transposed, in bf16 and without AMX, the one after
 * oneDNN's brgemm, if that is its gemm: brgemm copies a first. Steps of gpt2-mini take 0.97 of the time.
 */
static dnnl_status_t choose(const struct dt_matmul_key *k, const dnnl_matmul_desc_t *desc,
			    dnnl_primitive_attr_t attr, dnnl_engine_t engine, dnnl_primitive_desc_t *ret)
{
	dnnl_primitive_desc_iterator_t it;
	dnnl_primitive_desc_t unused;
	dnnl_status_t s = dnnl_primitive_desc_iterator_create(&it, desc, attr, engine, NULL);

	if (s != dnnl_success)
		return s;
	*ret = dnnl_primitive_desc_iterator_fetch(it);
	if (k->ta && k->in == DT_BF16 && !dt_isa()->amx_onednn && !strncmp(name_of(*ret), "brg", 3) &&
	    dnnl_primitive_desc_iterator_next(it) == dnnl_success) {
		unused = dnnl_primitive_desc_iterator_fetch(it);
		if (!strncmp(name_of(unused), "gemm:jit", 8)) {
			const dnnl_primitive_desc_t brgemm = *ret;

			*ret = unused;
			unused = brgemm;
		}
		dnnl_primitive_desc_destroy(unused);
	}
	dnnl_primitive_desc_iterator_destroy(it);
	return *ret ? dnnl_success : dnnl_out_of_memory;
}

/* Whether md, of dims k x n, is the order of dt_matmul_pack. */
static bool is_packed(const struct dt_matmul_key *k, const dnnl_memory_desc_t *md)
{
	const dnnl_blocking_desc_t *b = &md->format_desc.blocking;

	return md->format_kind == dnnl_blocked && b->inner_nblks == 3 && b->inner_idxs[0] == 0 &&
	       b->inner_blks[0] == 16 && b->inner_idxs[1] == 1 && b->inner_blks[1] == DT_TILE &&
	       b->inner_idxs[2] == 0 && b->inner_blks[2] == 2 && b->strides[0] == 16 * DT_TILE * 2 &&
	       b->strides[1] == k->k * DT_TILE && !md->extra.flags;
}

static int describe(const struct dt_matmul_key *k, dnnl_memory_desc_t md[ARGS], dnnl_engine_t engine,
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
	if (k->packed)
		s = s ? s
		      : dnnl_memory_desc_init_by_tag(&md[ARG_B], 2, b, dnnl_type(k->in), dnnl_format_tag_any);
	else
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
	s = s ? s : choose(k, &desc, attr, engine, ret);
	if (post)
		dnnl_post_ops_destroy(post);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return dnnl_err(s);
}

/* The same; with b packed if the key asks for it, and oneDNN's brgemm takes b in that order. */
static int describe_packed(const struct dt_matmul_key *key, dnnl_memory_desc_t md[ARGS], dnnl_engine_t engine,
			   dnnl_primitive_desc_t *ret, bool *packed)
{
	struct dt_matmul_key plain = *key;
	int r = describe(key, md, engine, ret);

	*packed = false;
	if (r < 0 || !key->packed)
		return r;
	md[ARG_B] = *dnnl_primitive_desc_query_md(*ret, dnnl_query_weights_md, 0);
	*packed = !strncmp(name_of(*ret), "brg", 3) && !dt_isa()->amx_onednn && is_packed(key, &md[ARG_B]);
	if (*packed)
		return 0;
	dnnl_primitive_desc_destroy(*ret);
	plain.packed = false;
	return describe(&plain, md, engine, ret);
}

/* Whether an implementation of this name consists of plain loops. */
static bool is_plain(const char *impl)
{
#ifdef __aarch64__
	return !strncmp(impl, "gemm:jit", 8) || !strncmp(impl, "ref", 3);
#else
	return false;
#endif
}

static int entry_make(struct dt_cpu *cpu, struct dt_matmul_entry *e)
{
	dnnl_memory_desc_t md[ARGS] = {0};
	dnnl_primitive_desc_t pd = NULL;
	const dnnl_memory_desc_t *scratch;
	const char *impl;
	dnnl_status_t s;
	int r;

	if (dt_matmul_is_small(&e->key)) {
		e->tiles = true;
		return 0;
	}
	if (dt_cpu_widens(e->key.in)) {
		e->widen = true;
		return 0;
	}
	r = describe_packed(&e->key, md, cpu->engine, &pd, &e->packed);
	if (r < 0)
		return r;
	impl = name_of(pd);
	if (is_plain(impl)) {
		e->tiles = true;
		dnnl_primitive_desc_destroy(pd);
		return 0;
	}
	scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	md[ARG_SCRATCH] = *scratch;
	e->scratch_n = dnnl_memory_desc_get_size(scratch);
	/*
	 * oneDNN's "brg" kernels sum over k in an order that does not depend on m, by blocks of f32 sums; its
	 * gemm kernels do not. Those with AMX split k among threads where m and n are small, and leave two
	 * rows to AVX-512.
	 */
	e->invariant =
		!strncmp(impl, "brg", 3) && !e->key.ta && (e->key.in == DT_F32 || !dt_isa()->amx_onednn);
	s = dnnl_primitive_create(&e->prim, pd);
	for (int i = 0; i < ARGS; i++)
		if (i != ARG_BIAS || e->key.bias)
			s = s ? s : dnnl_memory_create(&e->mem[i], &md[i], cpu->engine, DNNL_MEMORY_NONE);
	dnnl_primitive_desc_destroy(pd);
	return dnnl_err(s);
}

int dt_matmul_find(struct dt_cpu *cpu, const struct dt_matmul_key *key, struct dt_matmul_entry **ret)
{
	struct dt_matmul_cache *c = cpu->matmul;
	uint64_t h = 14695981039346656037u;
	struct dt_matmul_entry *e;
	int r;

	for (size_t i = 0; i < sizeof *key; i++)
		h = (h ^ ((const unsigned char *)key)[i]) * 1099511628211u;
	for (size_t i = (size_t)(h >> 20);; i++) {
		e = &c->slot[i % (2 * DT_MATMUL_SHAPES)];
		if (!e->used)
			break;
		if (!memcmp(&e->key, key, sizeof *key)) {
			*ret = e;
			return 0;
		}
	}
	if (c->used == DT_MATMUL_SHAPES) {
		cache_clear(c);
		return dt_matmul_find(cpu, key, ret);
	}
	e->key = *key;
	e->used = true; /* set first: if creation fails halfway, cache_clear releases what exists */
	c->used++;
	r = entry_make(cpu, e);
	if (r < 0) {
		cache_clear(c);
		return r;
	}
	*ret = e;
	return 0;
}

int dt_matmul_execute(struct dt_cpu *cpu, struct dt_matmul_entry *e, void *c, void *a, void *b, void *bias)
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
/* SPDX-License-Identifier: Apache-2.0 */
