/* The layout string, placement of ranks, stages, and each rank's share of the parameters. */
#include "model/flops.h"
#include "plan/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_layout parsed(const char *s)
{
	struct dt_layout l;
	struct dt_err err = {0};

	if (dt_layout_parse(s, &l, &err) < 0)
		fail_msg("'%s': %s", s, err.msg);
	return l;
}

static void parse_and_format(void **state)
{
	static const char *const same[][2] = {
		{"", "dp1"},
		{"dp1", "dp1"},
		{"tp1.pp1", "dp1"},
		{"z1", "z1"},
		{"dp8.z3", "dp8.z3"},
		{"z1.tp4.pp2.dp2", "dp2.tp4.pp2.z1"},
		{"s1.tp2", "tp2.s1"},
		{"s0.tp2", "tp2"},
		{"cp2.ep2", "cp2.ep2"},
		{"dp002", "dp2"},
		{"dp4.ep2", "dp4.ep2"},
		{"v2.pp4", "pp4.v2"},
		{"dp65536.tp16", "dp65536.tp16"},
	};
	struct dt_layout l;
	char buf[80], tiny[4];

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		l = parsed(same[i][0]);
		assert_string_equal(dt_layout_format(&l, buf, sizeof(buf)), same[i][1]);
	}
	l = parsed("tp2.ep4"); /* of four ranks that ep divides */
	assert_true(l.dp == 4 && l.ep == 4 && dt_layout_world(&l) == 8);
	l = parsed("dp2.tp4.pp3.cp5.z2.s1");
	assert_true(l.dp == 2 && l.tp == 4 && l.pp == 3 && l.cp == 5 && l.ep == 1 && l.zero == 2);
	assert_true(l.seq_parallel);
	assert_int_equal(dt_layout_world(&l), 120);
	dt_layout_format(&l, tiny, sizeof(tiny));
	assert_int_equal(tiny[3], '\0');
}

static void bad_strings_are_refused(void **state)
{
	static const char *const bad[][2] = {
		{"dp0", "'dp0' is out of range"},
		{"dp-1", "'dp-1'"},
		{"xx2", "unknown axis 'xx2'"},
		{"dp2.dp4", "'dp' is given twice"},
		{"dp2.", "an axis is missing"},
		{".", "an axis is missing"},
		{"dp2..tp2", "is missing"},
		{"dp", "'dp' has no size"},
		{"2", "unknown axis '2'"},
		{"dp2x", "'dp2x'"},
		{"dp 2", "'dp 2'"},
		{" dp2", "unknown axis"},
		{"DP2", "unknown axis 'DP2'"},
		{"z4", "'z4' is out of range (0 to 3)"},
		{"s2", "out of range (0 to 1)"},
		{"dp99999999999999999999", "out of range"},
		{"dp65536.tp65536", "1048576"},
		{"dp65536.tp65536.pp65536.cp65536", "1048576"},
		{"dp2,tp2", "'dp2,tp2'"},
		{"dp4.ep3", "does not divide"},
		{"tp65536.ep17", "more than"},
		{"d2", "unknown axis 'd2'"},
		{"v0", "out of range"},
		{"dpp2", "unknown axis"},
		{"dp2\n", "whole number"},
		{"dp1e1", "whole number"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dt_layout l, before;
		struct dt_err err = {0};

		memset(&l, 0x5a, sizeof(l));
		before = l;
		if (dt_layout_parse(bad[i][0], &l, &err) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i][0]);
		if (!strstr(err.msg, bad[i][1]))
			fail_msg("'%s' is not in: %s", bad[i][1], err.msg);
		assert_non_null(strstr(err.hint, "dt-layout(7)"));
		assert_memory_equal(&l, &before, sizeof(l));
	}
}

static void placement(void **state)
{
	struct dt_layout l = parsed("dp2.tp3.pp5.cp4");
	struct dt_coords c;
	int rank = 0;

	for (c.pp = 0; c.pp < 5; c.pp++)
		for (c.dp = 0; c.dp < 2; c.dp++)
			for (c.cp = 0; c.cp < 4; c.cp++)
				for (c.tp = 0; c.tp < 3; c.tp++, rank++) {
					struct dt_coords back = dt_layout_coords(&l, rank);

					assert_int_equal(dt_layout_rank(&l, c), rank);
					assert_memory_equal(&back, &c, sizeof(c));
				}
	assert_int_equal(rank, dt_layout_world(&l));
}

