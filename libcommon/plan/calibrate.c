#include "plan/calibrate.h"

#include "base/opt.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 4096

static int read_choice(const json_t *o, const char *key, const char *choices, int *ret, struct dt_err *err)
{
	const char *s = NULL;
	int rc = dt_json_str(o, key, false, &s, err);

	if (rc <= 0)
		return rc;
	rc = dt_opt_choice_index(choices, s);
	if (rc < 0)
		return dt_err_set(err, -EINVAL, "'%s' is '%.30s', not one of %s", key, s, choices);
	*ret = rc;
	return 0;
}

static int read_run(const json_t *o, struct dt_measured_run *r, struct dt_err *err)
{
	const char *model = NULL, *layout = "dp1", *recompute = "none";
	int precision = 0, optimizer = DT_OPTIM_ADAMW, rc;
	struct dt_run *s = &r->run;
	int64_t global = 0, each;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "a run is a JSON object");
	s->microbatch = 4;
	s->seq = 256;
	s->pipeline = DT_PIPE_1F1B;
	if ((rc = dt_json_str(o, "model", true, &model, err)) < 0 ||
	    (rc = dt_json_str(o, "layout", false, &layout, err)) < 0 ||
	    (rc = dt_json_int(o, "microbatch", false, 1, 1 << 24, &s->microbatch, err)) < 0 ||
	    (rc = dt_json_int(o, "global_batch", false, 1, 1 << 30, &global, err)) < 0 ||
	    (rc = dt_json_int(o, "seq", false, 1, 1 << 24, &s->seq, err)) < 0 ||
	    (rc = read_choice(o, "precision", "bf16|fp32", &precision, err)) < 0 ||
	    (rc = read_choice(o, "optimizer", DT_OPTIM_CHOICES, &optimizer, err)) < 0 ||
	    (rc = dt_json_str(o, "recompute", false, &recompute, err)) < 0 ||
	    (rc = dt_keep_parse(recompute, &s->recompute, err)) < 0 ||
	    (rc = dt_json_real(o, "step_s", true, &r->step_s, err)) < 0 ||
	    (rc = dt_config_load(model, &r->config, err)) < 0 ||
	    (rc = dt_layout_parse(layout, &s->layout, err)) < 0 ||
	    (rc = dt_layout_check(&s->layout, &r->config, err)) < 0)
		return rc;
	each = s->microbatch * s->layout.dp;
	global = global ? global : each;
	if (!(r->step_s > 0) || !isfinite(r->step_s) || global % each)
		return dt_err_set(
			err, -EINVAL,
			"'step_s' must be above 0, and 'global_batch' a multiple of microbatch x dp");
	s->accumulation = global / each;
	s->compute = precision ? DT_F32 : DT_BF16;
	s->optim.kind = (enum dt_optim_kind)optimizer;
	return 0;
}

int dt_runs_read(const char *path, struct dt_runs *ret, struct dt_err *err)
{
	struct dt_runs r = {0};
	char *text, *line, *next;
	size_t n;
	int rc = dt_read_file(path, 16 << 20, &text, &n, err), number = 0;

	if (rc < 0)
		return rc;
	r.r = calloc(MAX_RUNS, sizeof(*r.r));
	if (!r.r)
		rc = dt_err_sys(err, -ENOMEM, "'%s'", path);
	for (line = text; rc >= 0 && *line; line = next) {
		json_t *o = NULL;

		next = strchrnul(line, '\n');
		number++;
		if (strspn(line, " \t\r") == (size_t)(next - line)) {
			next += *next != '\0';
			continue;
		}
		if (r.n == MAX_RUNS)
			rc = dt_err_set(err, -ERANGE, "more than %d runs", MAX_RUNS);
		else
			rc = dt_json_parse(line, (size_t)(next - line), "a run", &o, err);
		if (rc >= 0)
			rc = read_run(o, &r.r[r.n], err);
		json_decref(o);
		if (rc < 0)
			dt_err_prefix(err, "'%s' line %d", path, number);
		else
			r.n++;
		next += *next != '\0';
	}
	free(text);
	if (rc >= 0 && r.n == 0)
		rc = dt_err_set(err, -EINVAL, "'%s': no measured runs", path);
	if (rc < 0) {
		dt_runs_release(&r);
		return rc;
	}
	for (int i = 0; i < r.n; i++)
		r.r[i].run.config = &r.r[i].config;
	*ret = r;
	return 0;
}

void dt_runs_release(struct dt_runs *r)
{
	free(r->r);
	memset(r, 0, sizeof(*r));
}

