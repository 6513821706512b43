/* Converts the options of a command line to a run. */
#include "plan/run_options.h"

#include "plan/objective.h"
#include "plan/run_rows.h"

#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parses "X", "dynamic" or "dynamic:X", where X is the initial scale. */
static int parse_loss_scale(const char *s, struct dt_run *r, struct dt_err *err)
{
	bool dynamic = s ? !strncmp(s, "dynamic", 7) : r->compute == DT_F16;
	const char *number = !s || !dynamic ? s : s[7] == ':' ? s + 8 : s[7] ? s : NULL;
	double x = dynamic ? 0x1p16 : 1;
	char *end;

	if (number) {
		x = strtod(number, &end);
		if (end == number || *end || !(x >= 0x1p-20) || !(x <= 0x1p40))
			return dt_err_set(
				err, -EINVAL,
				"--loss-scale '%s' is neither a number from 2^-20 to 2^40 nor dynamic[:X]",
				s);
	}
	r->loss_scale = dynamic ? 0 : x;
	r->loss_scale_start = x;
	return 0;
}

static int parse_on_spike(struct dt_run_watch *w, struct dt_err *err)
{
	static const char *const words[] = {"ignore", "skip", "rollback", "stop"};
	const char *s = w->on_spike_text ? w->on_spike_text : "ignore";
	size_t n = strcspn(s, ":");
	char *end;
	int i = 0;

	while (i < 4 && (strlen(words[i]) != n || strncmp(words[i], s, n)))
		i++;
	w->on_spike = (enum dt_run_on_spike)i;
	w->back = 0;
	if (i == DT_RUN_SPIKE_ROLLBACK && s[n]) {
		w->back = strtoll(s + n + 1, &end, 10);
		i = *end || w->back < 1 || w->back > 1000000000 ? 4 : i;
	} else if (i == DT_RUN_SPIKE_ROLLBACK || s[n]) {
		i = 4;
	}
	return i < 4 ? 0
		     : dt_err_set(err, -EINVAL,
				  "--on-spike '%s' is not one of ignore, skip, rollback:STEPS, stop", s);
}

/* Parses DT_SYNC. */
static int parse_sync(struct dt_run_sync *s, struct dt_err *err)
{
	const char *text = s->text ? s->text : "all";

	const struct {
		const char *name; /* with a colon if a number follows */
		enum dt_sync kind;
		int64_t least, most, *number;
	} mode[] = {{"all", DT_SYNC_ALL},
		    {"local:", DT_SYNC_LOCAL, 1, 1000000000, &s->every},
		    {"diloco:", DT_SYNC_DILOCO, 1, 1000000000, &s->every},
		    {"gossip", DT_SYNC_GOSSIP},
		    {"backup:", DT_SYNC_BACKUP, 0, 1000000000, &s->backup},
		    {"ssp:", DT_SYNC_SSP, 0, DT_SYNC_AHEAD, &s->ahead},
		    {"async", DT_SYNC_ASYNC},
		    {"hogwild", DT_SYNC_HOGWILD}};

	s->every = 1;
	s->backup = s->ahead = 0;
	for (size_t i = 0; i < sizeof(mode) / sizeof(mode[0]); i++) {
		size_t n = strlen(mode[i].name);

		s->kind = mode[i].kind;
		if (mode[i].number ? !strncmp(text, mode[i].name, n) &&
					     dt_parse_int(text + n, mode[i].least, mode[i].most,
							  mode[i].number, NULL) == 0
				   : !strcmp(text, mode[i].name))
			return 0;
	}
	return dt_err_set(
		err, -EINVAL,
		"--sync '%.40s' is not one of all, local:STEPS, diloco:STEPS, gossip, backup:RANKS, "
		"ssp:STEPS (at most %d), async, hogwild",
		text, DT_SYNC_AHEAD);
}

