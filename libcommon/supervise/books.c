#include "supervise/priv.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[SUP_COSTS] = {"steps_s",	 "start_up_s", "data_s",     "save_s",
					    "restore_s", "redone_s",   "recovery_s", "other_s"};
static const char *const words[SUP_COSTS] = {"steps",	  "start-up",	    "data",	"saving",
					     "restoring", "repeated steps", "recovery", "other"};

void sup_books_step(struct sup_books *b, int64_t step, double seconds)
{
	int64_t i;

	if (!b->step)
		b->base = step - 1;
	i = step - b->base - 1;
	if (i < 0) /* before the first step in these books */
		return;
	if (i >= b->room) {
		int64_t room = 2 * i + 1024;
		double *grown = realloc(b->step, (size_t)room * sizeof(*grown));

		if (!grown)
			return;
		memset(grown + b->room, 0, (size_t)(room - b->room) * sizeof(*grown));
		b->step = grown;
		b->room = room;
	}
	if (b->step[i] > 0) {
		b->s[SUP_STEPS] -= b->step[i];
		b->s[SUP_REDONE] += b->step[i];
		b->redone++;
	}
	b->step[i] = seconds > 0 ? seconds : 1e-12;
	b->s[SUP_STEPS] += seconds;
	if (i + 1 > b->top)
		b->top = i + 1;
}

void sup_books_back(struct sup_books *b, int64_t step)
{
	int64_t first = step > b->base ? step - b->base : 0;

	for (int64_t i = first; i < b->top; i++) {
		if (b->step[i] <= 0)
			continue;
		b->s[SUP_STEPS] -= b->step[i];
		b->s[SUP_REDONE] += b->step[i];
		b->step[i] = 0;
		b->redone++;
	}
	if (b->top > first)
		b->top = first;
}

int64_t sup_books_count(const struct sup_books *b)
{
	int64_t n = 0;

	for (int64_t i = 0; i < b->top; i++)
		n += b->step[i] > 0;
	return n;
}

json_t *sup_books_json(struct sup_books *b, double now)
{
	double wall = now - b->began, known = 0;
	json_t *o = json_pack("{s:f, s:I, s:I}", "wall_s", wall, "steps", (json_int_t)sup_books_count(b),
			      "steps_redone", (json_int_t)b->redone);

	for (int i = 0; i < SUP_OTHER; i++)
		known += b->s[i];
	b->s[SUP_OTHER] = wall - known;
	for (int i = 0; i < SUP_COSTS && o; i++)
		json_object_set_new(o, keys[i], json_real(b->s[i]));
	if (o)
		json_object_set_new(o, "goodput", json_real(wall > 0 ? b->s[SUP_STEPS] / wall : 0));
	return o;
}

void sup_books_text(const struct sup_books *b, char *buf, size_t n)
{
	double wall = 0;
	size_t k;

	for (int i = 0; i < SUP_COSTS; i++)
		wall += b->s[i];
	k = (size_t)snprintf(buf, n, "%.1f s, of which %.1f%% in %lld steps that count", wall,
			     wall > 0 ? 100 * b->s[SUP_STEPS] / wall : 0, (long long)sup_books_count(b));
	for (int i = SUP_STEPS + 1; i < SUP_COSTS && k < n; i++)
		k += (size_t)snprintf(buf + k, n - k, ", %s %.1f s", words[i], b->s[i]);
}
/* SPDX-License-Identifier: Apache-2.0 */
