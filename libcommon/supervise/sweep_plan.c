/* Parses a sweep's axes and makes its trials, rungs and commands. */
#include "base/rng.h"
#include "base/units.h"
#include "plan/run_rows.h"
#include "supervise/sweep_priv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Parses an option of dt-train up to '='; *ret: the text after it. */
static int parse_name(struct sweep_axis *a, const char *text, const char **ret, struct dt_err *err)
{
	const char *eq = strchr(text, '=');

	if (!eq || eq == text || !eq[1])
		return dt_err_set(err, -EINVAL, "'%s' is not OPTION=VALUES", text);
	a->name = strndup(text, (size_t)(eq - text));
	if (!a->name)
		return dt_err_sys(err, -ENOMEM, "cannot plan the sweep");
	*ret = eq + 1;
	if (dt_run_row_find(a->name) < 0)
		return dt_err_set(err, -EINVAL, "dt-train has no option '--%s'", a->name);
	for (const char *const *own = (const char *const[]){"save", "metrics", "resume", "stop-at", NULL};
	     *own; own++)
		if (!strcmp(a->name, *own))
			return dt_err_set(err, -EINVAL, "the sweep sets '--%s' itself", a->name);
	return 0;
}

/* Whether the option accepts the value. */
static int check_value(const struct sweep_axis *a, const char *value, struct dt_err *err)
{
	struct dt_run_options scratch = {0};
	const struct dt_opt o = dt_run_row_bound(&scratch, dt_run_row_find(a->name));

	if (o.type == DT_OPT_FLAG)
		return !strcmp(value, "on") || !strcmp(value, "off")
			       ? 0
			       : dt_err_set(err, -EINVAL, "'--%s' is on or off, not '%s'", a->name, value);
	return dt_opt_set(&o, value, err) < 0 ? dt_err_prefix(err, "'--%s'", a->name) : 0;
}

static int add_value(struct sweep_axis *a, const char *value, size_t n, struct dt_err *err)
{
	char **grown = realloc(a->value, ((size_t)a->n + 1) * sizeof(*grown));

	if (grown)
		a->value = grown;
	if (!grown || !(a->value[a->n] = strndup(value, n)))
		return dt_err_sys(err, -ENOMEM, "cannot plan the sweep");
	return check_value(a, a->value[a->n++], err);
}

/* Parses "A,B,C". */
static int parse_grid(struct sweep_axis *a, const char *text, struct dt_err *err)
{
	const char *at;
	int rc = parse_name(a, text, &at, err);

	while (rc == 0) {
		const size_t n = strcspn(at, ",");

		rc = add_value(a, at, n, err);
		if (!at[n])
			break;
		at += n + 1;
	}
	return rc;
}

/* Parses "LO:HI", optionally followed by ":log" and ":int". */
static int parse_random(struct sweep_axis *a, const char *text, struct dt_err *err)
{
	const char *at;
	char *end;
	int rc = parse_name(a, text, &at, err);

	if (rc < 0)
		return rc;
	a->lo = strtod(at, &end);
	if (end == at || *end != ':')
		return dt_err_set(err, -EINVAL, "'%s' is not OPTION=LOW:HIGH[:log][:int]", text);
	at = end + 1;
	a->hi = strtod(at, &end);
	if (end == at || !(isfinite(a->lo) && isfinite(a->hi) && a->lo < a->hi))
		return dt_err_set(err, -EINVAL, "'%s': LOW must be a number below HIGH", text);
	while (*end == ':') {
		a->log |= !strncmp(end, ":log", 4);
		a->whole |= !strncmp(end, ":int", 4);
		if (strncmp(end, ":log", 4) && strncmp(end, ":int", 4))
			break;
		end += 4;
	}
	if (*end)
		return dt_err_set(err, -EINVAL, "'%s': '%s' is not :log or :int", text, end);
	if (a->log && a->lo <= 0)
		return dt_err_set(err, -EINVAL, "'%s': with log, LOW must be above 0", text);
	return 0;
}

static int parse_axes(struct sweep *s, struct dt_err *err)
{
	const struct dt_strs *from[] = {&s->o->grid, &s->o->random};

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < from[k]->n; i++) {
			struct sweep_axis *a = &s->axis[s->naxes];
			int rc;

			if (s->naxes == SWEEP_AXES_MAX)
				return dt_err_set(err, -E2BIG, "more than %d options to vary",
						  SWEEP_AXES_MAX);
			s->naxes++;
			rc = k ? parse_random(a, from[k]->v[i], err) : parse_grid(a, from[k]->v[i], err);
			if (rc < 0)
				return rc;
			for (int j = 0; j + 1 < s->naxes; j++)
				if (!strcmp(s->axis[j].name, a->name))
					return dt_err_set(err, -EINVAL, "'--%s' is given twice", a->name);
		}
	return s->naxes ? 0 : dt_err_set(err, -EINVAL, "nothing to vary: give --grid or --random");
}

