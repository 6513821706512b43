/*
 * Programs whose experts' rows are exchanged while something else is computed: the nodes are those of the
 * program in turn and each reads what it read there, nothing touches rows under way, what can stand beside an
 * exchange does, and the step time counts what is left of the message.
 */
#include "plan/steptime.h"

#include "plan/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_run run_of(const char *model, const char *layout, struct dt_config *c)
{
	struct dt_run r = {.config = c,
			   .microbatch = 1,
			   .accumulation = 4,
			   .seq = 64,
			   .compute = DT_BF16,
			   .stream_overlap = DT_RUN_OVERLAP_OFF,
			   .optim.kind = DT_OPTIM_ADAMW,
			   .pipeline = DT_PIPE_1F1B};

	assert_int_equal(dt_config_find_preset(model, c), 0);
	assert_int_equal(dt_layout_parse(layout, &r.layout, NULL), 0);
	return r;
}

/* The step of q that makes value v; -1: none does. */
static int maker(const struct dt_prog *q, int v)
{
	for (int i = 0; i < q->nstep; i++)
		for (int k = 0; k < DT_NODE_OUT; k++)
			if (q->step[i].n.out[k] == v)
				return i;
	return -1;
}

static bool same(const struct dt_step *a, const struct dt_step *b)
{
	return a->list == b->list && a->again == b->again && a->n.op == b->n.op && a->n.unit == b->n.unit &&
	       !strcmp(a->n.name, b->n.name) && !memcmp(a->n.in, b->n.in, sizeof(a->n.in)) &&
	       !memcmp(a->n.out, b->n.out, sizeof(a->n.out)) &&
	       !memcmp(a->n.param, b->n.param, sizeof(a->n.param));
}

/* Every step of `turn` once, with the operands it has there, behind what makes them. */
static void same_nodes(const struct dt_prog *turn, const struct dt_prog *p)
{
	bool *met = calloc((size_t)turn->nstep, sizeof(*met));
	int waits = 0;

	for (int i = 0; i < p->nstep; i++) {
		const struct dt_step s = p->step[i];
		int j = 0;

		for (int k = 0; k < DT_NODE_IN; k++)
			if (s.n.in[k] >= 0)
				assert_true(maker(p, s.n.in[k]) < i);
		waits += s.n.op == DT_OP_EXCHANGE_WAIT;
		if (s.n.op == DT_OP_EXCHANGE_WAIT)
			continue;
		while (j < turn->nstep && (met[j] || !same(&turn->step[j], &s)))
			j++;
		if (j == turn->nstep)
			fail_msg("node %d, %s '%s', is not in the program in turn", i,
				 dt_node_op_name(s.n.op), s.n.name);
		met[j] = true;
	}
	assert_int_equal(p->nstep - waits, turn->nstep);
	free(met);
}

/* Between the beginning of an exchange and its wait; returns the products there. */
static int look_between(const struct dt_prog *p, int begin, int wait)
{
	const struct dt_node *n = &p->step[begin].n;
	int products = 0;

	assert_true(p->value[n->in[0]].last >= wait);
	for (int i = begin + 1; i < wait; i++) {
		const struct dt_node *m = &p->step[i].n;

		assert_int_equal(m->unit, n->unit);
		assert_int_equal(p->step[i].list, p->step[begin].list);
		assert_true(m->op != DT_OP_EXCHANGE && m->op != DT_OP_EXCHANGE_WAIT);
		for (int k = 0; k < DT_NODE_IN; k++)
			assert_true(m->in[k] < 0 || m->in[k] != n->out[0]);
		for (int k = 0; k < DT_NODE_OUT; k++)
			assert_true(m->out[k] < 0 ||
				    dt_value_root(p, m->out[k]) != dt_value_root(p, n->in[0]));
		products += m->param[0] >= 0;
	}
	return products;
}

