/* Program listings as tables. Repeated segments, such as of equal layers, are shown once. */
#include "plan/listing.h"

#include "base/table.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

/* Longest repeating sequence of segments: --recompute every:N, a window every few layers. */
#define PERIOD_MAX 32

struct printer {
	const struct dt_memory_plan *plan;
	const struct dt_run *r;
	struct dt_cost_site s;
	bool serves;
	struct dt_table *t;
	struct dt_listed sum[DT_LIST_N];
};

/* Prints three digits; nothing for 0. */
static void number(struct dt_table *t, double v)
{
	if (v == 0)
		dt_table_cell(t, "%s", "");
	else
		dt_table_cell(t, "%.*f", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v);
}

static void mib(struct dt_table *t, double bytes)
{
	number(t, bytes / 1048576);
}

static bool same_node(const struct printer *p, int a, int b)
{
	struct dt_listed x = dt_list_node(&p->s, a), y = dt_list_node(&p->s, b);
	char rx[64], ry[64]; /* names of results may differ */

	return x.step->n.op == y.step->n.op && !strcmp(x.step->n.name, y.step->n.name) &&
	       x.step->again == y.step->again && x.kept == y.kept && x.cost.flops == y.cost.flops &&
	       x.cost.model_flops == y.cost.model_flops && x.cost.read == y.cost.read &&
	       x.cost.written == y.cost.written && x.cost.message == y.cost.message &&
	       x.cost.message_bytes == y.cost.message_bytes &&
	       !strcmp(strchr(dt_listed_result(&p->s, &x.step->n, rx, sizeof(rx)), '['),
		       strchr(dt_listed_result(&p->s, &y.step->n, ry, sizeof(ry)), '['));
}

static bool same_segment(const struct printer *p, int a, int b)
{
	const struct dt_segment *x = &p->s.p->segment[a], *y = &p->s.p->segment[b];

	if (x->n != y->n)
		return false;
	for (int i = 0; i < x->n; i++)
		if (!same_node(p, x->first + i, y->first + i))
			return false;
	return true;
}

/* How often the `period` segments from `at` are repeated directly after, before `end`. */
static int repeats(const struct printer *p, int at, int period, int end)
{
	int i = at + period;

	while (i < end && same_segment(p, i, i - period))
		i++;
	return (i - at) / period - 1;
}

/* "linear qkv", shortened if the name repeats the op: "attention_b", "norm attn". */
static const char *op_text(const struct dt_node *n, char *buf, size_t size)
{
	const char *op = dt_node_op_name(n->op), *last = strrchr(n->name, '_');
	int len = (int)strlen(n->name);

	if (last && !strncmp(op, last + 1, strlen(last + 1)))
		len = (int)(last - n->name);
	if (n->op == DT_OP_ADD || !strncmp(op, n->name, strlen(n->name)))
		snprintf(buf, size, "%s", op);
	else
		snprintf(buf, size, "%s %.*s", op, len, n->name);
	return buf;
}

static void message(struct dt_table *t, const struct dt_node_cost *c)
{
	static const char *const verb[] = {"", "sum", "gather", "scatter", "exchange", "ring"};

	if (c->message)
		dt_table_cell(t, "%s %.2f%s", verb[c->message], c->message_bytes / 1048576,
			      c->begins || c->ends ? "*" : "");
	else
		dt_table_cell(t, "%s", "");
}

static void put_numbers(struct dt_table *t, const struct dt_listed *l)
{
	number(t, l->cost.flops / 1e9);
	mib(t, l->cost.read + l->cost.written);
}

static void put_node(struct printer *p, int step)
{
	struct dt_listed l = dt_list_node(&p->s, step);
	char unit[16], op[48], result[64];

	dt_table_cell(p->t, "%d", step);
	dt_table_cell(p->t, "%s", dt_node_unit_name(&l.step->n, p->r->config->layers, unit, sizeof(unit)));
	dt_table_cell(p->t, "%s", op_text(&l.step->n, op, sizeof(op)));
	dt_table_cell(p->t, "%s", dt_listed_result(&p->s, &l.step->n, result, sizeof(result)));
	put_numbers(p->t, &l);
	message(p->t, &l.cost);
	if (l.step->again)
		dt_table_cell(p->t, "again");
	else
		mib(p->t, l.kept);
}

