/* Symptoms in losses and gradients. */
#include "board/doctor_rules.h"

#include "base/order.h"

#include <math.h>
#include <stdlib.h>

/* Splits the loss into n equal stretches and writes their means to out; false: too few steps. */
static bool stretches(const struct steps *s, double *out, int n)
{
	size_t have = steps_collect(s, "loss", 0, s->n);

	if (have < DT_DOCTOR_LOSSES)
		return false;
	for (int k = 0; k < n; k++) {
		size_t first = have * (size_t)k / (size_t)n, end = have * (size_t)(k + 1) / (size_t)n;

		out[k] = 0;
		for (size_t i = first; i < end; i++)
			out[k] += s->a[i] / (double)(end - first);
	}
	return true;
}

bool doctor_not_finite(const struct steps *s, struct dt_finding *f)
{
	const bool norms = dt_board_run_column(s->r, "grad_norm");
	size_t n = 0, first = 0;

	for (size_t i = 0; i < s->n; i++) {
		bool scaled = steps_get(s, "loss_scale", i) > 1 && steps_get(s, "skipped", i) == 1 &&
			      !isnan(steps_get(s, "loss", i));

		if ((isnan(steps_get(s, "loss", i)) || (norms && isnan(steps_get(s, "grad_norm", i)))) &&
		    !scaled && dt_board_run_column(s->r, "loss") && !n++)
			first = i;
	}
	/* With a loss scale this is doctor_overflow: too large a scale makes gradients overflow. */
	if (dt_board_run_column(s->r, "loss_scale") && !isnan(steps_get(s, "loss", first)))
		return false;
	return n && doctor_say(f, "loss or gradient is not finite in %zu steps, the first is step %.0f", n,
			       steps_get(s, "step", first));
}

bool doctor_overflow(const struct steps *s, struct dt_finding *f)
{
	size_t n = 0;

	if (!dt_board_run_column(s->r, "loss_scale"))
		return false;
	for (size_t i = 0; i < s->n; i++)
		n += steps_get(s, "skipped", i) == 1;
	return n > 3 && (double)n > 0.03 * (double)s->n &&
	       doctor_say(f, "%zu of %zu updates were skipped; the loss scale is %g", n, s->n,
			  steps_get(s, "loss_scale", s->n - 1));
}

bool doctor_diverges(const struct steps *s, struct dt_finding *f)
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
	       doctor_say(f, "the loss was %.4g after %d%% of the steps and has risen to %.4g", least,
			  5 * at + 5, m[19]);
}

bool doctor_learns_nothing(const struct steps *s, struct dt_finding *f)
{
	double m[10];

	return s->n >= 2 * DT_DOCTOR_LOSSES && stretches(s, m, 10) && m[9] > 0.99 * m[0] &&
	       m[9] < 1.05 * m[0] && m[5] > 0.985 * m[0] &&
	       doctor_say(f, "the loss began at %.4g and is still %.4g", m[0], m[9]);
}

bool doctor_spikes(const struct steps *s, struct dt_finding *f)
{
	size_t n = steps_collect(s, "grad_norm", s->settled, s->n), many = 0;
	double mid, most = 0;

	if (n < DT_DOCTOR_LOSSES)
		return false;
	mid = steps_median(s->a, n);
	for (size_t i = 0; i < n; i++) {
		many += s->a[i] > 10 * mid;
		most = fmax(most, s->a[i]);
	}
	return many >= 3 &&
	       doctor_say(f, "%zu gradient norms exceed 10 times the median of %.3g; the largest is %.3g",
			  many, mid, most);
}

/* Lag-1 autocorrelation of the residuals v[0 .. n). */
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
 * Losses of neighbouring steps, minus the trend, are independent if samples are drawn at random, and
 * correlated if they come in order from long documents. Uses the median over blocks, so that one turn of the
 * curve does not count. A loss that rises again is a finding of its own.
 */
bool doctor_not_shuffled(const struct steps *s, struct dt_finding *f)
{
	size_t n, blocks = 0;
	double r;

	if (doctor_diverges(s, f))
		return false;
	n = steps_collect(s, "loss", s->n / 4, s->n);
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
	steps_median(s->a, blocks);
	r = s->a[(blocks - 1) / 2];
	return r > 0.5 && doctor_say(f,
				     "losses of neighbouring steps have a correlation of %.2f; for samples "
				     "drawn at random it "
				     "is about 0",
				     r);
}

/* Steps whose losses repeat bit for bit. */
bool doctor_repeats(const struct steps *s, struct dt_finding *f)
{
	size_t n = steps_collect(s, "loss", 0, s->n), same = 0;

	if (n < DT_DOCTOR_LOSSES)
		return false;
	qsort(s->a, n, sizeof(*s->a), dt_order_f64);
	for (size_t i = 1; i < n; i++)
		same += s->a[i] == s->a[i - 1];
	return same > n / 5 &&
	       doctor_say(f, "%zu of %zu losses repeat another one to the last digit", same, n);
}

bool doctor_overfits(const struct steps *s, struct dt_finding *f)
{
	const double *v = dt_board_run_column(s->r, "eval_loss");
	double least = INFINITY, last = NAN, m[10];
	size_t n = 0, at = 0;

	for (size_t i = 0; v && i < s->r->rows; i++) {
		if (isnan(v[i]) || s->again[i])
			continue;
		last = v[i];
		if (v[i] < least) {
			least = v[i];
			at = n;
		}
		n++;
	}
	return n >= 4 && at + 2 < n && last > 1.03 * least && stretches(s, m, 10) && m[9] < m[5] &&
	       doctor_say(f, "the evaluation loss was %.4g and is now %.4g, while the training loss falls",
			  least, last);
}

/* SPDX-License-Identifier: Apache-2.0 */
