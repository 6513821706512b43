/*
 * An encoder as GGUF has it. Rows of the table of positions that no position has (those of padding) are left
 * out, and so is what stands behind the last layer, except for classes.
 */
#include "ckpt/export.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_box(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x,
		    struct dt_err *err)
{
	struct dt_source *old = s->mean[0];
	const struct dt_param *p = &s->params.p[i];
	const int64_t at[2] = {off[0] + (p->role == DT_W_POS ? old->config.pos_first : 0),
			       p->ndim == 2 ? off[1] : 0};

	return dt_source_read(old, s->from[i], at, shape, DT_F32, x, err);
}

static struct dt_config bare(const struct dt_config *c)
{
	struct dt_config r = *c;

	snprintf(r.family, sizeof(r.family), "bert");
	r.pos_first = 0;
	r.tied = r.pooler = false;
	if (r.head == DT_ENCODER_MASKED)
		r.head = DT_ENCODER_NONE;
	return r;
}

int dt_source_bare(struct dt_source **s, const char **ret_left, struct dt_err *err)
{
	struct dt_source *old = *s, *made;
	const struct dt_config *c = &old->config;
	const bool masked = c->head == DT_ENCODER_MASKED;
	int rc;

	*ret_left = NULL;
	if (!c->encoder || (!masked && !c->pooler && !c->pos_first))
		return 0;
	made = calloc(1, sizeof(*made));
	if (!made)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", old->path);
	made->config = bare(c);
	rc = src_same_names(made, old, err);
	if (rc < 0) {
		dt_source_close(made);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot open '%s'", old->path) : rc;
	}
	for (int i = 0; i < made->params.n; i++)
		made->from[i] = dt_params_find(&old->params, made->params.p[i].name);
	made->box = read_box;
	src_made_of(made, &old, 1);
	memcpy(made->note, old->note, sizeof(made->note));
	*ret_left = masked ? "the head that predicts masked tokens" : c->pooler ? "the pooler" : NULL;
	*s = made;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
