#include "board/doctor.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The steps of a run: lines of evaluations and events are left out. */
struct steps {
	const struct dt_board_run *r;
	size_t *at; /* [n] lines of the run */
	size_t n;
	size_t settled; /* steps at the beginning that times are not judged by */
	double *a, *b;	/* [n] room for rules */
	double seconds; /* of all settled steps */
};

/* Least steps for a rule about time, and about the loss. */
enum { TIME_STEPS = 10, LOSS_STEPS = 40 };

static double get(const struct steps *s, const char *key, size_t i)
{
	const double *v = dt_board_run_column(s->r, key);

	return v ? v[s->at[i]] : NAN;
}

static bool say(struct dt_finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool say(struct dt_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->evidence, sizeof(f->evidence), fmt, ap);
	va_end(ap);
	return true;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of v[0 .. n), which is sorted by it. NAN without values. */
static double median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), ascending);
	return v[n / 2];
}

/* The values of a key in steps first .. end - 1 that have it, into s->a. */
static size_t collect(const struct steps *s, const char *key, size_t first, size_t end)
{
	const double *v = dt_board_run_column(s->r, key);
	size_t n = 0;

	for (size_t i = first; v && i < end; i++)
		if (!isnan(v[s->at[i]]))
			s->a[n++] = v[s->at[i]];
	return n;
}

static double median_of(const struct steps *s, const char *key, size_t first, size_t end)
{
	return median(s->a, collect(s, key, first, end));
}

/* ---- time ---- */

/* Seconds of a key in settled steps over those of all of them. */
static double share(const struct steps *s, const char *key)
{
	size_t n = collect(s, key, s->settled, s->n);
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += s->a[i];
	return s->n >= s->settled + TIME_STEPS && s->seconds > 0 ? sum / s->seconds : 0;
}

static bool by_share(const struct steps *s, struct dt_finding *f, double v, double most, const char *what)
{
	f->gain = v;
	return v > most && say(f, "%.0f%% of the time of steps %s", 100 * v, what);
}

static bool data_bound(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "data_s"), 0.1, "waits for samples");
}

static bool comm_bound(const struct steps *s, struct dt_finding *f)
{
	double v = share(s, "comm_grads_s") + share(s, "comm_weights_s") + share(s, "comm_tensor_s");

	return by_share(s, f, v, 0.3, "waits for other ranks' gradients, weights or parts of layers");
}

static bool bubble(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "comm_pipeline_s"), 0.25, "of rank 0 waits for other stages");
}

static bool slow_saves(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "checkpoint_s"), 0.1, "writes checkpoints");
}

/* Every product is slow: too little work in each. */
static bool low_mfu(const struct steps *s, struct dt_finding *f)
{
	double mfu = s->n >= s->settled + TIME_STEPS ? median_of(s, "mfu", s->settled, s->n) : NAN;
	double compute = share(s, "compute_s");

	return mfu < 0.12 && compute > 0.6 &&
	       say(f, "MFU %.1f%% while %.0f%% of the time computes", 100 * mfu, 100 * compute);
}

/* The time of a step is not what it was. */
static bool slows_down(const struct steps *s, struct dt_finding *f)
{
	size_t n = s->n - s->settled, q = n / 4;
	double first, last;

	if (s->n < s->settled + 4 * TIME_STEPS)
		return false;
	first = median_of(s, "step_s", s->settled, s->settled + q);
	last = median_of(s, "step_s", s->n - q, s->n);
	f->gain = last > first ? 1 - first / last : 0;
	return last > 1.3 * first &&
	       say(f, "a step took %.3g s in the first quarter and takes %.3g s in the last", first, last);
}

static bool uneven(const struct steps *s, struct dt_finding *f)
{
	size_t n = collect(s, "step_s", s->settled, s->n);
	double mid, high;

	if (n < 100)
		return false;
	mid = median(s->a, n);
	high = s->a[n - 1 - n / 20];
	return high > 2.5 * mid && share(s, "checkpoint_s") < 0.05 &&
	       say(f, "one step in 20 takes %.1f times the median and more", high / mid);
}

