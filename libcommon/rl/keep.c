#include "rl/keep.h"

#include "base/tmpfile.h"
#include "ckpt/ckpt.h"
#include "ckpt/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* tensors */

static int pieces(const struct dt_net *net, struct dt_piece p[MOST])
{
	const struct dt_param *q;
	int64_t at;
	int n;

	for (n = 0; n < MOST && dt_net_tensor(net, n, &q, &at); n++) {
		p[n] = (struct dt_piece){.dtype = DT_F32, .ndim = q->ndim, .data = net->weights + at};
		snprintf(p[n].name, sizeof(p[n].name), "model/%s", q->name);
		memcpy(p[n].global, q->shape, (size_t)q->ndim * sizeof(*q->shape));
		memcpy(p[n].shape, q->shape, (size_t)q->ndim * sizeof(*q->shape));
	}
	return n;
}

int dt_net_save(const struct dt_net *net, const char *dir, int64_t step, struct dt_err *err)
{
	struct dt_piece p[MOST];
	json_t *list = NULL, *meta = json_pack("{s:s, s:I, s:o}", "layout", "dp1", "step", (json_int_t)step,
					       "model", dt_config_to_json(net->config));
	char *tmp = NULL;
	int rc = meta ? dt_ckpt_begin(dir, step, &tmp, err)
		      : dt_err_sys(err, -ENOMEM, "cannot write '%s'", dir);

	if (rc == 0)
		rc = dt_ckpt_write_shard(tmp, 0, p, pieces(net, p), false, &list, err);
	if (rc == 0)
		rc = dt_ckpt_commit(dir, step, meta, &list, 1, 0, err);
	if (rc < 0 && tmp)
		dt_remove_tree(tmp, NULL);
	json_decref(list);
	json_decref(meta);
	free(tmp);
	return rc;
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

		rc = strcmp(c->family, "policy") ? dt_err_set(err, -EINVAL, "'%s' is no policy", path)
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
