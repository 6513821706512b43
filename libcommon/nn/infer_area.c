/* Memory of the device that a model is served on, and copies into it. */
#include "nn/infer_priv.h"

int dt_infer_area(struct dt_infer *m, struct dt_arena *a, size_t bytes, struct dt_err *err)
{
	void *p;
	int rc;

	if (!bytes) /* the cache of an encoder */
		return 0;
	if (dt_dev_is_host(m->dev))
		return dt_arena_init(a, bytes, err);
	rc = dt_dev_alloc(m->dev, &p, bytes);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot allocate %zu bytes on the device", bytes);
	*a = (struct dt_arena){p, bytes};
	return 0;
}

void dt_infer_area_release(struct dt_infer *m, struct dt_arena *a)
{
	if (dt_dev_is_host(m->dev)) {
		dt_arena_release(a);
		return;
	}
	dt_dev_free(m->dev, a->base);
	*a = (struct dt_arena){0};
}

int dt_infer_put(struct dt_infer *m, void *to, const void *from, size_t n, struct dt_err *err)
{
	int rc = dt_dev_copy(m->dev, to, from, n);

	if (rc == 0)
		rc = dt_dev_sync(m->dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy to the device") : 0;
}

const int32_t *dt_infer_there(const struct dt_infer *m, const int32_t *p)
{
	const char *c = (const char *)p;

	return m->side.host ? (const int32_t *)(m->side.there + (c - m->side.host)) : p;
}
/* SPDX-License-Identifier: Apache-2.0 */
