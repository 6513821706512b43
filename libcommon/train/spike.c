#include "train/spike.h"
#include "train/trainer.h"

#include "base/order.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), dt_order_f64);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double spike_spread(const double *v, int n, double *ret_median)
{
	double copy[SPIKE_WINDOW_MAX], m;

	memcpy(copy, v, (size_t)n * sizeof(*copy));
	*ret_median = m = median(copy, n);
	for (int i = 0; i < n; i++)
		copy[i] = fabs(v[i] - m);
	return 1.4826 * median(copy, n);
}

/* How far x is above the median, in units of the spread. */
static double excess(const double *v, int n, double x, double share, double floor, double *ret_median)
{
	double spread = spike_spread(v, n, ret_median), least = floor + share * fabs(*ret_median);

	return (x - *ret_median) / (spread > least ? spread : least);
}

bool spike_look(struct spike *s, int window, double factor, double loss, double norm, char *why, size_t size)
{
	double logn = norm > 0 ? log(norm) : -700, m;

	if (s->n >= (window + 1) / 2) {
		if (excess(s->loss, s->n, loss, 0.01, 1e-12, &m) > factor) {
			snprintf(why, size, "loss %.4g, while the median is %.4g", loss, m);
			return true;
		}
		if (excess(s->norm, s->n, logn, 0, 0.25, &m) > factor) {
			snprintf(why, size, "gradient norm %.4g, while the median is %.4g", norm, exp(m));
			return true;
		}
	}
	s->loss[s->next] = loss;
	s->norm[s->next] = logn;
	s->next = (s->next + 1) % window;
	s->n += s->n < window;
	return false;
}

json_t *spike_to_json(const struct spike *s)
{
	json_t *loss = json_array(), *norm = json_array();

	for (int i = 0; i < s->n; i++) {
		json_array_append_new(loss, json_real(s->loss[i]));
		json_array_append_new(norm, json_real(s->norm[i]));
	}
	return json_pack("{s:i, s:I, s:o, s:o}", "next", s->next, "bad", (json_int_t)s->bad, "loss", loss,
			 "log_norm", norm);
}

/* Copies the newest `keep` values of a ring of n values, whose oldest is at first, to v, oldest first. */
static void newest(double *v, const json_t *ring, int n, int first, int keep)
{
	for (int i = 0; i < keep; i++)
		v[i] = json_number_value(json_array_get(ring, (size_t)((first + n - keep + i) % n)));
}

int spike_from_json(struct spike *s, const json_t *meta, int window, struct dt_err *err)
{
	const json_t *o = json_object_get(meta, "spike"), *loss = json_object_get(o, "loss"),
		     *norm = json_object_get(o, "log_norm");
	int64_t next = 0, n = (int64_t)json_array_size(loss);
	int rc = 0;

	memset(s, 0, sizeof(*s));
	if (!o)
		return 0;
	if ((rc = dt_json_int(o, "next", true, 0, SPIKE_WINDOW_MAX, &next, err)) < 0 ||
	    (rc = dt_json_int(o, "bad", true, 0, INT64_MAX, &s->bad, err)) < 0)
		return rc;
	if (n > SPIKE_WINDOW_MAX || (int64_t)json_array_size(norm) != n || next > n)
		return dt_err_set(err, -EINVAL, "the window of losses is incomplete");
	/* A ring of the same size keeps its places; else it begins with its oldest value. */
	s->n = n < window ? (int)n : window;
	s->next = n == window ? (int)(next % n) : s->n % window;
	newest(s->loss, loss, (int)n, n == window ? 0 : (int)next, s->n);
	newest(s->norm, norm, (int)n, n == window ? 0 : (int)next, s->n);
	return 0;
}

/* ---- skipped samples ---- */

#define SKIPS_FILE "skipped.json"

bool skips_pass(struct trainer *t)
{
	struct loop *l = &t->loop;

	for (int i = 0; i < l->nskip; i++) {
		const struct skip *k = &l->skip[i];
		const int64_t samples = k->to - l->cursor;

		if (l->cursor < k->from || l->cursor >= k->to)
			continue;
		l->cursor = k->to;
		if (k->steps) {
			l->held = l->step += k->steps;
			l->tokens += samples * t->run.seq; /* as in the start that left the step out */
			return true;
		}
		i = -1; /* another range may begin there */
	}
	return false;
}

