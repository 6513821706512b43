/* Parameters in a program's memory, as a source. */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_source_memory(const struct dt_config *c, const void *const *data, enum dt_dtype type,
		     struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	int rc = s ? 0 : -ENOMEM;

	if (rc == 0) {
		s->kind = DT_SOURCE_DT;
		s->config = *c;
		s->path = strdup("memory");
		rc = s->path ? dt_model_params(c, &s->params, err) : -ENOMEM;
	}
	if (rc == 0 && !(s->view = calloc((size_t)s->params.n + 1, sizeof(*s->view))))
		rc = -ENOMEM;
	if (rc == -ENOMEM)
		dt_err_sys(err, rc, "cannot read the weights");
	if (rc < 0) {
		dt_source_close(s);
		return rc;
	}
	for (int i = 0; i < s->params.n; i++) {
		const struct dt_param *p = &s->params.p[i];

		s->view[i] = (struct src_view){.data = data[i],
					       .format = (enum dt_format)dt_format_of_dtype(type),
					       .stride = p->ndim == 2 ? p->shape[1] : 1};
	}
	*ret = s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