/* Draws value `sample` of a random axis; depends only on the seed, the axis name and the number. */
static int draw(const struct sweep *s, const struct sweep_axis *a, int64_t sample, char **ret,
		struct dt_err *err)
{
	const struct dt_rng rng = dt_rng_make((uint64_t)s->o->seed, DT_RNG_SAMPLE, dt_hash_str(a->name));
	const double u = dt_rng_uniform53(&rng, (uint64_t)sample);
	const double v = a->log ? a->lo * pow(a->hi / a->lo, u) : a->lo + (a->hi - a->lo) * u;

	if (asprintf(ret, a->whole ? "%.0f" : "%.4g", v) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot plan the sweep");
	return check_value(a, *ret, err);
}

static int fill_trial(const struct sweep *s, struct sweep_trial *t, int number, struct dt_err *err)
{
	int64_t at = number - 1;
	int rc = 0;

	*t = (struct sweep_trial){.number = number, .score = NAN};
	for (int i = s->naxes; i-- > 0 && rc == 0;) { /* the last grid axis varies fastest */
		const struct sweep_axis *a = &s->axis[i];

		if (a->n) {
			t->value[i] = strdup(a->value[at % a->n]);
			rc = t->value[i] ? 0 : dt_err_sys(err, -ENOMEM, "cannot plan the sweep");
			at /= a->n;
		}
	}
	for (int i = 0; i < s->naxes && rc == 0; i++) /* the rest of the number is the sample's */
		if (!s->axis[i].n)
			rc = draw(s, &s->axis[i], at, &t->value[i], err);
	return rc;
}

static int make_trials(struct sweep *s, struct dt_err *err)
{
	int64_t n = s->o->random.n ? s->o->samples : 1;
	int rc = 0;

	for (int i = 0; i < s->naxes && n <= SWEEP_TRIALS_MAX; i++)
		n *= s->axis[i].n ? s->axis[i].n : 1;
	if (n > SWEEP_TRIALS_MAX)
		return dt_err_set(err, -E2BIG, "more than %d trials", SWEEP_TRIALS_MAX);
	s->trial = calloc((size_t)n, sizeof(*s->trial));
	if (!s->trial)
		return dt_err_sys(err, -ENOMEM, "cannot plan the sweep");
	while (s->ntrials < n && rc == 0) {
		rc = fill_trial(s, &s->trial[s->ntrials], s->ntrials + 1, err);
		s->ntrials++;
	}
	return rc;
}

/* The number of ranks that a launcher's word asks for, as of mpirun and srun; 0: it is another option. */
static int ranks_of(const char *word, const char *next)
{
	static const char *const names[] = {"-np", "--np", "--ntasks", "--n", "-n"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const size_t n = strlen(names[i]);

		if (!strncmp(word, names[i], n) &&
		    (!word[n] || word[n] == '=' || isdigit((unsigned char)word[n])))
			return atoi(!word[n] ? next : word + n + (word[n] == '='));
	}
	return 0;
}

/* The number of ranks in the launcher's command, and how many trials run at a time on this machine. */
static void count_jobs(struct sweep *s)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	s->ranks = 1;
	for (int i = 0; i < s->program; i++)
		s->ranks = ranks_of(s->o->argv[i], s->o->argv[i + 1]) > 0
				   ? ranks_of(s->o->argv[i], s->o->argv[i + 1])
				   : s->ranks;
	s->jobs = (int)(s->o->jobs ? s->o->jobs : cpus > s->ranks ? cpus / s->ranks : 1);
	s->jobs = s->jobs < s->ntrials ? s->jobs : s->ntrials;
	s->threads = (int)(cpus / ((long)s->jobs * s->ranks));
	s->threads = s->threads > 1 ? s->threads : 1;
	for (int i = s->program; s->o->argv[i]; i++)
		if (!strncmp(s->o->argv[i], "--threads", 9) || !strncmp(s->o->argv[i], "-t", 2))
			s->threads = 0;
	for (int i = 0; i < s->naxes; i++)
		if (!strcmp(s->axis[i].name, "threads"))
			s->threads = 0;
}