/* A rank that computes longer than the others in most lines of details. */
static bool straggler(const struct steps *s, struct dt_finding *f)
{
	size_t lines = json_array_size(s->r->details), ranks = 0, *times, worst = 0;
	double most = 0;

	for (size_t i = 0; i < lines; i++) {
		const json_t *d = json_object_get(json_array_get(s->r->details, i), "details");
		const json_t *v = json_object_get(json_object_get(d, "ranks"), "compute_s");

		ranks = json_array_size(v) > ranks ? json_array_size(v) : ranks;
	}
	times = ranks > 1 && ranks < 1u << 20 ? calloc(2 * ranks, sizeof(*times)) : NULL;
	for (size_t i = 0; times && i < lines; i++) {
		const json_t *d = json_object_get(json_array_get(s->r->details, i), "details");
		const json_t *v = json_object_get(json_object_get(d, "ranks"), "compute_s");
		size_t n = json_array_size(v), slow = 0;
		double *c = malloc((n + 1) * sizeof(*c)), mid;

		for (size_t k = 0; c && k < n; k++) {
			c[k] = json_number_value(json_array_get(v, k));
			slow = c[k] > c[slow] ? k : slow;
		}
		if (c && n) {
			double top = c[slow];

			qsort(c, n, sizeof(*c), ascending);
			mid = c[(n - 1) / 2];
			if (mid > 0 && top > 1.3 * mid) {
				times[slow]++;
				most = fmax(most, top / mid);
			}
		}
		free(c);
	}
	for (size_t k = 0; times && k < ranks; k++)
		worst = times[k] > times[worst] ? k : worst;
	lines = times && lines >= 3 && times[worst] * 3 >= lines * 2 ? times[worst] : 0;
	free(times);
	return lines &&
	       say(f, "rank %zu computes longest in %zu of %zu lines of details, up to %.1f times the median",
		   worst, lines, json_array_size(s->r->details), most);
}

/* ---- the loss ---- */

/* Means of n stretches of the loss into out; false: too few steps. */
static bool stretches(const struct steps *s, double *out, int n)
{
	size_t have = collect(s, "loss", 0, s->n);

	if (have < LOSS_STEPS)
		return false;
	for (int k = 0; k < n; k++) {
		size_t first = have * (size_t)k / (size_t)n, end = have * (size_t)(k + 1) / (size_t)n;

		out[k] = 0;
		for (size_t i = first; i < end; i++)
			out[k] += s->a[i] / (double)(end - first);
	}
	return true;
}

static bool not_finite(const struct steps *s, struct dt_finding *f)
{
	size_t n = 0, first = 0;

	for (size_t i = 0; i < s->n; i++) {
		bool scaled =
			get(s, "loss_scale", i) > 1 && get(s, "skipped", i) == 1 && !isnan(get(s, "loss", i));

		if ((isnan(get(s, "loss", i)) || isnan(get(s, "grad_norm", i))) && !scaled &&
		    dt_board_run_column(s->r, "loss") && !n++)
			first = i;
	}
	/* A loss scale that is too large makes gradients overflow: the rule below. */
	if (dt_board_run_column(s->r, "loss_scale") && !isnan(get(s, "loss", first)))
		return false;
	return n && say(f, "%zu steps whose loss or gradient is not finite, the first is step %.0f", n,
			get(s, "step", first));
}

static bool overflow(const struct steps *s, struct dt_finding *f)
{
	size_t n = 0;

	if (!dt_board_run_column(s->r, "loss_scale"))
		return false;
	for (size_t i = 0; i < s->n; i++)
		n += get(s, "skipped", i) == 1;
	return n > 3 && (double)n > 0.03 * (double)s->n &&
	       say(f, "%zu of %zu updates left out, the loss scale is %g", n, s->n,
		   get(s, "loss_scale", s->n - 1));
}

