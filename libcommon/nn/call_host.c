/*
 * Data that the host reads or writes between calls. With a device it is copied to the host and back: some
 * kilobytes, or with a value head the rows of a microbatch.
 */
#include "nn/call.h"

#include <errno.h>
#include <stdlib.h>

static size_t bytes_of(struct dt_tensor t)
{
	return (size_t)(dt_numel(t) * dt_dtype_size(t.dtype));
}

int dt_call_move(struct dt_exec *x, void *to, const void *from, size_t n, struct dt_err *err)
{
	TRY(dt_dev_copy(x->dev, to, from, n));
	TRY(dt_dev_sync(x->dev));
	return 0;
}

void *dt_call_seen(const struct dt_exec *x, struct dt_tensor t)
{
	return dt_dev_is_host(x->dev) ? t.data : malloc(bytes_of(t));
}

int dt_call_unseen(struct dt_exec *x, struct dt_tensor t, void *host, int rc, struct dt_err *err)
{
	if (host == t.data)
		return rc;
	if (rc == 0)
		rc = dt_call_move(x, t.data, host, bytes_of(t), err);
	free(host);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