/* Exchanges of a list that have products beside them; each that has begun is waited for. */
static int beside(const struct dt_prog *p, enum dt_list list, int *ret_exchanges)
{
	int n = 0;

	*ret_exchanges = 0;
	for (int i = p->start[list]; i < p->start[list + 1]; i++) {
		int wait = i + 1;

		if (p->step[i].n.op != DT_OP_EXCHANGE)
			continue;
		++*ret_exchanges;
		if (!p->step[i].n.attr.begins)
			continue;
		while (wait < p->start[list + 1] && p->step[wait].n.op != DT_OP_EXCHANGE_WAIT)
			wait++;
		assert_true(wait < p->start[list + 1]);
		assert_int_equal(p->step[wait].n.in[1], p->step[i].n.out[0]);
		n += look_between(p, i, wait) > 0;
	}
	return n;
}

static void test_programs(void **state)
{
	static const struct {
		const char *model, *layout;
		enum dt_recompute recompute;
		enum dt_pipeline pipeline;
	} cases[] = {
		{"deepseek-v2-lite", "dp2.ep2", DT_RECOMPUTE_NONE, DT_PIPE_1F1B},
		{"deepseek-v2-lite", "dp2.tp2.ep2.s1", DT_RECOMPUTE_SELECTIVE, DT_PIPE_1F1B},
		{"deepseek-v2-lite", "dp4.ep4.z3", DT_RECOMPUTE_FULL, DT_PIPE_1F1B},
		{"deepseek-v2-lite", "dp2.pp2.ep2", DT_RECOMPUTE_FULL, DT_PIPE_ZB_H1},
		{"mixtral-8x7b", "dp2.ep2", DT_RECOMPUTE_NONE, DT_PIPE_1F1B},
		{"mixtral-8x7b", "dp2.tp2.ep2", DT_RECOMPUTE_SELECTIVE, DT_PIPE_1F1B},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct dt_config c;
		struct dt_run r = run_of(cases[i].model, cases[i].layout, &c);
		struct dt_stage turn, s;
		bool shared = c.shared_ffn > 0, apart = cases[i].pipeline == DT_PIPE_ZB_H1;
		int n, all;

		r.recompute.mode = cases[i].recompute;
		r.recompute.every = 1;
		r.pipeline = cases[i].pipeline;
		assert_int_equal(dt_stage_build(&r, (struct dt_coords){0}, &s, NULL), 0);
		r.mixture.in_turn = true;
		assert_int_equal(dt_stage_build(&r, (struct dt_coords){0}, &turn, NULL), 0);
		same_nodes(&turn.chunk[0], &s.chunk[0]);
		n = beside(&turn.chunk[0], DT_LIST_FORWARD, &all);
		assert_true(n == 0 && all > 0);
		n = beside(&s.chunk[0], DT_LIST_FORWARD, &all);
		assert_int_equal(n, shared ? all : 0); /* one product of the shared expert beside each */
		n = beside(&s.chunk[0], DT_LIST_BACKWARD, &all);
		assert_true(all > 0);
		assert_true(shared ? n == all : apart ? n == 0 : n > 0); /* experts' weight gradients */
		dt_stage_release(&turn);
		dt_stage_release(&s);
	}
}

/* What a card computes meanwhile is not waited for; cores that compute move the rows themselves. */
static void test_step_time(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("deepseek-v2-lite", "dp8.ep8", &c), turn;
	struct dt_step_time with, without;
	struct dt_cluster d;

	r.seq = 4096;
	turn = r;
	turn.mixture.in_turn = true;
	assert_int_equal(dt_cluster_device("H100", &d, NULL), 0);
	assert_int_equal(dt_step_time(&d, &r, &dt_stack_dt, &with, NULL), 0);
	assert_int_equal(dt_step_time(&d, &turn, &dt_stack_dt, &without, NULL), 0);
	print_message("exchanges: %.4f s in turn, %.4f s waited for beside the shared expert\n", without.ep,
		      with.ep);
	assert_true(with.ep < 0.9 * without.ep);
	assert_true(with.ep >= 0);
	assert_true(fabs(with.matmul + with.memory + with.attention -
			 (without.matmul + without.memory + without.attention)) < 1e-12);
	assert_true(with.step < without.step);
	d.cores = 64;
	assert_int_equal(dt_step_time(&d, &r, &dt_stack_dt, &with, NULL), 0);
	assert_int_equal(dt_step_time(&d, &turn, &dt_stack_dt, &without, NULL), 0);
	assert_true(with.ep > 0 && with.ep == without.ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_step_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
