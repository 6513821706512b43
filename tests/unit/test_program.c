/*
 * Programs and their memory: no two buffers that are alive at the same time overlap, in any layout and
 * recomputation mode, checked against every lifetime one by one; placement against its lower bound; and that
 * every trained parameter gets its gradient as often as it is used.
 */
#include "plan/memory.h"
#include "plan/place.h"

#include "base/arena.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void config(const char *name, struct dt_config *c)
{
	struct dt_err err = {0};

	if (dt_config_load(name, c, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
}

struct alive { /* a value and its address, for one microbatch in flight */
	uint64_t from, to;
	int first, last;
	int chunk, value, slot;
};

/* An offloaded value lives twice: up to the end of the segment behind which it leaves, and from that it is
 * back for. */
static int leave(const struct dt_memory_plan *m, struct alive *a, struct alive *again)
{
	for (int i = 0; i < m->naway; i++) {
		const struct dt_segment *s = m->stage.chunk[0].segment;
		const struct dt_away *w = &m->away[i];

		if (w->value != a->value)
			continue;
		*again = *a;
		a->last = s[w->out].first + s[w->out].n - 1;
		again->first = s[w->in].first;
		assert_true(a->last < again->first);
		return 1;
	}
	return 0;
}

/* Every value of every flight, with the time it lives: kept ones of several flights all the while. */
static int list_alive(const struct dt_memory_plan *m, struct alive *out)
{
	bool single = m->stage.nchunk == 1 && m->slots[0] == 1;
	int n = 0, start = 0;

	for (int k = 0; k < m->stage.nchunk; k++) {
		const struct dt_prog *p = &m->stage.chunk[k];

		for (int v = 0; v < p->nvalue; v++) {
			const struct dt_value *x = &p->value[v];
			int slots = x->life == DT_LIFE_NODE ? 1 : m->slots[k];

			if (x->def < 0 || x->over >= 0)
				continue;
			for (int s = 0; s < slots; s++) {
				uint64_t at = dt_memory_value(m, k, s, v);

				out[n++] = (struct alive){at,
							  at + dt_align_up((uint64_t)dt_value_numel(p, v) *
									   (uint64_t)dt_dtype_size(x->dtype)),
							  single    ? x->def
							  : x->life ? 0
								    : start + x->def,
							  single    ? x->last
							  : x->life ? 1 << 30
								    : start + x->last,
							  k,
							  v,
							  s};
				n += leave(m, &out[n - 1], &out[n]);
			}
		}
		start += p->nstep;
	}
	return n;
}

static void check_overlaps(const struct dt_memory_plan *m, const char *what)
{
	struct alive *a;
	int n = 0;

	for (int k = 0; k < m->stage.nchunk; k++)
		n += m->stage.chunk[k].nvalue * m->slots[k];
	a = malloc((size_t)(2 * n + 1) * sizeof(*a));
	n = list_alive(m, a);
	assert_true(n > 10);
	for (int i = 0; i < n; i++) {
		if (a[i].to > m->arena_bytes)
			fail_msg("%s: '%s' ends behind the arena", what,
				 m->stage.chunk[a[i].chunk].value[a[i].value].name);
		for (int j = i + 1; j < n; j++)
			if (a[i].from < a[j].to && a[j].from < a[i].to && a[i].first <= a[j].last &&
			    a[j].first <= a[i].last)
				fail_msg("%s: values %d '%s' (%d-%d) and %d '%s' (%d-%d) overlap", what,
					 a[i].value, m->stage.chunk[a[i].chunk].value[a[i].value].name,
					 a[i].first, a[i].last, a[j].value,
					 m->stage.chunk[a[j].chunk].value[a[j].value].name, a[j].first,
					 a[j].last);
	}
	/* the rank's own buffers lie apart from all values they live beside */
	for (int i = 0; i < m->n; i++) {
		const struct dt_buf *b = &m->buf[i];

		if (b->id == DT_B_VALUE || b->first == DT_PH_STEP || b->place)
			continue;
		for (int j = 0; j < n; j++)
			if (b->offset < a[j].to && a[j].from < b->offset + b->bytes)
				fail_msg("%s: '%s' overlaps value %d", what, b->name, a[j].value);
	}
	free(a);
}

/*
 * Results of a node that are written over an operand have it, and all that had its memory before, dead behind
 * the node. The memory is found in one step, however many layers write over it.
 */
static void check_overs(const struct dt_prog *p, const char *what)
{
	for (int v = 0; v < p->nvalue; v++) {
		if (p->value[v].over >= 0 && p->value[p->value[v].over].over >= 0)
			fail_msg("%s: value %d is written over %d, which is written over another", what, v,
				 p->value[v].over);
		for (int i = p->value[v].def; p->value[v].over >= 0 && i < p->nstep; i++)
			for (int k = 0; k < DT_NODE_IN; k++) {
				int in = p->step[i].n.in[k];

				if (i > p->value[v].def && in >= 0 && p->value[in].def < p->value[v].def &&
				    dt_value_root(p, in) == p->value[v].over)
					fail_msg("%s: value %d is read after it was written over", what, in);
			}
	}
}

static void one(const char *model, struct dt_layout l, struct dt_keep keep, enum dt_pipeline pipe, bool fp8,
		int accumulation)
{
	struct dt_memory_plan m;
	struct dt_err err = {0};
	struct dt_config c;
	char what[200], layout[64];

	config(model, &c);
	for (int pp = 0; pp < l.pp; pp++)
		for (int tp = 0; tp<l.tp; tp += l.tp> 1 ? l.tp - 1 : 1) {
			struct dt_run r = {.config = &c,
					   .layout = l,
					   .pipeline = pipe,
					   .microbatch = 2,
					   .seq = 64,
					   .accumulation = accumulation,
					   .compute = DT_BF16,
					   .fp8 = fp8,
					   .recompute = keep};

			snprintf(what, sizeof(what), "%s %s stage %d keep %d every %d", model,
				 dt_layout_format(&l, layout, sizeof(layout)), pp, keep.mode, keep.every);
			if (dt_memory_plan(&r, (struct dt_coords){.pp = pp, .tp = tp}, &m, &err) < 0)
				fail_msg("%s: %s", what, err.msg);
			assert_true(m.arena_bytes >= m.bound_bytes);
			if (m.arena_bytes > m.bound_bytes + m.bound_bytes / 50)
				fail_msg("%s: %llu bytes where %llu are the least", what,
					 (unsigned long long)m.arena_bytes,
					 (unsigned long long)m.bound_bytes);
			check_overlaps(&m, what);
			for (int k = 0; k < m.stage.nchunk; k++)
				check_overs(&m.stage.chunk[k], what);
			dt_memory_plan_release(&m);
		}
}

static void test_no_overlap(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "qwen3-8b"};
	static const struct dt_keep keeps[] = {{DT_RECOMPUTE_NONE, 1},
					       {DT_RECOMPUTE_SELECTIVE, 1},
					       {DT_RECOMPUTE_FULL, 1},
					       {DT_RECOMPUTE_FULL, 3}};
	const struct dt_layout l[] = {
		{.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
		{.dp = 2, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .zero = 3},
		{.dp = 1, .tp = 4, .pp = 1, .cp = 1, .ep = 1, .seq_parallel = true},
		{.dp = 1, .tp = 2, .pp = 4, .cp = 1, .ep = 1},
		{.dp = 1, .tp = 1, .pp = 2, .cp = 1, .ep = 1, .chunks = 2},
	};

	for (size_t m = 0; m < 3; m++)
		for (size_t k = 0; k < 4; k++)
			for (size_t i = 0; i < sizeof(l) / sizeof(*l); i++)
				one(models[m], l[i], keeps[k],
				    l[i].chunks > 1 ? DT_PIPE_INTERLEAVED : DT_PIPE_1F1B, i == 0, 4);
	for (size_t k = 0; k < 2; k++)
		one("llama-2-7b", l[3], keeps[k], DT_PIPE_ZB_H1, true, 4);
}

/* States and activations in files: nothing overlaps, and what left is no longer in the arena. */
static void test_offloaded(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b"};
	const struct dt_layout l[] = {{.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
				      {.dp = 1, .tp = 4, .pp = 1, .cp = 1, .ep = 1, .seq_parallel = true}};

	for (int i = 0; i < 8; i++) {
		struct dt_memory_plan with, without;
		struct dt_config c;
		struct dt_err err = {0};
		struct dt_run r = {.config = &c,
				   .layout = l[i % 2],
				   .microbatch = 2,
				   .seq = 64,
				   .accumulation = 1,
				   .compute = DT_BF16,
				   .optim.kind = DT_OPTIM_ADAMW,
				   .recompute = {i & 4 ? DT_RECOMPUTE_FULL : DT_RECOMPUTE_NONE, 1}};

		config(models[i / 2 % 2], &c);
		assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &without, &err), 0);
		assert_int_equal(without.place_bytes[DT_PLACE_DISK], 0);
		r.offload = (struct dt_run_offload){.what = DT_OFFLOAD_OPTIMIZER | DT_OFFLOAD_ACTIVATIONS,
						    .to = DT_PLACE_DISK,
						    .fraction = 1};
		if (dt_memory_plan(&r, (struct dt_coords){0}, &with, &err) < 0)
			fail_msg("%s: %s", models[i / 2 % 2], err.msg);
		check_overlaps(&with, models[i / 2 % 2]);
		/* masters and two moments, in whole tiles, and values of most layers */
		assert_true(with.naway >= c.layers / 2);
		assert_true(with.place_bytes[DT_PLACE_DISK] >=
			    12 * (uint64_t)with.stage.local.trained + with.away_bytes);
		assert_true(with.place_bytes[DT_PLACE_DISK] <
			    12 * (uint64_t)with.stage.local.trained + with.away_bytes + (7u << 20));
		/* of a small microbatch what passes through takes more than what has left */
		assert_true(with.arena_bytes + 12 * (uint64_t)with.stage.local.trained <=
			    without.arena_bytes + DT_AWAY_RING * with.away_most + (96u << 20));
		dt_memory_plan_release(&with);
		dt_memory_plan_release(&without);
	}
}

/* Gradients: each trained parameter of the chunk has a node that gives it one. */
static void test_every_parameter_has_a_gradient(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "qwen3-8b", "mistral-7b"};

	for (size_t k = 0; k < sizeof(models) / sizeof(*models); k++) {
		struct dt_config c;
		struct dt_stage s;
		struct dt_err err = {0};
		struct dt_run r = {.config = &c,
				   .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
				   .microbatch = 1,
				   .seq = 32,
				   .compute = DT_F32,
				   .recompute = {DT_RECOMPUTE_SELECTIVE, 1}};
		int *seen;

		config(models[k], &c);
		assert_int_equal(dt_stage_build(&r, (struct dt_coords){0}, &s, &err), 0);
		seen = calloc((size_t)s.local.n, sizeof(*seen));
		for (int i = s.chunk[0].start[DT_LIST_LOSS]; i < s.chunk[0].nstep; i++) {
			const struct dt_node *n = &s.chunk[0].step[i].n;
			bool gives = n->op == DT_OP_DW || n->op == DT_OP_COLSUM || n->op == DT_OP_NORM_B ||
				     n->op == DT_OP_HEADS_NORM_B || n->op == DT_OP_EMBED_B ||
				     n->op == DT_OP_LOSS;

			for (int j = 0; gives && j < DT_NODE_PARAM; j++)
				if (n->param[j] >= 0)
					seen[n->param[j]]++;
		}
		for (int i = 0; i < s.local.n; i++) {
			const struct dt_param *p = &s.graph.params.p[s.local.p[i].index];

			if (seen[i] != 1 + (c.tied && p->role == DT_W_EMBED))
				fail_msg("%s: '%s' gets %d gradients", models[k], p->name, seen[i]);
		}
		free(seen);
		dt_stage_release(&s);
	}
}

