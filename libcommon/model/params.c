/*
 * The parameter table of a transformer. Initial values: normal with init_std (0.02 as GPT-2 and Llama
 * publish), the two projections that write to the residual stream (attn.o, mlp.down) divided by
 * sqrt(2 layers), GPT-2 section 2.3. Megatron-LM does the same for its Llama-like models, and so do we for
 * every family. Position embeddings use init_std like the rest; biases start at 0, norms at 1.
 */
#include "model/params.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_params_release(struct dt_params *t)
{
	free(t->p);
	t->p = NULL;
	t->n = 0;
}

int dt_param_dims(const struct dt_param *p, int64_t ret[4])
{
	for (int i = 0; i < p->ones; i++)
		ret[i] = 1;
	if (p->channels) {
		ret[0] = p->shape[0];
		ret[1] = 1;
		ret[2] = p->shape[1];
		return 3;
	}
	if (!p->kernel) {
		memcpy(ret + p->ones, p->shape, (size_t)p->ndim * sizeof(*ret));
		return p->ones + p->ndim;
	}
	ret[0] = p->shape[0];
	ret[1] = p->shape[1] / (p->kernel * p->kernel);
	ret[2] = ret[3] = p->kernel;
	return 4;
}

int64_t dt_param_numel(const struct dt_param *p)
{
	return p->shape[0] * p->shape[1];
}

int64_t dt_params_total(const struct dt_params *t)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		n += dt_param_numel(&t->p[i]);
	return n;
}

int64_t dt_params_trained(const struct dt_params *t)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		n += t->p[i].frozen ? 0 : dt_param_numel(&t->p[i]);
	return n;
}

int64_t dt_params_active(const struct dt_config *c, const struct dt_params *t)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		n += t->p[i].experts ? dt_param_numel(&t->p[i]) / t->p[i].experts * c->experts_used
				     : dt_param_numel(&t->p[i]);
	return n;
}

void dt_layer_name(char *buf, size_t n, int64_t layer, const char *name)
{
	static const char front[] = "layers.";
	char digit[24];
	size_t at = 0, k = 0;

	if (layer >= 0 && n > sizeof(front) + sizeof(digit)) {
		memcpy(buf, front, sizeof(front) - 1);
		at = sizeof(front) - 1;
		do
			digit[k++] = (char)('0' + layer % 10);
		while (layer /= 10);
		while (k)
			buf[at++] = digit[--k];
		buf[at++] = '.';
	}
	if (!memccpy(buf + at, name, 0, n - at))
		buf[n - 1] = '\0';
}

int dt_params_find(const struct dt_params *t, const char *name)
{
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->p[i].name, name))
			return i;
	return -1;
}

void dt_param_cut(const struct dt_param *p, int tp, int r, int64_t off[2], int64_t shape[2])
{
	int64_t units = p->shape[p->cut_dim] / p->cut_unit, first, n;

	off[0] = off[1] = 0;
	shape[0] = p->shape[0];
	shape[1] = p->shape[1];
	if (p->cut == DT_CUT_NONE)
		return;
	if (p->cut == DT_CUT_KV && units < tp) {
		first = r * units / tp;
		n = 1;
	} else {
		first = r * (units / tp) + (r < units % tp ? r : units % tp);
		n = units / tp + (r < units % tp);
	}
	off[p->cut_dim] = first * p->cut_unit;
	shape[p->cut_dim] = n * p->cut_unit;
}

enum dt_format dt_param_format(const struct dt_config *c, const struct dt_param *p, enum dt_format want)
{
	/* as GGUF's own quantizer does */
	if (p->ndim == 1 || p->role == DT_W_ROUTER || p->role == DT_W_TYPES)
		return DT_FMT_F32;
	if (dt_format_info(want)->dtype >= 0)
		return want;
	if (p->role == DT_W_POS)
		return DT_FMT_F32;
	if (dt_format_info(want)->head && (p->role == DT_W_HEAD || (p->role == DT_W_EMBED && c->tied)))
		/* as GGUF's own quantizer does: errors here affect logits most */
		want = dt_format_info(want)->head;
	if (p->shape[1] % dt_format_info(want)->block == 0)
		return want;
	if (p->shape[1] % 32 == 0)
		return dt_format_info(want)->narrow;
	return DT_FMT_F16;
}
/* SPDX-License-Identifier: Apache-2.0 */
