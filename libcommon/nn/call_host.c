/*
 * What the host looks at between calls: where the device has memory of its own, some kilobytes that go to the
 * host and back.
 */
#include "nn/call.h"

#include <errno.h>
#include <stdlib.h>

int dt_call_move(struct dt_exec *x, float *to, const float *from, int64_t n, struct dt_err *err)
{
	TRY(dt_dev_copy(x->dev, to, from, (size_t)n * sizeof(*to)));
	TRY(dt_dev_sync(x->dev));
	return 0;
}

float *dt_call_seen(const struct dt_exec *x, struct dt_tensor t)
{
	return dt_dev_is_host(x->dev) ? t.data : malloc((size_t)dt_numel(t) * sizeof(float));
}

int dt_call_unseen(struct dt_exec *x, struct dt_tensor t, float *host, int rc, struct dt_err *err)
{
	if (host == t.data)
		return rc;
	if (rc == 0)
		rc = dt_call_move(x, t.data, host, dt_numel(t), err);
	free(host);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