static bool diverges(const struct steps *s, struct dt_finding *f)
{
	double m[20], least = INFINITY;
	int at = 0;

	if (!stretches(s, m, 20))
		return false;
	for (int k = 0; k < 20; k++)
		if (m[k] < least) {
			least = m[k];
			at = k;
		}
	return at < 18 && m[19] > least + 0.25 * fmax(m[0] - least, 0.1 * fabs(least)) &&
	       say(f, "the loss was %.4g after %d%% of the steps and is %.4g now", least, 5 * at + 5, m[19]);
}

static bool learns_nothing(const struct steps *s, struct dt_finding *f)
{
	double m[10];

	return s->n >= 2 * LOSS_STEPS && stretches(s, m, 10) && m[9] > 0.99 * m[0] && m[9] < 1.05 * m[0] &&
	       m[5] > 0.985 * m[0] && say(f, "the loss began at %.4g and is %.4g", m[0], m[9]);
}

static bool spikes(const struct steps *s, struct dt_finding *f)
{
	size_t n = collect(s, "grad_norm", s->settled, s->n), many = 0;
	double mid, most = 0;

	if (n < LOSS_STEPS)
		return false;
	mid = median(s->a, n);
	for (size_t i = 0; i < n; i++) {
		many += s->a[i] > 10 * mid;
		most = fmax(most, s->a[i]);
	}
	return many >= 3 &&
	       say(f, "%zu gradient norms above 10 times the median %.3g, the largest %.3g", many, mid, most);
}

/* Of residuals v[0 .. n): how far each goes with the next. */
static double correlation(const double *v, size_t n)
{
	double both = 0, own = 0;

	for (size_t i = 0; i + 1 < n; i++) {
		both += v[i] * v[i + 1];
		own += v[i] * v[i];
	}
	return own > 0 ? both / own : 0;
}

enum { WINDOW = 25, BLOCK = 50 };

/*
 * Samples drawn at random make losses of neighbouring steps differ independently, once the curve itself is
 * taken off; those of one long document after another do not. The median over blocks, so that a curve that
 * turns once does not count; one that rises again has a finding of its own.
 */
static bool not_shuffled(const struct steps *s, struct dt_finding *f)
{
	size_t n, blocks = 0;
	double r;

	if (diverges(s, f))
		return false;
	n = collect(s, "loss", s->n / 4, s->n);
	if (n < 4 * BLOCK)
		return false;
	for (size_t i = 0; i < n; i++) {
		size_t first = i < WINDOW ? 0 : i - WINDOW, end = i + WINDOW + 1 < n ? i + WINDOW + 1 : n;
		double mean = 0;

		for (size_t k = first; k < end; k++)
			mean += s->a[k] / (double)(end - first);
		s->b[i] = s->a[i] - mean;
	}
	for (size_t i = 0; i + BLOCK <= n; i += BLOCK)
		s->a[blocks++] = correlation(s->b + i, BLOCK);
	median(s->a, blocks);
	r = s->a[(blocks - 1) / 2];
	return r > 0.5 &&
	       say(f,
		   "losses of neighbouring steps go together: correlation %.2f, where samples drawn at "
		   "random have about 0",
		   r);
}

/* Steps whose losses come again bit by bit. */
static bool repeats(const struct steps *s, struct dt_finding *f)
{
	size_t n = collect(s, "loss", 0, s->n), same = 0;

	if (n < LOSS_STEPS)
		return false;
	qsort(s->a, n, sizeof(*s->a), ascending);
	for (size_t i = 1; i < n; i++)
		same += s->a[i] == s->a[i - 1];
	return same > n / 5 && say(f, "%zu of %zu losses are there twice to the last digit", same, n);
}

