#include "serve/sched/agenda.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int dt_agenda_open(struct dt_agenda *a, int most)
{
	a->n = 0;
	a->due = calloc((size_t)most, sizeof(*a->due));
	return a->due ? 0 : -ENOMEM;
}

void dt_agenda_close(struct dt_agenda *a)
{
	free(a->due);
	a->due = NULL;
}

void dt_agenda_put(struct dt_agenda *a, double at, int who)
{
	int i = a->n++;

	for (; i > 0 && a->due[(i - 1) / 2].at > at; i = (i - 1) / 2)
		a->due[i] = a->due[(i - 1) / 2];
	a->due[i] = (struct dt_due){at, who};
}

double dt_agenda_next(const struct dt_agenda *a)
{
	return a->n ? a->due[0].at : INFINITY;
}

int dt_agenda_take(struct dt_agenda *a)
{
	const int who = a->due[0].who;
	const struct dt_due last = a->due[--a->n];
	int i = 0;

	for (int child; (child = 2 * i + 1) < a->n; i = child) {
		if (child + 1 < a->n && a->due[child + 1].at < a->due[child].at)
			child++;
		if (a->due[child].at >= last.at)
			break;
		a->due[i] = a->due[child];
	}
	a->due[i] = last;
	return who;
}
/* SPDX-License-Identifier: Apache-2.0 */
