/*
 * Environments against Gymnasium's episodes (tests/data/golden_cartpole.py) and by hand, programs on a pipe
 * that misbehave, a policy's net by differences, and the loss of actor and critic against formulas written
 * down apart.
 */
#include "base/json.h"
#include "rl/critic.h"
#include "rl/env_priv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double at(const json_t *list, size_t i)
{
	return json_number_value(json_array_get(list, i));
}

static void assert_state(const json_t *want, const double *s)
{
	for (size_t i = 0; i < 4; i++)
		if (!(fabs(at(want, i) - s[i]) < 1e-10))
			fail_msg("number %zu: %.17g, not %.17g", i, s[i], at(want, i));
}

static void test_pole(void **state)
{
	json_t *o = json_load_file(GOLDEN_DIR "/golden-cartpole.json", 0, NULL), *e;
	const struct env_kind *k = env_kind_at(0);
	size_t n;

	assert_non_null(o);
	json_array_foreach(json_object_get(o, "episodes"), n, e)
	{
		const char *action = json_string_value(json_object_get(e, "actions"));
		const json_t *every = json_object_get(e, "every_16th");
		const size_t steps = strlen(action);
		double s[ENV_STATE], reward, sum = 0;

		for (size_t i = 0; i < 4; i++)
			s[i] = at(json_object_get(e, "first"), i);
		for (size_t t = 0; t < steps; t++) {
			const int32_t a = action[t] - '0';
			const bool over = k->step(s, 0, &a, &reward);

			sum += reward;
			assert_int_equal(over,
					 t + 1 == steps && json_is_true(json_object_get(e, "terminated")));
			if (t % 16 == 15)
				assert_state(json_array_get(every, t / 16), s);
		}
		assert_state(json_object_get(e, "last"), s);
		assert_true(fabs(sum - json_number_value(json_object_get(e, "score"))) < 1e-9);
		assert_int_equal(steps == (size_t)k->limit, json_is_true(json_object_get(e, "truncated")));
	}
	assert_int_equal(n, 4);
	json_decref(o);
}

static struct dt_env *open_env(const char *name, int n, int first)
{
	const struct dt_env_spec s = {.name = name, .n = n, .first = first, .seed = 5};
	struct dt_env *e = NULL;
	struct dt_err err = {0};

	if (dt_env_open(&e, &s, &err) < 0)
		fail_msg("%s", err.msg);
	return e;
}

/* Environment 2 alone, and among four. */
static void test_divided(void **state)
{
	static const char *const name[] = {"cartpole", "grid:4"};

	for (int k = 0; k < 2; k++) {
		struct dt_env *all = open_env(name[k], 4, 0), *one = open_env(name[k], 1, 2);
		int over = 0;

		for (int t = 0; t < 200; t++) {
			const int32_t action[4] = {1, 0, (t * 7 / 3) % 2, 1};
			struct dt_err err = {0};

			assert_int_equal(dt_env_step(all, action, &err), 0);
			assert_int_equal(dt_env_step(one, action + 2, &err), 0);
			assert_memory_equal(all->now + 8, one->now, 4 * sizeof(float));
			assert_memory_equal(all->next + 8, one->next, 4 * sizeof(float));
			assert_true(all->ended[2] == one->ended[0] && all->cut[2] == one->cut[0]);
			over += one->ended[0] || one->cut[0];
			if (one->ended[0] || one->cut[0])
				assert_memory_not_equal(one->now, one->next, 4 * sizeof(float));
		}
		assert_true(over > 2);
		dt_env_close(all);
		dt_env_close(one);
	}
}

/* Right and down end in the corner unless the goal lies on the way; the walls hold. */
static void test_grid(void **state)
{
	struct dt_env *e = open_env("grid:3", 1, 0);
	struct dt_err err = {0};
	int ended = 0, cut = 0;

	for (int t = 0; t < 4000; t++) {
		const int32_t right = 0;

		assert_int_equal(dt_env_step(e, &right, &err), 0);
		ended += e->ended[0];
		cut += e->cut[0];
		assert_true(fabs(e->reward[0] - (e->ended[0] ? 1 : -0.01)) < 1e-12);
		assert_int_equal(e->ended[0], !memcmp(e->next, e->next + 2, 2 * sizeof(float)));
		for (int i = 0; i < 4; i++)
			assert_in_range((int)(e->next[i] * 2), 0, 2);
	}
	assert_true(ended > 5 && cut > 5);
	dt_env_close(e);
}

