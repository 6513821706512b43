/* Events while the job runs: heartbeats, signals, files, probes. */
#include "supervise/state.h"

#include "base/progress.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ask(struct sup *s, enum sup_ending why, const char *reason)
{
	if (s->ending != SUP_RUNS && why != SUP_LEAVE)
		return;
	if (why == SUP_LEAVE)
		s->stop = true;
	if (!s->job.running) {
		if (why == SUP_LEAVE)
			dt_log_msg(s->log, "%s: not starting the job", reason);
		return;
	}
	dt_log_msg(s->log, "%s: the %s", reason,
		   s->cmd.serves ? "server is asked to finish its requests and exit"
				 : "job is asked to save a checkpoint and exit");
	sup_event(s, "ask-end", "{s:s}", "reason", reason);
	if (s->ending == SUP_RUNS)
		s->ending = why;
	if (s->asked <= 0)
		s->asked = dt_now();
	sup_job_signal(&s->job, SIGUSR1);
}

static void fail_job(struct sup *s, const char *why, const char *event, int rank)
{
	if (s->ending == SUP_FAILED)
		return;
	dt_log_msg(s->log, "%s", why);
	sup_event(s, event, "{s:s, s:i}", "what", why, "rank", rank);
	if (s->ending == SUP_RUNS)
		s->ending = SUP_FAILED;
	sup_job_kill(&s->job);
}

/* In an elastic run: the others go on without the rank. */
static void lose_rank(struct sup *s, const char *why, int rank)
{
	dt_log_msg(s->log, "%s: the other ranks continue", why);
	sup_event(s, "rank-lost", "{s:s, s:i}", "what", why, "rank", rank);
	sup_ranks_forget(&s->ranks, rank);
}

/* Handles a new first rank, which has its own sums, and a changed number of ranks. */
static void account_epoch(struct sup *s, const struct dt_beat *b)
{
	struct dt_beat *l = &s->last;

	if (b->pid != l->pid) {
		l->step_s = b->step_s;
		l->data_s = b->data_s;
		l->save_s = b->save_s;
		l->recovery_s = b->recovery_s;
		l->saved = b->saved > l->saved ? l->saved : b->saved;
	}
	if (b->epoch > l->epoch)
		sup_event(s, "ranks", "{s:i, s:i, s:i, s:I, s:o}", "from", l->ranks, "to", b->ranks, "epoch",
			  (int)b->epoch, "step", (json_int_t)b->step, "ranks", sup_ranks_json(&s->ranks));
	l->pid = b->pid;
	l->epoch = b->epoch;
	l->ranks = b->ranks;
}

/* Handles the first step of a start. */
static void account_start(struct sup *s, const struct dt_beat *b, double now)
{
	struct sup_books *k = &s->books;
	struct dt_beat *l = &s->last;
	double waited = now - s->spawned;
	char job[16];

	s->trained = now;
	s->replace.want = b->ranks;
	*l = *b;
	l->step = b->from;
	l->step_s = l->data_s = l->save_s = l->recovery_s = 0;
	k->s[SUP_RESTORE] += b->restore_s < waited ? b->restore_s : waited;
	k->s[SUP_START] += b->restore_s < waited ? waited - b->restore_s : 0;
	sup_books_back(k, b->from);
	if (s->down > 0)
		k->s[SUP_RECOVERY] += s->spawned - s->down;
	s->down = 0;
	snprintf(job, sizeof(job), "%x", sup_ranks_job(&s->ranks));
	sup_event(s, "training", "{s:I, s:s, s:o}", "from", (json_int_t)b->from, "job", job, "ranks",
		  sup_ranks_json(&s->ranks));
}

