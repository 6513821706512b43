#include "plan/offtime.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>

#define DAY 86400.0

/*
 * Bytes of a microbatch that layers keep for backward, except the last two, which are not offloaded
 * (plan/away.c).
 */
static double kept(const struct dt_step_model *m)
{
	double sum = 0;

	for (int64_t i = 0; i + 2 < m->s->config->layers; i++)
		sum += dt_work_unit(m->work, i)->kept;
	return sum;
}

/* The share of a rank's parameters that is in layers; every microbatch reads those weights twice. */
static double in_layers(const struct dt_step_model *m)
{
	double layers = 0, all = dt_work_unit(m->work, -1)->params;

	for (int64_t i = 0; i <= m->s->config->layers; i++) {
		all += dt_work_unit(m->work, i)->params;
		layers += i < m->s->config->layers ? dt_work_unit(m->work, i)->params : 0;
	}
	return layers / all;
}

double dt_offload_bw(const struct dt_run *s, int ranks)
{
	return (s->offload.gbs > 0 ? s->offload.gbs * 1e9 : DT_DISK_BW) / ranks;
}

double dt_offload_seconds(const struct dt_run *s, const struct dt_device *d, int ranks, double read,
			  double written)
{
	/* A GPU's host link is full duplex; ranks and directions share a disk. */
	return s->offload.to == DT_PLACE_HOST ? fmax(read, written) / d->host_bw
					      : (read + written) / dt_offload_bw(s, ranks);
}

void dt_offload_time(const struct dt_step_model *m, double params, double backward, struct dt_step_time *r)
{
	const struct dt_run *s = m->s;
	const struct dt_run_offload *o = &s->offload;
	const double acc = (double)dt_run_accumulation(s);
	double master = dt_run_masters(s) ? 4 : 0, states = 0, acts = 0, fetched = 0, update, passes,
	       behind = r->optimizer + (dt_run_updates_behind(s) ? backward : 0);

	if (!o->what)
		return;
	if (o->what & DT_OFFLOAD_OPTIMIZER)
		states = o->fraction * params * (dt_optim_element_bytes(s->optim.kind) + master);
	if (o->what & DT_OFFLOAD_WEIGHTS) {
		const double weights = o->fraction * params * dt_dtype_size(s->compute), part = in_layers(m);

		states += weights;
		fetched = weights * (1 - part + 2 * acc * part);
	}
	if (o->what & DT_OFFLOAD_ACTIVATIONS)
		acts = o->fraction * (1 - o->stay) * kept(m) * acc;
	update = dt_offload_seconds(s, &m->dev, m->here, states, states);
	passes = dt_offload_seconds(s, &m->dev, m->here, acts + fetched, acts);
	r->offload_s = update + passes;
	r->offload_exposed = fmax(0, update - behind) + fmax(0, passes - r->makespan);
	r->offload_read = states + acts + fetched;
	r->offload_written = states + acts;
}

const char *dt_offload_text(const struct dt_run *s, const struct dt_step_time *t, int ranks, char *buf,
			    size_t n)
{
	double rest = t->step - t->offload_exposed,
	       tokens = 9 * t->offload_exposed / rest * t->tokens_per_s * t->step;
	char in[32], out[32], time[32], count[32], day[32], hidden[96] = "", worn[96] = "";

	if (t->offload_exposed > 0 && !(s->offload.what & (DT_OFFLOAD_ACTIVATIONS | DT_OFFLOAD_WEIGHTS)))
		snprintf(hidden, sizeof(hidden), " (10%% of a step with %s %s)",
			 dt_format_count(tokens, count, sizeof(count)),
			 dt_config_is_image(s->config) ? "images" : "tokens");
	if (s->offload.to == DT_PLACE_DISK)
		snprintf(worn, sizeof(worn), "; writes to the disk of a machine: %s a day",
			 dt_format_size((uint64_t)(t->offload_written * ranks * DAY / t->step), day,
					sizeof(day)));
	snprintf(buf, n, "offloaded: in a step a rank reads %s, writes %s and waits %s for it%s%s",
		 dt_format_size((uint64_t)t->offload_read, in, sizeof(in)),
		 dt_format_size((uint64_t)t->offload_written, out, sizeof(out)),
		 dt_format_duration(t->offload_exposed, time, sizeof(time)), hidden, worn);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