/* Parses DT_GRAD_COMM. */
static int parse_grad_comm(struct dt_run *r, struct dt_err *err)
{
	const char *s = r->compress.text ? r->compress.text : "fp32";
	struct dt_compress_opts *o = &r->compress.o;
	int64_t rank;
	char *end;

	r->compress.on = r->compress.automatic = false;
	r->grad_comm = DT_F32;
	*o = (struct dt_compress_opts){.kind = DT_COMPRESS_INT8}; /* the most that auto reserves */
	if (!strcmp(s, "fp32"))
		return 0;
	if (!strcmp(s, "bf16")) {
		r->grad_comm = DT_BF16;
		return 0;
	}
	r->compress.on = true;
	r->compress.automatic = !strcmp(s, "auto");
	if (r->compress.automatic || !strcmp(s, "int8"))
		return 0;
	o->kind = DT_COMPRESS_ONE_BIT;
	if (!strcmp(s, "onebit"))
		return 0;
	o->kind = DT_COMPRESS_POWERSGD;
	if (!strncmp(s, "powersgd:", 9) && dt_parse_int(s + 9, 1, 4096, &rank, NULL) == 0) {
		o->rank = (int)rank;
		return 0;
	}
	o->kind = DT_COMPRESS_TOP_K;
	o->keep = strncmp(s, "topk:", 5) ? 0 : strtod(s + 5, &end);
	if (o->keep > 0 && !strcmp(end, "%")) {
		o->keep /= 100;
		end++;
	}
	if (o->keep > 0 && o->keep <= 1 && !*end)
		return 0;
	r->compress.on = false;
	dt_err_set(err, -EINVAL,
		   "--grad-comm '%.40s' is not one of fp32, bf16, int8, powersgd:R, topk:P, onebit, auto", s);
	dt_err_hint(err,
		    "R is the rank of the factors, P the share of entries to send: powersgd:4, topk:1%%");
	return -EINVAL;
}

static int parse_bn_span(const char *s, struct dt_run *r, struct dt_err *err)
{
	r->bn_span = !s || !strcmp(s, "dp") ? DT_BN_DP : DT_BN_RANK;
	if (!s || !strcmp(s, "dp") || !strcmp(s, "rank"))
		return 0;
	if (dt_parse_int(s, 2, 1 << 24, &r->bn_span, NULL) < 0)
		return dt_err_set(err, -EINVAL, "--bn-span '%.40s' is not dp, rank or a number of images", s);
	return 0;
}

/* Parses the words of --offload, and the destination. */
static int parse_offload(struct dt_run_offload *o, struct dt_err *err)
{
	static const struct {
		const char *name;
		unsigned what;
	} words[] = {{"none", 0},
		     {"optimizer", DT_OFFLOAD_OPTIMIZER},
		     {"weights", DT_OFFLOAD_WEIGHTS},
		     {"activations", DT_OFFLOAD_ACTIVATIONS},
		     {"all", DT_OFFLOAD_OPTIMIZER | DT_OFFLOAD_WEIGHTS}};
	const char *to = o->to_text ? o->to_text : "host";

	o->what = 0;
	for (const char *s = o->what_text ? o->what_text : "none", *end;; s = end + 1) {
		size_t i = 0, n = strlen(words[0].name);

		end = strchrnul(s, ',');
		while (i < 5 &&
		       ((n = strlen(words[i].name)) != (size_t)(end - s) || strncmp(words[i].name, s, n)))
			i++;
		if (i == 5)
			return dt_err_set(
				err, -EINVAL,
				"--offload '%.*s' is not one of optimizer, weights, activations, all, none",
				(int)(end - s), s);
		o->what |= words[i].what;
		if (!*end)
			break;
	}
	o->dir = !strncmp(to, "disk:", 5) && to[5] ? to + 5 : NULL;
	o->to = strcmp(to, "host") ? DT_PLACE_DISK : DT_PLACE_HOST;
	if (o->to == DT_PLACE_DISK && !o->dir && strcmp(to, "disk") && strcmp(to, "nvme"))
		return dt_err_set(err, -EINVAL, "--offload-to '%s' is neither host nor disk:DIR", to);
	return 0;
}

