/* What a learner in environments keeps, and goes on from. */
#include "rl/control_priv.h"
#include "rl/keep.h"

#include <errno.h>
#include <string.h>

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

	k.control = json_pack("{s:I, s:I, s:I, s:s, s:I, s:b}", "update", (json_int_t)c->updates, "frames",
			      (json_int_t)c->frames, "episodes", (json_int_t)c->episodes, "env",
			      e->name ? e->name : e->command, "seed", (json_int_t)e->seed, "values",
			      c->rule->values);
	if (!k.control)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", c->o->save);
	rc = dt_net_save(&k, c->o->save, c->updates, err);
	json_decref(k.control);
	return rc;
}

static int64_t count_of(const json_t *o, const char *key)
{
	const int64_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? n : 0;
}

int control_resume(struct control *c, struct dt_err *err)
{
	const struct dt_env_spec *e = &c->o->env;
	struct dt_kept k = all_of(c);
	const char *env;
	int rc = dt_net_resume(&k, c->o->resume, err);

	if (rc < 0)
		return rc;
	env = json_string_value(json_object_get(k.control, "env"));
	if (json_is_true(json_object_get(k.control, "values")) != c->rule->values)
		rc = dt_err_set(err, -EINVAL, "'%s' has learnt %s", c->o->resume,
				c->rule->values ? "a policy, not values" : "values, not a policy");
	c->updates = count_of(k.control, "update");
	c->frames = count_of(k.control, "frames");
	c->episodes = count_of(k.control, "episodes");
	if (!env || !e->name || strcmp(env, e->name) || count_of(k.control, "seed") != (int64_t)e->seed)
		memset(c->place, 0, (size_t)e->n * DT_ACTOR_PLACE * sizeof(*c->place));
	if (c->q)
		dt_qlearn_follow(c->q);
	json_decref(k.control);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
