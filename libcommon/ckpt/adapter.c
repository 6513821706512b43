#include "ckpt/adapter_priv.h"

#include "ckpt/ckpt.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/lora.h"
#include "model/same.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads adapters from a dt checkpoint of a --lora run, whose names and shapes are those of the model. */
/* Reads the part of parameter i. at: the tensors of a, b and magnitudes; -1: absent. */
static int read_part(struct adapter_in *in, struct dt_ckpt *ck, const struct dt_lora *l, int i,
		     const int at[3], struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	const int64_t off[2] = {0, 0},
		      shape[3][2] = {{l->rank, p->shape[1]}, {p->shape[0], l->rank}, {p->shape[0], 1}};
	float *to[3] = {NULL, NULL, NULL};
	int rc = 0;

	for (int k = 0; k < 3 && rc == 0; k++) {
		struct dt_ckpt_tensor t;

		if (at[k] < 0)
			continue;
		dt_ckpt_tensor(ck, at[k], &t);
		to[k] = adapter_room(shape[k][0] * shape[k][1]);
		if (!to[k])
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
		else if (t.shape[0] != shape[k][0] || (k < 2 && t.shape[1] != shape[k][1]))
			rc = dt_err_set(
				err, -EINVAL,
				"adapter '%s': its matrix for '%s' has another shape than the model's",
				in->a->path, p->name);
		else
			rc = dt_ckpt_read(ck, at[k], off, shape[k], DT_F32, to[k], err);
	}
	if (rc == 0)
		rc = adapter_add(in, i,
				 &(struct adapter_part_in){.rank = l->rank,
							   .scale = dt_lora_scale(l),
							   .a = to[0],
							   .b = to[1],
							   .m = to[2],
							   .above = to[2] != NULL},
				 err);
	for (int k = 0; k < 3; k++)
		free(to[k]);
	return rc;
}

/* Reads a parameter that was trained in full, under its own name. */
static int read_whole(struct adapter_in *in, struct dt_ckpt *ck, const struct dt_config *c, int i,
		      struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	const int64_t off[4] = {0};
	struct dt_ckpt_tensor t;
	char key[96];
	float *x;
	int at, rc = 0;

	snprintf(key, sizeof(key), "model/%s", p->name);
	at = dt_ckpt_find(ck, key);
	if (at < 0)
		return 0;
	dt_ckpt_tensor(ck, at, &t);
	for (int d = 0; d < p->ndim; d++)
		if (t.shape[d] != p->shape[d])
			return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has another shape", in->a->path,
					  p->name);
	x = adapter_room(dt_param_numel(p));
	if (!x)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	rc = dt_ckpt_read(ck, at, off, p->shape, DT_F32, x, err);
	if (rc == 0)
		rc = adapter_whole_add(in, i,
				       &(struct adapter_whole_in){.x = x, .plus_one = c->norm_plus_one}, err);
	free(x);
	return rc;
}

static int read_tensors(struct adapter_in *in, struct dt_ckpt *ck, const struct dt_lora *l,
			struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < in->params->n && rc == 0; i++) {
		const char *name = in->params->p[i].name;
		int n = (int)strlen(name) - (int)strlen(".weight"), at[3];
		char key[96];

		if (n < 1)
			continue;
		for (int k = 0; k < 3; k++) {
			snprintf(key, sizeof(key), "model/%.*s.lora_%c", n, name, "abm"[k]);
			at[k] = dt_ckpt_find(ck, key);
		}
		if ((at[0] < 0) != (at[1] < 0))
			return dt_err_set(err, -EINVAL, "adapter '%s': the adapter of '%s' lacks matrix %s",
					  in->a->path, name, at[0] < 0 ? "A" : "B");
		if (at[0] >= 0 && (at[2] >= 0) != l->dora)
			return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has %s magnitudes", in->a->path,
					  name, l->dora ? "no" : "unexpected");
		if (at[0] >= 0)
			rc = read_part(in, ck, l, i, at, err);
	}
	return rc;
}

static int read_dt(struct adapter_in *in, const char *path, struct dt_err *err)
{
	const char *what = "", *base = "";
	struct dt_config c, plain;
	struct dt_ckpt *ck;
	int rc = dt_ckpt_open(path, &ck, err);

	if (rc < 0)
		return rc;
	rc = dt_config_from_json(json_object_get(dt_ckpt_meta(ck), "model"), &c, err);
	plain = c;
	plain.lora = (struct dt_lora){0};
	if (rc == 0 && !c.lora.rank)
		rc = dt_err_set(err, -EINVAL, "checkpoint '%s' holds no adapters", path);
	if (rc == 0 && !dt_config_same(&plain, in->c, &what))
		rc = dt_err_set(err, -EINVAL,
				"adapter '%s' is for another model than '%s': they differ in %s", path,
				in->c->name, *what ? what : "their attributes");
	if (rc == 0)
		rc = dt_json_str(json_object_get(dt_ckpt_meta(ck), "base"), "fingerprint", false, &base, err);
	if (rc >= 0) {
		snprintf(in->a->base, sizeof(in->a->base), "%s", base);
		in->pairing = c.rope_pairing;
		rc = read_tensors(in, ck, &c.lora, err);
		for (int i = 0; c.lora.modules_to_save[0] && i < in->params->n && rc == 0; i++)
			rc = read_whole(in, ck, &c, i, err);
	}
	dt_ckpt_close(ck);
	return rc;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

int dt_adapter_open(const char *path, const struct dt_config *base, const struct dt_params *params,
		    struct dt_adapter **ret, struct dt_err *err)
{
	struct adapter_in in = {.c = base, .params = params, .pairing = DT_ROPE_HALF};
	char file[4096];
	struct stat st = {0}, config;
	int rc = 0;

	in.a = calloc(1, sizeof(*in.a));
	if (in.a)
		in.a->path = strdup(path);
	if (!in.a || !in.a->path)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	else if (snprintf(file, sizeof(file), "%s/adapter_config.json", path) >= (int)sizeof(file))
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", path);
	else if (stat(path, &st) < 0)
		rc = dt_err_sys(err, -errno, "cannot open '%s'", path);
	else if (stat(file, &config) == 0)
		rc = adapter_read_peft(&in, path, err);
	else
		rc = ends(path, ".gguf") ? adapter_read_gguf(&in, path, err) : read_dt(&in, path, err);
	if (rc == -ENOENT && S_ISDIR(st.st_mode))
		dt_err_hint(err, "an adapter of PEFT has a file adapter_config.json, which '%s' lacks", path);
	if (rc == 0 && !in.a->n)
		rc = dt_err_set(err, -EINVAL, "adapter '%s' holds no tensors", path);
	if (rc < 0)
		dt_adapter_close(in.a);
	else
		*ret = in.a;
	return rc;
}

int dt_adapter_check_base(const struct dt_adapter *a, struct dt_source *base, struct dt_err *err)
{
	char have[DT_FINGERPRINT];
	int rc = a->base[0] ? dt_source_fingerprint(base, have, err) : 0;

	if (rc < 0 || !a->base[0] || !strcmp(a->base, have))
		return rc;
	dt_err_set(err, -EINVAL, "adapter '%s' was trained on other weights than '%s'", a->path,
		   dt_source_path(base));
	dt_err_hint(err, "use --any-base to accept it");
	return -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
