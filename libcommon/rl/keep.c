#include "rl/keep.h"

#include "base/opt.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"
#include "ckpt/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 }; /* limit of tensors */

/* Kinds of a net's tensors in a checkpoint, weights and optimizer states: of the policy and of the mixer. */
static const char *const kinds[2][3] = {{"model", "m", "v"}, {"mixer", "mixer_m", "mixer_v"}};

static float *data_of(struct dt_net *net, int k)
{
	return k ? dt_net_state(net, k - 1) : net->weights;
}

/* Tensor i of a kind; which: 0 the policy, 1 the mixer. False: no more. */
static bool piece_of(const struct dt_kept *k, int which, int kind, int i, struct dt_piece *ret)
{
	struct dt_net *net = which ? k->mixer : k->net;
	const struct dt_param *p;
	const float *data;
	int64_t at;

	if (!net || !(data = data_of(net, kind)) || !dt_net_tensor(net, i, &p, &at))
		return false;
	*ret = (struct dt_piece){.dtype = DT_F32, .ndim = p->ndim, .data = data + at};
	snprintf(ret->name, sizeof(ret->name), "%s/%s", kinds[which][kind], p->name);
	memcpy(ret->global, p->shape, (size_t)p->ndim * sizeof(*p->shape));
	memcpy(ret->shape, p->shape, (size_t)p->ndim * sizeof(*p->shape));
	return true;
}

static struct dt_piece numbers(const char *name, const double *data, int64_t rows, int64_t columns)
{
	struct dt_piece p = {.dtype = DT_F64, .ndim = 2, .data = data};

	snprintf(p.name, sizeof(p.name), "control/%s", name);
	p.global[0] = p.shape[0] = rows;
	p.global[1] = p.shape[1] = columns;
	return p;
}

/* All pieces; plain numbers first. */
static int pieces(const struct dt_kept *k, struct dt_piece p[MOST])
{
	int n = 0;

	p[n++] = numbers("scores", k->score, k->scores, 1);
	p[n++] = numbers("places", k->place, k->envs, k->per_env);
	for (int which = 0; which < 2; which++)
		for (int kind = 0; kind < 3; kind++)
			for (int i = 0; n < MOST && piece_of(k, which, kind, i, &p[n]); i++)
				n++;
	return n;
}

static json_t *make_meta(const struct dt_kept *k, int64_t step)
{
	char rule[16];

	return json_pack("{s:s, s:s, s:I, s:o, s:{s:s, s:I}, s:O}", "run_id", k->run_id, "layout", "dp1",
			 "step", (json_int_t)step, "model", dt_config_to_json(k->net->config), "optimizer",
			 "kind",
			 dt_opt_choice_name(DT_OPTIM_CHOICES, (int)dt_net_rule(k->net), rule, sizeof(rule)),
			 "t", (json_int_t)dt_net_updates(k->net), "control", k->control);
}

int dt_net_save(const struct dt_kept *k, const char *dir, int64_t step, struct dt_err *err)
{
	struct dt_piece *p = calloc(MOST, sizeof(*p));
	json_t *list = NULL, *meta = make_meta(k, step);
	char *tmp = NULL;
	int rc = p && meta ? dt_ckpt_begin(dir, step, &tmp, err)
			   : dt_err_sys(err, -ENOMEM, "cannot write '%s'", dir);

	if (rc == 0)
		rc = dt_ckpt_write_shard(tmp, 0, p, pieces(k, p), false, &list, err);
	if (rc == 0)
		rc = dt_ckpt_commit(dir, step, meta, &list, 1, 0, err);
	if (rc < 0 && tmp)
		dt_remove_tree(tmp, NULL);
	json_decref(list);
	json_decref(meta);
	free(tmp);
	free(p);
	return rc;
}

/* Whether the checkpoint has the piece in the same shape; *ret: its index. */
static bool same_shape(const struct dt_ckpt *ck, const struct dt_piece *p, int *ret)
{
	struct dt_ckpt_tensor t;

	*ret = dt_ckpt_find(ck, p->name);
	if (*ret < 0)
		return false;
	dt_ckpt_tensor(ck, *ret, &t);
	return t.dtype == p->dtype && t.ndim == p->ndim &&
	       !memcmp(t.shape, p->global, (size_t)p->ndim * sizeof(*p->global));
}

