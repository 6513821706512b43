/* The public operations: each makes a struct dt_comm_op from its arguments. */
#include "comm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct dt_comm_op make(enum dt_comm_op_kind k, void *dst, const void *src, size_t n, enum dt_dtype t,
			      const char *what)
{
	return (struct dt_comm_op){
		.kind = k, .dst = dst, .src = src, .n = n, .t = t, .what = what ? what : ""};
}

static struct dt_comm_op reduction(enum dt_comm_op_kind k, void *dst, const void *src, size_t n,
				   enum dt_dtype t, enum dt_redop op, const char *what)
{
	struct dt_comm_op o = make(k, dst, src, n, t, what);

	o.op = op;
	return o;
}

static struct dt_comm_op message(enum dt_comm_op_kind k, void *dst, const void *src, size_t n,
				 enum dt_dtype t, int peer, int tag, const char *what)
{
	struct dt_comm_op o = make(k, dst, src, n, t, what);

	o.root = peer;
	o.tag = tag;
	return o;
}

int dt_all_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
		  const char *what, struct dt_err *err)
{
	return dt_comm_run(c, reduction(DT_COMM_ALL_REDUCE, dst, src, n, t, op, what), err);
}

int dt_reduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		      enum dt_redop op, const char *what, struct dt_err *err)
{
	return dt_comm_run(c, reduction(DT_COMM_REDUCE_SCATTER, dst, src, n, t, op, what), err);
}

int dt_all_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err)
{
	return dt_comm_run(c, make(DT_COMM_ALL_GATHER, dst, src, n, t, what), err);
}

int dt_broadcast(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int root, const char *what,
		 struct dt_err *err)
{
	return dt_comm_run(c, message(DT_COMM_BROADCAST, buf, NULL, n, t, root, 0, what), err);
}

int dt_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
	      int root, const char *what, struct dt_err *err)
{
	struct dt_comm_op o = reduction(DT_COMM_REDUCE, dst, src, n, t, op, what);

	o.root = root;
	return dt_comm_run(c, o, err);
}

int dt_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	      const char *what, struct dt_err *err)
{
	return dt_comm_run(c, message(DT_COMM_GATHER, dst, src, n, t, root, 0, what), err);
}

int dt_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	       const char *what, struct dt_err *err)
{
	return dt_comm_run(c, message(DT_COMM_SCATTER, dst, src, n, t, root, 0, what), err);
}

/* Copies this rank's own block. */
static int keep_own(struct dt_comm *c, void *dst, const void *src, size_t bytes)
{
	if (bytes && dt_comm_on_device(&c->w->device, dst))
		return c->w->device.copy(c->w->device.arg, dst, src, bytes);
	if (bytes)
		memcpy(dst, src, bytes);
	return 0;
}

int dt_iall_to_allv(struct dt_comm *c, void *dst, const size_t *dst_n, const void *src, const size_t *src_n,
		    enum dt_dtype t, const char *what, struct dt_comm_req **req, struct dt_err *err)
{
	size_t e = (size_t)dt_dtype_size(t), to = 0, from = 0, own = 0;
	int rc = 0;

	memset(req, 0, 2 * (size_t)c->size * sizeof(*req));
	if (src_n[c->rank] != dst_n[c->rank])
		return dt_err_set(err, -EINVAL,
				  "all-to-all '%s': rank %d sends itself %zu elements and expects %zu", what,
				  c->rank, src_n[c->rank], dst_n[c->rank]);
	for (int j = 0; j < c->size && !rc; to += dst_n[j++])
		if (j == c->rank)
			own = to;
		else if (dst_n[j])
			rc = dt_irecv(c, (char *)dst + to * e, dst_n[j], t, j, DT_TAG_MAX + 1, what, &req[j],
				      err);
	for (int j = 0; j < c->size && !rc; from += src_n[j++]) {
		const char *at = (const char *)src + from * e;

		if (j == c->rank)
			rc = keep_own(c, (char *)dst + own * e, at, src_n[j] * e);
		else if (src_n[j])
			rc = dt_isend(c, at, src_n[j], t, j, DT_TAG_MAX + 1, what, &req[c->size + j], err);
	}
	if (rc)
		dt_wait_all(req, 2 * c->size, NULL, NULL);
	return rc;
}

