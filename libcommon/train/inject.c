#include "train/inject.h"
#include "train/trainer.h"

#include "base/beat.h"
#include "base/progress.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {"kill",   "stop",  "nan",	      "spike", "slow", "flip",
				    "enospc", "wrong", "kill-update", "late",  "drop"};

static const struct {
	const char *name;
	size_t at;
	bool real;
} keys[] = {
	{"rank", offsetof(struct inject, rank), false},
	{"step", offsetof(struct inject, step), false},
	{"steps", offsetof(struct inject, steps), false},
	{"start", offsetof(struct inject, start), false},
	{"element", offsetof(struct inject, element), false},
	{"bit", offsetof(struct inject, bit), false},
	{"seconds", offsetof(struct inject, seconds), true},
	{"factor", offsetof(struct inject, factor), true},
};

/* Parses KEY=VALUE of n bytes. */
static int parse_key(const char *text, size_t n, struct inject *ret, struct dt_err *err)
{
	size_t name = strcspn(text, "=");
	const char *value = text + name + 1;
	char *end;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && name < n; i++) {
		char *at = (char *)ret + keys[i].at;

		if (strlen(keys[i].name) != name || strncmp(keys[i].name, text, name))
			continue;
		if (!strcmp(keys[i].name, "rank") && n == name + 4 && !strncmp(value, "all", 3)) {
			ret->rank = -1;
			return 0;
		}
		errno = 0;
		if (keys[i].real)
			*(double *)(void *)at = strtod(value, &end);
		else
			*(int64_t *)(void *)at = strtoll(value, &end, 10);
		if (end != text + n || end == value || errno ||
		    (keys[i].real ? *(double *)(void *)at < 0 : value[0] == '-'))
			break;
		return 0;
	}
	return dt_err_set(err, -EINVAL,
			  "'%.*s' is not KEY=VALUE with a key of rank, step, steps, start, element, bit, "
			  "seconds, factor",
			  (int)n, text);
}

/* Parses one fault; -EINVAL with a message on what is wrong with the text. */
static int parse(const char *text, struct inject *ret, struct dt_err *err)
{
	size_t n = strcspn(text, ":");
	int kind = 0, rc = 0, count = (int)(sizeof(kinds) / sizeof(kinds[0]));

	*ret = (struct inject){.step = 1, .start = 1, .bit = 30, .seconds = 1, .factor = 1000};
	while (kind < count && (strlen(kinds[kind]) != n || strncmp(kinds[kind], text, n)))
		kind++;
	if (kind == count)
		return dt_err_set(err, -EINVAL,
				  "'%.*s' is not one of kill, stop, nan, spike, slow, flip, enospc, wrong, "
				  "kill-update, late, drop",
				  (int)n, text);
	ret->kind = (enum inject_kind)kind;
	ret->steps = kind == INJECT_SLOW || kind == INJECT_DROP ? INT64_MAX / 2 : 1;
	if (kind == INJECT_DROP) {
		ret->rank = -1;
		ret->factor = 0.5;
	}
	if (kind == INJECT_SLOW) {
		ret->factor = 1;
		ret->seconds = -1;
	}
	for (text += n; *text && rc == 0; text += n) {
		text++;
		n = strcspn(text, ",");
		rc = parse_key(text, n, ret, err);
	}
	if (ret->seconds < 0) /* not given */
		ret->seconds = ret->factor > 1 ? 0 : 1;
	if (rc == 0 && ret->bit > 31)
		rc = dt_err_set(err, -EINVAL, "bit %lld: a parameter has 32", (long long)ret->bit);
	return rc;
}

int inject_open(struct trainer *t, struct dt_err *err)
{
	const struct dt_strs *list = t->run.inject;
	int rc = 0;

	for (int i = 0; list && i < list->n && rc == 0; i++) {
		if (i == INJECT_MAX)
			return dt_err_set(err, -EINVAL, "more than %d faults", INJECT_MAX);
		rc = parse(list->v[i], &t->inject[i], err);
		if (rc < 0)
			return dt_err_prefix(err, "option '--inject'");
		if (t->inject[i].rank >= t->info.size && !t->run.watch.elastic &&
		    t->inject[i].start == dt_beat_start())
			return dt_err_set(err, -EINVAL, "option '--inject': there is no rank %lld",
					  (long long)t->inject[i].rank);
		t->ninject++;
	}
	return rc;
}

/* Whether the fault is for this rank and the current step. */
static bool due(const struct trainer *t, const struct inject *f)
{
	int64_t step = t->loop.step + 1;

	return (f->rank < 0 || f->rank == t->born) && step >= f->step && f->made < f->steps &&
	       (!f->start || f->start == dt_beat_start());
}

void inject_pass(struct trainer *t)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject *f = &t->inject[i];
		int64_t past = t->loop.step + 1 - f->step;

		f->made = past < 0 ? 0 : past < f->steps ? past : f->steps;
	}
}

static void say_flipped(const struct trainer *t, int64_t bit, int64_t element)
{
	dt_log_msg(t->log, "injected: bit %lld of element %lld flipped before step %lld", (long long)bit,
		   (long long)element, (long long)t->loop.step + 1);
}

/* Flips a bit of a master that is offloaded. */
static void flip_away(struct trainer *t, int64_t element, int bit)
{
	const size_t size = dt_dtype_size(t->store.master.dtype);
	char *at = t->store.master.p + element * (int64_t)size;
	unsigned char v[sizeof(float)];

	if (offload_get(t, v, at, size, NULL) < 0)
		return;
	v[(size_t)(bit / 8) % size] ^= (unsigned char)(1u << bit % 8);
	if (offload_put(t, at, v, size, NULL) == 0 && offload_settle(t, NULL) == 0)
		say_flipped(t, bit, element);
}