static int append(struct trainer *t, struct skip k, struct dt_err *err)
{
	struct loop *l = &t->loop;
	struct skip *grown;

	for (int i = 0; i < l->nskip; i++)
		if (l->skip[i].from == k.from &&
		    l->skip[i].steps == k.steps) { /* rolled back to the same step again */
			l->skip[i].to = k.to > l->skip[i].to ? k.to : l->skip[i].to;
			return 0;
		}
	grown = realloc(l->skip, ((size_t)l->nskip + 1) * sizeof(*grown));
	if (!grown)
		return dt_err_sys(err, -ENOMEM, "list of skipped samples");
	l->skip = grown;
	l->skip[l->nskip++] = k;
	return 0;
}

json_t *skips_to_json(const struct trainer *t)
{
	json_t *list = json_array();

	for (int i = 0; i < t->loop.nskip; i++)
		json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)t->loop.skip[i].from,
						      (json_int_t)t->loop.skip[i].to,
						      (json_int_t)t->loop.skip[i].steps));
	return list;
}

static int write_file(struct trainer *t, struct dt_err *err)
{
	struct dt_tmpfile f;
	char path[PATH_MAX];
	json_t *o;
	int rc;

	if (t->info.rank != 0 || !t->run.save.dir)
		return 0;
	snprintf(path, sizeof(path), "%s/" SKIPS_FILE, t->run.save.dir);
	rc = dt_tmpfile_open(&f, path, err);
	if (rc < 0)
		return rc;
	o = json_pack("{s:s, s:o}", "run_id", t->save.run_id, "skipped", skips_to_json(t));
	rc = o ? dt_json_write_line(f.f, o, err) : dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	json_decref(o);
	if (rc == 0)
		return dt_tmpfile_commit(&f, err);
	dt_tmpfile_abort(&f);
	return rc;
}

int skips_add(struct trainer *t, int64_t from, int64_t to, int64_t steps, struct dt_err *err)
{
	int rc = append(t, (struct skip){from, to, steps}, err);

	return trainer_agree(t, rc == 0 ? write_file(t, err) : rc, err);
}

static int read_list(struct trainer *t, const json_t *list, struct dt_err *err)
{
	const json_t *e;
	size_t i;
	int rc = 0;

	json_array_foreach(list, i, e)
	{
		struct skip k = {json_integer_value(json_array_get(e, 0)),
				 json_integer_value(json_array_get(e, 1)),
				 json_integer_value(json_array_get(e, 2))};

		if (k.from < 0 || k.to <= k.from || k.steps < 0)
			return dt_err_set(err, -EINVAL, "skipped samples [%lld, %lld) are not a valid range",
					  (long long)k.from, (long long)k.to);
		if ((rc = append(t, k, err)) < 0)
			return rc;
	}
	return rc;
}

int skips_from_json(struct trainer *t, const json_t *meta, struct dt_err *err)
{
	int rc = read_list(t, json_object_get(json_object_get(meta, "data"), "skipped"), err);
	char path[PATH_MAX];
	json_t *o = NULL;
	const char *id;

	if (rc < 0 || !t->run.save.dir)
		return rc;
	snprintf(path, sizeof(path), "%s/" SKIPS_FILE, t->run.save.dir);
	rc = dt_json_load(path, 16 << 20, &o, err);
	if (rc == -ENOENT)
		return 0;
	id = json_string_value(json_object_get(o, "run_id"));
	if (rc == 0 && id && !strcmp(id, t->save.run_id)) /* else it belongs to another run */
		rc = read_list(t, json_object_get(o, "skipped"), err);
	json_decref(o);
	return rc < 0 ? dt_err_prefix(err, "'%s'", path) : 0;
}

void skips_release(struct trainer *t)
{
	free(t->loop.skip);
	t->loop.skip = NULL;
	t->loop.nskip = 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
