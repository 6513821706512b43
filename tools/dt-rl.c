/* dt-rl: reinforcement learning in environments, built-in ones or a program's on a pipe. */
#include "base/program.h"
#include "base/progress.h"
#include "base/signals.h"
#include "rl/control.h"
#include "rl/keep.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t stop;

static struct {
	struct dt_control c;
	const char *env, *command;
	int kind, optimizer;
	int64_t actors, envs, steps, frames, every, seed, episodes, batch, ahead, width;
	double lr, timeout;
	bool json, ids, ids_given;
	int64_t anew; /* number of restarted actors; the last reason: */
	char why[200];
} a;

static const char *const examples[] = {
	"dt-rl train --algorithm a3c --env cartpole --actors 2 --until 475 --save pole",
	"dt-rl train --algorithm impala --env grid:5 --frames 300k",
	"dt-rl train --algorithm dqn --env cartpole --until 475 --json >curve.jsonl",
	"dt-rl train --algorithm qmix --env twostep --epsilon 1 --frames 20k --save two",
	"dt-rl train --env-command './simulator --level 3' --envs 8 --frames 1M --json >curve.jsonl",
	"dt-rl play pole --env cartpole",
	NULL,
};

#define TRAIN "train"

static const struct dt_opt opts[] = {
	{"algorithm", 'a', DT_OPT_CHOICE, &a.kind, DT_CONTROL_CHOICES,
	 "learning algorithm, and how actors and learner work together", TRAIN, .def = "a2c"},
	{"env", 'e', DT_OPT_STR, &a.env, "NAME", "built-in environment: " DT_ENVS, .without = "env-command"},
	{"env-command", 0, DT_OPT_STR, &a.command, "COMMAND",
	 "command that runs environments; it reads and writes JSON Lines"},
	{"env-timeout", 0, DT_OPT_REAL, &a.timeout, "SECONDS",
	 "maximum time to wait for an answer of that command", .min = 0.001, .max = 86400, .def = "30"},
	{"seed", 0, DT_OPT_INT, &a.seed, "N", "seed of environments, actions and initial weights", .min = 0,
	 .max = 1e15, .def = "1337"},
	DT_OPT_HEADING("Actors"),
	{"actors", 'n', DT_OPT_INT, &a.actors, "N", "number of actor processes", TRAIN, .min = 1, .max = 1024,
	 .def = "2"},
	{"envs", 0, DT_OPT_INT, &a.envs, "N", "number of environments, over all actors", TRAIN, .min = 1,
	 .max = 1 << 20, .def = "16"},
	{"unroll", 0, DT_OPT_INT, &a.steps, "N", "steps of each environment in an unroll that an actor sends",
	 TRAIN, .min = 1, .max = 1 << 16, .def = "16"},
	DT_OPT_HEADING("Learner"),
	{"hidden", 0, DT_OPT_STR, &a.c.net.hidden, "WIDTHS", "widths of the hidden layers of the policy",
	 TRAIN, .def = "64-64"},
	{"agent-id", 0, DT_OPT_FLAG, &a.ids, NULL,
	 "append the one-hot number of the agent to its observation", TRAIN, .given = &a.ids_given,
	 .negatable = true, .def_text = "if there are several agents"},
	{"lr", 0, DT_OPT_REAL, &a.lr, "X", "learning rate", TRAIN, .min = 0, .max = 10, .def = "0.002"},
	{"optimizer", 0, DT_OPT_CHOICE, &a.optimizer, "rmsprop|adam", "optimizer of the learner", TRAIN,
	 .def = "adam"},
	{"clip", 0, DT_OPT_REAL, &a.c.net.clip, "X", "maximum gradient norm; 0: no clipping", TRAIN, .min = 0,
	 .max = 1e9, .def = "0.5"},
	{"discount", 0, DT_OPT_SHARE, &a.c.critic.returns.discount, "X",
	 "discount factor of rewards, per step", TRAIN, .def = "0.99"},
	{"gae-lambda", 0, DT_OPT_SHARE, &a.c.critic.returns.lambda, "X",
	 "lambda of GAE and V-trace; 1: n-step returns", TRAIN, .def = "1"},
	{"value-coef", 0, DT_OPT_REAL, &a.c.critic.value_coef, "X", "coefficient of the value loss", TRAIN,
	 .min = 0, .max = 1e3, .def = "0.5"},
	{"entropy-coef", 0, DT_OPT_REAL, &a.c.critic.entropy_coef, "X", "coefficient of the entropy bonus",
	 TRAIN, .min = 0, .max = 1e3, .def = "0.01"},
	DT_OPT_HEADING("Q-learning from a replay buffer: dqn, vdn and qmix"),
	{"replay", 0, DT_OPT_COUNT, &a.c.values.capacity, "N", "capacity of the replay buffer, in steps",
	 TRAIN, .min = 1, .max = 1e10, .def = "100k"},
	{"warm-up", 0, DT_OPT_COUNT, &a.c.values.begin, "N",
	 "steps in the replay buffer before the first update", TRAIN, .min = 1, .max = 1e10, .def = "1k"},
	{"replay-ratio", 0, DT_OPT_REAL, &a.c.values.ratio, "X",
	 "mean number of times that a step is sampled for an update", TRAIN, .min = 0.001, .max = 1e6,
	 .def = "8"},
	{"batch", 0, DT_OPT_INT, &a.batch, "N", "steps per update", TRAIN, .min = 1, .max = 1 << 20,
	 .def = "64"},
	{"n-step", 0, DT_OPT_INT, &a.ahead, "N", "rewards in an n-step return", TRAIN, .min = 1,
	 .max = 1 << 16, .def_text = "3; of vdn and qmix 1"},
	{"target-every", 0, DT_OPT_COUNT, &a.c.values.target_every, "N",
	 "updates between two copies of the weights to the target network", TRAIN, .min = 1, .max = 1e15,
	 .def = "200"},
	{"priority", 0, DT_OPT_SHARE, &a.c.values.priority, "X",
	 "exponent of prioritized sampling; 0: uniform sampling", TRAIN, .def = "0.6"},
	{"importance", 0, DT_OPT_SHARE, &a.c.values.importance, "X",
	 "exponent of importance weights; 1: full correction of priorities", TRAIN, .def = "0.4"},
	{"epsilon", 0, DT_OPT_SHARE, &a.c.values.explore, "X",
	 "probability of a random action in the first environment", TRAIN, .def = "0.4"},
	{"epsilon-spread", 0, DT_OPT_REAL, &a.c.values.spread, "X",
	 "the last environment explores with --epsilon to the power of 1 + X", TRAIN, .min = 0, .max = 1e3,
	 .def = "7"},
	{"mixer-width", 0, DT_OPT_INT, &a.width, "N", "width of the mixing network of qmix", TRAIN, .min = 1,
	 .max = 4096, .def = "32"},
	DT_OPT_HEADING("End and output"),
	{"frames", 0, DT_OPT_INT, &a.frames, "N", "maximum number of steps, over all environments", TRAIN,
	 .min = 1, .max = 1e15, .def = "1M"},
	{"until", 0, DT_OPT_REAL, &a.c.until, "SCORE",
	 "stop at this mean score of 100 episodes; exit with 3 if it is not reached", TRAIN, .min = -1e9,
	 .max = 1e9, .def_text = "only --frames ends training"},
	{"every", 0, DT_OPT_INT, &a.every, "N", "updates per line of output", TRAIN, .min = 1, .max = 1e15,
	 .def = "100"},
	{"save", 0, DT_OPT_STR, &a.c.save, "DIR", "folder for a checkpoint, written at the end", TRAIN,
	 .complete = DT_COMPLETE_DIR},
	{"overwrite", 0, DT_OPT_FLAG, &a.c.overwrite, NULL,
	 "start over if --save holds checkpoints of another run", TRAIN, .with = "save", .without = "resume"},
	{"save-every", 0, DT_OPT_INT, &a.c.save_every, "N", "also save every N updates", TRAIN, .min = 1,
	 .max = 1e15, .with = "save"},
	{"resume", 0, DT_OPT_STR, &a.c.resume, "auto|CKPT",
	 "resume from the newest checkpoint in --save, if there is one (auto), or from CKPT", TRAIN,
	 .complete = DT_COMPLETE_DIR},
	{"episodes", 0, DT_OPT_INT, &a.episodes, "N", "number of episodes to play", "play", .min = 1,
	 .max = 1e9, .def = "100"},
	{"json", 'j', DT_OPT_FLAG, &a.json, NULL, "print JSON Lines"},
	DT_OPT_END,
};

