#include "train/clocks.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

void clocks_wait(int n)
{
	if (n < 64)
		sched_yield();
	else
		usleep(100);
}

void clocks_lock(atomic_int *lock)
{
	for (int n = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); n++)
		clocks_wait(n);
}

void clocks_unlock(atomic_int *lock)
{
	atomic_store_explicit(lock, 0, memory_order_release);
}

void clocks_begin(struct clocks *c, int ranks, int64_t limit)
{
	memset(c, 0, sizeof(*c) + (size_t)ranks * sizeof(c->rank[0]));
	c->limit = limit;
}

int64_t clocks_take(struct clocks *c)
{
	int64_t n;

	clocks_lock(&c->lock);
	n = c->next < c->limit ? c->next++ : -1;
	clocks_unlock(&c->lock);
	return n;
}

static bool take_step(struct clocks *c, int64_t own)
{
	bool is;

	clocks_lock(&c->lock);
	is = own < c->limit;
	if (is && own >= c->next)
		c->next = own + 1;
	clocks_unlock(&c->lock);
	return is;
}

void clocks_end(struct clocks *c, int64_t of)
{
	int64_t n;

	clocks_lock(&c->lock);
	n = (c->next + of - 1) / of * of;
	n = n > 0 ? n : of;
	c->limit = n < c->limit ? n : c->limit;
	clocks_unlock(&c->lock);
}

int64_t clocks_slowest(struct clocks *c, int ranks)
{
	int64_t least = INT64_MAX;

	for (int r = 0; r < ranks; r++) {
		int64_t n = atomic_load_explicit(&c->rank[r].done, memory_order_acquire);

		least = n < least ? n : least;
	}
	return least;
}

struct clocks_turn clocks_turn(struct clocks *c, int ranks, int64_t own, int64_t ahead)
{
	struct clocks_turn t = {.done = INT64_MAX};

	for (int r = 0; r < ranks; r++) {
		int64_t n = atomic_load_explicit(&c->rank[r].done, memory_order_acquire);

		if (n < t.done) {
			t.done = n;
			t.rank = r;
		}
	}
	t.may = !take_step(c, own) ? 0 : t.done >= own - ahead ? 1 : -1;
	return t;
}

int64_t clocks_say(struct clocks *c, int64_t line, const struct clocks_line *l)
{
	struct clocks_line *to = &c->line[line % CLOCKS_LINES];
	int64_t done;

	clocks_lock(&c->lock);
	to->loss += l->loss;
	to->targets += l->targets;
	to->ages += l->ages;
	to->gradients++;
	to->oldest = l->oldest > to->oldest ? l->oldest : to->oldest;
	done = ++c->done;
	clocks_unlock(&c->lock);
	return done;
}

bool clocks_read(struct clocks *c, int64_t line, int64_t before, struct clocks_line *ret)
{
	struct clocks_line *from = &c->line[line % CLOCKS_LINES];
	bool is;

	clocks_lock(&c->lock);
	is = c->done < before;
	if (is) {
		*ret = *from;
		*from = (struct clocks_line){0};
	}
	clocks_unlock(&c->lock);
	return is;
}
/* SPDX-License-Identifier: Apache-2.0 */
