/*
 * Sum trees, transitions of n steps and replay against plain loops; losses of values against formulas written
 * down apart, their gradients by differences, those of the mixers too.
 */
#include "base/rng.h"
#include "rl/qlearn.h"
#include "rl/sumtree.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double draw(uint64_t i)
{
	const struct dt_rng r = dt_rng_make(11, DT_RNG_TEST, 0);

	return dt_rng_uniform53(&r, i);
}

/* Priorities that are changed at random, some of them 0. */
static void test_sumtree(void **state)
{
	static const int size[] = {1, 2, 3, 64, 100};

	for (size_t k = 0; k < sizeof(size) / sizeof(size[0]); k++) {
		const int n = size[k];
		struct dt_sumtree t;
		struct dt_err err = {0};
		double x[100] = {0};

		assert_int_equal(dt_sumtree_open(&t, n, &err), 0);
		for (uint64_t s = 0; s < 500; s++) {
			const int i = (int)(draw(3 * s) * n);
			double sum = 0, at, below = 0;
			int64_t got;

			x[i] = draw(3 * s + 1) < 0.2 ? 0 : draw(3 * s + 1) * 10;
			dt_sumtree_set(&t, i, x[i]);
			for (int j = 0; j < n; j++)
				sum += x[j];
			assert_true(fabs(dt_sumtree_sum(&t) - sum) < 1e-12 * (1 + sum));
			assert_true(!(fabs(dt_sumtree_get(&t, i) - x[i]) > 0));
			if (!(sum > 0))
				continue;
			at = draw(3 * s + 2) * sum;
			got = dt_sumtree_find(&t, at);
			assert_in_range(got, 0, n - 1);
			assert_true(x[got] > 0);
			for (int j = 0; j < got; j++)
				below += x[j];
			if (!(at > below - 1e-9 && at < below + x[got] + 1e-9))
				fail_msg("%g of %g fell on %d, which has %g to %g", at, sum, (int)got, below,
					 below + x[got]);
			assert_true(x[dt_sumtree_find(&t, sum * (1 + 1e-15))] > 0); /* its very end */
		}
		dt_sumtree_release(&t);
	}
}

enum { ENVS = 2, STEPS = 7, AGENTS = 2, SEEN = 3, ACTIONS = 3, ROWS = ENVS * STEPS };

static void fill(struct dt_unroll *u)
{
	const struct dt_unroll_size size = {ENVS, STEPS, AGENTS, SEEN};
	struct dt_err err = {0};

	assert_int_equal(dt_unroll_open(u, &size, &err), 0);
	for (int i = 0; i < ROWS * AGENTS * SEEN; i++) {
		u->now[i] = sinf((float)i * 2.3f);
		u->next[i] = cosf((float)i * 1.1f);
	}
	for (int i = 0; i < ROWS; i++) {
		u->reward[i] = sin(i * 3.1);
		u->over[i] = i == 2 ? DT_ENDED : i == 9 ? DT_CUT : DT_GOES_ON;
		for (int a = 0; a < AGENTS; a++)
			u->action[i * AGENTS + a] = (i * 5 + a * 2) % ACTIONS;
	}
}

/* By the definition; last: the step behind which a value follows. */
static void test_ahead(void **state)
{
	struct dt_unroll u;

	fill(&u);
	for (int n = 1; n < 10; n++)
		for (int i = 0; i < ROWS; i++) {
			const struct dt_transition t = dt_unroll_ahead(&u, i / STEPS, i % STEPS, n, 0.9);
			double want = 0, follows = 1;
			int last = i;

			while (last < i + n - 1 && last % STEPS < STEPS - 1 && u.over[last] == DT_GOES_ON)
				last++;
			for (int k = i; k <= last; k++)
				want += pow(0.9, k - i) * u.reward[k];
			follows = u.over[last] == DT_ENDED ? 0 : pow(0.9, last - i + 1);
			if (!(fabs(t.reward - want) < 1e-12 && fabs(t.follows - follows) < 1e-12))
				fail_msg("step %d, %d ahead: %g and %g, not %g and %g", i, n, t.reward,
					 t.follows, want, follows);
			assert_ptr_equal(t.now, u.now + (ptrdiff_t)i * AGENTS * SEEN);
			assert_ptr_equal(t.next, u.next + (ptrdiff_t)last * AGENTS * SEEN);
			assert_ptr_equal(t.action, u.action + (ptrdiff_t)i * AGENTS);
		}
	dt_unroll_release(&u);
}