static int run_train(int n, char **v);
static int run_play(int n, char **v);

static const struct dt_command commands[] = {
	{"train", "", "Train a policy in environments", run_train, 0, 0},
	{"play", "CKPT", "Play episodes with a trained policy, taking the best action", run_play, 1, 1},
	{NULL, NULL, NULL, NULL, 0, 0},
};

static const struct dt_program program = {
	.name = "dt-rl",
	.summary = "reinforcement learning in environments, with actors in separate processes",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

static void on_signal(int sig)
{
	stop = 1;
}

static int print_line(json_t *o, struct dt_err *err)
{
	int rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "cannot print");

	json_decref(o);
	return rc == 0 && fflush(stdout) ? dt_program_check_stdout(err) : rc;
}

/* A JSON number, or null if x is not finite. */
static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static int print_json(const struct dt_control_line *l, struct dt_err *err)
{
	return print_line(json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:f}",
				    "update", (json_int_t)l->update, "frames", (json_int_t)l->frames,
				    "episodes", (json_int_t)l->episodes, "score_mean", number(l->score),
				    "loss", number(l->loss), "grad_norm", number(l->grad_norm), "entropy",
				    number(l->entropy), "value_loss", number(l->value_loss), "ratio_mean",
				    number(l->ratio), "value_mean", number(l->value), "replay",
				    (json_int_t)l->kept, "lag_mean", number(l->lag), "restarts",
				    (json_int_t)l->restarts, "elapsed_s", l->seconds),
			  err);
}