bool sweep_varies_steps(const struct sweep *s)
{
	for (int i = 0; i < s->naxes; i++)
		if (!strcmp(s->axis[i].name, "steps"))
			return true;
	return false;
}

static int count_rungs(struct sweep *s, struct dt_err *err)
{
	s->rungs = 1;
	if (!s->o->halve)
		return 0;
	if (sweep_varies_steps(s))
		return dt_err_set(err, -EINVAL,
				  "--halve compares trials of equal steps: '--steps' cannot be swept");
	if (s->o->first >= s->steps)
		return dt_err_set(err, -EINVAL, "--first must be less than --steps %lld of the command",
				  (long long)s->steps);
	for (int64_t at = s->o->first; at < s->steps; at *= s->o->halve)
		s->rungs++;
	return 0;
}

int64_t sweep_rung_end(const struct sweep *s, int k)
{
	int64_t at = s->o->first;

	if (k == s->rungs - 1)
		return s->steps;
	while (k-- > 0)
		at *= s->o->halve;
	return at;
}

int sweep_plan(struct sweep *s, struct dt_err *err)
{
	struct sup_words words;
	struct sup_command c;
	int rc = parse_axes(s, err);

	if (rc == 0)
		rc = make_trials(s, err);
	if (rc < 0)
		return rc;
	for (int i = 0; s->o->argv[i]; i++)
		for (const char *const *own =
			     (const char *const[]){"--save", "--metrics", "--resume", "--stop-at", NULL};
		     *own; own++)
			if (!strncmp(s->o->argv[i], *own, strlen(*own)) &&
			    strchr("=", s->o->argv[i][strlen(*own)]))
				return dt_err_set(err, -EINVAL, "the sweep sets '%s' itself", *own);
	s->rungs = 1;
	words = sweep_command(s, &s->trial[0], 0);
	rc = sup_command_read(&c, words.v, err);
	if (rc == 0 && c.serves)
		rc = dt_err_set(err, -EINVAL, "sweep is for dt-train, not for dt-serve");
	s->program = c.program;
	s->steps = c.o.run.steps;
	sup_command_release(&c);
	sup_words_free(&words);
	if (rc == 0)
		count_jobs(s);
	return rc == 0 ? count_rungs(s, err) : rc;
}

struct sup_words sweep_command(const struct sweep *s, const struct sweep_trial *t, int k)
{
	struct dt_run_options scratch;
	struct sup_words w = {0};

	for (int i = 0; s->o->argv[i]; i++)
		sup_words_add(&w, "%s", s->o->argv[i]);
	for (int i = 0; i < s->naxes; i++) {
		const struct dt_opt o = dt_run_row_bound(&scratch, dt_run_row_find(s->axis[i].name));

		if (o.type != DT_OPT_FLAG)
			sup_words_add(&w, "--%s=%s", o.name, t->value[i]);
		else if (!strcmp(t->value[i], "on") || o.negatable)
			sup_words_add(&w, "--%s%s", strcmp(t->value[i], "on") ? "no-" : "", o.name);
	}
	if (s->threads)
		sup_words_add(&w, "--threads=%d", s->threads);
	sup_words_add(&w, "--save=%s/%03d", s->o->dir, t->number);
	sup_words_add(&w, "--metrics=%s/%03d/metrics.jsonl", s->o->dir, t->number);
	sup_words_add(&w, "--resume=auto");
	if (k < s->rungs - 1)
		sup_words_add(&w, "--stop-at=%lld", (long long)sweep_rung_end(s, k));
	return w;
}

const char *sweep_name(const struct sweep *s, const struct sweep_trial *t, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; i < s->naxes && at < n; i++)
		at += (size_t)snprintf(buf + at, n - at, "%s%s=%s", i ? " " : "", s->axis[i].name,
				       t->value[i]);
	return buf;
}

bool sweep_better(const struct sweep *s, const struct sweep_trial *a, const struct sweep_trial *b)
{
	if (isnan(a->score) || isnan(b->score))
		return !isnan(a->score) && isnan(b->score);
	return s->o->largest ? a->score > b->score : a->score < b->score;
}

void sweep_release(struct sweep *s)
{
	for (int i = 0; i < s->naxes; i++) {
		for (int k = 0; k < s->axis[i].n; k++)
			free(s->axis[i].value[k]);
		free(s->axis[i].value);
		free(s->axis[i].name);
	}
	for (int i = 0; i < s->ntrials; i++)
		for (int k = 0; k < s->naxes; k++)
			free(s->trial[i].value[k]);
	free(s->trial);
	if (s->file)
		fclose(s->file);
}
/* SPDX-License-Identifier: Apache-2.0 */