/* Twelve of fourteen are kept; who is drawn, how often, and with which weight. */
static void test_replay(void **state)
{
	enum { KEPT = 12, BATCH = 50, TIMES = 400 };
	const struct dt_replay_opts o = {KEPT, 0.6, 0.4, 7};
	struct dt_replay *r = NULL, *again = NULL;
	struct dt_transition t[BATCH], same[BATCH];
	int64_t number[BATCH], number2[BATCH];
	double weight[BATCH], weight2[BATCH], p[KEPT], sum = 0, most = 0, count[KEPT] = {0};
	struct dt_err err = {0};
	struct dt_unroll u;

	fill(&u);
	assert_int_equal(dt_replay_open(&r, &o, AGENTS, SEEN, &err), 0);
	assert_int_equal(dt_replay_open(&again, &o, AGENTS, SEEN, &err), 0);
	for (int i = 0; i < ROWS; i++) {
		const struct dt_transition x = dt_unroll_ahead(&u, i / STEPS, i % STEPS, 2, 0.9);

		dt_replay_push(r, &x, i);
		dt_replay_push(again, &x, i);
		assert_int_equal(dt_replay_kept(r), i < KEPT ? i + 1 : KEPT);
	}
	dt_replay_judge(r, 5, 0.25);
	dt_replay_judge(again, 5, 0.25);
	for (int i = 0; i < KEPT; i++) { /* places 0 and 1 were taken by transitions 12 and 13 */
		p[i] = pow((i < 2 ? 12 + i : i == 5 ? 0.25 : i) + 1e-6, 0.6);
		sum += p[i];
	}
	for (int k = 0; k < TIMES; k++) {
		dt_replay_draw(r, BATCH, t, number, weight);
		dt_replay_draw(again, BATCH, same, number2, weight2);
		assert_memory_equal(number, number2, sizeof(number));
		most = 0;
		for (int i = 0; i < BATCH; i++)
			most = fmax(most, pow(KEPT * p[number[i]] / sum, -0.4));
		for (int i = 0; i < BATCH; i++) {
			const int which = number[i] < 2 ? 12 + (int)number[i] : (int)number[i];

			count[number[i]] += 1.0 / (BATCH * TIMES);
			assert_true(fabs(weight[i] - pow(KEPT * p[number[i]] / sum, -0.4) / most) < 1e-12);
			assert_memory_equal(t[i].now, u.now + (ptrdiff_t)which * AGENTS * SEEN,
					    AGENTS * SEEN * sizeof(float));
			assert_memory_equal(t[i].action, u.action + (ptrdiff_t)which * AGENTS,
					    AGENTS * sizeof(int32_t));
		}
	}
	for (int i = 0; i < KEPT; i++) /* one of each 50th part: less spread than draws by themselves have */
		if (!(fabs(count[i] - p[i] / sum) < 3 * sqrt(p[i] / sum / (BATCH * TIMES))))
			fail_msg("transition %d is drawn %g, not %g", i, count[i], p[i] / sum);
	dt_replay_close(r);
	dt_replay_close(again);
	dt_unroll_release(&u);
}

/* ---- losses ---- */

enum { WIDTH = 4, MIXED = (AGENTS + 2) * WIDTH + 1 };

static struct dt_net *open_net(int64_t observation, int64_t outputs, uint64_t seed)
{
	const struct dt_net_opts o = {.observation = observation,
				      .outputs = outputs,
				      .hidden = "7-5",
				      .seed = seed,
				      .optim.kind = DT_OPTIM_SGD};
	struct dt_net *net = NULL;
	struct dt_err err = {0};

	if (dt_net_open(&net, &o, &err) < 0)
		fail_msg("%s", err.msg);
	for (int64_t i = 0; i < net->n; i++) /* outputs that are far from each other */
		net->weights[i] += 0.8f * sinf((float)i * 1.3f + (float)seed);
	return net;
}