static int report(void *arg, const struct dt_control_line *l, struct dt_err *err)
{
	const bool values = isnan(l->entropy);

	(void)arg;
	if (a.json)
		return print_json(l, err);
	errno = 0;
	printf("update %lld  frames %lld  episodes %lld  score %.2f  loss %.4f  %s %.3f  lag %.1f  %.1f s\n",
	       (long long)l->update, (long long)l->frames, (long long)l->episodes, l->score, l->loss,
	       values ? "value" : "entropy", values ? l->value : l->entropy, l->lag, l->seconds);
	return fflush(stdout) ? dt_program_check_stdout(err) : 0;
}

/* Reports the first restart with its reason; counts the others. */
static void on_anew(void *arg, int number, const char *why)
{
	(void)arg;
	if (a.anew++ == 0)
		dt_program_say(&program, "actor %d was restarted: %s", number, why);
	snprintf(a.why, sizeof(a.why), "%s", why);
}

/* What the library says of resuming. */
static void on_said(void *arg, const char *text)
{
	(void)arg;
	dt_program_say(&program, "%s", text);
}

#define VALUES (1u << DT_CONTROL_DQN | 1u << DT_CONTROL_VDN | 1u << DT_CONTROL_QMIX)
#define POLICY (1u << DT_CONTROL_A2C | 1u << DT_CONTROL_A3C | 1u << DT_CONTROL_IMPALA)

/* Options that only some algorithms have. */
static const struct {
	unsigned kinds;
	const char *whose, *options[12];
} parts[] = {
	{POLICY, "a2c, a3c and impala", {"gae-lambda", "value-coef", "entropy-coef"}},
	{VALUES,
	 "dqn, vdn and qmix",
	 {"replay", "warm-up", "replay-ratio", "batch", "n-step", "target-every", "priority", "importance",
	  "epsilon", "epsilon-spread"}},
	{1u << DT_CONTROL_QMIX, "qmix", {"mixer-width"}},
};

/* Refuses options the algorithm does not have. Returns 0 or an exit status. */
static int refuse_misplaced(void)
{
	char own[16];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		const char *name =
			parts[i].kinds & 1u << a.kind ? NULL : dt_opt_first_set(opts, parts[i].options, true);

		if (name)
			return dt_opt_usage_error(
				&program, stderr, "'--%s' is an option of %s, not of %s", name,
				parts[i].whose,
				dt_opt_choice_name(DT_CONTROL_CHOICES, a.kind, own, sizeof(own)));
	}
	return 0;
}

/* SIGHUP ends the run like SIGTERM, unless it is ignored (nohup). */
static void catch_signals(void)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction hangup;
	const bool nohup = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;

	dt_signals_catch(which, sizeof(which) / sizeof(which[0]) - nohup, on_signal);
}

/* Settings of both commands. Returns 0 or an exit status. */
static int common(void)
{
	const struct dt_env_spec one = {.name = a.env, .n = 1};
	struct dt_env *known = NULL;
	struct dt_err err = {0};

	if (a.env && !a.command && dt_env_open(&known, &one, &err) == -EINVAL)
		return dt_opt_usage_of(&program, stderr, "env", &err);
	dt_env_close(known);
	if (!a.env == !a.command)
		return dt_opt_usage_error(&program, stderr, "give --env NAME or --env-command COMMAND");
	catch_signals();
	a.c.env = (struct dt_env_spec){.name = a.env,
				       .command = a.command,
				       .n = (int)a.envs,
				       .seed = (uint64_t)a.seed,
				       .timeout = a.timeout};
	a.c.stop = &stop;
	return 0;
}

