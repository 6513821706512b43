/* Saves and restores a learner in environments. */
#include "rl/control_priv.h"
#include "rl/keep.h"

#include "base/step_name.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct dt_kept all_of(struct control *c)
{
	return (struct dt_kept){.net = c->net,
				.mixer = c->q ? dt_qlearn_mixer(c->q) : NULL,
				.score = c->score,
				.scores = DT_CONTROL_SCORES,
				.place = c->place,
				.envs = c->o->env.n,
				.per_env = DT_ACTOR_PLACE};
}

int control_save(struct control *c, struct dt_err *err)
{
	const struct dt_env_spec *e = &c->o->env;
	struct dt_kept k = all_of(c);
	int rc;

	k.control = json_pack("{s:I, s:I, s:I, s:s, s:I, s:b, s:b}", "update", (json_int_t)c->updates,
			      "frames", (json_int_t)c->frames, "episodes", (json_int_t)c->episodes, "env",
			      e->name ? e->name : e->command, "seed", (json_int_t)e->seed, "values",
			      c->rule->values, "agent_id", c->ids);
	if (!k.control)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", c->o->save);
	memcpy(k.run_id, c->run_id, sizeof(k.run_id));
	rc = dt_net_save(&k, c->o->save, c->updates, err);
	json_decref(k.control);
	return rc;
}

static int64_t count_of(const json_t *o, const char *key)
{
	const int64_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? n : 0;
}

static void say(const struct control *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct control *c, const char *fmt, ...)
{
	char text[2 * PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (c->o->say)
		c->o->say(c->o->arg, text);
}

static bool automatic(const struct control *c)
{
	return c->o->resume && !strcmp(c->o->resume, "auto");
}

int control_find(struct control *c, struct dt_err *err)
{
	const char *path = automatic(c) ? c->o->save : c->o->resume;
	struct dt_ckpt *ck;
	int rc;

	if (!path)
		return 0;
	rc = dt_ckpt_open(path, &ck, err);
	if (rc < 0)
		return automatic(c) && rc == -ENOENT ? 0 : rc;
	if (dt_ckpt_note(ck))
		say(c, "%s", dt_ckpt_note(ck));
	snprintf(c->from, sizeof(c->from), "%s", dt_ckpt_path(ck));
	dt_ckpt_close(ck);
	return 0;
}

/* Reads the newest checkpoint of --save that is intact, from c->from on. */
static int read_intact(struct control *c, struct dt_kept *k, struct dt_err *err)
{
	int rc = dt_net_resume(k, c->from, err);

	while (rc == -EBADMSG && automatic(c)) {
		const char *name = strrchr(c->from, '/');
		const int64_t at = dt_step_of(name ? name + 1 : c->from),
			      older = dt_ckpt_newest(c->o->save, at - 1);
		char to[DT_STEP_NAME];

		if (older < 0)
			break;
		say(c, "checkpoint of update %lld is damaged, using that of update %lld: %s", (long long)at,
		    (long long)older, err->msg);
		dt_step_name(to, older);
		snprintf(c->from, sizeof(c->from), "%s/%s", c->o->save, to);
		rc = dt_net_resume(k, c->from, err);
	}
	return rc;
}

int control_resume(struct control *c, struct dt_err *err)
{
	const struct dt_env_spec *e = &c->o->env;
	struct dt_kept k = all_of(c);
	const char *env;
	int rc = read_intact(c, &k, err);

	if (rc < 0)
		return rc;
	env = json_string_value(json_object_get(k.control, "env"));
	if (json_is_true(json_object_get(k.control, "values")) != c->rule->values)
		rc = dt_err_set(err, -EINVAL, "'%s' holds %s", c->from,
				c->rule->values ? "a policy, not Q-values" : "Q-values, not a policy");
	memcpy(c->run_id, k.run_id, sizeof(c->run_id));
	c->updates = count_of(k.control, "update");
	c->frames = count_of(k.control, "frames");
	c->episodes = count_of(k.control, "episodes");
	if (!env || !e->name || strcmp(env, e->name) || count_of(k.control, "seed") != (int64_t)e->seed)
		memset(c->place, 0, (size_t)e->n * DT_ACTOR_PLACE * sizeof(*c->place));
	if (c->q)
		dt_qlearn_follow(c->q);
	json_decref(k.control);
	if (rc == 0)
		say(c, "resumed from '%s' at update %lld%s", c->from, (long long)c->updates,
		    c->rule->values ? "; checkpoints hold no replay buffer: it fills up to --warm-up before "
				      "updates go on"
				    : "");
	return rc;
}

int control_choose_ids(struct control *c, int agents, struct dt_err *err)
{
	const struct dt_control *o = c->o;

	c->ids = o->agent_id < 0 ? agents > 1 : o->agent_id > 0;
	if (!c->from[0])
		return 0;
	c->ids = dt_kept_ids(c->from);
	if (o->agent_id >= 0 && c->ids != (o->agent_id > 0))
		return dt_err_set(err, -EINVAL, "'%s' was trained %s --agent-id", c->from,
				  c->ids ? "with" : "without");
	return 0;
}

/* ---- the folder of --save belongs to one run ---- */

static int refuse_others(const struct control *c, struct dt_err *err)
{
	const char *dir = c->o->save, *theirs;
	struct dt_ckpt *there;
	int rc = 0;

	if (c->o->overwrite || dt_ckpt_open(dir, &there, NULL) < 0)
		return 0;
	theirs = json_string_value(json_object_get(dt_ckpt_meta(there), "run_id"));
	if (!c->o->resume || (theirs && *theirs && strcmp(theirs, c->run_id))) {
		rc = dt_err_set(err, -EEXIST, "'%s' holds the checkpoints of another run, the newest '%s'",
				dir, dt_ckpt_path(there));
		dt_err_hint(err, "--resume auto continues from it, --overwrite starts over");
	}
	dt_ckpt_close(there);
	return rc;
}

int control_folder(struct control *c, struct dt_err *err)
{
	int rc;

	if (!c->o->save)
		return 0;
	rc = refuse_others(c, err);
	if (rc == 0)
		rc = dt_ckpt_lock(c->o->save, false, &c->lock, err);
	if (rc == 0 && !c->run_id[0])
		rc = dt_ckpt_new_run_id(c->run_id, err);
	return rc == 0 && c->o->overwrite ? dt_ckpt_empty(c->o->save, err) : rc;
}

void control_folder_release(struct control *c)
{
	if (c->lock >= 0)
		close(c->lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