/* Takes the steps of the newest heartbeat into the books. */
static void account(struct sup *s, const struct dt_beat *b, double now)
{
	struct sup_books *k = &s->books;
	struct dt_beat *l = &s->last;
	int64_t n = b->step - l->step;

	if (b->phase < DT_BEAT_TRAIN || (b->phase == DT_BEAT_END && s->trained <= 0) ||
	    (s->trained > 0 && b->epoch < l->epoch))
		return;
	if (s->trained <= 0) {
		account_start(s, b, now);
		n = b->step - l->step;
	}
	account_epoch(s, b);
	if (n < 0) { /* rolled back */
		sup_books_back(k, b->step);
		sup_event(s, "rolled-back", "{s:I, s:I}", "from", (json_int_t)l->step, "to",
			  (json_int_t)b->step);
		n = 0;
	}
	for (int64_t i = 1; i <= n; i++)
		sup_books_step(k, l->step + i, (b->step_s - l->step_s) / (double)n);
	if (n > 0) {
		l->step_s = b->step_s;
		sup_notify("WATCHDOG=1");
	}
	k->s[SUP_DATA] += b->data_s - l->data_s;
	k->s[SUP_SAVE] += b->save_s - l->save_s;
	k->s[SUP_RECOVERY] += b->recovery_s - l->recovery_s;
	l->data_s = b->data_s;
	l->save_s = b->save_s;
	l->recovery_s = b->recovery_s;
	if (n > 0 || b->phase != l->phase || b->saved != l->saved)
		s->progress = now;
	if (b->saved != l->saved && b->saved >= 0) {
		s->saved = b->saved;
		s->mirror.wanted = b->saved > s->mirror.wanted ? b->saved : s->mirror.wanted;
		sup_event(s, "saved", "{s:I}", "step", (json_int_t)b->saved);
	}
	l->saved = b->saved;
	l->phase = b->phase;
	l->step = b->step;
	if (b->step > s->best) {
		s->best = b->step;
		s->idle = 0;
	}
}

static void first_rank(void *arg, const struct dt_beat *b)
{
	struct sup *s = arg;

	account(s, b, s->heard_now);
}

/* Signals within so many seconds count as one: timeout(1) signals both its child and the group. */
#define TOGETHER_S 1

static void read_signals(struct sup *s)
{
	struct signalfd_siginfo i;

	while (read(s->signals, &i, sizeof(i)) == sizeof(i)) {
		if (i.ssi_signo == SIGCHLD)
			continue;
		if (i.ssi_signo == SIGUSR2) {
			if (s->job.running)
				sup_job_signal(&s->job, SIGUSR2);
			continue;
		}
		if (s->stop && s->job.running) {
			if (dt_now() - s->signalled < TOGETHER_S)
				continue;
			s->forced = true;
			dt_log_msg(s->log, "second signal: the job is killed");
			sup_job_kill(&s->job);
		} else {
			s->leave |= s->stop;
			s->signalled = dt_now();
			ask(s, SUP_LEAVE, strsignal((int)i.ssi_signo));
		}
	}
}

static void look_for_files(struct sup *s, double now)
{
	const char *kf = s->o->kill_file, *sf = s->o->save_file;

	if (now < s->next_files)
		return;
	s->next_files = now + 0.5;
	if (kf && !s->stop && access(kf, F_OK) == 0)
		ask(s, SUP_LEAVE, "the file of --kill-file exists");
	if (sf && s->trained > 0 && s->job.running && access(sf, F_OK) == 0 && unlink(sf) == 0) {
		sup_event(s, "ask-save", "{}");
		sup_job_signal(&s->job, SIGUSR2);
	}
}

/* Takes a new list of hosts. If it allows another number of ranks, asks the job to end for a restart. */
static void take_hosts(struct sup *s, double now)
{
	struct dt_err err = {0};
	int would;

	if (sup_hosts_parse(&s->hosts, s->discover.text, &err) < 0) {
		dt_log_msg(s->log, "--discover: %s", err.msg);
		return;
	}
	s->hosts_known = true;
	if (!s->job.running || s->ending != SUP_RUNS || s->trained <= 0)
		return;
	would = sup_would(s, now);
	if (would && would != s->choice.ranks) {
		char text[96];

		snprintf(text, sizeof(text), "hosts have slots for %d rank%s instead of %d", would,
			 would == 1 ? "" : "s", s->choice.ranks);
		ask(s, SUP_RESIZE, text);
	}
}

static void run_probes(struct sup *s, double now)
{
	int status;

	if (sup_probe_step(&s->discover, now, &status)) {
		if (status == 0)
			take_hosts(s, now);
		else
			dt_log_msg(s->log,
				   "--discover exited with status %d: the list of hosts stays as it was",
				   status);
	}
	if (!s->stop && sup_probe_step(&s->notice, now, &status) && status == 0) {
		sup_event(s, "notice", "{}");
		ask(s, SUP_LEAVE, "--notice: this machine is about to be reclaimed");
	}
}