/* Fills the learner's settings from the options. Returns 0 or an exit status. */
static int set_learner(void)
{
	static const enum dt_optim_kind rule[] = {DT_OPTIM_RMSPROP, DT_OPTIM_ADAM};
	struct dt_err err = {0};
	const bool automatic = a.c.resume && !strcmp(a.c.resume, "auto");
	const int misplaced = refuse_misplaced();

	if (misplaced)
		return misplaced;
	if (automatic && !a.c.save)
		return dt_opt_usage_error(&program, stderr, "--resume auto needs --save");
	if (dt_net_check_hidden(a.c.net.hidden, &err) < 0)
		return dt_opt_usage_of(&program, stderr, "hidden", &err);
	if (a.envs % a.actors)
		return dt_opt_usage_error(&program, stderr, "--envs %lld is not a multiple of --actors %lld",
					  (long long)a.envs, (long long)a.actors);
	if (a.c.values.begin > a.c.values.capacity)
		return dt_opt_usage_error(&program, stderr, "--warm-up is larger than --replay");
	a.c.kind = (enum dt_control_kind)a.kind;
	a.c.actors = (int)a.actors;
	a.c.agent_id = a.ids_given ? a.ids : -1;
	a.c.steps = (int)a.steps;
	a.c.frames = a.frames;
	a.c.every = a.every;
	a.c.report = report;
	a.c.anew = on_anew;
	a.c.say = on_said;
	a.c.values.batch = (int)a.batch;
	a.c.values.ahead = a.ahead ? (int)a.ahead : dt_control_rules[a.kind].mixer == DT_MIX_NONE ? 3 : 1;
	a.c.values.width = (int)a.width;
	a.c.critic.returns.rho = a.c.critic.returns.c = 1;
	a.c.net.seed = (uint64_t)a.seed;
	a.c.net.optim = (struct dt_optim){.kind = rule[a.optimizer],
					  .lr = (float)a.lr,
					  .beta1 = 0.9f,
					  .beta2 = a.optimizer ? 0.999f : 0.99f,
					  .eps = 1e-5f};
	if ((!a.c.resume || automatic) && dt_control_check_frames(&a.c, 0, &err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	return 0;
}

static int run_train(int n, char **v)
{
	struct dt_control_line last = {0};
	struct dt_err err = {0};
	int rc = common();

	if (rc == 0)
		rc = set_learner();
	if (rc)
		return rc;
	rc = dt_control_run(&a.c, &last, &err);
	if (rc >= 0 && last.update % a.every && last.update > 1 && report(NULL, &last, &err) < 0)
		rc = err.code;
	if (a.anew > 1 && (rc >= 0 || rc == -EINTR))
		dt_program_say(&program, "%lld restarts of actors; last reason: %s", (long long)a.anew,
			       a.why);
	if (rc == -EINTR) {
		dt_program_say(&program, "stopped by a signal after update %lld%s", (long long)last.update,
			       a.c.save ? ", checkpoint saved" : "; nothing saved: no --save");
		return a.c.save ? DT_EXIT_PREEMPTED : DT_EXIT_FAILED;
	}
	if (rc == 0 && !isnan(a.c.until)) {
		dt_program_say(
			&program,
			"mean score of the last %d episodes after %lld steps: %.2f, below --until %.2f",
			DT_CONTROL_SCORES, (long long)last.frames, last.score, a.c.until);
		return DT_EXIT_NO;
	}
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

static int run_play(int n, char **v)
{
	struct dt_net *net = NULL;
	struct dt_err err = {0};
	double score = (double)NAN;
	int rc = common();

	if (rc)
		return rc;
	rc = dt_net_load(&net, v[0], &err);
	a.c.agent_id = dt_kept_ids(v[0]);
	if (rc == 0)
		rc = dt_control_play(&a.c, net, a.episodes, &score, &err);
	dt_net_close(net);
	if (rc == 0 && stop)
		rc = dt_err_set(&err, -EINTR, "stopped by a signal before all episodes were over");
	if (rc == 0 && a.json)
		rc = print_line(json_pack("{s:I, s:o}", "episodes", (json_int_t)a.episodes, "score_mean",
					  number(score)),
				&err);
	else if (rc == 0)
		printf("%lld episodes: score %.2f\n", (long long)a.episodes, score);
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	a.c.until = (double)NAN;
	signal(SIGPIPE, SIG_IGN);
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