/* Reconciles --pipeline interleaved:V and vV of a layout, which mean the same. */
static int set_pipeline(struct dt_run_options *o, struct dt_err *err)
{
	struct dt_run *r = &o->run;
	int chunks = 1, said = dt_layout_chunks(&r->layout),
	    rc = dt_pipeline_parse(o->pipeline ? o->pipeline : "1f1b", &r->pipeline, &chunks, err);

	if (rc < 0)
		return dt_err_prefix(err, "option '--pipeline'");
	if (r->layout.pp <= 1 || chunks == 1)
		return 0;
	if (said > 1 && said != chunks)
		return dt_err_set(err, -EINVAL, "layout '%s' and --pipeline interleaved:%d disagree",
				  o->layout, chunks);
	r->layout.chunks = chunks;
	return 0;
}

int dt_run_options_finish(struct dt_run_options *o, struct dt_err *err)
{
	struct dt_run *r = &o->run;
	int rc;

	r->layout = (struct dt_layout){0};
	if (o->layout && (rc = dt_layout_parse(o->layout, &r->layout, err)) < 0)
		return dt_err_prefix(err, "option '--layout'");
	if ((rc = set_pipeline(o, err)) < 0)
		return rc;
	if (o->recompute && (rc = dt_keep_parse(o->recompute, &r->recompute, err)) < 0)
		return dt_err_prefix(err, "option '--recompute'");
	if ((rc = parse_loss_scale(o->loss_scale, r, err)) < 0 || (rc = parse_on_spike(&r->watch, err)) < 0)
		return rc;
	r->rl.low = dt_run_options_given(o, "clip-low") ? r->rl.low : -1;
	r->rl.high = dt_run_options_given(o, "clip-high") ? r->rl.high : -1;
	r->rl.ratio = dt_run_options_given(o, "ratio-cap") ? r->rl.ratio : -1;
	if (!dt_run_options_given(o, "beta"))
		r->objective.beta = dt_objective_rule(r->objective.kind)->beta;
	if (!dt_run_options_given(o, "gamma"))
		r->objective.gamma = dt_objective_rule(r->objective.kind)->gamma;
	if (r->lora.rank && !dt_run_options_given(o, "lora-alpha"))
		r->lora.alpha = 2 * (double)r->lora.rank;
	if ((rc = parse_bn_span(o->bn_span, r, err)) < 0 || (rc = parse_offload(&r->offload, err)) < 0 ||
	    (rc = parse_sync(&r->sync, err)) < 0 || (rc = parse_grad_comm(r, err)) < 0)
		return rc;
	if (dt_run_served(r) && r->sync.servers < r->layout.dp)
		r->layout.servers = (int)r->sync.servers;
	if (o->batch && (rc = dt_ramp_parse(o->batch, &r->ramp, &r->global_batch, err)) < 0)
		return rc;
	r->no_master = !o->master && r->compute != DT_F32;
	r->optim.beta1 = (float)o->beta1;
	r->optim.beta2 = (float)o->beta2;
	r->optim.eps = (float)o->eps;
	r->optim.weight_decay = (float)o->weight_decay;
	r->optim.trust = (float)o->trust;
	r->data.seed = (uint64_t)o->seed;
	r->bucket_bytes = (double)o->bucket;
	r->save.proceed = o->save_errors == 1;
	if ((rc = dt_lr_parse(&r->lr, err)) < 0)
		return rc;
	r->lr.steps = r->steps;
	r->lr.min_lr = o->min_lr;
	if (!dt_run_options_given(o, "min-lr"))
		r->lr.min_lr = r->lr.lr / 10;
	else if (o->min_lr > r->lr.lr && dt_run_reads(r, "min-lr"))
		return dt_err_set(err, -EINVAL, "--min-lr %g is larger than --lr %g", o->min_lr, r->lr.lr);
	if (!r->lr.decay)
		r->lr.decay = r->steps / 10;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