/* Every token is on one rank, and every rank has as many pairs of a query and a key as the others. */
static void zigzag_is_balanced(void **state)
{
	for (int n = 1; n <= 5; n++)
		for (int64_t c = 1; c <= 7; c++) {
			int64_t seq = 2 * n * c, pairs[5] = {0}, seen = 0;
			bool had[80] = {false};

			for (int r = 0; r < n; r++)
				for (int64_t i = 0, before = -1; i < seq / n; i++) {
					int64_t at = dt_zigzag(seq, n, r, i);

					assert_true(at > before && at < seq && !had[at]);
					had[at] = true;
					before = at;
					pairs[r] += at + 1;
					seen++;
				}
			assert_int_equal(seen, seq);
			for (int r = 0; r < n; r++)
				assert_int_equal(pairs[r] * n, seq * (seq + 1) / 2);
		}
}

/* dp3.cp2: the data index is dp * 2 + cp; ep2 takes pairs of it, ep3 three in a row across dp. */
static void groups(void **state)
{
	static const struct {
		const char *layout;
		int rank;
		unsigned axes;
		int first;
		const char *name;
	} want[] = {
		{"dp3.tp2.cp2", 11, DT_ON_TP, 10, "tp"},
		{"dp3.tp2.cp2", 11, DT_ON_CP, 9, "cp"},
		{"dp3.tp2.cp2", 11, DT_ON_DP, 3, "dp"},
		{"dp3.tp2.cp2", 11, DT_ON_DATA, 1, "data"},
		{"dp3.tp2.cp2.pp2", 23, DT_ON_MODEL, 10, "model"},
		{"dp3.tp2.cp2.pp2", 23, DT_ON_ALL, 0, "world"},
		{"dp3.tp2.cp2.ep3", 11, DT_ON_EP, 7, "ep"},   /* data 3 4 5 */
		{"dp3.tp2.cp2.ep3", 11, DT_ON_EDP, 5, "edp"}, /* data 2 5 */
		{"dp3.tp2.cp2.ep3", 11, DT_ON_EP | DT_ON_TP, 6, "tp+ep"},
		{"dp3.tp2.cp2.ep3", 11, DT_ON_EP | DT_ON_EDP, 1, "ep+edp"},
		{"dp3.tp2.cp2.ep3", 11, DT_ON_EP | DT_ON_DP, -EINVAL, "dp+ep"},
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct dt_layout l = parsed(want[i].layout);
		int got = dt_layout_group(&l, dt_layout_coords(&l, want[i].rank), want[i].axes);
		char name[32];

		if (got != want[i].first)
			fail_msg("%s rank %d over %s: first %d, not %d", want[i].layout, want[i].rank,
				 want[i].name, got, want[i].first);
		assert_string_equal(dt_axes_name(want[i].axes, name, sizeof(name)), want[i].name);
	}
}

/* Replicas that some chain of groups over cp and ep joins, against joining them one rank after the other. */
static void replicas_that_compute_together(void **state)
{
	const char *const text[] = {"ep2",	   "dp4.ep2",	  "dp2.cp2.ep4", "cp2.ep2",
				    "dp2.cp3.ep2", "dp3.cp2.ep3", "dp4.cp3.ep2", "dp6.cp2.ep12",
				    "dp3.cp4.ep2", "tp2.dp2"};

	for (size_t k = 0; k < sizeof(text) / sizeof(*text); k++) {
		struct dt_layout l;
		int joined, end = 1; /* of the chain from replica 0: ranks of data [0, end) */

		assert_int_equal(dt_layout_parse(text[k], &l, NULL), 0);
		while (end % l.cp || end % l.ep) /* a group goes on behind it */
			end++;
		joined = end / l.cp;
		if (dt_layout_joined(&l) != joined || l.dp % joined)
			fail_msg("%s: %d replicas together, %d by hand", text[k], dt_layout_joined(&l),
				 joined);
	}
}

static void models_that_cannot_be_cut(void **state)
{
	static const char *const bad[][3] = {
		{"tp5", "gpt2-124m", "12 heads"},	  {"tp2", "gpt2-1558m", "25 heads"},
		{"pp13", "gpt2-124m", "12 layers"},	  {"pp4.v4", "gpt2-124m", "12 layers"},
		{"v2", "gpt2-124m", "pp is 1"},		  {"dp2.ep2", "gpt2-124m", "no experts"},
		{"cp128", "gpt2-nano-char", "positions"}, {"tp14", "qwen2.5-0.5b", NULL},
	};
	struct dt_config c;
	struct dt_layout l;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dt_err err = {0};
		int rc;

		l = parsed(bad[i][0]);
		dt_config_find_preset(bad[i][1], &c);
		rc = dt_layout_check(&l, &c, &err);
		assert_int_equal(rc, bad[i][2] ? -EINVAL : 0);
		if (bad[i][2])
			assert_non_null(strstr(err.msg, bad[i][2]));
	}
	dt_config_find_preset("llama-tiny", &c);
	c.heads = 12;
	c.kv_heads = 6;
	l = parsed("tp4");
	assert_int_equal(dt_layout_check(&l, &c, NULL), -EINVAL); /* 6 and 4 */
}

