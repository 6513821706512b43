/* Scratch memory of the device. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <stdlib.h>
#include <sys/mman.h>

struct dt_scratch_on dt_cpu_scratch_on(const struct dt_dev *dev)
{
	const struct dt_isa *isa = dt_isa();
	struct dt_scratch_on on = {.threads = dev->nthreads,
				   .batch_invariant = dev->batch_invariant,
				   .pairs = isa->bf16,
				   .amx = isa->bf16 && isa->amx,
				   .amx_int8 = isa->amx != DT_AMX_NONE,
				   .brgemm = isa->avx512,
				   .amx_onednn = isa->amx_onednn};

#ifdef __aarch64__
	on.tiles_only = true; /* matmul_onednn.c: is_plain */
#endif
	return on;
}

bool dt_cpu_widens(enum dt_dtype t)
{
	return dt_scratch_widens(&(struct dt_scratch_on){.pairs = dt_isa()->bf16}, t);
}

enum { LARGE = 2 << 20 }; /* bytes of a huge page */

void *dt_cpu_room(size_t *n)
{
	const size_t page = *n < LARGE ? 4096 : LARGE;
	void *p;

	*n = (*n + page - 1) / page * page;
	p = aligned_alloc(page, *n);
	if (p && page == LARGE)
		madvise(p, *n, MADV_HUGEPAGE); /* fewer page walks; failure is harmless */
	return p;
}

void *dt_cpu_scratch_of(struct dt_dev *dev, enum dt_scratch_buffer b, size_t n)
{
	struct dt_scratch_room *r = &dev->scratch[b];

	r->most = n > r->most ? n : r->most;
	if (n > r->n) {
		if (!r->lent)
			free(r->p);
		r->lent = false;
		r->p = dt_cpu_room(&n);
		r->n = r->p ? n : 0;
	}
	return r->p;
}

int dt_cpu_scratch_reserve(struct dt_dev *dev, const struct dt_scratch *s)
{
	int rc = 0;

	for (int b = 0; b < DT_SCRATCH_N; b++) {
		const size_t most = dev->scratch[b].most; /* asked for by ops */

		if (s->bytes[b] > dev->scratch[b].n &&
		    !dt_cpu_scratch_of(dev, (enum dt_scratch_buffer)b, s->bytes[b]))
			rc = -ENOMEM;
		dev->scratch[b].most = most;
	}
	return rc;
}

void *dt_cpu_scratch(struct dt_dev *dev, size_t n)
{
	return dt_cpu_scratch_of(dev, DT_SCRATCH_OP, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
