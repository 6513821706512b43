/* Times at which servers of a simulation are due, at most one for each: a binary heap. */
#ifndef DT_SERVE_AGENDA_H
#define DT_SERVE_AGENDA_H

struct dt_due {
	double at;
	int who;
};

struct dt_agenda {
	struct dt_due *due; /* [n servers], a heap: the earliest first */
	int n;
};

/* -ENOMEM. */
int dt_agenda_open(struct dt_agenda *a, int most);
void dt_agenda_close(struct dt_agenda *a);
void dt_agenda_put(struct dt_agenda *a, double at, int who);
/* The earliest time; INFINITY: none. */
double dt_agenda_next(const struct dt_agenda *a);
/* Removes the earliest and returns who it is. There must be one. */
int dt_agenda_take(struct dt_agenda *a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
