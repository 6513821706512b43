#include "bench/compressed.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>

int dt_bench_compressed(struct dt_comm *c, const struct dt_compress_opts *o, size_t bytes, double plain_s,
			struct dt_bench_compressed *ret, struct dt_err *err)
{
	enum { CALLS = 3 };
	size_t n = bytes / sizeof(float);
	double p = dt_comm_size(c), codec = 0, total = 0, v[2], t0;
	struct dt_compress *z = NULL;
	float *x = calloc(n + 1, sizeof(*x));
	int rc = x ? dt_compress_open(&z, c, o, n, err) : dt_err_sys(err, -ENOMEM, "%zu bytes", bytes);

	for (int i = -1; i < CALLS && !rc; i++) { /* -1 is a warm-up */
		for (size_t k = 0; k < n; k++)
			x[k] = (float)((k * 2654435761u + (size_t)dt_comm_rank(c) * 97) % 2001) / 1000 - 1;
		rc = dt_barrier(c, "compression", err);
		t0 = dt_now();
		if (!rc)
			rc = dt_compress_all_reduce(z, x, DT_AVG, "compression", i < 0 ? NULL : &codec, err);
		total += i < 0 ? 0 : dt_now() - t0;
	}
	v[0] = total / CALLS;
	v[1] = codec / CALLS;
	if (!rc)
		rc = dt_all_reduce(c, v, NULL, 2, DT_F64, DT_MAX, "compression", err);
	if (!rc) {
		double plain = 2 * (p - 1) / p * 4 * (double)n, wire = dt_compress_wire_bytes(z);

		*ret = (struct dt_bench_compressed){.kind = o->kind,
						    .bytes = 4 * n,
						    .time_s = v[0],
						    .codec_s = v[1],
						    .plain_s = plain_s,
						    .wire_bytes = wire,
						    .plain_wire_bytes = plain,
						    .break_even = dt_compress_break_even(plain, wire, v[1])};
	}
	dt_compress_close(z);
	free(x);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