static void outputs_of(struct dt_net *net, float *weights, int64_t rows, const float *in, float *ret, int n)
{
	struct dt_pass *p = NULL;
	struct dt_err err = {0};
	const float *y;

	assert_int_equal(dt_pass_open(&p, net, rows, weights, false, &err), 0);
	assert_int_equal(dt_pass_forward(p, in, &y, &err), 0);
	memcpy(ret, y, (size_t)(rows * n) * sizeof(float));
	dt_pass_close(p);
}

static double value(const float *y, int a)
{
	return (double)y[ACTIONS] + (double)y[a] - ((double)y[0] + (double)y[1] + (double)y[2]) / 3;
}

/* QMIX, as the paper's figure has it: a layer, elu, a layer; matrices by agent and unit. */
static double mixed(const float *h, const double *q)
{
	double sum = (double)h[MIXED - 1];

	for (int e = 0; e < WIDTH; e++) {
		double x = fabs((double)h[e]) * q[0] + fabs((double)h[WIDTH + e]) * q[1] +
			   (double)h[2 * WIDTH + e];

		sum += fabs((double)h[3 * WIDTH + e]) * (x > 0 ? x : exp(x) - 1);
	}
	return sum;
}

struct batch {
	struct dt_unroll u;
	struct dt_transition t[ROWS];
	double weight[ROWS], error[ROWS], want[ROWS];
	float now[ROWS * AGENTS * SEEN], next[ROWS * AGENTS * SEEN];
};

static void make_batch(struct batch *b)
{
	fill(&b->u);
	for (int i = 0; i < ROWS; i++) {
		b->t[i] = dt_unroll_ahead(&b->u, i / STEPS, i % STEPS, 2, 0.9);
		b->weight[i] = 0.3 + draw((uint64_t)i);
		memcpy(b->now + (ptrdiff_t)i * AGENTS * SEEN, b->t[i].now, AGENTS * SEEN * sizeof(float));
		memcpy(b->next + (ptrdiff_t)i * AGENTS * SEEN, b->t[i].next, AGENTS * SEEN * sizeof(float));
	}
}

/* The loss by the definition, in fp64 from outputs; old: target weights. Fills want with errors. */
static double by_definition(struct batch *b, enum dt_mixer how, struct dt_net *net, float *old,
			    struct dt_net *mixer, float *old_mixer)
{
	static float y[ROWS * AGENTS * 4], z[ROWS * AGENTS * 4], k[ROWS * AGENTS * 4], h[ROWS * MIXED],
		g[ROWS * MIXED];
	double loss = 0;

	outputs_of(net, net->weights, ROWS * AGENTS, b->now, y, 4);
	outputs_of(net, net->weights, ROWS * AGENTS, b->next, k, 4);
	outputs_of(net, old, ROWS * AGENTS, b->next, z, 4);
	if (mixer) {
		outputs_of(mixer, mixer->weights, ROWS, b->now, h, MIXED);
		outputs_of(mixer, old_mixer, ROWS, b->next, g, MIXED);
	}
	for (int i = 0; i < ROWS; i++) {
		double q[AGENTS], then[AGENTS], off;

		b->want[i] = 0;
		for (int a = 0; a < AGENTS; a++) {
			const float *row = k + (ptrdiff_t)(i * AGENTS + a) * 4;
			int best = row[1] > row[0] ? 1 : 0;

			best = row[2] > row[best] ? 2 : best;
			q[a] = value(y + (ptrdiff_t)(i * AGENTS + a) * 4, b->t[i].action[a]);
			then[a] = value(z + (ptrdiff_t)(i * AGENTS + a) * 4, best);
			off = q[a] - b->t[i].reward - b->t[i].follows * then[a];
			if (how == DT_MIX_NONE) {
				loss += b->weight[i] * off * off / 2 / (ROWS * AGENTS);
				b->want[i] += fabs(off) / AGENTS;
			}
		}
		if (how == DT_MIX_NONE)
			continue;
		off = how == DT_MIX_SUM ? q[0] + q[1] - b->t[i].reward - b->t[i].follows * (then[0] + then[1])
					: mixed(h + (ptrdiff_t)i * MIXED, q) - b->t[i].reward -
						  b->t[i].follows * mixed(g + (ptrdiff_t)i * MIXED, then);
		loss += b->weight[i] * off * off / 2 / ROWS;
		b->want[i] = fabs(off);
	}
	return loss;
}

