/* Series, axes and round numbers. plot_term.c and plot_svg.c do the drawing. */
#include "base/plot.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int dt_series_add(struct dt_series *s, double x, double y)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 256;
		double *nx = realloc(s->x, cap * sizeof(*nx)), *ny;

		if (!nx)
			return -ENOMEM;
		s->x = nx;
		ny = realloc(s->y, cap * sizeof(*ny));
		if (!ny)
			return -ENOMEM;
		s->y = ny;
		s->cap = cap;
	}
	s->x[s->n] = x;
	s->y[s->n++] = y;
	return 0;
}

void dt_series_release(struct dt_series *s)
{
	free(s->name);
	free(s->x);
	free(s->y);
	memset(s, 0, sizeof(*s));
}

static double along(double x, bool log_x)
{
	return log_x ? log(x) : x;
}

double dt_plot_spacing(const struct dt_series *s, int n, bool log_x)
{
	double least = HUGE_VAL;

	for (int k = 0; k < n; k++) {
		double way = 0;
		size_t steps = 0;

		for (size_t i = 1; i < s[k].n; i++) {
			double d = along(s[k].x[i], log_x) - along(s[k].x[i - 1], log_x);

			way += d > 0 ? d : 0;
			steps += d > 0;
		}
		if (steps)
			least = fmin(least, way / (double)steps);
	}
	return isfinite(least) ? least : 0;
}

int dt_series_smooth(struct dt_series *ret, const struct dt_series *s, double window, bool log_x)
{
	struct dt_series r = {0};
	size_t first = 0; /* first point of the window */
	double sum = 0;

	for (size_t i = 0; i < s->n; i++) {
		double x = along(s->x[i], log_x);

		if (i && s->x[i] < s->x[i - 1]) {
			first = i;
			sum = 0;
		}
		sum += s->y[i];
		for (; first < i && along(s->x[first], log_x) <= x - window; first++)
			sum -= s->y[first];
		if (first == i) /* avoids rounding errors left by points that were removed */
			sum = s->y[i];
		if (dt_series_add(&r, s->x[i], sum / (double)(i - first + 1)) < 0) {
			dt_series_release(&r);
			return -ENOMEM;
		}
	}
	*ret = r;
	return 0;
}

int dt_series_stack(struct dt_series *ret, const struct dt_series *s, const struct dt_series *below)
{
	struct dt_series r = {0};
	size_t k = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (i && s->x[i] < s->x[i - 1]) { /* start of a new run, also in `below` */
			while (k + 1 < below->n && below->x[k + 1] >= below->x[k])
				k++;
			k += k + 1 < below->n;
		}
		while (k + 1 < below->n && below->x[k + 1] >= below->x[k] && below->x[k + 1] <= s->x[i])
			k++;
		if (dt_series_add(&r, s->x[i], s->y[i] + (below->n ? below->y[k] : 0)) < 0) {
			dt_series_release(&r);
			return -ENOMEM;
		}
	}
	*ret = r;
	return 0;
}

/* Whether the ends of the axis differ in floating point. */
static bool has_range(const struct dt_axis *a)
{
	return a->log ? log(a->hi) - log(a->lo) > 0 : a->hi / 2 - a->lo / 2 > 1e-300;
}

static void widen(struct dt_axis *a, bool any)
{
	if (!any) {
		a->lo = a->log ? 1 : 0;
		a->hi = a->log ? 10 : 1;
	} else if (!has_range(a)) {
		double v = a->lo, room = fabs(v) > 1e-290 ? fabs(v) * 0.1 : 1;

		a->lo = a->log ? v / 2 : v - room;
		a->hi = a->log ? v * 2 : v + room;
		if (!isfinite(a->lo) || !isfinite(a->hi) || (a->log && a->lo <= 0)) {
			a->lo = a->log ? 0x1p-1000 : -1e300; /* near the limits of a double */
			a->hi = 1e300;
		}
	}
}

