/*
 * Programs whose stream is gathered and scattered beside products: the nodes are those of the program in
 * turn, nothing touches what is under way, every message of a layer has a product beside it, and the step
 * time counts what is left where messages leave the machine.
 */
#include "plan/steptime.h"

#include "plan/memory.h"

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
			   .optim.kind = DT_OPTIM_ADAMW,
			   .pipeline = DT_PIPE_1F1B};

	assert_int_equal(dt_config_find_preset(model, c), 0);
	assert_int_equal(dt_layout_parse(layout, &r.layout, NULL), 0);
	return r;
}

/* The step without what marks it as one beside a message. */
static struct dt_node plain(const struct dt_step *s)
{
	struct dt_node n = s->n;

	if (n.attr.parts)
		n.in[DT_NODE_IN - 1] = -1;
	if (n.attr.sends)
		n.out[DT_NODE_OUT - 1] = -1;
	if (n.op == DT_OP_LEAVE)
		n.in[1] = -1;
	return n;
}

static bool same(const struct dt_step *a, const struct dt_step *b)
{
	const struct dt_node n = plain(b);

	return a->list == b->list && a->again == b->again && a->n.op == n.op && a->n.unit == n.unit &&
	       !strcmp(a->n.name, n.name) && !memcmp(a->n.in, n.in, sizeof(n.in)) &&
	       !memcmp(a->n.out, n.out, sizeof(n.out)) && !memcmp(a->n.param, n.param, sizeof(n.param));
}

static bool reads(const struct dt_node *n, int v)
{
	for (int k = 0; k < DT_NODE_IN; k++)
		if (v >= 0 && n->in[k] == v)
			return true;
	return false;
}

static bool writes(const struct dt_prog *p, const struct dt_node *n, int v)
{
	for (int k = 0; k < DT_NODE_OUT; k++)
		if (n->out[k] >= 0 && dt_value_root(p, n->out[k]) == dt_value_root(p, v))
			return true;
	return false;
}

/* Every step of the program in turn once, behind what makes its operands. */
static void same_nodes(const struct dt_prog *turn, const struct dt_prog *p)
{
	bool *met = calloc((size_t)turn->nstep, sizeof(*met)),
	     *made = calloc((size_t)p->nvalue + 1, sizeof(*made));
	int waits = 0;

	for (int i = 0; i < p->nstep; i++) {
		const struct dt_step *s = &p->step[i];
		int j = 0;

		for (int k = 0; k < DT_NODE_IN; k++)
			assert_true(s->n.in[k] < 0 || made[s->n.in[k]] || s->n.in[k] == p->input ||
				    s->n.in[k] == p->grad_in);
		for (int k = 0; k < DT_NODE_OUT; k++)
			if (s->n.out[k] >= 0)
				made[s->n.out[k]] = true;
		waits += s->n.op == DT_OP_ENTER_WAIT;
		if (s->n.op == DT_OP_ENTER_WAIT)
			continue;
		while (j < turn->nstep && (met[j] || !same(&turn->step[j], s)))
			j++;
		if (j == turn->nstep)
			fail_msg("node %d, %s '%s', is not in the program in turn", i,
				 dt_node_op_name(s->n.op), s->n.name);
		met[j] = true;
	}
	assert_int_equal(p->nstep - waits, turn->nstep);
	free(met);
	free(made);
}

/* Until a product or a node waits for the gather, nobody reads what comes or writes over what is sent. */
static void look_at_gather(const struct dt_prog *p, int begin)
{
	const struct dt_node *g = &p->step[begin].n;

	for (int i = begin + 1; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;

		assert_int_equal(p->step[i].list, p->step[begin].list);
		assert_int_equal(n->unit, g->unit);
		assert_false(writes(p, n, g->in[0]));
		if ((n->op == DT_OP_ENTER_WAIT && n->in[1] == g->out[0]) ||
		    (n->attr.parts && n->in[0] == g->out[0])) {
			assert_true(p->value[dt_value_root(p, g->in[0])].last >= i);
			return;
		}
		assert_false(reads(n, g->out[0]));
		assert_false(writes(p, n, g->out[0]));
	}
	fail_msg("nobody waits for the gather of node %d", begin);
}

/* Until the sum, nobody reads or writes what is sent, or writes where others' comes. */
static void look_at_sum(const struct dt_prog *p, int begin)
{
	const struct dt_node *m = &p->step[begin].n;
	const int came = m->out[DT_NODE_OUT - 1];

	assert_true(came >= 0 && !m->attr.parts);
	for (int i = begin + 1; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;

		assert_int_equal(n->unit, m->unit);
		if (n->op == DT_OP_LEAVE && n->in[1] == came) {
			assert_int_equal(n->in[0], m->out[0]);
			assert_int_equal(dt_value_numel(p, came),
					 (dt_value_numel(p, m->out[0]) - dt_value_numel(p, n->out[0])));
			assert_int_equal(p->value[came].last, i);
			return;
		}
		assert_false(n->op == DT_OP_LEAVE && n->in[1] >= 0); /* one at a time */
		assert_false(reads(n, m->out[0]) || writes(p, n, m->out[0]) || writes(p, n, came));
	}
	fail_msg("nobody adds up what node %d sends", begin);
}