static void check_gradient(struct dt_qlearn *q, struct batch *b, struct dt_net *net, const char *name)
{
	float grad[2048];
	struct dt_err err = {0};
	const struct dt_param *p;
	int64_t first;
	double loss, big = 0;

	assert_true(net->n <= 2048);
	dt_qlearn_learn(q, b->t, b->weight, b->error, &loss, NULL, &err);
	memcpy(grad, net->grads, (size_t)net->n * sizeof(float));
	for (int t = 0; dt_net_tensor(net, t, &p, &first); t++)
		for (int64_t i = first; i < first + dt_param_numel(p); i += 3) {
			const float was = net->weights[i], h = 1e-3f;
			double up, down, want;

			net->weights[i] = was + h;
			dt_qlearn_learn(q, b->t, b->weight, b->error, &up, NULL, &err);
			net->weights[i] = was - h;
			dt_qlearn_learn(q, b->t, b->weight, b->error, &down, NULL, &err);
			net->weights[i] = was;
			want = (up - down) / (2 * (double)h);
			big = fmax(big, fabs(want));
			if (!(fabs((double)grad[i] - want) < 2e-2 * (0.1 + fabs(want))))
				fail_msg("%s, %s, element %d: %g, not %g", name, p->name, (int)(i - first),
					 (double)grad[i], want);
		}
	assert_true(big > 0.01);
}

static void test_losses(void **state)
{
	static const char *const name[] = {"each", "sum", "net"};
	struct dt_err err = {0};
	struct batch b;

	make_batch(&b);
	for (int how = DT_MIX_NONE; how <= DT_MIX_NET; how++) {
		const struct dt_qlearn_opts o = {
			.mixer = (enum dt_mixer)how,
			.width = WIDTH,
			.target_every = 2,
			.net = {.seed = 9, .optim = {.kind = DT_OPTIM_SGD, .lr = 0.05f}}};
		struct dt_net *net = open_net(SEEN, ACTIONS + 1, 3), *mixer;
		float old[1024], old_mixer[1024];
		struct dt_qlearn *q = NULL;
		double loss, want;

		assert_int_equal(dt_qlearn_open(&q, net, &o, ROWS, AGENTS, true, &err), 0);
		mixer = dt_qlearn_mixer(q);
		assert_int_equal(!!mixer, how == DT_MIX_NET);
		for (int64_t i = 0; mixer && i < mixer->n; i++)
			mixer->weights[i] += 0.5f * sinf((float)i * 0.7f);
		dt_qlearn_follow(q);
		memcpy(old, net->weights, (size_t)net->n * sizeof(float));
		if (mixer)
			memcpy(old_mixer, mixer->weights, (size_t)mixer->n * sizeof(float));
		for (int step = 0; step < 4; step++) { /* target weights stay for two updates */
			if (step == 2) {
				memcpy(old, net->weights, (size_t)net->n * sizeof(float));
				if (mixer)
					memcpy(old_mixer, mixer->weights, (size_t)mixer->n * sizeof(float));
			}
			assert_int_equal(dt_qlearn_learn(q, b.t, b.weight, b.error, &loss, NULL, &err), 0);
			want = by_definition(&b, (enum dt_mixer)how, net, old, mixer, old_mixer);
			if (!(fabs(loss - want) < 1e-5 * (1 + want)))
				fail_msg("%s, update %d: loss %.9g, not %.9g", name[how], step, loss, want);
			for (int i = 0; i < ROWS; i++)
				assert_true(fabs(b.error[i] - b.want[i]) < 1e-5 * (1 + b.want[i]));
			assert_int_equal(dt_qlearn_errors(q, b.t, b.error, &err), 0);
			for (int i = 0; i < ROWS; i++)
				assert_true(fabs(b.error[i] - b.want[i]) < 1e-5 * (1 + b.want[i]));
			dt_qlearn_learn(q, b.t, b.weight, b.error, &loss, NULL, &err);
			assert_int_equal(dt_qlearn_update(q, NULL, &err), 0);
		}
		check_gradient(q, &b, net, name[how]);
		if (mixer)
			check_gradient(q, &b, mixer, "mixer");
		dt_qlearn_close(q);
		dt_net_close(net);
	}
	dt_unroll_release(&b.u);
}

