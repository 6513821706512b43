/*
 * Synchronisation of a block's threads in shared memory: mbarriers, the tile copies that signal them, and
 * named barriers of some of the threads. A copy is carried out only when no thread can continue without it;
 * from its issue until then the destination holds NaN. So a thread that does not wait for a tile, or that
 * issues a copy over a tile still in use, computes NaN.
 */
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/memory.h"

#define COPIES 256 /* copies in flight per block */
#define EDGE   64  /* rows, and elements of a row, of a copy */
#define BYTES  (EDGE * EDGE * 2)
#define MARK   0xb5

struct mbar {
	uint8_t mark, arrivals, missing, phase;
	int32_t bytes; /* outstanding bytes of the current phase */
};
static_assert(sizeof(struct mbar) == sizeof(uint64_t), "an mbarrier is 8 bytes");

struct tile_copy {
	char *to;
	struct dt_emu_map map;
	int64_t at[4];
	struct mbar *bar;
};

static struct tile_copy copies[COPIES];
static unsigned first, last; /* copies in flight, modulo COPIES */

struct named {
	int arrived, n;
	unsigned turn;
};
static struct named named[16];

static struct mbar *mbar(uint64_t *p)
{
	struct mbar *b = (struct mbar *)p;

	dt_emu_touch(p, sizeof *p);
	if (dt_emu_is_device(p, sizeof *p) || b->mark != MARK)
		dt_emu_die("an mbarrier that nobody initialized");
	return b;
}

static void settle(struct mbar *b)
{
	if (b->missing || b->bytes)
		return;
	b->missing = b->arrivals;
	b->phase ^= 1;
}

void dt_emu_mbar_init(uint64_t *bar, unsigned arrivals)
{
	const struct mbar b = {MARK, (uint8_t)arrivals, (uint8_t)arrivals, 0, 0};

	dt_emu_touch(bar, sizeof *bar);
	memcpy(bar, &b, sizeof b);
}

void dt_emu_mbar_expect(uint64_t *bar, unsigned bytes)
{
	struct mbar *b = mbar(bar);

	if (!b->missing)
		dt_emu_die("more arrivals at an mbarrier than it was initialized for");
	b->missing--;
	b->bytes += (int32_t)bytes;
	settle(b);
}

struct wanted {
	const struct mbar *bar;
	unsigned parity;
};

static bool over(void *arg)
{
	const struct wanted *w = (const struct wanted *)arg;

	return w->bar->phase != w->parity;
}

void dt_emu_mbar_wait(uint64_t *bar, unsigned parity)
{
	struct wanted w = {mbar(bar), parity};

	dt_emu_until(over, &w, "mbarrier");
}

void dt_emu_tile_copy(void *to, const struct dt_gpu_map &map, int col, int row, int head, int batch,
		      uint64_t *bar)
{
	struct tile_copy *c = &copies[last % COPIES];

	if (last++ - first == COPIES)
		dt_emu_die("more copies under way than the emulation keeps");
	*c = {(char *)to, {}, {col, head, row, batch}, mbar(bar)};
	memcpy(&c->map, map.of, sizeof c->map);
	if ((uintptr_t)to % 1024)
		dt_emu_die("a tile does not begin at a multiple of 1024 bytes");
	dt_emu_touch(c->to, 16);
	dt_emu_touch(c->to + BYTES - 16, 16);
	memset(to, 0xff, BYTES);
}

/* 16-byte piece p of row r is stored at p ^ r % 8 (CU_TENSOR_MAP_SWIZZLE_128B). */
static void copy_piece(const struct tile_copy *c, int r, int p)
{
	const struct dt_emu_map *m = &c->map;
	const int64_t at[4] = {c->at[0] + p * 8, c->at[1], c->at[2] + r, c->at[3]};
	const char *from = m->from + at[0] * 2;
	char *to = c->to + r * 128 + (p ^ r % 8) * 16;
	int64_t n = m->n[0] - at[0] < 8 ? m->n[0] - at[0] : 8;

	for (int i = 1; i < 4; i++) {
		from += at[i] * m->step[i - 1] * 2;
		n = at[i] < 0 || at[i] >= m->n[i] ? 0 : n;
	}
	memset(to, 0, 16);
	for (int64_t i = 0; i < n; i++) {
		dt_emu_touch(from + 2 * i, 2);
		memcpy(to + 2 * i, from + 2 * i, 2);
	}
}

bool dt_emu_copy_one(void)
{
	const struct tile_copy *c = &copies[first % COPIES];

	if (first == last)
		return false;
	first++;
	for (int r = 0; r < EDGE; r++)
		for (int p = 0; p < EDGE / 8; p++)
			copy_piece(c, r, p);
	c->bar->bytes -= BYTES;
	settle(c->bar);
	return true;
}

unsigned dt_emu_inc(unsigned *p, unsigned most)
{
	const unsigned old = *p;

	dt_emu_touch(p, sizeof *p);
	*p = old >= most ? 0 : old + 1;
	return old;
}

struct turn {
	const struct named *bar;
	unsigned before;
};

static bool turned(void *arg)
{
	const struct turn *t = (const struct turn *)arg;

	return t->bar->turn != t->before;
}

void dt_emu_named(int id, int n, bool wait)
{
	struct named *b = &named[id];
	struct turn t = {b, b->turn};

	if (b->arrived && b->n != n)
		dt_emu_die("threads that meet in a barrier name different numbers of them");
	b->n = n;
	if (++b->arrived == n) {
		b->arrived = 0;
		b->turn++;
	} else if (wait) {
		dt_emu_until(turned, &t, "a barrier of some threads");
	}
}

void dt_emu_settled(void)
{
	if (first != last)
		dt_emu_die("a block ended with copies of tiles under way");
	for (const struct named &b : named)
		if (b.arrived)
			dt_emu_die("a block ended while threads had arrived at a barrier");
}
/* SPDX-License-Identifier: Apache-2.0 */
