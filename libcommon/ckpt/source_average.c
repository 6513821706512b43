#include "ckpt/export.h"
#include "ckpt/source_internal.h"
#include "model/same.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_source_average(struct dt_source **v, int n, struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	const char *what = "";
	int rc = 0;

	for (int i = 1; i < n && rc == 0; i++)
		if (!dt_config_same(&v[0]->config, &v[i]->config, &what) ||
		    v[0]->config.rope_pairing != v[i]->config.rope_pairing ||
		    v[0]->config.norm_plus_one != v[i]->config.norm_plus_one ||
		    v[0]->config.value_head != v[i]->config.value_head)
			rc = dt_err_set(
				err, -EINVAL, "'%s' and '%s' are not the same model: they differ in %s",
				dt_source_path(v[0]), dt_source_path(v[i]),
				*what ? what : "rotary order, the convention of norms, or a value head");
	if (rc == 0 && s) {
		s->path = strdup(dt_source_path(v[0]));
		s->mean = malloc((size_t)n * sizeof(struct dt_source *));
	}
	if (rc == 0 && (!s || !s->path || !s->mean))
		rc = dt_err_sys(err, -ENOMEM, "cannot average");
	if (rc == 0)
		rc = dt_model_params(&v[0]->config, &s->params, err);
	if (rc < 0) {
		for (int i = 0; i < n; i++)
			dt_source_close(v[i]);
		dt_source_close(s);
		return rc;
	}
	src_made_of(s, v, n);
	s->kind = DT_SOURCE_DT;
	s->config = v[0]->config;
	*ret = s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
