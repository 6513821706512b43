/*
 * bf16 products into f32 with the numbers of rows and columns given at execution: one oneDNN primitive for
 * all shapes, like dnnl_sgemm for f32. Group sizes differ in every microbatch, and creating a primitive takes
 * as long as a small product.
 */
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

#define ANY DNNL_RUNTIME_DIM_VAL

struct dt_ragged_prims {
	dnnl_primitive_t prim[2][2][2]; /* index: a transposed; b transposed; added to c */
};

static int to_errno(dnnl_status_t s)
{
	return s == dnnl_success	 ? 0
	       : s == dnnl_out_of_memory ? -ENOMEM
	       : s == dnnl_unimplemented ? -ENOTSUP
					 : -EIO;
}

void dt_cpu_ragged_release(struct dt_cpu *cpu)
{
	if (!cpu->ragged)
		return;
	for (int i = 0; i < 8; i++)
		if (cpu->ragged->prim[i / 4][i / 2 % 2][i % 2])
			dnnl_primitive_destroy(cpu->ragged->prim[i / 4][i / 2 % 2][i % 2]);
	free(cpu->ragged);
	cpu->ragged = NULL;
}

/* rows x cols with row stride ld; turned: stored transposed. */
static dnnl_status_t describe(dnnl_memory_desc_t *md, dnnl_data_type_t type, int64_t rows, int64_t cols,
			      int64_t ld, bool turned)
{
	const dnnl_dims_t dims = {rows, cols}, strides = {turned ? 1 : ld, turned ? ld : 1};

	return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

static int prim_make(struct dt_cpu *cpu, bool ta, bool tb, bool add, dnnl_primitive_t *ret)
{
	dnnl_memory_desc_t a, b, c;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t post = NULL;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_matmul_desc_t desc;
	dnnl_status_t s = describe(&a, dnnl_bf16, ANY, ANY, ANY, ta);

	s = s ? s : describe(&b, dnnl_bf16, ANY, ANY, ANY, tb);
	s = s ? s : describe(&c, dnnl_f32, ANY, ANY, ANY, false);
	s = s ? s : dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c);
	s = s ? s : dnnl_primitive_attr_create(&attr);
	if (add) {
		s = s ? s : dnnl_post_ops_create(&post);
		s = s ? s : dnnl_post_ops_append_sum(post, 1.f);
		s = s ? s : dnnl_primitive_attr_set_post_ops(attr, post);
	}
	s = s ? s : dnnl_primitive_desc_create(&pd, &desc, attr, cpu->engine, NULL);
	s = s ? s : dnnl_primitive_create(ret, pd);
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (post)
		dnnl_post_ops_destroy(post);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return to_errno(s);
}

int dt_cpu_ragged(struct dt_dev *dev, const struct dt_ragged *r)
{
	struct dt_cpu *cpu = dev->impl;
	dnnl_memory_desc_t md[3];
	dnnl_memory_t mem[3] = {NULL};
	dnnl_primitive_t *prim;
	dnnl_status_t s;
	int rc = 0;

	if (!cpu->ragged && !(cpu->ragged = calloc(1, sizeof *cpu->ragged)))
		return -ENOMEM;
	prim = &cpu->ragged->prim[r->ta][r->tb][r->accumulate];
	if (!*prim && (rc = prim_make(cpu, r->ta, r->tb, r->accumulate, prim)) < 0)
		return rc;
	s = describe(&md[0], dnnl_bf16, r->m, r->k, r->lda, r->ta);
	s = s ? s : describe(&md[1], dnnl_bf16, r->k, r->n, r->ldb, r->tb);
	s = s ? s : describe(&md[2], dnnl_f32, r->m, r->n, r->ldc, false);
	s = s ? s : dnnl_memory_create(&mem[0], &md[0], cpu->engine, (void *)r->a);
	s = s ? s : dnnl_memory_create(&mem[1], &md[1], cpu->engine, (void *)r->b);
	s = s ? s : dnnl_memory_create(&mem[2], &md[2], cpu->engine, r->c);
	if (!s) {
		const dnnl_exec_arg_t args[] = {
			{DNNL_ARG_SRC, mem[0]}, {DNNL_ARG_WEIGHTS, mem[1]}, {DNNL_ARG_DST, mem[2]}};

		s = dnnl_primitive_execute(*prim, cpu->stream, 3, args);
		s = s ? s : dnnl_stream_wait(cpu->stream);
	}
	for (int i = 0; i < 3; i++)
		if (mem[i])
			dnnl_memory_destroy(mem[i]);
	return to_errno(s);
}
/* SPDX-License-Identifier: Apache-2.0 */