/* Messages of layers, and of these such with a product beside them. */
static void look(const struct dt_prog *p, int layers, int *ret_all, int *ret_beside)
{
	*ret_all = *ret_beside = 0;
	for (int i = 0; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;

		if (n->op == DT_OP_ENTER && n->attr.begins)
			look_at_gather(p, i);
		if (n->attr.sends)
			look_at_sum(p, i);
		if ((n->op != DT_OP_ENTER && n->op != DT_OP_LEAVE) || n->unit < 0 || n->unit >= layers)
			continue;
		++*ret_all;
		*ret_beside += n->op == DT_OP_ENTER ? n->attr.begins : n->in[1] >= 0;
	}
}

static void test_programs(void **state)
{
	static const struct {
		const char *model, *layout;
		enum dt_recompute recompute;
		enum dt_pipeline pipeline;
		bool all; /* every message of a layer has something beside it */
	} cases[] = {
		{"llama-3.2-1b", "tp2.s1", DT_RECOMPUTE_NONE, DT_PIPE_1F1B, true},
		{"llama-3.2-1b", "dp2.tp4.s1.z3", DT_RECOMPUTE_SELECTIVE, DT_PIPE_1F1B, true},
		{"gpt2-124m", "tp4.s1", DT_RECOMPUTE_FULL, DT_PIPE_1F1B, true},
		{"gpt2-124m", "tp2.pp2.s1", DT_RECOMPUTE_NONE, DT_PIPE_ZB_H1, false},
		{"llama-3.2-1b", "tp2.pp2.s1", DT_RECOMPUTE_FULL, DT_PIPE_ZB_H1, false},
		{"deepseek-v2-lite", "dp2.tp2.ep2.s1", DT_RECOMPUTE_SELECTIVE, DT_PIPE_1F1B, false},
		{"mixtral-8x7b", "tp2.s1", DT_RECOMPUTE_NONE, DT_PIPE_1F1B, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct dt_config c;
		struct dt_run r = run_of(cases[i].model, cases[i].layout, &c);
		struct dt_stage turn, s;
		int all, beside;

		r.recompute.mode = cases[i].recompute;
		r.recompute.every = 1;
		r.pipeline = cases[i].pipeline;
		assert_int_equal(dt_stage_build(&r, (struct dt_coords){0}, &s, NULL), 0);
		r.stream_overlap = DT_RUN_OVERLAP_OFF;
		assert_int_equal(dt_stage_build(&r, (struct dt_coords){0}, &turn, NULL), 0);
		same_nodes(&turn.chunk[0], &s.chunk[0]);
		look(&turn.chunk[0], (int)c.layers, &all, &beside);
		assert_true(all > 0 && beside == 0);
		look(&s.chunk[0], (int)c.layers, &all, &beside);
		print_message("%s %s: %d of %d messages beside products\n", cases[i].model, cases[i].layout,
			      beside, all);
		assert_true(cases[i].all ? beside == all : beside > 0);
		dt_stage_release(&turn);
		dt_stage_release(&s);
	}
}

static double tp_seconds(const struct dt_cluster *d, struct dt_run r, enum dt_run_overlap how)
{
	struct dt_step_time t;

	r.stream_overlap = how;
	assert_int_equal(dt_step_time(d, &r, &dt_stack_dt, &t, NULL), 0);
	return t.tp;
}

/* Between machines what products hide is not counted; in one memory, and on a card, it is. */
static void test_step_time(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("llama-3.2-1b", "tp2.s1", &c);
	struct dt_cluster d;
	double turn, beside;

	r.seq = 4096;
	assert_int_equal(dt_cluster_device("cpu", &d, NULL), 0);
	d.gpus = 2;
	for (int node = 1; node <= 2; node++) {
		d.gpus_a_node = node;
		turn = tp_seconds(&d, r, DT_RUN_OVERLAP_OFF);
		beside = tp_seconds(&d, r, DT_RUN_OVERLAP_ON);
		print_message("%d a machine: %.4f s in turn, %.4f s waited for beside products\n", node, turn,
			      beside);
		assert_true(turn > 0);
		assert_true(node == 1 ? beside < 0.5 * turn : beside == turn);
	}
	assert_int_equal(dt_cluster_device("H100", &d, NULL), 0);
	assert_true(tp_seconds(&d, r, DT_RUN_OVERLAP_ON) == tp_seconds(&d, r, DT_RUN_OVERLAP_OFF));
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
