/* Series, axes and round numbers. plot_term.c and plot_svg.c draw. */
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

/* Can positions on the axis be told apart in floating point? */
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
			a->lo = a->log ? 0x1p-1000 : -1e300; /* at the ends of what a double holds */
			a->hi = 1e300;
		}
	}
}

void dt_plot_axes(const struct dt_plot *p, struct dt_axis *ret_x, struct dt_axis *ret_y)
{
	struct dt_axis x = {HUGE_VAL, -HUGE_VAL, p->log_x}, y = {HUGE_VAL, -HUGE_VAL, p->log_y};
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
	       (a->hi / 2 - a->lo / 2); /* halves: the range of two doubles may overflow */
}

static void linear_ticks(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	static const double round[] = {1, 2, 5};
	double half = a->hi / 2 - a->lo / 2, power = floor(log10(half)) - 2;

	ret->n = 0;
	if (!(half > 1e-300))
		return;
	for (int k = 0;; k++) {
		double step = round[k % 3] * pow(10, power + floor(k / 3.0));
		double first = ceil(a->lo / step - 1e-9), last = floor(a->hi / step + 1e-9);

		if (!(last - first + 1 <= most))
			continue;
		ret->step = step;
		for (int i = 0; i <= last - first; i++)
			ret->at[ret->n++] = (first + i) * step + 0.0; /* + 0: no minus zero */
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
	if (t.n < 2) /* less than a decade: round numbers, only placed on a logarithmic axis */
		linear_ticks(a, most, &t);
	*ret = t;
}

void dt_ticks_choose(const struct dt_axis *a, int most, struct dt_ticks *ret)
{
	if (most > DT_TICKS_MAX)
		most = DT_TICKS_MAX;
	if (most < 2)
		most = 2;
	if (a->log)
		log_ticks(a, most, ret);
	else
		linear_ticks(a, most, ret);
}

/* "1.5e+07" is "1.5e7". */
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

const char *dt_ticks_format(const struct dt_ticks *t, int i, char *buf, size_t n)
{
	double v = t->at[i], largest = fmax(fabs(t->at[0]), fabs(t->at[t->n - 1]));
	int unit, digits;

	if (v == 0) {
		snprintf(buf, n, "0");
		return buf;
	}
	if (t->step == 0) {
		if (v >= 1e-3 && v < 1e6)
			snprintf(buf, n, "%g", v);
		else
			snprintf(buf, n, "%.0e", v);
		shorten_exponent(buf);
		return buf;
	}
	unit = (int)floor(log10(t->step) + 1e-9); /* the last digit that matters */
	if (largest < 1e6 && unit >= -4) {
		snprintf(buf, n, "%.*f", unit < 0 ? -unit : 0, v);
		return buf;
	}
	digits = (int)floor(log10(fabs(v)) + 1e-9) - unit;
	snprintf(buf, n, "%.*e", digits > 0 ? digits : 0, v);
	shorten_exponent(buf);
	return buf;
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