/* Random lifetimes: never an overlap, never below the bound, and near it. */
static void test_place(void **state)
{
	struct dt_rng rng = dt_rng_make(7, DT_RNG_INIT, 1);
	double worst = 1;
	uint64_t at = 0;

	for (int round = 0; round < 200; round++) {
		struct dt_item item[60];
		uint64_t bytes, bound;
		int n = 1 + (int)(dt_rng_u32(&rng, at++) % 60);

		for (int i = 0; i < n; i++) {
			int first = (int)(dt_rng_u32(&rng, at++) % 100);
			int last = first + (int)(dt_rng_u32(&rng, at++) % 30);

			item[i] = (struct dt_item){.bytes = 64 * (1 + dt_rng_u32(&rng, at++) % 50),
						   .span = {{first, last}},
						   .nspan = 1};
		}
		assert_int_equal(dt_place_items(item, n, &bytes, &bound), 0);
		assert_true(bytes >= bound);
		worst = (double)bytes / (double)bound > worst ? (double)bytes / (double)bound : worst;
		for (int i = 0; i < n; i++)
			for (int k = 0; k < i; k++)
				assert_false(item[i].offset < item[k].offset + item[k].bytes &&
					     item[k].offset < item[i].offset + item[i].bytes &&
					     item[i].span[0].first <= item[k].span[0].last &&
					     item[k].span[0].first <= item[i].span[0].last);
	}
	print_message("largest arena over its bound: %.3f\n", worst);
	assert_true(worst < 1.25);
	assert_int_equal(dt_place_items(&(struct dt_item){.bytes = 64}, 1, &at, &at), -22);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_overlap),
		cmocka_unit_test(test_offloaded),
		cmocka_unit_test(test_every_parameter_has_a_gradient),
		cmocka_unit_test(test_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