static bool overfits(const struct steps *s, struct dt_finding *f)
{
	const double *v = dt_board_run_column(s->r, "eval_loss");
	double least = INFINITY, last = NAN, m[10];
	size_t n = 0, at = 0;

	for (size_t i = 0; v && i < s->r->rows; i++) {
		if (isnan(v[i]))
			continue;
		last = v[i];
		if (v[i] < least) {
			least = v[i];
			at = n;
		}
		n++;
	}
	return n >= 4 && at + 2 < n && last > 1.03 * least && stretches(s, m, 10) && m[9] < m[5] &&
	       say(f, "the loss of the evaluation set was %.4g and is %.4g, while that of training falls",
		   least, last);
}

/* ---- what the run is not any more ---- */

static bool batch_changed(const struct steps *s, struct dt_finding *f)
{
	const char *key = dt_board_run_column(s->r, "tokens") ? "tokens" : "images";
	double each = NAN;

	for (size_t i = 1; i < s->n; i++) {
		double d = get(s, "step", i) - get(s, "step", i - 1), t = get(s, key, i) - get(s, key, i - 1);

		if (!(d > 0) || isnan(t))
			continue;
		if (!isnan(each) && fabs(t / d - each) > 1e-9 * each)
			return say(f, "a step had %.0f %s until step %.0f, then %.0f", each, key,
				   get(s, "step", i - 1), t / d);
		each = t / d;
	}
	return false;
}

static bool rate_jumps(const struct steps *s, struct dt_finding *f)
{
	for (size_t i = s->n / 50 + 5; i < s->n; i++) {
		double before = get(s, "lr", i - 1), now = get(s, "lr", i);

		if (get(s, "step", i) == get(s, "step", i - 1) + 1 && before > 0 &&
		    (now > 1.8 * before || now < 0.3 * before) && now > 0)
			return say(f, "the learning rate goes from %.3g to %.3g at step %.0f", before, now,
				   get(s, "step", i));
	}
	return false;
}

static bool steps_missing(const struct steps *s, struct dt_finding *f)
{
	size_t gaps = 0, back = 0;

	for (size_t i = 1; i < s->n; i++) {
		double d = get(s, "step", i) - get(s, "step", i - 1);

		gaps += d > 1;
		back += d <= 0;
	}
	return gaps + back > 0 &&
	       say(f, "%zu gaps in the numbers of steps, %zu steps that were there before", gaps, back);
}

static bool memory_grows(const struct steps *s, struct dt_finding *f)
{
	double half, last;

	if (s->n < 100 || isnan(get(s, "rss_bytes", 0)))
		return false;
	half = get(s, "rss_bytes", s->n / 2);
	last = get(s, "rss_bytes", s->n - 1);
	return last > 1.15 * half && get(s, "rss_bytes", 3 * s->n / 4) > 1.05 * half &&
	       say(f, "rank 0 had %.3g MiB half way and has had %.3g MiB", half / 0x1p20, last / 0x1p20);
}

static bool experts_uneven(const struct steps *s, struct dt_finding *f)
{
	double load = s->n >= LOSS_STEPS ? median_of(s, "expert_largest_load", s->n / 2, s->n) : NAN;

	return load > 4 &&
	       say(f, "one expert gets %.1f times an even share in the later half of the run", load);
}

/* ---- the table ---- */