int dt_all_to_allv(struct dt_comm *c, void *dst, const size_t *dst_n, const void *src, const size_t *src_n,
		   enum dt_dtype t, const char *what, struct dt_err *err)
{
	struct dt_comm_req **q = calloc(2 * (size_t)c->size, sizeof(struct dt_comm_req *));
	int rc;

	if (!q)
		return dt_err_sys(err, -ENOMEM, "all-to-all '%s'", what);
	rc = dt_iall_to_allv(c, dst, dst_n, src, src_n, t, what, q, err);
	if (!rc)
		rc = dt_wait_all(q, 2 * c->size, NULL, err);
	free(q);
	return rc;
}

int dt_all_to_all(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err)
{
	return dt_comm_run(c, make(DT_COMM_ALL_TO_ALL, dst, src, n, t, what), err);
}

int dt_barrier(struct dt_comm *c, const char *what, struct dt_err *err)
{
	return dt_comm_run(c, make(DT_COMM_BARRIER, NULL, NULL, 0, DT_U8, what), err);
}

int dt_send(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	    const char *what, struct dt_err *err)
{
	return dt_comm_run(c, message(DT_COMM_SEND, NULL, buf, n, t, peer, tag, what), err);
}

int dt_recv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	    struct dt_err *err)
{
	return dt_comm_run(c, message(DT_COMM_RECV, buf, NULL, n, t, peer, tag, what), err);
}

int dt_iall_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
		   const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, reduction(DT_COMM_ALL_REDUCE, dst, src, n, t, op, what), ret, err);
}

int dt_ireduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		       enum dt_redop op, const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, reduction(DT_COMM_REDUCE_SCATTER, dst, src, n, t, op, what), ret, err);
}

int dt_iall_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		   struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, make(DT_COMM_ALL_GATHER, dst, src, n, t, what), ret, err);
}

int dt_ibarrier(struct dt_comm *c, const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, make(DT_COMM_BARRIER, NULL, NULL, 0, DT_U8, what), ret, err);
}

int dt_isend(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	     const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, message(DT_COMM_SEND, NULL, buf, n, t, peer, tag, what), ret, err);
}

int dt_irecv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	     struct dt_comm_req **ret, struct dt_err *err)
{
	return dt_comm_start(c, message(DT_COMM_RECV, buf, NULL, n, t, peer, tag, what), ret, err);
}

/* All members get all lengths, so that each knows the number of messages. */
int dt_gather_bytes(struct dt_comm *c, const void *src, size_t n, char **ret, size_t **ret_lens, int root,
		    const char *what, struct dt_err *err)
{
	size_t *lens = calloc((size_t)c->size, sizeof(*lens)), total = 0;
	struct dt_comm_req **reqs = calloc((size_t)c->size, sizeof(struct dt_comm_req *));
	uint64_t mine = n;
	char *all = NULL;
	int rc;

	if (!lens || !reqs) {
		rc = dt_err_sys(err, -ENOMEM, "gather '%s'", what);
		goto out;
	}
	rc = dt_all_gather(c, lens, &mine, 1, DT_I64, what, err);
	if (rc)
		goto out;
	if (c->rank != root) {
		rc = n ? dt_send(c, src, n, DT_U8, root, 0, what, err) : 0;
		goto out;
	}
	for (int i = 0; i < c->size; i++)
		total += lens[i];
	all = malloc(total ? total : 1);
	if (!all) {
		rc = dt_err_sys(err, -ENOMEM, "gather '%s' of %zu bytes", what, total);
		goto out;
	}
	for (size_t at = 0, i = 0; i < (size_t)c->size && !rc; at += lens[i++]) {
		if ((int)i == root && n)
			memcpy(all + at, src, n);
		else if (lens[i])
			rc = dt_irecv(c, all + at, lens[i], DT_U8, (int)i, 0, what, &reqs[i], err);
	}
	for (int i = 0; i < c->size; i++) {
		int e = dt_wait(&reqs[i], NULL, rc ? NULL : err);

		if (!rc)
			rc = e;
	}
out:
	free(reqs);
	if (rc || c->rank != root) {
		free(all);
		free(lens);
		return rc;
	}
	*ret = all;
	*ret_lens = lens;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
