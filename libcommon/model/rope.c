/*
 * Rotary angles, and their scaling for contexts longer than the training length: linear (Chen et al. 2023),
 * NTK-aware (a larger base), dynamic NTK (base grows with length), YaRN (Peng et al. 2023), Llama 3.1
 * (Grattafiori et al. 2024), LongRoPE (Ding et al. 2024).
 */
#include "model/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Llama 3.1: scales long wavelengths, keeps short ones, interpolates linearly between. */
static double llama3_scale(const struct dt_config *c, double freq)
{
	double wavelength = 2 * M_PI / freq, orig = (double)c->rope_original_seq, smooth;

	if (wavelength < orig / c->rope_high_freq)
		return freq;
	if (wavelength > orig / c->rope_low_freq)
		return freq / c->rope_factor;
	smooth = (orig / wavelength - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
	return (1 - smooth) * freq / c->rope_factor + smooth * freq;
}

/* The pair that makes `turns` rotations over the original length (YaRN, section 3.2). */
static double turning(const struct dt_config *c, double turns)
{
	return (double)dt_rope_dim(c) * log((double)c->rope_original_seq / (turns * 2 * M_PI)) /
	       (2 * log(c->rope_theta));
}

/* YaRN: keeps pairs that rotate often, scales those that rotate seldom, with a linear ramp between. */
static double yarn_scale(const struct dt_config *c, int64_t i, double freq)
{
	double low = turning(c, c->rope_beta_fast), high = turning(c, c->rope_beta_slow), ramp;

	if (!c->rope_untruncated) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, (double)dt_rope_dim(c) - 1);
	if (low == high)
		high += 0.001;
	ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
	return freq / c->rope_factor * ramp + freq * (1 - ramp);
}

/* The base at which the slowest pair rotates 1 / factor as fast while the fastest is unchanged. */
static double ntk_base(const struct dt_config *c, double factor)
{
	double d = (double)dt_rope_dim(c);

	return d > 2 ? c->rope_theta * pow(factor, d / (d - 2)) : c->rope_theta;
}

double dt_rope_base(const struct dt_config *c)
{
	return c->rope_scaling == DT_ROPE_SCALING_NTK ? ntk_base(c, c->rope_factor) : c->rope_theta;
}

double dt_rope_frequency(const struct dt_config *c, int64_t i)
{
	double freq = pow(dt_rope_base(c), -2.0 * (double)i / (double)dt_rope_dim(c));

	switch (c->rope_scaling) {
	case DT_ROPE_SCALING_LINEAR:
		return freq / c->rope_factor;
	case DT_ROPE_SCALING_LLAMA3:
		return llama3_scale(c, freq);
	case DT_ROPE_SCALING_YARN:
		return yarn_scale(c, i, freq);
	case DT_ROPE_SCALING_LONGROPE:
		return freq / (double)c->rope_short[i];
	default:
		return freq;
	}
}

double dt_rope_local_frequency(const struct dt_config *c, int64_t i)
{
	return pow(c->rope_local_theta, -2.0 * (double)i / (double)dt_rope_dim(c));
}

double dt_rope_mscale(const struct dt_config *c)
{
	return c->rope_scaling == DT_ROPE_SCALING_YARN || c->rope_scaling == DT_ROPE_SCALING_LONGROPE
		       ? c->rope_mscale
		       : 1;
}

void dt_rope_for_length(struct dt_config *c, int64_t positions)
{
	double over = (double)positions / (double)c->rope_original_seq;

	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE && over > 1)
		memcpy(c->rope_short, c->rope_long, sizeof(c->rope_short));
	if (c->rope_scaling != DT_ROPE_SCALING_DYNAMIC)
		return;
	if (over > 1)
		c->rope_theta = ntk_base(c, c->rope_factor * over - (c->rope_factor - 1));
	c->rope_scaling = DT_ROPE_SCALING_NONE;
}

int64_t dt_config_positions(const struct dt_config *c)
{
	int64_t made = c->max_seq, more = 0;

	if (c->pos == DT_POS_ROPE &&
	    (c->rope_scaling == DT_ROPE_SCALING_LINEAR || c->rope_scaling == DT_ROPE_SCALING_DYNAMIC))
		more = (int64_t)((double)made * c->rope_factor);
	else if (c->pos == DT_POS_ROPE &&
		 (c->rope_scaling == DT_ROPE_SCALING_YARN || c->rope_scaling == DT_ROPE_SCALING_LLAMA3))
		more = (int64_t)((double)c->rope_original_seq * c->rope_factor);
	return more > made ? more : made;
}

double dt_rope_yarn_mscale(double factor, double mscale)
{
	return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

double dt_rope_long_factor(const struct dt_config *c)
{
	return fmax((double)c->max_seq / (double)c->rope_original_seq, 1);
}

double dt_rope_long_mscale(const struct dt_config *c, double factor)
{
	return factor > 1 ? sqrt(1 + log(factor) / log((double)c->rope_original_seq)) : 1;
}

int dt_config_scale_rope(struct dt_config *c, const char *spec, struct dt_err *err)
{
	static const char *const name[] = {"none", "linear", "llama3", "ntk", "yarn", "dynamic", "longrope"};
	const char *colon = spec ? strchr(spec, ':') : NULL;
	struct dt_config n = *c;
	char *end = NULL;
	int kind = 0;

	if (!spec)
		return 0;
	while (colon && ++kind < 6 &&
	       (strlen(name[kind]) != (size_t)(colon - spec) ||
		strncmp(name[kind], spec, (size_t)(colon - spec))))
		;
	n.rope_factor = colon ? strtod(colon + 1, &end) : 0;
	if (!colon || kind == 6 || end == colon + 1 || *end || !(n.rope_factor > 1) ||
	    !(n.rope_factor <= 1024)) {
		dt_err_set(err, -EINVAL, "--rope-scaling '%.40s' is not KIND:FACTOR", spec);
		dt_err_hint(err, "linear, ntk, dynamic, yarn or llama3, and a number above 1, as in yarn:4");
		return -EINVAL;
	}
	if (c->pos != DT_POS_ROPE)
		return dt_err_set(err, -EINVAL, "--rope-scaling: '%s' has no rotary positions", c->name);
	if ((int)c->rope_scaling == kind && c->rope_factor == n.rope_factor)
		return 0; /* checkpoint of a run with the same option */
	if (c->rope_scaling != DT_ROPE_SCALING_NONE)
		return dt_err_set(err, -EINVAL,
				  "--rope-scaling: the positions of '%s' are scaled already (%s:%g)", c->name,
				  name[c->rope_scaling], c->rope_factor);
	n.rope_scaling = (enum dt_rope_scaling)kind;
	n.rope_original_seq = c->max_seq;
	n.rope_low_freq = 1;
	n.rope_high_freq = 4;
	n.rope_beta_fast = 32;
	n.rope_beta_slow = 1;
	n.rope_mscale = dt_rope_yarn_mscale(n.rope_factor, 1);
	if (kind != DT_ROPE_SCALING_DYNAMIC && kind != DT_ROPE_SCALING_LINEAR)
		n.max_seq = (int64_t)((double)c->max_seq * n.rope_factor);
	*c = n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