/* The nets of agents and of the mixer are clipped together: their step has the length lr clip. */
static void test_clip(void **state)
{
	const struct dt_net_opts agents = {.observation = SEEN,
					   .outputs = ACTIONS + 1,
					   .hidden = "7-5",
					   .seed = 3,
					   .optim = {.kind = DT_OPTIM_SGD, .lr = 0.5f},
					   .clip = 0.125};
	const struct dt_qlearn_opts o = {.mixer = DT_MIX_NET, .width = WIDTH, .net = agents};
	struct dt_net *net[2] = {NULL};
	struct dt_qlearn *q = NULL;
	struct dt_err err = {0};
	double loss, norm, moved = 0;
	float was[2][1024];
	struct batch b;

	make_batch(&b);
	assert_int_equal(dt_net_open(&net[0], &agents, &err), 0);
	assert_int_equal(dt_qlearn_open(&q, net[0], &o, ROWS, AGENTS, true, &err), 0);
	net[1] = dt_qlearn_mixer(q);
	for (int k = 0; k < 2; k++)
		memcpy(was[k], net[k]->weights, (size_t)net[k]->n * sizeof(float));
	assert_int_equal(dt_qlearn_learn(q, b.t, b.weight, b.error, &loss, NULL, &err), 0);
	for (int k = 0; k < 2; k++)
		assert_true(dt_net_norm(net[k]) > 1e-3);
	assert_int_equal(dt_qlearn_update(q, &norm, &err), 0);
	assert_true(norm > 0.125);
	for (int k = 0; k < 2; k++)
		for (int64_t i = 0; i < net[k]->n; i++)
			moved += pow((double)net[k]->weights[i] - (double)was[k][i], 2);
	if (!(fabs(sqrt(moved) - 0.0625) < 1e-6))
		fail_msg("a step of length %.9g, not 0.0625", sqrt(moved));
	dt_qlearn_close(q);
	dt_net_close(net[0]);
	dt_unroll_release(&b.u);
}

/* Its derivatives by differences, and none of them by a value is below 0. */
static void test_mixer(void **state)
{
	for (int k = 0; k < 50; k++) {
		float h[MIXED];
		double q[AGENTS], dq[AGENTS], dh[MIXED], other[AGENTS], got;

		for (int i = 0; i < MIXED; i++)
			h[i] = (float)(draw((uint64_t)(k * 100 + i)) * 4 - 2);
		for (int a = 0; a < AGENTS; a++)
			q[a] = draw((uint64_t)(k * 100 + 90 + a)) * 6 - 3;
		got = dt_mix(AGENTS, WIDTH, h, q, dq, dh);
		assert_int_equal(dt_mix_outputs(AGENTS, WIDTH), MIXED);
		assert_true(fabs(got - mixed(h, q)) < 1e-12);
		for (int a = 0; a < AGENTS; a++) {
			double up[AGENTS] = {q[0], q[1]}, down[AGENTS] = {q[0], q[1]};

			up[a] += 1e-6;
			down[a] -= 1e-6;
			assert_true(dq[a] >= 0);
			assert_true(fabs(dq[a] - (mixed(h, up) - mixed(h, down)) / 2e-6) < 1e-6);
		}
		for (int i = 0; i < MIXED; i++) {
			const float was = h[i], step = 1.0f / 1024;
			double up, down;

			if (fabsf(was) < 2 * step)
				continue; /* |w| has no derivative there */
			h[i] = was + step;
			up = dt_mix(AGENTS, WIDTH, h, q, other, NULL);
			h[i] = was - step;
			down = dt_mix(AGENTS, WIDTH, h, q, other, NULL);
			h[i] = was;
			if (!(fabs(dh[i] - (up - down) * 512) < 1e-2 * (1 + fabs(dh[i]))))
				fail_msg("output %d: %g, not %g", i, dh[i], (up - down) * 512);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sumtree), cmocka_unit_test(test_ahead),  cmocka_unit_test(test_replay),
		cmocka_unit_test(test_mixer),	cmocka_unit_test(test_losses), cmocka_unit_test(test_clip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
