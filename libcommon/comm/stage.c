/*
 * Operations on device memory that messages cannot reach: operands are copied to the host, the operation runs
 * there, and results are copied back when the operation is waited for.
 */
#include "comm/nccl.h"

#include <errno.h>
#include <stdlib.h>

struct dt_comm_stage {
	void *dst, *host_dst, *host_src; /* dst: address on the device; NULL: on the host */
	size_t dst_bytes;
};

int dt_world_device(struct dt_world *w, const struct dt_comm_device *dev, const char **ret_staged,
		    struct dt_err *err)
{
	*ret_staged = NULL;
	dt_comm_nccl_close(w);
	w->device = dev ? *dev : (struct dt_comm_device){0};
	if (!dev || w->info.size == 1)
		return 0;
	if (!dev->card) {
		*ret_staged = "the device has no messages of its own";
		return 0;
	}
	return dt_comm_nccl_open(w, ret_staged, err);
}

bool dt_comm_on_device(const struct dt_comm_device *d, const void *p)
{
	return d->bytes && (const char *)p >= (const char *)d->base &&
	       (const char *)p < (const char *)d->base + d->bytes;
}

void dt_comm_op_extents(const struct dt_comm *c, const struct dt_comm_op *o, size_t *dst, size_t *src)
{
	const size_t n = o->n * (size_t)dt_dtype_size(o->t), all = n * (size_t)c->size;
	const bool root = c->rank == o->root;

	*dst = *src = n;
	switch (o->kind) {
	case DT_COMM_ALL_GATHER:
		*dst = all;
		break;
	case DT_COMM_REDUCE_SCATTER:
		*src = all;
		*dst = o->src ? n : all;
		break;
	case DT_COMM_ALL_TO_ALL:
		*dst = *src = all;
		break;
	case DT_COMM_GATHER:
		*dst = root ? all : 0;
		break;
	case DT_COMM_SCATTER:
		*src = root ? all : 0;
		break;
	case DT_COMM_REDUCE:
		*dst = root ? n : 0;
		break;
	case DT_COMM_BARRIER:
		*dst = *src = 0;
		break;
	default:
		break;
	}
	*dst = o->dst ? *dst : 0;
	*src = o->src ? *src : 0;
}

static void release(struct dt_comm_stage *s)
{
	free(s->host_dst);
	free(s->host_src);
	free(s);
}

/* Copies the operands to the host and redirects the operation to the copies. */
static int bring(const struct dt_comm_device *d, struct dt_comm_stage *s, struct dt_comm_op *o, size_t dst,
		 size_t src)
{
	int rc = 0;

	if (dst && dt_comm_on_device(d, o->dst)) {
		s->dst = o->dst;
		s->dst_bytes = dst;
		s->host_dst = malloc(dst);
		rc = !s->host_dst ? -ENOMEM : o->src ? 0 : d->copy(d->arg, s->host_dst, o->dst, dst);
		o->dst = s->host_dst;
	}
	if (rc == 0 && src && dt_comm_on_device(d, o->src)) {
		s->host_src = malloc(src);
		rc = s->host_src ? d->copy(d->arg, s->host_src, o->src, src) : -ENOMEM;
		o->src = s->host_src;
	}
	return rc < 0 ? rc : d->sync(d->arg);
}

int dt_comm_stage_begin(struct dt_comm *c, struct dt_comm_op *o, struct dt_comm_stage **ret,
			struct dt_err *err)
{
	const struct dt_comm_device *d = &c->w->device;
	struct dt_comm_op was = *o;
	struct dt_comm_stage *s;
	size_t dst, src;
	int rc;

	*ret = NULL;
	dt_comm_op_extents(c, o, &dst, &src);
	if (!((dst && dt_comm_on_device(d, o->dst)) || (src && dt_comm_on_device(d, o->src))) ||
	    dt_comm_nccl_transport(c, o) || (c->size == 1 && !(dst && src)))
		return 0;
	s = calloc(1, sizeof(*s));
	rc = s ? bring(d, s, o, dst, src) : -ENOMEM;
	if (rc < 0) {
		*o = was;
		if (s)
			release(s);
		return dt_err_sys(err, rc, "%s '%s': cannot copy from the device", dt_comm_op_name(o->kind),
				  o->what);
	}
	*ret = s;
	return 0;
}

int dt_comm_stage_end(struct dt_comm *c, struct dt_comm_stage *s, const char *what, int rc,
		      struct dt_err *err)
{
	const struct dt_comm_device *d = &c->w->device;
	int late = 0;

	if (!s)
		return rc;
	if (rc == 0 && s->dst) {
		late = d->copy(d->arg, s->dst, s->host_dst, s->dst_bytes);
		if (late == 0)
			late = d->sync(d->arg);
	}
	release(s);
	return late < 0 ? dt_err_sys(err, late, "'%s': cannot copy to the device", what) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
