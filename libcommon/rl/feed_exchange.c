/* Exchanges the groups that ranks have sampled, as lines of dt-rollout. */
#include "rl/feed_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parses the groups of all ranks, in prompt order; text: room * ranks bytes. */
static int take_text(const struct feed *f, const char *text, size_t room, struct dt_group *to,
		     struct dt_err *err)
{
	for (int r = 0; r < f->site.ranks; r++) {
		const char *at = text + (size_t)r * room;

		for (int64_t i = r; i < f->o.batch; i += f->site.ranks) {
			int rc = dt_groups_next(&at, f->site.config->vocab, &to[i], err);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

/* All-gathers the sampled groups: to [--prompts]. */
int feed_exchange(struct feed *f, const struct dt_group *mine, int64_t n, int failed, struct dt_group *to,
		  struct dt_err *err)
{
	char *own = NULL, *all = NULL, *grown;
	size_t len = 0, room;
	double most;
	int rc = failed < 0 ? failed : dt_groups_text(mine, n, &own, &len);

	most = rc < 0 ? -1e18 : (double)len;
	/* The maximum is the buffer size; the minimum tells if a rank failed. */
	double far[2] = {most, -most};

	if (dt_all_reduce(f->site.all, far, NULL, 2, DT_F64, DT_MAX, "length of rollouts", err) < 0) {
		free(own);
		return err->code;
	}
	if (far[1] > 1e17) {
		free(own);
		if (rc == -ENOMEM && failed == 0)
			return dt_err_sys(err, rc, "cannot hand on rollouts");
		return rc < 0 ? rc : dt_err_set(err, -ECANCELED, "%s", "");
	}
	room = (size_t)far[0] + 1;
	all = calloc((size_t)f->site.ranks, room);
	grown = realloc(own, room);
	own = grown ? grown : own;
	rc = all && grown ? 0 : dt_err_sys(err, -ENOMEM, "cannot hand on rollouts");
	if (rc == 0) {
		memset(own + len, 0, room - len);
		rc = dt_all_gather(f->site.all, all, own, room, DT_U8, "rollouts", err);
	}
	if (rc == 0)
		rc = take_text(f, all, room, to, err);
	free(own);
	free(all);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