static void check_job(struct sup *s, double now)
{
	char why[256];
	double since = s->progress > s->spawned ? s->progress : s->spawned;
	int rank;

	if (!s->job.running)
		return;
	rank = sup_ranks_lost(&s->ranks, now, s->o->heartbeat_s, why, sizeof(why));
	if (rank >= 0 && s->cmd.o.run.watch.elastic && s->trained > 0 && sup_ranks_count(&s->ranks) > 1) {
		lose_rank(s, why, rank);
	} else if (rank >= 0) {
		fail_job(s, why, "rank-lost", rank);
	} else if (s->asked > 0 && now - s->asked > s->o->grace_s) {
		snprintf(why, sizeof(why), "the job has not exited %.0f s after it was asked to",
			 now - s->asked);
		fail_job(s, why, "overdue", -1);
		s->ending = s->stop ? SUP_LEAVE : SUP_FAILED;
		s->asked = 0;
	} else if (!s->cmd.serves && s->o->step_s > 0 && now - since > s->o->step_s) {
		snprintf(why, sizeof(why), "no new step for %.0f s", now - since);
		fail_job(s, why, "stalled", -1);
	}
}

/* The host of rank `rank`: mpirun fills hosts in order. */
static struct sup_host *host_of(struct sup *s, int rank, double now)
{
	for (int i = 0; i < s->hosts.n; i++) {
		struct sup_host *h = &s->hosts.v[i];

		if (h->out_until > now)
			continue;
		if (rank < h->slots)
			return h;
		rank -= h->slots;
	}
	return NULL;
}

/* In an elastic run: ends a slow rank's process, so that the others go on without it. */
static void evict(struct sup *s, int rank, const char *why)
{
	const struct sup_rank *k = &s->ranks.v[rank];

	dt_log_msg(s->log, "%s", why);
	if (!k->local || k->ended || sup_ranks_count(&s->ranks) < 2)
		return;
	dt_log_msg(s->log, "rank %d (process %d) is killed: the other ranks continue", rank, k->beat.pid);
	sup_event(s, "evicted", "{s:i, s:i}", "rank", rank, "pid", k->beat.pid);
	syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
}

static void check_pace(struct sup *s, double now)
{
	double least = s->o->slow > s->o->evict ? s->o->slow : s->o->evict;
	const struct sup_pace *p;
	struct sup_host *h;
	char why[200];
	int rank;

	if (least <= 0 || !s->job.running || s->ending != SUP_RUNS)
		return;
	rank = sup_slow_look(&s->slow, &s->ranks, least);
	if (rank < 0)
		return;
	p = &s->slow.v[rank];
	snprintf(why, sizeof(why),
		 "rank %d (process %d on '%s') is slow: %.2f of the median speed, %.2f of its own best", rank,
		 s->ranks.v[rank].beat.pid, s->ranks.v[rank].beat.host, p->score, p->own);
	sup_event(s, "slow-rank", "{s:i, s:f, s:f, s:s}", "rank", rank, "score", p->score, "own", p->own,
		  "host", s->ranks.v[rank].beat.host);
	if (s->job.elastic && p->score < s->o->evict) {
		evict(s, rank, why);
		return;
	}
	h = host_of(s, rank, now);
	if (p->score >= s->o->evict || !h || sup_hosts_slots(&s->hosts, now) - h->slots < s->o->min_ranks) {
		dt_log_msg(s->log, "%s", why);
		return;
	}
	h->cool_s = h->cool_s > 0 ? 2 * h->cool_s : s->o->cool_s;
	h->out_until = now + h->cool_s;
	sup_event(s, "host-out", "{s:s, s:f}", "host", h->name, "seconds", h->cool_s);
	ask(s, SUP_RESIZE, why);
}

void sup_watch(struct sup *s, double wait_s)
{
	struct pollfd p[] = {{.fd = s->ranks.fd, .events = POLLIN},
			     {.fd = s->signals, .events = POLLIN},
			     {.fd = s->ranks.ends, .events = POLLIN}};
	double before = dt_now(), now;

	poll(p, 3, (int)(wait_s * 1e3));
	now = dt_now();
	s->heard_now = now;
	sup_ranks_receive(&s->ranks, now, first_rank, s);
	if (s->job.running && !s->noted && (s->noted = sup_ranks_job(&s->ranks)))
		sup_job_note(&s->job, s->noted);
	if (now - before > wait_s + 1) { /* this process was suspended, and perhaps the job too */
		sup_ranks_forgive(&s->ranks, now);
		s->progress = now;
	}
	read_signals(s);
	look_for_files(s, now);
	run_probes(s, now);
	sup_mirror_step(s);
	check_job(s, now);
	sup_replace_step(s, now);
	check_pace(s, now);
	sup_page(s, false);
}
/* SPDX-License-Identifier: Apache-2.0 */