/* The cluster of a run: runs on CPUs were measured on this machine, with all ranks on it. */
static struct dt_cluster of_run(const struct dt_cluster *c, const struct dt_measured_run *r)
{
	struct dt_cluster own = *c;
	int n = dt_layout_world(&r->run.layout);

	if (c->cores && n > c->gpus_a_node)
		own.gpus_a_node = own.level[0].size = n;
	return own;
}

/* Fitted parameters, and the factor by which each may differ from its start. */
static const struct knob {
	size_t off;
	double range;
} knobs[] = {
#define K(f, r)                                                                                              \
	{                                                                                                    \
		offsetof(struct dt_device, f), r                                                             \
	}
	K(matmul_eff, 30), K(mem_eff, 30), K(attention_eff, 30),
	K(op_s, 300),	   K(step_s, 300), K(backward_ratio, 1.8),
#undef K
};
#define NKNOBS ((int)(sizeof(knobs) / sizeof(knobs[0])))

static double *knob(struct dt_device *d, int i)
{
	return (double *)((char *)d + knobs[i].off);
}

static int run_time(const struct dt_cluster *c, const struct dt_stack *stack, const struct dt_run *r,
		    struct dt_work_cache *cache, struct dt_step_time *ret, struct dt_err *err)
{
	const struct dt_work *w = dt_step_work_get(cache, r, stack, err);

	return w ? dt_step_time_of(c, r, stack, w, true, ret, err) : -ENOMEM;
}

/*
 * Mean squared log error, plus a small penalty for moving from the start: parameters that the runs do not
 * determine stay.
 */
static double misfit(const struct dt_cluster *c, const struct dt_stack *stack, const struct dt_runs *runs,
		     struct dt_work_cache *cache, const struct dt_device *start)
{
	struct dt_device d = c->device, s = *start;
	double sum = 0, far = 0;

	for (int i = 0; i < runs->n; i++) {
		struct dt_cluster own = of_run(c, &runs->r[i]);
		struct dt_step_time t;

		if (run_time(&own, stack, &runs->r[i].run, cache, &t, NULL) < 0)
			continue;
		sum += pow(log(t.step / runs->r[i].step_s), 2);
	}
	for (int i = 0; i < NKNOBS; i++)
		far += pow(log(*knob(&d, i) / *knob(&s, i)), 2);
	return sum / runs->n + 1e-5 * far;
}

int dt_calibrate(struct dt_cluster *c, const struct dt_stack *stack, const struct dt_runs *runs,
		 double *ret_error, struct dt_err *err)
{
	struct dt_device start = c->device;
	struct dt_work_cache cache = {0};
	double best, step[NKNOBS];

	if (runs->n < 3)
		return dt_err_set(err, -EINVAL, "%d measured runs are too few: at least 3 are needed",
				  runs->n);
	best = misfit(c, stack, runs, &cache, &start);
	for (int i = 0; i < NKNOBS; i++)
		step[i] = 1.6;
	/*
	 * Coordinate search: changes one value at a time; its step grows while it helps and shrinks
	 * otherwise.
	 */
	for (int round = 0; round < 400; round++) {
		bool moving = false;

		for (int i = 0; i < NKNOBS; i++) {
			double was = *knob(&c->device, i), from = *knob(&start, i), f = step[i];
			bool better = false;

			for (int up = 0; up < 2 && !better; up++) {
				double v = up ? was * f : was / f, now;

				if (v > from * knobs[i].range || v < from / knobs[i].range)
					continue;
				*knob(&c->device, i) = v;
				now = misfit(c, stack, runs, &cache, &start);
				better = now < best;
				best = better ? now : best;
			}
			if (!better)
				*knob(&c->device, i) = was;
			step[i] = better ? fmin(1 + (f - 1) * 1.3, 2) : 1 + (f - 1) * 0.6;
			moving |= step[i] > 1.0005;
		}
		if (!moving)
			break;
	}
	dt_work_cache_release(&cache);
	return dt_runs_error(c, stack, runs, NULL, ret_error, err);
}

int dt_runs_error(const struct dt_cluster *c, const struct dt_stack *stack, const struct dt_runs *runs,
		  struct dt_run_error *ret_each, double *ret_error, struct dt_err *err)
{
	double sum = 0;

	for (int i = 0; i < runs->n; i++) {
		struct dt_cluster own = of_run(c, &runs->r[i]);
		struct dt_step_time t;
		int rc = dt_step_time(&own, &runs->r[i].run, stack, &t, err);

		if (rc < 0)
			return rc;
		sum += fabs(t.step / runs->r[i].step_s - 1);
		if (ret_each)
			ret_each[i] = (struct dt_run_error){t.step / runs->r[i].step_s, t};
	}
	*ret_error = sum / runs->n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
