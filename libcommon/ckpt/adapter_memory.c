/* A model and its adapters in a program's memory, as one source. */
#include "ckpt/adapter_priv.h"
#include "model/lora.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
	const struct dt_config *c;
	const void *const *data;
	enum dt_dtype type;
	struct dt_params all, base; /* the parameters with adapters, and without */
	const void **plain;	    /* data of base's parameters */
	struct adapter_in in;
};

static int find(const struct dt_params *t, const char *name)
{
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->p[i].name, name))
			return i;
	return -1;
}

/* Tensor i of `all` converted to f32; malloc'd. */
static float *widened(const struct memory *m, int i)
{
	const int64_t n = dt_param_numel(&m->all.p[i]);
	float *x = malloc((size_t)n * sizeof(*x));

	for (int64_t k = 0; x && k < n; k++)
		x[k] = m->type == DT_F32 ? ((const float *)m->data[i])[k]
					 : dt_bf16_to_f32(((const uint16_t *)m->data[i])[k]);
	return x;
}

/* Adds the adapter of base parameter i, if it has one. With DoRA, magnitudes are above those of its rows. */
static int add_part(struct memory *m, int i, struct dt_err *err)
{
	const char *name = m->base.p[i].name;
	const int n = (int)strlen(name) - (int)strlen(".weight"), sides = m->c->lora.dora ? 3 : 2;
	struct adapter_part_in part = {
		.rank = m->c->lora.rank, .scale = dt_lora_scale(&m->c->lora), .above = m->c->lora.dora};
	float *x[3] = {NULL};
	char key[96];
	int rc = 0;

	for (int k = 0; k < sides && rc == 0; k++) {
		int at;

		snprintf(key, sizeof(key), "%.*s.lora_%c", n < 0 ? 0 : n, name, "abm"[k]);
		at = find(&m->all, key);
		if (at < 0)
			break;
		x[k] = widened(m, at);
		if (!x[k])
			rc = dt_err_sys(err, -ENOMEM, "cannot read the adapters");
	}
	part.a = x[0];
	part.b = x[1];
	part.m = x[2];
	if (rc == 0 && x[sides - 1]) /* else it has no adapter */
		rc = adapter_add(&m->in, i, &part, err);
	for (int k = 0; k < sides; k++)
		free(x[k]);
	return rc;
}

static int fill(struct memory *m, struct dt_err *err)
{
	m->in.a = calloc(1, sizeof(*m->in.a));
	m->plain = calloc((size_t)m->base.n + 1, sizeof(*m->plain));
	if (m->in.a)
		m->in.a->path = strdup("memory");
	if (!m->plain || !m->in.a || !m->in.a->path)
		return dt_err_sys(err, -ENOMEM, "cannot read the adapters");
	for (int i = 0; i < m->base.n; i++) {
		const int at = find(&m->all, m->base.p[i].name);
		int rc = at < 0 ? dt_err_set(err, -EINVAL, "the base weight '%s' of the adapters is missing",
					     m->base.p[i].name)
				: add_part(m, i, err);

		if (rc < 0)
			return rc;
		m->plain[i] = m->data[at];
	}
	return 0;
}

int dt_source_memory_adapted(const struct dt_config *c, const void *const *data, enum dt_dtype type,
			     struct dt_source **ret, struct dt_err *err)
{
	struct memory m = {.c = c, .data = data, .type = type};
	struct dt_config plain = *c;
	struct dt_source *base = NULL;
	int rc;

	if (!c->lora.rank)
		return dt_source_memory(c, data, type, ret, err);
	if (c->lora.base)
		return dt_err_set(err, -ENOTSUP,
				  "merging adapters with a quantised base in memory is not supported");
	plain.lora = (struct dt_lora){0};
	m.in = (struct adapter_in){.c = &plain, .params = &m.base, .pairing = plain.rope_pairing};
	rc = dt_model_params(c, &m.all, err);
	if (rc == 0)
		rc = dt_model_params(&plain, &m.base, err);
	if (rc == 0)
		rc = fill(&m, err);
	if (rc == 0)
		rc = dt_source_memory(&plain, m.plain, type, &base, err);
	if (rc == 0)
		rc = dt_source_adapted(base, m.in.a, ret, err);
	else if (m.in.a)
		dt_adapter_close(m.in.a);
	free(m.plain);
	dt_params_release(&m.all);
	dt_params_release(&m.base);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
