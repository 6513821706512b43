/*
 * CUDA graphs: launches with their arguments, and copies, kept in order. As on a card nothing runs while they
 * are recorded, and what runs later sees the memory of then and the arguments of now.
 */
#include "kernels/cuda/emulate/record.h"
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct step {
	void (*body)(void *); /* NULL: a copy */
	void *arg;
	void (*drop)(void *);
	dim3 grid, block;
	size_t smem;
	const char *name;
	void *to;
	const void *from;
	int byte;
	size_t n;
	struct step *next;
};

struct record {
	struct step *first, **last;
};

static thread_local struct record *now; /* being recorded by this thread */

bool dt_emu_recording(void)
{
	return now != NULL;
}

static void keep(const struct step &s)
{
	struct step *p = new struct step(s);

	p->next = NULL;
	*now->last = p;
	now->last = &p->next;
}

void dt_emu_record(void (*body)(void *), void *arg, void (*drop)(void *), dim3 grid, dim3 block, size_t smem,
		   const char *name)
{
	keep({body, arg, drop, grid, block, smem, name, NULL, NULL, 0, 0, NULL});
}

bool dt_emu_record_copy(void *to, const void *from, int byte, size_t n)
{
	keep({NULL, NULL, NULL, dim3(), dim3(), 0, NULL, to, from, byte, n, NULL});
	return true;
}

int dt_gpu_record_begin(void *stream)
{
	(void)stream;
	if (now)
		return -EIO;
	now = new struct record;
	now->first = NULL;
	now->last = &now->first;
	return 0;
}

int dt_gpu_record_end(void *stream, void **ret)
{
	(void)stream;
	if (!now)
		return -EIO;
	*ret = now;
	now = NULL;
	return 0;
}

int dt_gpu_record_run(void *record, void *stream)
{
	int rc = 0;

	for (struct step *s = ((struct record *)record)->first; s && rc == 0; s = s->next)
		rc = s->body   ? dt_emu_run(s->body, s->arg, s->grid, s->block, s->smem, s->name)
		     : s->from ? dt_gpu_copy(s->to, s->from, s->n, stream)
			       : dt_gpu_set(s->to, s->byte, s->n, stream);
	return rc;
}

void dt_gpu_record_close(void *record)
{
	struct record *r = (struct record *)record;

	while (struct step *s = r->first) {
		r->first = s->next;
		if (s->drop)
			s->drop(s->arg);
		delete s;
	}
	delete r;
}
/* SPDX-License-Identifier: Apache-2.0 */