/* Cost of a stage as layout.c counts it, found here by trying every cut. */
static double layer_cost(const struct dt_config *c)
{
	double s = (double)(c->max_seq < 4096 ? c->max_seq : 4096),
	       head = 2.0 * (double)(c->hidden * c->vocab);

	return (dt_model_flops_per_token(c, (int64_t)s, false) - head) / (double)c->layers -
	       2 * s * (double)(c->heads * c->head_dim);
}

static double slowest(const struct dt_config *c, double layer, const int *n, int stages)
{
	double worst = 0;

	for (int i = 0; i < stages; i++) {
		double cost = n[i] * layer + (i == stages - 1 ? 2.0 * (double)(c->hidden * c->vocab) : 0) +
			      (i == 0 ? (double)c->hidden : 0);

		worst = cost > worst ? cost : worst;
	}
	return worst;
}

static double best_of_all(const struct dt_config *c, double layer, int *n, int i, int stages, int left)
{
	double best = 1e300;

	if (i == stages - 1) {
		n[i] = left;
		return slowest(c, layer, n, stages);
	}
	for (n[i] = 1; n[i] <= left - (stages - 1 - i); n[i]++) {
		int rest[8];
		double cost;

		memcpy(rest, n, sizeof(rest));
		cost = best_of_all(c, layer, rest, i + 1, stages, left - n[i]);
		best = cost < best ? cost : best;
	}
	return best;
}

static void stages_are_contiguous_and_balanced(void **state)
{
	for (int i = 0; dt_config_preset(i); i++) {
		const struct dt_config *c = dt_config_preset(i);

		for (int pp = 1; pp <= 16 && pp <= c->layers; pp++) {
			struct dt_layout l = {.dp = 1, .tp = 1, .pp = pp, .cp = 1, .ep = 1};
			int at = 0, first, last, n[16];

			for (int s = 0; s < pp; s++) {
				dt_layout_stage(&l, c, s, &first, &last);
				assert_int_equal(first, at);
				assert_true(last > first);
				n[s] = last - first;
				at = last;
			}
			assert_int_equal(at, c->layers);
			if (pp <= 4 && !c->encoder) { /* encoders are not pipelined */
				int work[8] = {0};
				double layer = layer_cost(c),
				       best = best_of_all(c, layer, work, 0, pp, (int)c->layers);

				if (slowest(c, layer, n, pp) > best * (1 + 1e-12))
					fail_msg("%s pp%d: slowest stage %g, best %g", c->name, pp,
						 slowest(c, layer, n, pp), best);
			}
		}
	}
}

/* Over all ranks of a layout, each parameter element is held as often as the layout replicates it. */
static void every_element_has_its_ranks(void **state)
{
	static const char *const cases[][2] = {
		{"gpt2-tiny", "dp1"},	      {"gpt2-tiny", "tp2.pp2"},	 {"gpt2-tiny", "tp4.dp2"},
		{"llama-tiny", "tp4.pp3"},    {"llama-tiny", "tp2.pp2"}, {"gpt2-nano-char", "tp4.pp4"},
		{"gpt2-nano-char", "pp2.v2"},
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct dt_layout l = parsed(cases[k][1]);
		struct dt_config c;
		struct dt_params t;
		unsigned char **seen;

		dt_config_find_preset(cases[k][0], &c);
		assert_int_equal(dt_model_params(&c, &t, NULL), 0);
		seen = calloc((size_t)t.n, sizeof(*seen));
		for (int i = 0; i < t.n; i++)
			seen[i] = calloc((size_t)dt_param_numel(&t.p[i]), 1);
		for (int r = 0; r < dt_layout_world(&l); r++) {
			struct dt_local lo;
			struct dt_err err = {0};

			if (dt_local_build(&t, &c, &l, dt_layout_coords(&l, r), &lo, &err) < 0)
				fail_msg("%s %s: %s", cases[k][0], cases[k][1], err.msg);
			for (int i = 0; i < lo.n; i++) {
				const struct dt_local_param *p = &lo.p[i];

				for (int64_t y = 0; y < p->shape[0]; y++)
					for (int64_t x = 0; x < p->shape[1]; x++)
						seen[p->index][(p->off[0] + y) * t.p[p->index].shape[1] +
							       p->off[1] + x]++;
			}
			dt_local_release(&lo);
		}
		for (int i = 0; i < t.n; i++) {
			int want = l.dp;

			if (t.p[i].cut == DT_CUT_NONE)
				want *= l.tp;
			else if (t.p[i].cut == DT_CUT_KV && c.kv_heads < l.tp)
				want *= l.tp / (int)c.kv_heads;
			if (t.p[i].role == DT_W_EMBED && c.tied && l.pp > 1)
				want *= 2;
			for (int64_t e = 0; e < dt_param_numel(&t.p[i]); e++)
				if (seen[i][e] != want)
					fail_msg("%s %s: %s[%lld] is on %d ranks, not %d", cases[k][0],
						 cases[k][1], t.p[i].name, (long long)e, seen[i][e], want);
			free(seen[i]);
		}
		free(seen);
		dt_params_release(&t);
	}
}