void dt_plot_axes(const struct dt_plot *p, struct dt_axis *ret_x, struct dt_axis *ret_y)
{
	struct dt_axis x = {HUGE_VAL, -HUGE_VAL, p->log_x, p->bytes_x},
		       y = {HUGE_VAL, -HUGE_VAL, p->log_y, p->bytes_y};
	bool any = false;

	for (int s = 0; s < p->n; s++) {
		for (size_t i = 0; i < p->series[s].n; i++) {
			x.lo = fmin(x.lo, p->series[s].x[i]);
			x.hi = fmax(x.hi, p->series[s].x[i]);
			y.lo = fmin(y.lo, p->series[s].y[i]);
			y.hi = fmax(y.hi, p->series[s].y[i]);
			any = true;
		}
	}
	if (p->stacked)
		y.lo = fmin(y.lo, 0);
	widen(&x, any);
	widen(&y, any);
	*ret_x = x;
	*ret_y = y;
}

double dt_axis_at(const struct dt_axis *a, double v)
{
	if (a->log)
		return (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo));
	return (v / 2 - a->lo / 2) /
	       (a->hi / 2 - a->lo / 2); /* halved, as the range of two doubles may overflow */
}

static void linear_ticks(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	static const double round[] = {1, 2, 5};
	double half = a->hi / 2 - a->lo / 2, power = floor(log10(half)) - 2;

	*ret = (struct dt_ticks){0};
	if (!(half > 1e-300))
		return;
	for (int k = 0;; k++) {
		double step = round[k % 3] * pow(10, power + floor(k / 3.0));
		double first = ceil(a->lo / step - 1e-9), last = floor(a->hi / step + 1e-9);

		if (!(last - first + 1 <= most))
			continue;
		ret->step = step;
		for (int i = 0; i <= last - first; i++)
			ret->at[ret->n++] = (first + i) * step + 0.0; /* + 0.0 turns -0 into 0 */
		return;
	}
}

static void log_ticks(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	static const double fine[] = {1, 2, 5};
	int lo = (int)floor(log10(a->lo)), hi = (int)ceil(log10(a->hi)), stride = (hi - lo) / most + 1;
	struct dt_ticks t = {0};

	if (hi - lo <= 3) {
		for (int k = lo; k <= hi; k++) {
			for (int f = 0; f < 3; f++) {
				double v = fine[f] * pow(10, k);

				if (v >= a->lo * (1 - 1e-9) && v <= a->hi * (1 + 1e-9) && t.n < DT_TICKS_MAX)
					t.at[t.n++] = v;
			}
		}
	}
	if (t.n == 0 || t.n > most) {
		t.n = 0;
		for (int k = lo; k <= hi; k++) {
			double v = pow(10, k);

			if (k % stride == 0 && v >= a->lo * (1 - 1e-9) && v <= a->hi * (1 + 1e-9) &&
			    t.n < most)
				t.at[t.n++] = v;
		}
	}
	if (t.n < 2) /* less than a decade: use round numbers as on a linear axis */
		linear_ticks(a, most, &t);
	*ret = t;
}

/*
 * Ticks at multiples of a power of two; on a logarithmic axis at 2^k with k a multiple of the smallest
 * possible stride.
 */
static void byte_ticks(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	static const int strides[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000};
	struct dt_ticks t = {.bytes = true};

	if (a->log) {
		int lo = (int)ceil(log2(a->lo) - 1e-9), hi = (int)floor(log2(a->hi) + 1e-9), i = 0;

		while ((hi - lo) / strides[i] + 1 > most)
			i++;
		for (int k = lo; k <= hi; k++)
			if (k % strides[i] == 0 && t.n < most)
				t.at[t.n++] = ldexp(1, k);
	}
	if (t.n < 2) { /* less than two powers of two */
		int k = (int)floor(log2((a->hi / 2 - a->lo / 2) / most)) - 1;

		do
			t.step = ldexp(1, ++k);
		while (floor(a->hi / t.step) - ceil(a->lo / t.step) + 1 > most);
		t.n = 0;
		for (double v = ceil(a->lo / t.step); v <= floor(a->hi / t.step) && t.n < most; v++)
			t.at[t.n++] = v * t.step + 0.0;
	}
	*ret = t;
}

