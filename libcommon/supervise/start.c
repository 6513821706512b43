/* Chooses where the job runs and its number of ranks, and makes its command line. */
#include "supervise/state.h"

#include "base/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void add_split(struct sup_words *w, const char *text)
{
	char *copy = strdup(text), *save = NULL;

	for (char *word = copy ? strtok_r(copy, " \t", &save) : NULL; word;
	     word = strtok_r(NULL, " \t", &save))
		sup_words_add(w, "%s", word);
	free(copy);
}

static bool is_mpirun(const char *word)
{
	const char *base = basename(word);

	return !strcmp(base, "mpirun") || !strcmp(base, "mpiexec") || !strcmp(base, "orterun");
}

/* The command as given; mpirun forwards the supervisor's address. */
static void as_given(const struct sup *s, struct sup_words *w)
{
	for (int i = 0; s->cmd.argv[i]; i++) {
		sup_words_add(w, "%s", s->cmd.argv[i]);
		if (i < s->cmd.program && is_mpirun(s->cmd.argv[i])) {
			sup_words_add(w, "-x");
			sup_words_add(w, DT_BEAT_ENV);
		}
	}
}

void sup_command_words(const struct sup *s, struct sup_words *w)
{
	char layout[80];

	for (int i = s->cmd.program; s->cmd.argv[i]; i++)
		sup_words_add(w, "%s", s->cmd.argv[i]);
	if (!s->o->max_ranks)
		return;
	sup_words_add(w, "--layout");
	sup_words_add(w, "%s", dt_layout_format(&s->choice.layout, layout, sizeof(layout)));
	sup_words_add(w, "--microbatch");
	sup_words_add(w, "%lld", (long long)s->choice.microbatch);
	sup_words_add(w, "--global-batch");
	if (s->cmd.o.batch && strchr(s->cmd.o.batch, ':')) /* a growing batch */
		sup_words_add(w, "%s", s->cmd.o.batch);
	else
		sup_words_add(w, "%lld", (long long)s->choice.global_batch);
}

/* mpirun with the chosen ranks and layout. */
static int for_ranks(const struct sup *s, double now, struct sup_words *w, struct dt_err *err)
{
	char *hosts = sup_hosts_list(&s->hosts, now, s->choice.ranks);

	if (!hosts)
		return dt_err_sys(err, -ENOMEM, "list of hosts");
	add_split(w, s->o->launcher);
	sup_words_add(w, "-np");
	sup_words_add(w, "%d", s->choice.ranks);
	sup_words_add(w, "--host");
	sup_words_add(w, "%s", hosts);
	free(hosts);
	if (is_mpirun(w->v[0])) {
		sup_words_add(w, "-x");
		sup_words_add(w, DT_BEAT_ENV);
	}
	sup_command_words(s, w);
	return 0;
}

/* Chooses the most ranks that the available hosts allow. */
static int choose(struct sup *s, double now, struct sup_choice *ret, struct dt_err *err)
{
	int slots = sup_hosts_slots(&s->hosts, now), most = slots < s->o->max_ranks ? slots : s->o->max_ranks;
	int rc = -EAGAIN;

	if (most < s->o->min_ranks)
		return dt_err_set(err, -EAGAIN, "%d slots on %d hosts, but --ranks needs %d", slots,
				  s->hosts.n, s->o->min_ranks);
	for (int n = most; n >= s->o->min_ranks; n--) {
		rc = sup_choose(&s->cmd, s->o->cluster, n, sup_hosts_per(&s->hosts, now, n), ret, err);
		if (rc == 0)
			return 0;
		if (rc != -EINVAL && rc != -ENOSPC && rc != -ENOTSUP && rc != -ERANGE)
			return rc;
	}
	return rc;
}

int sup_would(struct sup *s, double now)
{
	struct sup_choice c;

	return choose(s, now, &c, NULL) == 0 ? c.ranks : 0;
}

int sup_start(struct sup *s, double now, struct dt_err *err)
{
	struct sup_words w = {0};
	char address[512], layout[80] = "";
	int64_t step;
	int rc = sup_command_refresh(&s->cmd, &step, err);

	if (rc == 0 && s->o->max_ranks) {
		rc = choose(s, now, &s->choice, err);
		s->refused = rc == -EINVAL || rc == -ENOTSUP || rc == -ERANGE;
	}
	if (rc < 0)
		return rc;
	s->start++;
	s->best = step > s->best ? step : s->best;
	s->saved = step;
	sup_ranks_reset(&s->ranks, (uint32_t)s->start);
	sup_ranks_address(&s->ranks, address, sizeof(address));
	setenv(DT_BEAT_ENV, address, 1);
	if (s->o->max_ranks)
		rc = for_ranks(s, now, &w, err);
	else
		as_given(s, &w);
	if (!s->cmd.resumes) {
		sup_words_add(&w, "--resume");
		sup_words_add(&w, "auto");
	}
	if (rc == 0)
		rc = sup_job_start(&s->job, w.v, address, err);
	sup_words_free(&w);
	if (rc < 0)
		return rc;
	if (s->o->max_ranks)
		dt_layout_format(&s->choice.layout, layout, sizeof(layout));
	s->spawned = dt_now();
	s->trained = s->progress = s->asked = 0;
	s->noted = 0;
	sup_slow_reset(&s->slow);
	s->replace = (struct sup_replace){0};
	s->ending = SUP_RUNS;
	memset(&s->last, 0, sizeof(s->last));
	sup_event(s, "start", "{s:i, s:i, s:s, s:I}", "start", s->start, "ranks",
		  s->o->max_ranks ? s->choice.ranks : 0, "layout", layout, "checkpoint", (json_int_t)step);
	if (s->o->max_ranks)
		dt_log_msg(s->log, "start %d: %d rank%s, %s, %s", s->start, s->choice.ranks,
			   s->choice.ranks == 1 ? "" : "s", layout,
			   step >= 0 ? "from the newest checkpoint" : "from the beginning");
	return 0;
}

/* Whether the launcher can run a program on the host within 20 s. */
static bool reachable(const struct sup *s, const char *host)
{
	struct sup_words w = {0};
	double end = dt_now() + 20;
	struct sup_job j = {.key = s->job.key};
	struct dt_err err;

	add_split(&w, s->o->launcher);
	sup_words_add(&w, "-np");
	sup_words_add(&w, "1");
	sup_words_add(&w, "--host");
	sup_words_add(&w, "%s", host);
	sup_words_add(&w, "true");
	if (sup_job_start(&j, w.v, "", &err) == 0) {
		while (!sup_job_reap(&j) && dt_now() < end)
			usleep(20000);
		if (j.running) {
			sup_job_kill(&j);
			j.status = -1;
		}
		sup_job_clean(&j);
	} else {
		j.status = -1;
	}
	sup_words_free(&w);
	return j.status == 0;
}

void sup_check_hosts(struct sup *s, double now)
{
	if (s->hosts.n < 2)
		return;
	for (int i = 0; i < s->hosts.n; i++) {
		struct sup_host *h = &s->hosts.v[i];

		if (h->out_until > now || reachable(s, h->name)) {
			h->cool_s = h->out_until > now ? h->cool_s : 0;
			continue;
		}
		h->cool_s = h->cool_s > 0 ? 2 * h->cool_s : s->o->cool_s;
		h->out_until = now + h->cool_s;
		dt_log_msg(s->log, "host '%s' is unreachable: left out for %.0f s", h->name, h->cool_s);
		sup_event(s, "host-out", "{s:s, s:f}", "host", h->name, "seconds", h->cool_s);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
