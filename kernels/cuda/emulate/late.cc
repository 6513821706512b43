#include "kernels/cuda/emulate/late.h"
#include "kernels/cuda/emulate/memory.h"

#include <stdlib.h>
#include <string.h>

struct dt_emu_late_copy {
	void *to, *own;
	size_t n;
	struct dt_emu_late_copy *next;
};

void dt_emu_late_send(struct dt_emu_late *l, void *to, const void *from, size_t n)
{
	struct dt_emu_late_copy *c = (struct dt_emu_late_copy *)calloc(1, sizeof *c);

	if (!c || !(c->own = malloc(n)))
		dt_emu_die("no memory for a copy");
	memcpy(c->own, from, n);
	c->to = to;
	c->n = n;
	*(l->first ? l->last : &l->first) = c;
	l->last = &c->next;
	l->sent++;
}

void dt_emu_late_arrive(struct dt_emu_late *l, uint64_t upto)
{
	while (l->first && l->arrived < upto) {
		struct dt_emu_late_copy *c = l->first;

		memcpy(c->to, c->own, c->n);
		l->arrived++;
		l->first = c->next;
		free(c->own);
		free(c);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
