/*
 * Prints the rate of n x n x n matmuls in oneDNN as one JSON line: this machine's current peak, the
 * denominator of MFU if PyTorch is not installed to measure it.
 *
 *   cc -O2 matmul.c -ldnnl -o matmul;  matmul bf16|fp32 [N]
 *
 * Operands have the layout oneDNN prefers (format any), so this is an upper bound, not a typical call.
 */
#include <oneapi/dnnl/dnnl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(dnnl_status_t s, const char *what)
{
	if (s == dnnl_success)
		return;
	fprintf(stderr, "matmul: %s: oneDNN status %d\n", what, s);
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Memory in the primitive's layout, filled with small numbers (0x3c.. bytes are such in both types). */
static dnnl_memory_t make(dnnl_engine_t e, const_dnnl_primitive_desc_t pd, dnnl_query_t which)
{
	const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, which, 0);
	dnnl_memory_t m;
	void *data;

	must(dnnl_memory_create(&m, md, e, DNNL_MEMORY_ALLOCATE), "allocate");
	must(dnnl_memory_get_data_handle(m, &data), "allocate");
	memset(data, 0x3c, dnnl_memory_desc_get_size(md));
	return m;
}

int main(int argc, char **argv)
{
	dnnl_data_type_t type = argc > 1 && !strcmp(argv[1], "fp32") ? dnnl_f32 : dnnl_bf16;
	long n = argc > 2 ? atol(argv[2]) : 2048;
	dnnl_dims_t dims = {n, n};
	dnnl_memory_desc_t md;
	dnnl_matmul_desc_t d;
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t p;
	dnnl_engine_t e;
	dnnl_stream_t s;
	double best = 1e30;

	if (argc < 2 || argc > 3 || (strcmp(argv[1], "fp32") && strcmp(argv[1], "bf16")) || n < 1) {
		fprintf(stderr, "usage: matmul bf16|fp32 [N]\n");
		return 2;
	}
	must(dnnl_engine_create(&e, dnnl_cpu, 0), "engine");
	must(dnnl_stream_create(&s, e, dnnl_stream_default_flags), "stream");
	must(dnnl_memory_desc_init_by_tag(&md, 2, dims, type, dnnl_format_tag_any), "describe");
	must(dnnl_matmul_desc_init(&d, &md, &md, NULL, &md), "matmul");
	must(dnnl_primitive_desc_create(&pd, &d, NULL, e, NULL), "matmul");
	must(dnnl_primitive_create(&p, pd), "matmul");
	dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, make(e, pd, dnnl_query_src_md)},
				  {DNNL_ARG_WEIGHTS, make(e, pd, dnnl_query_weights_md)},
				  {DNNL_ARG_DST, make(e, pd, dnnl_query_dst_md)}};
	for (int i = 0; i < 10; i++) {
		double start = now_s();

		must(dnnl_primitive_execute(p, s, 3, args), "execute");
		must(dnnl_stream_wait(s), "execute");
		double took = now_s() - start;
		best = took < best ? took : best;
	}
	printf("{\"schema\": 1, \"peer\": \"oneDNN\", \"precision\": \"%s\", \"n\": %ld, \"matmul_flops\": "
	       "%.4e}\n",
	       argv[1], n, 2.0 * (double)n * (double)n * (double)n / best);
	for (int i = 0; i < 3; i++)
		dnnl_memory_destroy(args[i].memory);
	dnnl_primitive_destroy(p);
	dnnl_primitive_desc_destroy(pd);
	dnnl_stream_destroy(s);
	dnnl_engine_destroy(e);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
