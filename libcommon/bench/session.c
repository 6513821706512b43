#include "bench/session.h"

#include <errno.h>

size_t dt_bench_next_size(const struct dt_bench_sizes *z, size_t s)
{
	size_t n = z->step ? s + z->step : (size_t)((double)s * z->factor);

	return n > s ? n : s + 1;
}

static int flush_table(const struct dt_bench_session *b, struct dt_err *err)
{
	return b->table && fflush(b->table) ? dt_err_sys(err, -errno, "cannot write results") : 0;
}

/* Times one size; counts it and, with --json, keeps the result. */
static int measure(struct dt_bench_session *b, struct dt_bench *bench, enum dt_bench_kind k, size_t bytes,
		   bool in_place, struct dt_bench_result *r, struct dt_err *err)
{
	double copy = b->info.world.nodes == 1 ? b->totals.copy_gbs : 0;
	int rc = dt_bench_run(bench, bytes, in_place, copy, b->o.skew ? &b->skew : NULL, r, err);
	json_t *o;

	if (rc)
		return rc;
	b->totals.wrong += r->wrong > 0 ? r->wrong : 0;
	if (k != DT_BENCH_BARRIER) {
		b->busbw_sum += r->busbw_gbs;
		b->totals.avg_busbw_gbs = b->busbw_sum / ++b->nbusbw;
	}
	if (!b->results)
		return 0;
	o = dt_bench_result_json(&b->info, k, in_place, dt_bench_chosen(b->c, k, r->count, b->info.t), r);
	pthread_mutex_lock(b->lock);
	rc = !o || json_array_append_new(b->results, o) ? dt_err_sys(err, -ENOMEM, "results") : 0;
	pthread_mutex_unlock(b->lock);
	return rc;
}

static int measure_compressed(struct dt_bench_session *b, const struct dt_bench_result *plain,
			      struct dt_err *err)
{
	struct dt_bench_compressed z;
	int rc = dt_bench_compressed(b->c, b->o.compress, plain->bytes, plain->time_s, &z, err);

	if (!rc && b->table)
		dt_bench_print_compressed(b->table, &z);
	if (!rc && b->compression)
		json_array_append_new(b->compression, dt_bench_compressed_json(&z));
	return rc;
}

/* Runs one size, out of place and in place, and prints its row. */
static int run_size(struct dt_bench_session *b, struct dt_bench *bench, enum dt_bench_kind k, size_t bytes,
		    struct dt_err *err)
{
	bool two = dt_bench_has_in_place(k);
	struct dt_bench_result r[2];
	int rc = 0;

	for (int i = 0; i < (two ? 2 : 1) && !rc; i++)
		rc = measure(b, bench, k, bytes, i == 1, &r[i], err);
	if (!rc && b->table && b->o.explain)
		dt_bench_print_predictions(b->table, &b->info, k, &r[0],
					   dt_bench_chosen(b->c, k, r[0].count, b->info.t));
	if (!rc && b->table && b->o.latency)
		dt_bench_print_latency_row(b->table, &b->info, &r[0]);
	else if (!rc && b->table)
		dt_bench_print_row(b->table, &b->info, k, &r[0], two ? &r[1] : NULL);
	if (!rc && b->o.compress && k == DT_BENCH_ALL_REDUCE)
		rc = measure_compressed(b, &r[0], err);
	return rc ? rc : flush_table(b, err);
}

static int open_bench(struct dt_bench_session *b, enum dt_bench_kind k, struct dt_bench **ret,
		      struct dt_err *err)
{
	struct dt_bench_opts o = {.kind = k,
				  .t = b->info.t,
				  .op = b->info.op,
				  .root = b->info.root,
				  .iters = (int)b->info.iters,
				  .warmup = b->o.warmup,
				  .check = b->o.check,
				  .cold = b->info.cold,
				  .registered = b->info.registered,
				  .compare = b->info.compare,
				  .apart = b->o.explain,
				  .cache = b->o.cache};

	return dt_bench_open(ret, b->c, &o, b->o.sizes.max, err);
}

/* Table of sizes for the algorithm that is set. */
static int run_kind(struct dt_bench_session *b, enum dt_bench_kind k, struct dt_err *err)
{
	struct dt_bench *bench = NULL;
	int rc = open_bench(b, k, &bench, err);

	if (!rc && b->table && b->o.latency) {
		dt_bench_print_latency_head(b->table, &b->info, k);
	} else if (!rc && b->table) {
		dt_bench_print_title(b->table, &b->info, k);
		dt_bench_print_head(b->table, &b->info);
	}
	for (size_t s = b->o.sizes.min; s <= b->o.sizes.max && !rc; s = dt_bench_next_size(&b->o.sizes, s)) {
		rc = run_size(b, bench, k, s, err);
		dt_progress_set(&b->bar, ++b->bar.done);
		if (k == DT_BENCH_BARRIER)
			break;
	}
	dt_bench_close(bench);
	return rc;
}

/* Bit set of the algorithms that the collective has and these ranks can use. */
static unsigned usable(struct dt_bench_session *b, enum dt_bench_kind k)
{
	unsigned set = 0;

	for (int a = DT_ALG_DIRECT; a < DT_ALG_N; a++)
		if (dt_bench_has_algorithm(k, (enum dt_alg)a) &&
		    !dt_comm_set_algorithm(b->c, (enum dt_alg)a, NULL))
			set |= 1u << a;
	return set;
}