static void test_two(void **state)
{
	static const double payoff[2][2][2] = {{{7, 7}, {7, 7}}, {{0, 1}, {1, 8}}};
	struct dt_env *e = open_env("twostep", 1, 0);
	struct dt_err err = {0};

	for (int k = 0; k < 8; k++) {
		const int32_t first[2] = {k / 4, k % 2}, second[2] = {k / 2 % 2, k % 2};

		assert_int_equal(dt_env_step(e, first, &err), 0);
		assert_true(!e->ended[0] && !e->cut[0] && !(fabs(e->reward[0]) > 0));
		assert_int_equal(dt_env_step(e, second, &err), 0);
		assert_true(e->ended[0] && fabs(e->reward[0] - payoff[k / 4][k / 2 % 2][k % 2]) < 1e-12);
	}
	dt_env_close(e);
}

static void test_names(void **state)
{
	static const char *const bad[] = {"", "pole", "cartpole:3", "grid", "grid:1", "grid:x", "grid:1001"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct dt_env_spec s = {.name = bad[i], .n = 1};
		struct dt_env *e = NULL;
		struct dt_err err = {0};

		assert_true(dt_env_open(&e, &s, &err) < 0 && err.msg[0]);
		assert_null(e);
	}
}

/* ---- a program on a pipe ---- */

#define OPEN  "read -r x; echo '{\"agents\":1,\"observation\":1,\"actions\":2}';"
#define RESET "read -r x; echo '{\"observations\":[[0],[0]]}';"

