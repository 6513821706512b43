/* A checkpoint in this process, with dt-serve's engine. */
#include "rl/drawer.h"

#include "ckpt/adapter.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQS  64
#define QUEUE 4096

struct local {
	struct dt_drawer drawer;
	struct dt_served served;
	struct dt_rl_sampler sampler;
	int64_t step;
	char weights[DT_FINGERPRINT];
};

static int draw(struct dt_drawer *d, struct dt_group *g, int64_t n, struct dt_err *err)
{
	struct local *l = (struct local *)d;
	int rc = dt_rl_sample(&l->sampler, g, n, err);

	for (int64_t i = 0; i < n && rc == 0; i++) {
		g[i].step = l->step;
		memcpy(g[i].weights, l->weights, sizeof(l->weights));
	}
	return rc;
}

static void local_close(struct dt_drawer *d)
{
	struct local *l = (struct local *)d;

	dt_served_close(&l->served);
	free(l);
}

/* Computes the fingerprint of the weights. */
static int name_weights(struct local *l, const char *model, const struct dt_drawer_opts *o,
			struct dt_err *err)
{
	struct dt_source *src = NULL;
	int rc = dt_source_open(model, DT_SOURCE_AUTO, "none", &src, err);

	l->step = -1;
	if (rc == 0 && dt_source_ckpt(src) && !o->lora)
		l->step = dt_ckpt_step(dt_source_ckpt(src));
	if (rc == 0 && o->lora)
		rc = dt_source_adapt(&src, o->lora, o->any_base, err);
	if (rc == 0)
		rc = dt_source_fingerprint(src, l->weights, err);
	dt_source_close(src);
	return rc;
}

int dt_drawer_local(const char *model, const struct dt_drawer_opts *o, struct dt_drawer **ret,
		    struct dt_err *err)
{
	struct dt_served_params p = dt_served_in_process(model, o->tokenizer, o->threads, o->seq, o->fp32);
	struct local *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", model);
	p.seqs = SEQS;
	p.queue = QUEUE;
	p.as_trained = true;
	p.invariant = true; /* answers must not depend on others in the batch, also on a device */
	p.merged = o->lora;
	p.any_base = o->any_base;
	p.device = o->device ? o->device : p.device;
	p.weights_disk = o->weights_disk;
	p.weights_memory = o->weights_memory;
	l->drawer = (struct dt_drawer){draw, local_close};
	rc = name_weights(l, model, o, err);
	if (rc == 0)
		rc = dt_served_open(&l->served, &p, err);
	if (rc < 0) {
		local_close(&l->drawer);
		return rc;
	}
	l->sampler = (struct dt_rl_sampler){l->served.engine, l->served.tok, o->sample};
	*ret = &l->drawer;
	return 0;
}

void dt_drawer_close(struct dt_drawer *d)
{
	if (d)
		d->close(d);
}
/* SPDX-License-Identifier: Apache-2.0 */