/* With ZeRO every unit divides evenly over dp. */
static void units_divide_over_dp(void **state)
{
	static const char *const layouts[] = {"dp2.z1", "dp3.z2", "dp8.z3", "dp3.tp2.pp2.z1"};

	for (int i = 0; dt_config_preset(i); i++) {
		const struct dt_config *c = dt_config_preset(i);
		struct dt_params t;

		assert_int_equal(dt_model_params(c, &t, NULL), 0);
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
			struct dt_layout l = parsed(layouts[k]);
			struct dt_coords at = {0};
			struct dt_local lo;

			if (dt_layout_check(&l, c, NULL) < 0)
				continue;
			assert_int_equal(dt_local_build(&t, c, &l, at, &lo, NULL), 0);
			for (int u = 0; u < lo.nunit; u++)
				assert_int_equal(lo.unit[u].numel % (32 * l.dp), 0);
			dt_local_release(&lo);
		}
		dt_params_release(&t);
	}
}

/*
 * Under ZeRO with ep: shares of a unit are equal parts for the ranks that have it, of experts dp x cp / ep;
 * they lie behind one another, and those of all ranks hold every element of the model once.
 */
static void shares_of_experts(void **state)
{
	static const char *const layouts[] = {"dp4.ep2.z1", "dp2.cp2.ep4.z3", "dp2.tp2.cp2.ep2.z2",
					      "dp2.pp2.ep2.z1"};
	struct dt_config c;
	struct dt_params t;

	assert_int_equal(dt_config_find_preset("mixtral-8x7b", &c), 0);
	c.layers = 2;
	assert_int_equal(dt_model_params(&c, &t, NULL), 0);
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
		struct dt_layout l = parsed(layouts[k]);
		int64_t experts = 0, all = 0;

		for (int r = 0; r < dt_layout_world(&l); r++) {
			struct dt_coords at = dt_layout_coords(&l, r);
			struct dt_local lo;
			int64_t sum = 0;

			assert_int_equal(dt_local_build(&t, &c, &l, at, &lo, NULL), 0);
			for (int u = 0; u < lo.nunit; u++) {
				const struct dt_local_unit *unit = &lo.unit[u];
				int ep = unit->experts ? l.ep : 1, copies = dt_layout_data(&l) / ep;

				assert_int_equal(unit->share * copies, unit->numel);
				assert_int_equal(unit->share % 32, 0);
				assert_int_equal(unit->share_flat, sum);
				assert_int_equal(unit->share_trained, sum);
				assert_int_equal(
					dt_unit_share_first(&l, unit, at),
					unit->share * (dt_coords_data(&l, at) / (unit->experts ? l.ep : 1)));
				sum += unit->share;
				experts += unit->experts ? unit->share : 0;
			}
			assert_int_equal(lo.share, sum);
			assert_int_equal(lo.share_trained, sum);
			all += sum;
			dt_local_release(&lo);
		}
		assert_int_equal(experts, 2LL * 8 * 3 * c.ffn * c.hidden); /* rows of 64 bytes: no padding */
		assert_true(all >= dt_params_total(&t));
	}
	dt_params_release(&t);
}