/* Runs one size with every algorithm: a row of times and, with --explain, a row of predictions. */
static int run_row(struct dt_bench_session *b, struct dt_bench *bench, enum dt_bench_kind k, unsigned set,
		   size_t bytes, struct dt_err *err)
{
	double time_s[DT_ALG_N], predicted[DT_ALG_N];
	bool two = dt_bench_has_in_place(k);
	int64_t wrong[DT_ALG_N] = {0};
	struct dt_bench_result r[2];
	int rc = 0;

	for (int a = DT_ALG_DIRECT; a < DT_ALG_N && !rc; a++) {
		if (!(set & 1u << a))
			continue;
		dt_comm_set_algorithm(b->c, (enum dt_alg)a, NULL);
		for (int i = 0; i < (two ? 2 : 1) && !rc; i++)
			rc = measure(b, bench, k, bytes, i == 1, &r[i], err);
		if (rc)
			return rc;
		time_s[a] = r[0].time_s;
		predicted[a] = dt_bench_predicted(&b->info, k, (enum dt_alg)a, &r[0]);
		wrong[a] = r[0].wrong + (two ? r[1].wrong : 0);
	}
	if (!b->table)
		return 0;
	dt_bench_print_algorithms_row(b->table, set, r[0].bytes, NULL, time_s, wrong);
	if (b->o.explain)
		dt_bench_print_algorithms_row(b->table, set, 0, "# model", predicted, NULL);
	return flush_table(b, err);
}

/* --algorithm all: one table of sizes by algorithms; with extra columns, one table per algorithm. */
static int run_algorithms(struct dt_bench_session *b, enum dt_bench_kind k, struct dt_err *err)
{
	unsigned set = usable(b, k);
	struct dt_bench *bench = NULL;
	char name[16];
	int rc = 0;

	if (b->info.stats || b->info.compare || b->o.latency) {
		for (int a = DT_ALG_DIRECT; a < DT_ALG_N && !rc; a++) {
			if (!(set & 1u << a))
				continue;
			dt_comm_set_algorithm(b->c, (enum dt_alg)a, NULL);
			if (b->table)
				fprintf(b->table, "# algorithm %s\n", dt_alg_name((enum dt_alg)a, name));
			rc = run_kind(b, k, err);
		}
		return rc;
	}
	rc = open_bench(b, k, &bench, err);
	if (!rc && b->table) {
		dt_bench_print_title(b->table, &b->info, k);
		dt_bench_print_algorithms_head(b->table, set);
	}
	for (size_t s = b->o.sizes.min; s <= b->o.sizes.max && !rc; s = dt_bench_next_size(&b->o.sizes, s)) {
		rc = run_row(b, bench, k, set, s, err);
		dt_progress_set(&b->bar, ++b->bar.done);
		if (k == DT_BENCH_BARRIER)
			break;
	}
	dt_bench_close(bench);
	return rc;
}

/* Measurements before the rows: copy bandwidth, clocks, links, message costs. */
static int measure_machine(struct dt_bench_session *b, struct dt_err *err)
{
	char topo[512];
	int rc = dt_bench_copy(b->c, b->o.cache, &b->totals.copy_gbs, err);

	if (!rc && b->o.skew)
		rc = dt_bench_skew_init(&b->skew, b->c, err);
	if (!rc && (b->o.fit)) {
		rc = dt_bench_links(dt_comm_world(b->c), b->link, err);
		b->totals.nlink = rc > 0 ? rc : 0;
		rc = rc < 0 ? rc : 0;
	}
	if (rc || !b->o.explain || b->info.world.size == 1)
		return rc;
	rc = dt_bench_topology(b->c, &b->topo, err);
	if (!rc && b->info.world.nodes > 1)
		rc = dt_bench_costs_open(&b->costs, b->c, &b->topo, err);
	if (rc)
		return rc;
	b->info.topo = &b->topo;
	if (b->table)
		fprintf(b->table, "# measured costs, for --simulate: %s\n",
			dt_bench_topo_format(&b->topo, topo, sizeof(topo)));
	return 0;
}

static uint64_t count_sizes(const struct dt_bench_sizes *z)
{
	uint64_t n = 0;

	for (size_t s = z->min; s <= z->max; s = dt_bench_next_size(z, s))
		n++;
	return n;
}

int dt_bench_session_run(struct dt_bench_session *b, struct dt_err *err)
{
	int first = b->o.kind == DT_BENCH_N ? 0 : (int)b->o.kind;
	int last = b->o.kind == DT_BENCH_N ? DT_BENCH_N - 1 : (int)b->o.kind;
	int rc;

	b->totals.link = b->link;
	b->totals.skew = &b->skew;
	rc = measure_machine(b, err);
	if (b->results)
		dt_progress_start(&b->bar, stderr, "sizes",
				  count_sizes(&b->o.sizes) * (uint64_t)(last - first + 1), false);
	for (int k = first; k <= last && !rc; k++) {
		if (b->o.algorithm == DT_ALG_N)
			rc = run_algorithms(b, (enum dt_bench_kind)k, err);
		else if (dt_bench_has_algorithm((enum dt_bench_kind)k, b->o.algorithm))
			rc = run_kind(b, (enum dt_bench_kind)k, err);
	}
	dt_progress_end(&b->bar);
	return rc;
}

void dt_bench_session_release(struct dt_bench_session *b)
{
	dt_bench_skew_release(&b->skew);
	dt_bench_costs_close(b->costs);
}
/* SPDX-License-Identifier: Apache-2.0 */