void dt_ticks_choose(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	if (most > DT_TICKS_MAX)
		most = DT_TICKS_MAX;
	if (most < 2)
		most = 2;
	if (a->bytes && a->hi < 0x1p63 && a->lo > -0x1p63 && a->hi - a->lo > 0x1p-20)
		byte_ticks(a, most, ret);
	else if (a->log)
		log_ticks(a, most, ret);
	else
		linear_ticks(a, most, ret);
}

/* Turns "1.5e+07" into "1.5e7". */
static void shorten_exponent(char *s)
{
	char *e = strchr(s, 'e'), *d;

	if (!e)
		return;
	d = ++e;
	if (*d == '+')
		d++;
	else if (*d == '-')
		e++, d++;
	while (*d == '0' && d[1])
		d++;
	memmove(e, d, strlen(d) + 1);
}

/* "64 KiB", "1.5 MiB", "512 B" */
static const char *format_bytes(double v, char *buf, size_t n)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	int u = 0;

	while (fabs(v) >= 1024 && u < 6) {
		v /= 1024;
		u++;
	}
	snprintf(buf, n, "%.4g %s", v, unit[u]);
	return buf;
}

const char *dt_ticks_format(const struct dt_ticks *t, int i, char *buf, size_t n)
{
	double v = t->at[i], largest = fmax(fabs(t->at[0]), fabs(t->at[t->n - 1]));
	int unit, digits;

	if (v == 0) {
		snprintf(buf, n, "0");
		return buf;
	}
	if (t->bytes)
		return format_bytes(v, buf, n);
	if (t->step == 0) {
		if (v >= 1e-3 && v < 1e6)
			snprintf(buf, n, "%g", v);
		else
			snprintf(buf, n, "%.0e", v);
		shorten_exponent(buf);
		return buf;
	}
	unit = (int)floor(log10(t->step) + 1e-9); /* decimal place of the last significant digit */
	if (largest < 1e6 && unit >= -4) {
		snprintf(buf, n, "%.*f", unit < 0 ? -unit : 0, v);
		return buf;
	}
	digits = (int)floor(log10(fabs(v)) + 1e-9) - unit;
	snprintf(buf, n, "%.*e", digits > 0 ? digits : 0, v);
	shorten_exponent(buf);
	return buf;
}

double dt_plot_name_at(const struct dt_plot *p, int s)
{
	const struct dt_series *c = &p->series[s], *below = s && p->stacked ? c - 1 : NULL;
	double top = c->y[c->n - 1];

	if (!p->stacked)
		return top;
	return (top + (below && below->n ? below->y[below->n - 1] : 0)) / 2;
}

void dt_plot_spread(const double *want, int n, double lo, double hi, double gap, double *ret)
{
	int order[DT_PLOT_CURVES_MAX];

	gap = n > 1 ? fmin(gap, (hi - lo) / (n - 1)) : gap;
	for (int i = 0; i < n; i++) { /* insertion sort is stable */
		int k = i;

		for (; k && want[order[k - 1]] > want[i]; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (int k = 0; k < n; k++)
		ret[order[k]] = fmax(want[order[k]], k ? ret[order[k - 1]] + gap : lo);
	for (int k = n - 1; k >= 0; k--)
		ret[order[k]] = fmin(ret[order[k]], k < n - 1 ? ret[order[k + 1]] - gap : hi);
}

const char *dt_bar_format(const struct dt_bars *b, double v, char *buf, size_t n)
{
	if (b->unit && !strcmp(b->unit, "bytes") && v >= 0 && v < 0x1p63)
		return dt_format_size((uint64_t)v, buf, n);
	if (b->unit && !strcmp(b->unit, "s") && v >= 1e-3)
		return dt_format_duration(v, buf, n);
	if (v == floor(v) && fabs(v) < 1e9)
		snprintf(buf, n, "%.0f", v);
	else
		snprintf(buf, n, "%.4g", v);
	shorten_exponent(buf);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