/* Servers: each is another rank; their shares hold every element of the model once, the other ranks none. */
static void shares_of_servers(void **state)
{
	struct dt_config c;
	struct dt_params t;

	assert_int_equal(dt_config_find_preset("gpt2-tiny", &c), 0);
	assert_int_equal(dt_model_params(&c, &t, NULL), 0);
	for (int dp = 1; dp <= 9; dp++)
		for (int n = 1; n < dp; n++) {
			struct dt_layout l = {.dp = dp, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .zero = 1};
			int64_t all = 0;
			int next = 0;

			l.servers = n;
			for (int r = 0; r < dp; r++) {
				const int k = dt_layout_server(&l, r);
				struct dt_local lo;

				assert_int_equal(
					dt_local_build(&t, &c, &l, dt_layout_coords(&l, r), &lo, NULL), 0);
				if (k < n) { /* in the order of ranks */
					assert_int_equal(k, next++);
					assert_int_equal(dt_layout_server_rank(&l, k), r);
					all += lo.share_trained;
				} else {
					assert_int_equal(lo.share_trained, 0);
				}
				for (int u = 0; u < lo.nunit; u++) {
					assert_int_equal(lo.unit[u].share * n, lo.unit[u].numel);
					assert_int_equal(
						dt_unit_share_first(&l, &lo.unit[u], dt_layout_coords(&l, r)),
						k * lo.unit[u].share);
				}
				if (r == dp - 1)
					assert_int_equal(all, lo.trained);
				dt_local_release(&lo);
			}
			assert_int_equal(next, n);
		}
	dt_params_release(&t);
}

/* Flat order: no overlap, fused parameters adjacent, units aligned and covering the buffer. */
static void flat_order(void **state)
{
	static const char *const layouts[] = {"dp1", "tp2", "pp2", "tp2.pp2", "tp4", "pp2.v2"};

	for (int i = 0; dt_config_preset(i); i++) {
		const struct dt_config *c = dt_config_preset(i);
		struct dt_params t;

		assert_int_equal(dt_model_params(c, &t, NULL), 0);
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
			struct dt_layout l = parsed(layouts[k]);
			struct dt_local lo;

			if (dt_layout_check(&l, c, NULL) < 0)
				continue;
			for (int r = 0; r < dt_layout_world(&l); r++) {
				int64_t end = 0;

				assert_int_equal(
					dt_local_build(&t, c, &l, dt_layout_coords(&l, r), &lo, NULL), 0);
				for (int p = 0; p < lo.n; p++) {
					const struct dt_local_param *q = &lo.p[p];
					const struct dt_local_unit *u = &lo.unit[q->unit];

					if (t.p[q->index].fused)
						assert_int_equal(q->flat, end);
					else
						assert_int_equal(q->flat % 32, 0);
					assert_true(q->flat >= end && q->flat - end < 32);
					assert_int_equal(q->numel, q->shape[0] * q->shape[1]);
					end = q->flat + q->numel;
					assert_true(q->flat >= u->flat && end <= u->flat + u->numel);
				}
				end = 0;
				for (int u = 0; u < lo.nunit; u++) {
					assert_int_equal(lo.unit[u].flat, end);
					assert_int_equal(lo.unit[u].numel % 32, 0);
					end += lo.unit[u].numel;
				}
				assert_int_equal(end, lo.numel);
				dt_local_release(&lo);
			}
		}
		dt_params_release(&t);
	}
}

static void tied_head_is_copied_to_the_last_stage(void **state)
{
	struct dt_layout l = parsed("pp2");
	struct dt_coords at = {.pp = 1};
	struct dt_config c;
	struct dt_params t;
	struct dt_local lo;

	dt_config_find_preset("gpt2-tiny", &c);
	assert_int_equal(dt_model_params(&c, &t, NULL), 0);
	assert_int_equal(dt_local_build(&t, &c, &l, at, &lo, NULL), 0);
	assert_int_equal(lo.p[lo.n - 1].index, dt_params_find(&t, "embed.weight"));
	assert_int_equal(lo.unit[lo.p[lo.n - 1].unit].layer, c.layers);
	dt_local_release(&lo);
	at.pp = 2;
	assert_int_equal(dt_local_build(&t, &c, &l, at, &lo, NULL), -EINVAL);
	dt_params_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_and_format),
		cmocka_unit_test(bad_strings_are_refused),
		cmocka_unit_test(placement),
		cmocka_unit_test(groups),
		cmocka_unit_test(zigzag_is_balanced),
		cmocka_unit_test(replicas_that_compute_together),
		cmocka_unit_test(models_that_cannot_be_cut),
		cmocka_unit_test(stages_are_contiguous_and_balanced),
		cmocka_unit_test(every_element_has_its_ranks),
		cmocka_unit_test(flat_order),
		cmocka_unit_test(units_divide_over_dp),
		cmocka_unit_test(shares_of_experts),
		cmocka_unit_test(shares_of_servers),
		cmocka_unit_test(tied_head_is_copied_to_the_last_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