/* Prints one row for `times` repetitions of `period` segments that end before segment `end`. */
static void put_alike(struct printer *p, int end, int period, int times, const struct dt_listed *block)
{
	const struct dt_segment *seg = p->s.p->segment;
	int a = seg[end - period * times].unit, b = seg[end - 1].unit;
	struct dt_listed all = {0};

	dt_listed_add(&all, block, times);
	dt_table_cell(p->t, "%s", "");
	if (a == b)
		dt_table_cell(p->t, "%d", a);
	else
		dt_table_cell(p->t, "%d-%d", a, b);
	dt_table_cell(p->t, "x %d alike", times);
	dt_table_cell(p->t, "%s", "");
	put_numbers(p->t, &all);
	if (all.cost.message_bytes > 0)
		dt_table_cell(p->t, "%.2f", all.cost.message_bytes / 1048576);
	else
		dt_table_cell(p->t, "%s", "");
	mib(p->t, all.kept);
}

/* Finds the period that folds the most segments from `at`, and how often it repeats; 1 if none does. */
static int find_period(const struct printer *p, int at, int end, int *ret_again)
{
	int best = 1, folded = 0;

	for (int period = 1; period <= PERIOD_MAX && at + 2 * period <= end; period++) {
		int again = repeats(p, at, period, end);

		if (again * period <= folded)
			continue;
		folded = again * period;
		best = period;
	}
	*ret_again = folded / best;
	return best;
}

static const char *label(const struct printer *p, enum dt_list list)
{
	return p->serves && list == DT_LIST_LOSS ? "head" : dt_list_name(list);
}

static void put_list(struct printer *p, enum dt_list list)
{
	const struct dt_prog *prog = p->s.p;
	int end = prog->segment_start[list + 1];

	if (prog->segment_start[list] == end)
		return;
	dt_table_cell(p->t, "%s", "");
	dt_table_cell(p->t, "%s", "");
	dt_table_cell(p->t, "[%s]", label(p, list));
	dt_table_end_row(p->t);
	for (int i = prog->segment_start[list]; i < end;) {
		int again, period = find_period(p, i, end, &again);
		struct dt_listed block = {0};

		for (int k = i; k < i + period; k++)
			for (int j = prog->segment[k].first; j < prog->segment[k].first + prog->segment[k].n;
			     j++) {
				struct dt_listed l = dt_list_node(&p->s, j);

				put_node(p, j);
				dt_listed_add(&block, &l, 1);
			}
		dt_listed_add(&p->sum[list], &block, 1 + again);
		i += period * (1 + again);
		if (again)
			put_alike(p, i, period, again, &block);
	}
}

static void put_sums(struct printer *p)
{
	struct dt_listed all = {0};

	dt_table_end_row(p->t);
	for (int l = 0; l <= DT_LIST_N; l++) {
		const struct dt_listed *s = l < DT_LIST_N ? &p->sum[l] : &all;

		if (s->cost.read == 0)
			continue;
		dt_table_cell(p->t, "%s", "");
		dt_table_cell(p->t, "%s", "");
		dt_table_cell(p->t, "%s",
			      l < DT_LIST_N ? label(p, (enum dt_list)l)
			      : p->serves   ? "pass"
					    : "microbatch");
		dt_table_cell(p->t, "%s", "");
		put_numbers(p->t, s);
		if (s->cost.message_bytes > 0)
			dt_table_cell(p->t, "%.2f", s->cost.message_bytes / 1048576);
		else
			dt_table_cell(p->t, "%s", "");
		mib(p->t, s->kept);
		if (l < DT_LIST_N)
			dt_listed_add(&all, s, 1);
	}
}

/* Prints what is received from and sent to other stages. */
static void print_ends(const struct printer *p, struct dt_coords at, FILE *f)
{
	const struct dt_prog *prog = p->s.p;
	const int value[] = {prog->input, prog->output, prog->grad_in, prog->grad_out};
	int pp = p->r->layout.pp;

	for (int i = 0; i < 4; i++) {
		int other = (at.pp + (i == 1 || i == 2 ? 1 : pp - 1)) % pp;
		char size[32];

		if (value[i] >= 0)
			fprintf(f, "%s %s of %s %s stage %d\n", i % 2 ? "sends" : "receives",
				dt_format_size((uint64_t)dt_cost_bytes(&p->s, value[i]), size, sizeof(size)),
				i < 2 ? "activations" : "gradients", i % 2 ? "to" : "from", other);
	}
}

