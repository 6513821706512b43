/*
 * How threads share a product with packed weights.
 *
 * Few rows: each thread has a share of the panels of every part. Rows of x are converted first, by all
 * threads.
 *
 * Many rows: each thread has ranges of rows, which it converts and multiplies with all panels. It reads all
 * weights, but its rows of x and y stay in its own caches from one op to the next, and no thread waits until
 * all rows are converted.
 *
 * In both cases a thread that is done takes groups of panels from others' shares, as a thread may be
 * descheduled.
 */
#include "kernels/cpu/quant_job.h"
#include "kernels/cpu/team.h"

#define LITTLE (1 << 16)   /* multiply-adds below which one thread does everything */
#define NEAR   (256 << 10) /* bytes that are fetched in advance: a quarter of a core's L2 on Zen 4 */

/* The rows of weight e. */
static struct dt_quant_range rows_of(const struct dt_quant_job *j, int e)
{
	return j->set ? (struct dt_quant_range){j->meet->first[e], j->meet->first[e + 1]}
		      : (struct dt_quant_range){0, j->m};
}

/* Panels [first, last) of a part for some rows: takes groups of them until none is left. after: what the
 * thread reads next, to prefetch. */
static void take_groups(const struct dt_quant_job *j, const struct dt_packed_part *part,
			struct dt_quant_range rows, struct dt_quant_turn *turn, int64_t first, int64_t last,
			const uint8_t *after)
{
	/* If rows of a set are few, more panels at a time. */
	const int64_t many = j->set ? dt_min64(8, dt_ceil_div(32, rows.end - rows.first)) : 1;
	const int64_t group = dt_quant_group(j), take = group * many;
	int64_t p;

	while ((p = first + take * atomic_fetch_add(&turn->taken, 1)) < last)
		for (int64_t end = dt_min64(last, p + take); p < end; p += group) {
			const uint8_t *next = p + group < last
						      ? part->data + (size_t)(p + group) * part->panel_bytes
						      : after;

			for (int64_t r = rows.first; r < rows.end; r += DT_QUANT_MANY)
				dt_quant_task(j, part, p, dt_min64(group, last - p), next, r,
					      dt_min64(DT_QUANT_MANY, rows.end - r));
		}
}

/* First panel of the share of thread t of n: panels are assigned in pairs, as micro-kernels process pairs. */
static int64_t share_first(const struct dt_packed_part *part, int t, int n)
{
	return dt_min64(part->panels, 2 * ((part->panels + 1) / 2 * t / n));
}

static const uint8_t *share_at(const struct dt_packed_part *part, int t, int n)
{
	return part->data + (size_t)share_first(part, t, n) * part->panel_bytes;
}

/* Thread t of n: the panels of a part. */
static void share_panels(const struct dt_quant_job *j, const struct dt_packed_part *part,
			 struct dt_quant_range rows, struct dt_quant_turn *turn, const uint8_t *after, int t,
			 int n)
{
	for (int i = 0; i < n; i++) {
		const int whose = (t + i) % n;

		take_groups(j, part, rows, &turn[whose], share_first(part, whose, n),
			    share_first(part, whose + 1, n), after);
	}
}

/* The part that is used next after the product; NULL: unknown. */
static const struct dt_packed_part *part_after(const struct dt_quant_job *j)
{
	const struct dt_packed *then = j->set ? NULL : j->w->then;

	return then && then->nparts && !then->lent ? then->part : NULL;
}

/* Gate and up are one part here (dt_quant_task). */
static int parts_of(const struct dt_quant_job *j, const struct dt_packed *w)
{
	return j->gated ? 1 : w->nparts;
}

/* The first weight from e on that has rows. */
static int met_from(const struct dt_quant_job *j, int e)
{
	const int n = j->set ? j->set->n : 1;

	while (e < n && rows_of(j, e).first == rows_of(j, e).end)
		e++;
	return e < n ? e : -1;
}

/*
 * Thread t of n: its panels of all parts. There is no barrier between the products of a set, which write
 * different rows and columns.
 */
static void multiply_panels(const struct dt_quant_job *j, int t, int n, int stride)
{
	struct dt_quant_turn *turn = j->turn;

	for (int e = met_from(j, 0), then; e >= 0; e = then) {
		const struct dt_packed *w = j->set ? j->set->w[e] : j->w;
		const int parts = parts_of(j, w);

		then = met_from(j, e + 1);
		for (int i = 0; i < parts; i++, turn += stride) {
			const struct dt_packed_part *next = i + 1 < parts ? &w->part[i + 1]
							    : then >= 0	  ? &j->set->w[then]->part[0]
									  : part_after(j);

			share_panels(j, &w->part[i], rows_of(j, e), turn, next ? share_at(next, t, n) : NULL,
				     t, n);
		}
	}
}

/* Range i of j's rows: multiples of the rows of a tile. */
static struct dt_quant_range range_of(const struct dt_quant_job *j, int64_t i)
{
	const int64_t units = dt_ceil_div(j->m, DT_XTILE_ROWS);