static const struct {
	const char *name;
	bool (*look)(const struct steps *s, struct dt_finding *f);
	const char *what_to_try;
} rules[] = {
	{"data-bound", data_bound,
	 "--loader-threads more, for images; the data set on a local disk; images smaller or decoded before"},
	{"communication-bound", comm_bound,
	 "dt-plan for another layout; --grad-comm bf16; more microbatches a step (--global-batch); tp inside "
	 "a machine alone"},
	{"pipeline-bubble", bubble,
	 "more microbatches a step; --pipeline interleaved:V or zb-h1; fewer stages; dt-plan compares them"},
	{"slow-checkpoints", slow_saves,
	 "--save-async; --save-every less often; a faster disk; no --compress"},
	{"low-mfu", low_mfu,
	 "a larger --microbatch; --threads; fewer tp ranks; dt-plan roofline says what bounds it"},
	{"slows-down", slows_down,
	 "look for other jobs and for clocks that are lowered for heat; --details 10 says which rank it is"},
	{"uneven-steps", uneven,
	 "other processes on the machines; --trace of some steps shows what waits for what"},
	{"straggler", straggler,
	 "that rank's machine: its clocks, its neighbours, its disk; dt-run --slow and --evict-slow leave it "
	 "out"},
	{"not-finite", not_finite,
	 "a lower --lr, longer --warmup, --clip; --nan-skips K leaves such updates out; bf16 for fp16"},
	{"overflow", overflow, "bf16 instead of fp16; a smaller --loss-scale; a lower --lr"},
	{"diverges", diverges,
	 "a lower --lr, longer --warmup, --clip 1; go on from a checkpoint before it: --on-spike rollback:N"},
	{"learns-nothing", learns_nothing,
	 "a higher --lr; the data and its tokenizer: dt-dataset sample shows them"},
	{"gradient-spikes", spikes, "--clip 1; --on-spike skip; a lower --lr; the samples of those steps"},
	{"not-shuffled", not_shuffled,
	 "a data set in an order of its own: shuffle before dt-dataset build, or train with another --seed"},
	{"repeated-samples", repeats,
	 "duplicates in the data: dt-dataset build --dedup near; a source that gives the same batch again"},
	{"overfits", overfits,
	 "more data or fewer epochs; --weight-decay; stop at the smallest evaluation loss"},
	{"batch-changed", batch_changed,
	 "the --global-batch that the run began with; a change on purpose wants another --lr too"},
	{"rate-jumps", rate_jumps,
	 "the --steps, --warmup and schedule that the run began with: --resume keeps them"},
	{"steps-missing", steps_missing,
	 "one metrics file a run: --resume appends to it, another run does not belong there"},
	{"memory-grows", memory_grows, "report it with the command: a plan's memory does not grow"},
	{"experts-uneven", experts_uneven,
	 "a larger --balance-loss, --balance-over batch, or --capacity-factor"},
};
#define NRULES ((int)(sizeof(rules) / sizeof(*rules)))
_Static_assert(sizeof(rules) / sizeof(*rules) <= DT_DOCTOR_MAX, "ret[] is too short");

const char *dt_doctor_rule(int i)
{
	return i < NRULES ? rules[i].name : NULL;
}

static int steps_of(struct steps *s, const struct dt_board_run *r)
{
	const double *step_s = dt_board_run_column(r, "step_s");

	*s = (struct steps){.r = r,
			    .at = malloc((r->rows + 1) * sizeof(*s->at)),
			    .a = malloc((r->rows + 1) * sizeof(*s->a)),
			    .b = malloc((r->rows + 1) * sizeof(*s->b))};
	if (!s->at || !s->a || !s->b)
		return -ENOMEM;
	for (size_t i = 0; step_s && i < r->rows; i++)
		if (!isnan(step_s[i]))
			s->at[s->n++] = i;
	s->settled = s->n / 20 > 3 ? s->n / 20 : 3; /* files are cold, pages are touched first */
	s->settled = s->settled < s->n ? s->settled : s->n;
	for (size_t i = s->settled; i < s->n; i++)
		s->seconds += step_s[s->at[i]];
	return 0;
}

int dt_doctor(const struct dt_board_run *r, struct dt_finding ret[DT_DOCTOR_MAX], struct dt_err *err)
{
	struct steps s;
	int n = 0, rc = steps_of(&s, r);

	for (int i = 0; i < NRULES && rc == 0 && s.n > 1; i++) {
		struct dt_finding f = {.name = rules[i].name, .what_to_try = rules[i].what_to_try};
		int at = n;

		if (!rules[i].look(&s, &f))
			continue;
		for (; at > 0 && ret[at - 1].gain < f.gain; at--)
			ret[at] = ret[at - 1];
		ret[at] = f;
		n++;
	}
	free(s.at);
	free(s.a);
	free(s.b);
	return rc < 0 ? dt_err_sys(err, rc, "cannot look at '%s'", r->name) : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
