/*
 * CUDA graphs: launches with their arguments, and copies, in order. As on a card nothing runs during
 * recording; a later run uses the memory contents at that time and the arguments of the recording.
 */
#include "kernels/cuda/emulate/record.h"
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/queue.h"
#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct step {
	struct dt_emu_launch launch; /* body NULL: a copy */
	void *to;
	const void *from;
	int byte;
	size_t n;
	struct step *next;
};

struct record {
	struct step *first, **last;
};

static thread_local struct record *now; /* the recording of this thread */

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

void dt_emu_record(const struct dt_emu_launch *l)
{
	struct step x = {};

	x.launch = *l;
	keep(x);
}

bool dt_emu_record_copy(void *to, const void *from, int byte, size_t n)
{
	struct step x = {};

	x.to = to;
	x.from = from;
	x.byte = byte;
	x.n = n;
	keep(x);
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

	for (struct step *s = ((struct record *)record)->first; s && rc == 0; s = s->next) {
		struct dt_emu_launch l = s->launch;

		l.drop = NULL; /* it will run again */
		if (l.body)
			dt_emu_give(stream, &l);
		else
			rc = s->from ? dt_gpu_copy(s->to, s->from, s->n, stream)
				     : dt_gpu_set(s->to, s->byte, s->n, stream);
	}
	return rc;
}

void dt_gpu_record_close(void *record)
{
	struct record *r = (struct record *)record;

	dt_emu_finish_all();
	while (struct step *s = r->first) {
		r->first = s->next;
		if (s->launch.drop)
			s->launch.drop(s->launch.arg);
		delete s;
	}
	delete r;
}
/* SPDX-License-Identifier: Apache-2.0 */