static void test_pipe_fails(void **state)
{
	static const struct {
		const char *command, *says;
	} bad[] = {
		{"exit 3", "has ended"},
		{"sleep 1000", "did not answer"},
		{"read -r x; echo hello; sleep 1000", "not a JSON object"},
		{"read -r x; echo '{\"agents\":0}'; sleep 1000", "'agents'"},
		{"read -r x; printf '{}\\n{}\\n'; sleep 1000", "more than one line"},
		{OPEN "exit 0", "has ended"},
		{OPEN "read -r x; echo '{\"observations\":[[1]]}'; sleep 1000", "observations"},
		{OPEN "read -r x; echo '{\"observations\":[[1],[2],[3]]}'; sleep 1000", "3 rows"},
		{OPEN "read -r x; echo '{\"observations\":[[1],[1e300]]}'; sleep 1000", "finite"},
		{OPEN "read -r x; echo '{\"observations\":[[1],[NaN]]}'; sleep 1000",
		 "NaN, which is not a JSON number"},
		{OPEN "read -r x; echo '{\"observations\":[[1],[-Infinity]]}'; sleep 1000",
		 "Infinity, which is"},
		{OPEN "read -r x; echo '[\"NaN\"]'; sleep 1000", "not a JSON object"},
		{OPEN RESET "read -r x; echo '{\"observations\":[[1],[2]],\"rewards\":[1]}'; sleep 1000",
		 "rewards"},
		{OPEN RESET "read -r x; echo '{\"observations\":[[1],[2]],\"rewards\":[1,2]}'; sleep 1000",
		 "terminated"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct dt_env_spec s = {
			.command = bad[i].command, .n = 2, .timeout = i == 1 ? 0.1 : 60};
		const int32_t action[2] = {0, 1};
		struct dt_env *e = NULL;
		struct dt_err err = {0};
		int rc = dt_env_open(&e, &s, &err);

		if (rc == 0)
			rc = dt_env_step(e, action, &err);
		if (rc >= 0 || !strstr(err.msg, bad[i].says))
			fail_msg("'%s': %d, '%s'", bad[i].command, rc, err.msg);
		dt_env_close(e);
	}
}

/* What the program is asked, and what becomes of its answers. */
static void test_pipe(void **state)
{
	const struct dt_env_spec s = {
		.command = OPEN RESET
		"read -r x; [ \"$x\" = '{\"step\":[0,1]}' ] || exit 1;"
		"echo '{\"observations\":[[1],[2]],\"rewards\":[0.5,-1],\"terminated\":[false,true]}';"
		"read -r x; [ \"$x\" = '{\"reset\":[1]}' ] || exit 1; echo '{\"observations\":[[7]]}';"
		"read -r x; echo '{\"observations\":[[3],[4]],\"rewards\":[0,0],"
		"\"terminated\":[false,false],\"truncated\":[true,false]}';"
		"read -r x; [ \"$x\" = '{\"reset\":[0]}' ] || exit 1; echo '{\"observations\":[[9]]}'; read "
		"-r x",
		.n = 2,
		.timeout = 60};
	const int32_t action[2] = {0, 1};
	struct dt_env *e = NULL;
	struct dt_err err = {0};

	if (dt_env_open(&e, &s, &err) < 0 || dt_env_step(e, action, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(e->agents == 1 && e->observation == 1 && e->actions == 2);
	assert_true(e->now[0] == 1 && e->now[1] == 7 && e->next[1] == 2 && e->ended[1] && !e->ended[0]);
	assert_true(e->reward[0] == 0.5 && e->reward[1] == -1);
	if (dt_env_step(e, action, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(e->now[0] == 9 && e->now[1] == 4 && e->cut[0] && !e->ended[0]);
	dt_env_close(e);
}

/* ---- the net ---- */

static struct dt_net *open_net(int64_t observation, int64_t outputs)
{
	const struct dt_net_opts o = {.observation = observation,
				      .outputs = outputs,
				      .hidden = "7-5",
				      .seed = 3,
				      .optim.kind = DT_OPTIM_SGD};
	struct dt_net *net = NULL;
	struct dt_err err = {0};

	if (dt_net_open(&net, &o, &err) < 0)
		fail_msg("%s", err.msg);
	return net;
}

/* The loss is the sum of y^2 / 2 with a factor a row. */
static int squares(void *arg, const float *y, float *dy, double *loss, struct dt_err *err)
{
	for (int i = 0; i < 5 * 3; i++) {
		dy[i] = y[i] * (float)(1 + i / 3);
		*loss += (double)y[i] * (double)dy[i] / 2;
	}
	return 0;
}

static void test_net(void **state)
{
	struct dt_net *net = open_net(4, 3);
	struct dt_pass *pass = NULL;
	struct dt_err err = {0};
	const struct dt_param *p;
	float in[20], grad[512];
	double loss, up, down;
	int64_t first;

	for (int i = 0; i < 20; i++)
		in[i] = sinf((float)i * 1.7f);
	assert_int_equal(dt_pass_open(&pass, net, 5, net->weights, true, &err), 0);
	assert_int_equal(dt_pass_learn(pass, in, squares, NULL, &loss, &err), 0);
	assert_true(net->n <= 512 && loss > 0);
	memcpy(grad, net->grads, (size_t)net->n * sizeof(float));
	for (int t = 0; dt_net_tensor(net, t, &p, &first); t++)
		for (int64_t i = first; i < first + dt_param_numel(p); i++) {
			const float was = net->weights[i], h = 1e-3f;
			double want;

			net->weights[i] = was + h;
			dt_pass_learn(pass, in, squares, NULL, &up, &err);
			net->weights[i] = was - h;
			dt_pass_learn(pass, in, squares, NULL, &down, &err);
			net->weights[i] = was;
			want = (up - down) / (2 * (double)h);
			if (!(fabs((double)grad[i] - want) < 2e-2 * (1 + fabs(want))))
				fail_msg("%s, element %d: %g, not %g", p->name, (int)(i - first),
					 (double)grad[i], want);
		}
	dt_pass_close(pass);
	dt_net_close(net);
}

/* ---- actors ---- */

/* One that goes on from where another stood does what that did next. */
static void test_place(void **state)
{
	static const char *const name[] = {"cartpole", "grid:3", "twostep"};

	for (int k = 0; k < 3; k++) {
		struct dt_env *env = open_env(name[k], 3, 2), *other = open_env(name[k], 3, 2);
		const struct dt_unroll_size size = {3, 11, env->agents, env->observation};
		struct dt_net *net = open_net(env->observation, env->actions + 1);
		struct dt_actor_opts o = {.seed = 5, .first = 2};
		struct dt_actor *a = NULL, *b = NULL;
		struct dt_err err = {0};
		struct dt_unroll u, v;

		assert_int_equal(dt_unroll_open(&u, &size, &err), 0);
		assert_int_equal(dt_unroll_open(&v, &size, &err), 0);
		assert_int_equal(dt_actor_open(&a, env, net, &o, &err), 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(dt_actor_run(a, &u, &err), 0);
		o.place = u.place;
		assert_int_equal(dt_actor_open(&b, other, net, &o, &err), 0);
		for (int i = 0; i < 5; i++) {
			assert_int_equal(dt_actor_run(a, &u, &err), 0);
			assert_int_equal(dt_actor_run(b, &v, &err), 0);
			assert_memory_equal(u.memory, v.memory, u.bytes);
		}
		dt_unroll_release(&u);
		dt_unroll_release(&v);
		dt_actor_close(a);
		dt_actor_close(b);
		dt_net_close(net);
		dt_env_close(env);
		dt_env_close(other);
	}
}

/* ---- actor and critic ---- */

enum { ENVS = 2, STEPS = 6, ACTIONS = 3, ROWS = ENVS * STEPS };
static const struct dt_critic_opts opts = {
	.returns = {.discount = 0.9, .lambda = 1, .rho = 1, .c = 1}, .value_coef = 0.7, .entropy_coef = 0.03};

struct check {
	const struct dt_unroll *u;
	const float *follow; /* outputs in the states that follow */
};

/* By the definition: the sum of discounted rewards up to the end, or to the last step and a value there. */
static int n_step(void *arg, const float *y, float *dy, double *loss, struct dt_err *err)
{
	const struct check *k = arg;
	const struct dt_unroll *u = k->u;

	for (int r = 0; r < ROWS; r++) {
		const float *row = y + r * 4;
		double sum = 0, ret = 0, pi[ACTIONS], entropy = 0, factor = 1, adv;

		for (int i = 0; i < ACTIONS; i++)
			sum += exp((double)row[i]);
		for (int i = 0; i < ACTIONS; i++) {
			pi[i] = exp((double)row[i]) / sum;
			entropy -= pi[i] * log(pi[i]);
		}
		for (int s = r;; s++, factor *= 0.9) {
			ret += factor * u->reward[s];
			if (u->over[s] == DT_ENDED)
				break;
			if (u->over[s] == DT_CUT || s % STEPS == STEPS - 1) {
				ret += factor * 0.9 * (double)k->follow[s * 4 + 3];
				break;
			}
		}
		adv = ret - (double)row[3];
		*loss += (-adv * log(pi[u->action[r]]) + 0.35 * adv * adv - 0.03 * entropy) / ROWS;
		for (int i = 0; i < ACTIONS; i++)
			dy[r * 4 + i] = (float)((adv * (pi[i] - (i == u->action[r])) +
						 0.03 * pi[i] * (log(pi[i]) + entropy)) /
						ROWS);
		dy[r * 4 + 3] = (float)(-0.7 * adv / ROWS);
	}
	return 0;
}

static void fill(struct dt_unroll *u, struct dt_net *net, struct dt_pass *pass)
{
	struct dt_err err = {0};
	const float *y;

	for (int i = 0; i < ROWS * 4; i++) {
		u->now[i] = sinf((float)i * 2.3f);
		u->next[i] = cosf((float)i * 1.1f);
	}
	assert_int_equal(dt_pass_forward(pass, u->now, &y, &err), 0);
	for (int r = 0; r < ROWS; r++) {
		u->action[r] = r % ACTIONS;
		u->reward[r] = sin(r * 3.1);
		u->over[r] = r == 3 ? DT_ENDED : r == 8 ? DT_CUT : DT_GOES_ON;
		u->said[r] = (float)((double)y[r * 4 + u->action[r]] - dt_log_sum(y + r * 4, ACTIONS));
	}
}

/* a2c, and V-trace where the weights are the actor's: the same loss and the same gradients. */
static void test_critic(void **state)
{
	const struct dt_unroll_size size = {ENVS, STEPS, 1, 4};
	struct dt_net *net = open_net(4, ACTIONS + 1);
	struct dt_pass *pass = NULL, *behind = NULL;
	struct dt_critic_stats stats;
	struct dt_err err = {0};
	struct dt_unroll u;
	const struct dt_unroll *list = &u;
	struct check k = {.u = &u};
	float want[512];
	double loss, got;

	assert_int_equal(dt_unroll_open(&u, &size, &err), 0);
	assert_int_equal(dt_pass_open(&pass, net, ROWS, net->weights, true, &err), 0);
	assert_int_equal(dt_pass_open(&behind, net, ROWS, net->weights, false, &err), 0);
	fill(&u, net, pass);
	assert_int_equal(dt_pass_forward(behind, u.next, &k.follow, &err), 0);
	assert_int_equal(dt_pass_learn(pass, u.now, n_step, &k, &loss, &err), 0);
	memcpy(want, net->grads, (size_t)net->n * sizeof(float));
	for (int vtrace = 0; vtrace < 2; vtrace++) {
		struct dt_critic_opts o = opts;
		struct dt_critic *c = NULL;

		o.vtrace = vtrace;
		assert_int_equal(dt_critic_open(&c, net, &size, 1, &o, &err), 0);
		assert_int_equal(dt_critic_learn(c, &list, &got, &stats, &err), 0);
		if (!(fabs(got - loss) < 1e-6))
			fail_msg("loss %.9g, not %.9g", got, loss);
		for (int64_t i = 0; i < net->n; i++)
			if (!(fabsf(net->grads[i] - want[i]) < 1e-6f))
				fail_msg("vtrace %d, element %d: %g, not %g", vtrace, (int)i,
					 (double)net->grads[i], (double)want[i]);
		assert_true(fabs(stats.ratio - 1) < 1e-6);
		dt_critic_close(c);
	}
	dt_unroll_release(&u);
	dt_pass_close(pass);
	dt_pass_close(behind);
	dt_net_close(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pole),	   cmocka_unit_test(test_divided),
		cmocka_unit_test(test_grid),	   cmocka_unit_test(test_two),
		cmocka_unit_test(test_names),	   cmocka_unit_test(test_pipe),
		cmocka_unit_test(test_pipe_fails), cmocka_unit_test(test_net),
		cmocka_unit_test(test_critic),	   cmocka_unit_test(test_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