static void print_peak(const struct dt_memory_plan *plan, const struct dt_run *r, FILE *f)
{
	char peak[32], bound[32], op[48], unit[16];
	const struct dt_node *n;
	int step = plan->peak_step, k = 0;

	fprintf(f, "peak %s in %s", dt_format_size(plan->arena_bytes, peak, sizeof(peak)),
		dt_phase_name(plan->peak));
	if (step >= 0) {
		for (; step >= plan->stage.chunk[k].nstep; k++)
			step -= plan->stage.chunk[k].nstep;
		n = &plan->stage.chunk[k].step[step].n;
		fprintf(f, " at node %d (%s, unit %s)", step, op_text(n, op, sizeof(op)),
			dt_node_unit_name(n, r->config->layers, unit, sizeof(unit)));
	}
	fprintf(f, "\nlower bound of any placement %s\n",
		dt_format_size(plan->bound_bytes, bound, sizeof(bound)));
}

static void print_head(const struct dt_run *r, struct dt_coords at, FILE *f)
{
	char layout[64];

	fprintf(f, "%s, %s, rank %d of %d: stage %d of %d, dp %d, tp %d\n", r->config->name,
		dt_layout_format(&r->layout, layout, sizeof(layout)), dt_layout_rank(&r->layout, at),
		dt_layout_world(&r->layout), at.pp, r->layout.pp, at.dp, at.tp);
	fprintf(f, "one microbatch: %lld x %lld tokens, %s\n", (long long)r->microbatch, (long long)r->seq,
		dt_dtype_name(r->compute));
}

/* Prints the lists of one chunk. */
static void print_chunk(struct printer *p, FILE *f)
{
	p->t = dt_table_new(">#|unit|op|result|>GFLOP|>MiB|>message|>kept");
	for (int l = 0; l < DT_LIST_N; l++)
		put_list(p, (enum dt_list)l);
	put_sums(p);
	dt_table_print(p->t, f);
	dt_table_free(p->t);
}

void dt_listing_print(const struct dt_memory_plan *plan, const struct dt_run *r, struct dt_coords at, FILE *f)
{
	double model = 0;

	print_head(r, at, f);
	for (int k = 0; k < plan->stage.nchunk; k++) {
		struct printer p = {.plan = plan, .r = r, .s = dt_stage_site(&plan->stage, r, k)};

		fprintf(f, "\nchunk %d, microbatches in flight: %d\n", k, plan->slots[k]);
		print_chunk(&p, f);
		print_ends(&p, at, f);
		for (int l = 0; l < DT_LIST_N; l++)
			model += p.sum[l].cost.model_flops;
	}
	fprintf(f, "\nmodel flops of the rank (MFU) %.2f GFLOP\n", model / 1e9);
	print_peak(plan, r, f);
}

int dt_listing_print_serving(const struct dt_memory_plan *plan, const struct dt_work_serving *s,
			     const struct dt_work_serving *decoding, FILE *f, struct dt_err *err)
{
	const struct dt_run r = {.config = s->config, .compute = s->compute};
	struct printer p = {.plan = plan, .r = &r, .s = dt_serving_site(s, &plan->stage), .serves = true};
	struct dt_work w;
	int rc = dt_work_open_serving(decoding, &w, err);

	if (rc == 0) {
		fprintf(f, "%s: one prompt of %lld tokens, %lld rows of logits, %s, weights of %g bits",
			s->config->name, (long long)s->rows, (long long)s->outputs, dt_dtype_name(s->compute),
			s->weight_bits);
		fprintf(f, s->tp > 1 ? ", the first of tp%d\n\n" : "\n\n", s->tp);
		print_chunk(&p, f);
		print_peak(plan, &r, f);
		fprintf(f, "decoding %lld sequences, %lld keys each: %.2f GFLOP, %.1f MiB\n",
			(long long)decoding->rows, (long long)decoding->context, w.sum.flops / 1e9,
			w.sum.bytes / 1048576);
	}
	dt_work_release(&w);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