	return (struct dt_quant_range){dt_min64(j->m, units * i / j->ranges * DT_XTILE_ROWS),
				       dt_min64(j->m, units * (i + 1) / j->ranges * DT_XTILE_ROWS)};
}

static void prepare_rows(const struct dt_quant_job *j, int64_t first, int64_t end)
{
	for (int64_t r = first; r < end; r += DT_XTILE_ROWS)
		dt_quant_prepare(j, r, dt_min64(DT_XTILE_ROWS, end - r));
}

/* States of a range: whether its rows of x are converted. */
enum { RANGE_NOT, RANGE_SOON, RANGE_READY };

/* Converts the rows of range i, unless a thread has begun that; multiplies those that are ready. */
static void multiply_range(const struct dt_quant_job *j, int i)
{
	const struct dt_quant_range rows = range_of(j, i);
	const int parts = parts_of(j, j->w);
	int state = RANGE_NOT;

	if (atomic_compare_exchange_strong(&j->state[i], &state, RANGE_SOON)) {
		prepare_rows(j, rows.first, rows.end);
		atomic_store(&j->state[i], RANGE_READY);
	}
	for (int p = 0; p < parts && atomic_load(&j->state[i]) == RANGE_READY; p++) {
		const struct dt_packed_part *part = &j->w->part[p];

		take_groups(j, part, rows, &j->turn[p * j->ranges + i], 0, part->panels,
			    p + 1 < parts ? part[1].data : NULL);
	}
}

/* Thread t of n: its ranges in their order, then the others'. */
static void multiply_ranges(const struct dt_quant_job *j, int t, int n)
{
	const int first = (int)((int64_t)j->ranges * t / n);

	for (int i = 0; i < j->ranges; i++)
		multiply_range(j, (first + i) % j->ranges);
}

/* What a thread does of a product. */
struct run {
	const struct dt_quant_job *j;
	int stride; /* turns of a part */
	bool ready; /* the caller has converted all rows, or ranges do */
};

/* Fetches rows [first, end) of the operands, which another thread has converted. Products read few lines at a
 * time, and each takes as long as one from memory if the cores are far apart. */
static void fetch_converted(const struct dt_quant_job *j, int64_t first, int64_t end)
{
	const int64_t blocks = j->w->blocks, wide = blocks * DT_QK, n = end - first;

	if (n <= 0 || n * wide > NEAR)
		return;
	if (j->q) {
		dt_fetch_lines(j->xb + first * blocks, n * blocks * (int64_t)sizeof *j->xb);
		dt_fetch_lines(j->q + first * wide, n * wide);
	}
	if (j->h)
		dt_fetch_lines(j->h + first * wide, n * wide * (int64_t)sizeof *j->h);
}

/* Thread t of n: what it reads first of the weights that are used next is prefetched while it waits. */
static void ask_for_next(const struct dt_quant_job *j, int t, int n)
{
	const struct dt_packed_part *next = part_after(j);

	if (next) {
		const uint8_t *at = share_at(next, t, n);

		dt_cpu_ahead(at, dt_min64(share_at(next, t + 1, n) - at, NEAR));
	}
}

/* The rows that thread t of n converts, or has converted. */
static struct dt_quant_range own_rows(const struct run *a, int t, int n)
{
	const int64_t rows = dt_rows(a->j->x), unit = dt_quant_by_tiles(a->j) ? DT_XTILE_ROWS : 1;
	const int64_t units = dt_ceil_div(rows, unit);

	if (a->ready)
		return (struct dt_quant_range){0, t == 0 ? rows : 0};
	return (struct dt_quant_range){units * t / n * unit, dt_min64(rows, units * (t + 1) / n * unit)};
}

static void run_thread(void *arg, int t, int n)
{
	const struct run *a = arg;
	const struct dt_quant_job *j = a->j;
	const struct dt_quant_range own = own_rows(a, t, n);
	const int64_t adapters = j->lora ? j->lora->units : 0;

	for (int64_t i = adapters * t / n; i < adapters * (t + 1) / n; i++)
		dt_lora_down(j->lora, i);
	if (!a->ready)
		prepare_rows(j, own.first, own.end);
	if (!a->ready || adapters)
		dt_cpu_meet();
	if (j->ranges) {
		multiply_ranges(j, t, n);
		return;
	}
	if (!j->set && !dt_quant_by_tiles(j)) {
		fetch_converted(j, 0, own.first);
		fetch_converted(j, own.end, dt_rows(j->x));
	}
	multiply_panels(j, t, n, a->stride);
	ask_for_next(j, t, n);
}

void dt_quant_run(struct dt_dev *dev, const struct dt_quant_job *j)
{
	const struct dt_packed *w = j->w;
	const int64_t rows = dt_rows(j->x);
	/* A few rows are converted before the other threads wake. */
	const bool first = j->m * w->k < DT_SERIAL;
	struct run a = {j, dev->nthreads, first || j->ranges};

	if (first)
		prepare_rows(j, 0, rows);
	dt_cpu_together(j->m * w->rows * w->k < LITTLE ? 1 : dev->nthreads, dev->steps, run_thread, &a);
}
/* SPDX-License-Identifier: Apache-2.0 */
