/* --prometheus: the supervisor's metrics page, rewritten every second. */
#include "supervise/state.h"

#include "base/progress.h"
#include "base/prom.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define EVERY_S 1.0

static const char *const kinds[SUP_EVENT_KINDS] = {
	"start",      "training",    "saved",	    "rank-lost", "slow-rank",	  "stalled",
	"overdue",    "rolled-back", "ask-end",	    "ask-save",	 "notice",	  "host-out",
	"wait-hosts", "end",	     "crash-loop",  "books",	 "mirrored",	  "mirror-failed",
	"fetched",    "ranks",	     "replacement", "evicted",	 "mirror-removed"};

void sup_page_event(struct sup *s, const char *name)
{
	for (int i = 0; i < SUP_EVENT_KINDS; i++)
		if (!strcmp(kinds[i], name))
			s->page_events[i]++;
}

static int ranks_known(const struct sup *s)
{
	int n = 0;

	for (int i = 0; i < s->ranks.n; i++)
		n += s->ranks.v[i].known;
	return n;
}

static void values(struct sup *s, struct dt_prom *p)
{
	const char *name = "dt_run_section_seconds", *section;
	json_t *books = sup_books_json(&s->books, dt_now()), *v;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	dt_prom_one(p, "dt_run_updated_timestamp_seconds", "gauge", "Time at which this page was written.",
		    (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
	dt_prom_one(p, "dt_run_up", "gauge", "Whether the job is running.", s->job.running);
	dt_prom_one(p, "dt_run_starts_total", "counter", "Number of starts of the job.", s->start);
	dt_prom_one(p, "dt_run_ranks", "gauge", "Ranks that have sent a heartbeat in this start.",
		    ranks_known(s));
	dt_prom_one(p, "dt_run_step", "gauge", "Largest step completed so far.",
		    s->best < 0 ? 0 : (double)s->best);
	dt_prom_one(p, "dt_run_saved_step", "gauge", "Step of the newest checkpoint; -1: none.",
		    (double)s->saved);
	dt_prom_one(p, "dt_run_starts_without_progress", "gauge",
		    "Starts since the last new step; dt-run gives up at --tries.", s->idle);
	dt_prom_one(p, "dt_run_goodput_ratio", "gauge",
		    "Time in steps that count, divided by the wall-clock time.",
		    json_number_value(json_object_get(books, "goodput")));
	dt_prom_one(p, "dt_run_steps_redone_total", "counter", "Steps that were lost and repeated.",
		    json_number_value(json_object_get(books, "steps_redone")));
	dt_prom_metric(p, name, "gauge",
		       "Wall-clock time by section; a repeated step moves from steps to redone.");
	json_object_foreach(books, section, v)
	{
		char word[32];
		size_t n = strlen(section);

		if (n < 3 || strcmp(section + n - 2, "_s") != 0 || !strcmp(section, "wall_s"))
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)n - 2, section);
		dt_prom_value(p, name, json_number_value(v), "section", word, NULL);
	}
	json_decref(books);
	name = "dt_run_events_total";
	dt_prom_metric(p, name, "counter", "Number of events by kind, as in --events.");
	for (int i = 0; i < SUP_EVENT_KINDS; i++)
		dt_prom_value(p, name, s->page_events[i], "event", kinds[i], NULL);
}

void sup_page(struct sup *s, bool now)
{
	struct dt_err err = {0};
	struct dt_prom p;
	int rc;

	if (!s->o->prometheus || s->page_failed || (!now && dt_now() < s->page_next))
		return;
	s->page_next = dt_now() + EVERY_S;
	rc = dt_prom_begin(&p, &err);
	if (rc == 0) {
		values(s, &p);
		rc = dt_prom_publish(&p, s->o->prometheus, &err);
	}
	if (rc < 0) {
		dt_log_err(s->log, &err);
		dt_log_msg(s->log, "--prometheus: no more metrics are written");
		s->page_failed = true;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
