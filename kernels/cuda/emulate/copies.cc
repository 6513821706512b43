/* Copies to shared memory by single threads (cp.async): the data arrives when it is waited for. */
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/memory.h"

#define PENDING 160 /* copies in flight per thread */

struct copy {
	char *to;
	const char *from;
	int n, room, group;
};

struct pending {
	int n, group;
};

static struct pending pending[DT_EMU_THREADS];
static struct copy copies[DT_EMU_THREADS][PENDING];

void dt_emu_no_copies(int threads)
{
	memset(pending, 0, (size_t)threads * sizeof *pending);
}

int dt_emu_copies(int thread)
{
	return pending[thread].n;
}

void dt_emu_cp_async(void *to, const void *from, int n, int room)
{
	const int i = dt_emu_thread();
	struct pending *p = &pending[i];

	dt_emu_touch(to, (size_t)room);
	if (n)
		dt_emu_touch(from, (size_t)room);
	if (p->n == PENDING)
		dt_emu_die("more copies under way than the emulation keeps");
	memset(to, 0xff, (size_t)room); /* the data must not be visible before it is waited for */
	copies[i][p->n++] = (struct copy){(char *)to, (const char *)from, n, room, p->group};
}

void dt_emu_cp_commit(void)
{
	pending[dt_emu_thread()].group++;
}

void dt_emu_cp_wait(int left)
{
	const int own = dt_emu_thread();
	struct pending *p = &pending[own];
	struct copy *all = copies[own];
	int kept = 0;

	for (int i = 0; i < p->n; i++) {
		const struct copy c = all[i];

		if (c.group >= p->group - left) {
			all[kept++] = c;
			continue;
		}
		memset(c.to, 0, (size_t)c.room);
		if (c.n)
			memcpy(c.to, c.from, (size_t)c.n);
	}
	p->n = kept;
}
/* SPDX-License-Identifier: Apache-2.0 */