/* Flips a bit of a master parameter; the copy in the compute type follows with the next update. */
static void flip(struct trainer *t, const struct inject *f)
{
	int64_t n = 0, at = f->element;
	char *p = t->store.master.p;
	size_t size = dt_dtype_size(t->store.master.dtype);
	unsigned char byte;

	for (int u = 0; u < t->local.nunit; u++)
		if (!t->local.unit[u].packed && !(t->store.master.trained && t->local.unit[u].frozen))
			n += t->store.master.shared ? share_n(t, u) : t->local.unit[u].numel;
	if (!n)
		return;
	if (t->store.master.away) {
		flip_away(t, at % n, (int)f->bit);
		return;
	}
	p += (size_t)(at % n) * size + (size_t)(f->bit / 8) % size;
	if (dt_dev_is_host(t->dev) || !arena_has(t, p)) {
		*p ^= (char)(1u << f->bit % 8);
	} else if (device_get(t, &byte, p, 1, NULL) == 0) {
		byte ^= (unsigned char)(1u << f->bit % 8);
		device_put(t, p, &byte, 1, NULL);
	}
	say_flipped(t, f->bit, at % n);
}

void inject_before(struct trainer *t)
{
	t->inject_begun = dt_now();
	for (int i = 0; i < t->ninject; i++) {
		const struct inject *f = &t->inject[i];

		if (!due(t, f))
			continue;
		if (f->kind == INJECT_FLIP)
			flip(t, f);
		else if (f->kind == INJECT_KILL)
			raise(SIGKILL);
		else if (f->kind == INJECT_STOP)
			raise(SIGSTOP);
	}
}

double inject_factor(const struct trainer *t)
{
	double x = 1;

	for (int i = 0; i < t->ninject; i++) {
		const struct inject *f = &t->inject[i];

		if ((f->kind == INJECT_NAN || f->kind == INJECT_SPIKE) && due(t, f))
			x *= f->kind == INJECT_NAN ? NAN : f->factor;
	}
	return x;
}

/* Sleeps, but not longer than this rank is waited for: a rank whose part is dropped goes on at once. */
static void sleep_for(struct trainer *t, double seconds)
{
	double end = dt_now() + seconds, left;

	while ((left = end - dt_now()) > 0) {
		if (t->backup.racing) {
			dt_comm_poll(t->world, NULL);
			if (backup_look(t) < 0)
				return;
			left = fmin(left, 1e-3);
		} else if (t->servers.mail) { /* a slow server still serves, as one that computes does */
			dt_comm_poll(t->world, NULL);
			left = fmin(left, 1e-3);
		}
		usleep((useconds_t)(left * 1e6));
	}
}

void inject_after(struct trainer *t)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject *f = &t->inject[i];

		if (f->kind == INJECT_ENOSPC || f->kind == INJECT_WRONG || f->kind == INJECT_LATE ||
		    !due(t, f))
			continue;
		if (f->kind == INJECT_SLOW)
			sleep_for(t, f->seconds + (f->factor - 1) * (dt_now() - t->inject_begun));
		f->made++;
	}
}

void inject_update(const struct trainer *t)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject f = t->inject[i];

		f.made = 0; /* this call counts steps before the update */
		if (f.kind == INJECT_KILL_UPDATE && t->inject[i].step == t->loop.step + 1 && due(t, &f))
			raise(SIGKILL);
	}
}

int inject_late(struct trainer *t, struct dt_err *err)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject *f = &t->inject[i];

		if (f->kind != INJECT_LATE || !due(t, f))
			continue;
		f->made++;
		for (double end = dt_now() + 60; !dt_world_lost(t->world) && dt_now() < end;)
			;
		return dt_err_set(err, -ETIMEDOUT, "step %lld: the gradient norm is not received (injected)",
				  (long long)t->loop.step + 1);
	}
	return 0;
}

double inject_wrong(struct trainer *t)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject *f = &t->inject[i], past = *f;

		past.step++; /* called after the step: replicas are compared then */
		if (f->kind != INJECT_WRONG || !due(t, &past))
			continue;
		f->made++;
		return 1 + 1e-6;
	}
	return 1;
}

int inject_save(struct trainer *t, struct dt_err *err)
{
	for (int i = 0; i < t->ninject; i++) {
		struct inject *f = &t->inject[i], past = *f;

		past.step++; /* called when the step is done and saved */
		if (f->kind != INJECT_ENOSPC || !due(t, &past))
			continue;
		f->made++;
		return dt_err_sys(err, -ENOSPC, "cannot write the shard (injected)");
	}
	return 0;
}

bool inject_drop(const struct trainer *t, int n)
{
	const struct dt_rng r = dt_rng_make(t->run.data.seed, DT_RNG_TEST, dt_hash_str("drop"));
	const uint64_t at = (uint64_t)(t->loop.step * t->run.layout.dp + n);

	for (int i = 0; i < t->ninject; i++) {
		const struct inject *f = &t->inject[i];

		if (f->kind == INJECT_DROP && (f->rank < 0 || f->rank == n) && t->loop.step >= f->step &&
		    t->loop.step < f->step + f->steps && dt_rng_uniform(&r, at) < f->factor)
			return true;
	}
	return false;
}
/* SPDX-License-Identifier: Apache-2.0 */