static int read_pieces(const struct dt_kept *k, struct dt_ckpt *ck, struct dt_err *err)
{
	struct dt_piece *p = calloc(MOST, sizeof(*p));
	const int n = p ? pieces(k, p) : 0;
	int rc = p ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", dt_ckpt_path(ck)), at;

	for (int i = 0; i < n && rc == 0; i++) {
		if (same_shape(ck, &p[i], &at))
			rc = dt_ckpt_read(ck, at, p[i].off, p[i].shape, p[i].dtype,
					  (void *)(uintptr_t)p[i].data, err);
		else if (p[i].data != k->place)
			rc = dt_err_set(err, -EINVAL, "'%s' has no tensor %s of this shape", dt_ckpt_path(ck),
					p[i].name);
	}
	free(p);
	return rc;
}

/* Older checkpoints have none. */
static void copy_id(struct dt_kept *k, const char *id)
{
	snprintf(k->run_id, sizeof(k->run_id), "%s", id ? id : "");
}

int dt_net_resume(struct dt_kept *k, const char *path, struct dt_err *err)
{
	struct dt_ckpt *ck = NULL;
	const json_t *rule, *control;
	char own[16];
	int rc = dt_ckpt_open(path, &ck, err);

	if (rc < 0)
		return rc;
	rule = json_object_get(dt_ckpt_meta(ck), "optimizer");
	control = json_object_get(dt_ckpt_meta(ck), "control");
	dt_opt_choice_name(DT_OPTIM_CHOICES, (int)dt_net_rule(k->net), own, sizeof(own));
	if (!json_is_object(rule) || !json_is_object(control))
		rc = dt_err_set(err, -EINVAL, "'%s' is not a checkpoint that dt-rl train can resume", path);
	else if (!json_string_value(json_object_get(rule, "kind")) ||
		 strcmp(json_string_value(json_object_get(rule, "kind")), own))
		rc = dt_err_set(err, -EINVAL, "'%s' was trained with another --optimizer than %s", path, own);
	else
		rc = read_pieces(k, ck, err);
	if (rc == 0) {
		const int64_t t = json_integer_value(json_object_get(rule, "t"));

		dt_net_go_on(k->net, t);
		if (k->mixer)
			dt_net_go_on(k->mixer, t);
		k->control = json_deep_copy(control);
		copy_id(k, json_string_value(json_object_get(dt_ckpt_meta(ck), "run_id")));
	}
	dt_ckpt_close(ck);
	return rc;
}

bool dt_kept_ids(const char *path)
{
	struct dt_ckpt *ck = NULL;
	bool ids;

	if (dt_ckpt_open(path, &ck, NULL) < 0)
		return false;
	ids = json_is_true(json_object_get(json_object_get(dt_ckpt_meta(ck), "control"), "agent_id"));
	dt_ckpt_close(ck);
	return ids;
}

static int read_all(struct dt_net *net, struct dt_source *src, struct dt_err *err)
{
	static const int64_t off[DT_CKPT_MAX_DIM];
	const struct dt_param *p;
	int64_t at;
	int rc = 0;

	for (int i = 0; rc == 0 && dt_net_tensor(net, i, &p, &at); i++)
		rc = dt_source_read(src, i, off, p->shape, DT_F32, net->weights + at, err);
	return rc;
}

int dt_net_load(struct dt_net **ret, const char *path, struct dt_err *err)
{
	struct dt_source *src = NULL;
	struct dt_net *net = NULL;
	int rc = dt_source_open(path, DT_SOURCE_DT, "none", &src, err);

	if (rc == 0) {
		const struct dt_config *c = dt_source_config(src);
		const struct dt_net_opts o = {.observation = c->channels,
					      .outputs = c->vocab,
					      .hidden = c->blocks,
					      .optim.kind = DT_OPTIM_SGD};

		rc = strcmp(c->family, "policy")
			     ? dt_err_set(err, -EINVAL, "'%s' is not a policy of dt-rl train", path)
			     : dt_net_open(&net, &o, err);
	}
	if (rc == 0)
		rc = read_all(net, src, err);
	dt_source_close(src);
	if (rc < 0)
		dt_net_close(net);
	else
		*ret = net;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
