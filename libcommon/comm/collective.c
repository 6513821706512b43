/* The public operations: arguments checked, the watchdog told, the transport run. */
#include "comm/nccl.h"

#include "base/progress.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rounds of waiting before the next stage; a round takes 20 to 100 ns, a yield 0.3 to 3 us. */
#define SPIN	      512
#define YIELD_S	      1e-3
#define SPIN_CROWDED  8
#define YIELD_CROWDED 64

const char *dt_comm_op_name(enum dt_comm_op_kind k)
{
	static const char *const name[] = {
		"nothing", "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all", "barrier",
		"gather",  "reduce",	 "scatter",	   "send",	 "receive",   "start-up",   "finish"};

	return name[k];
}

static bool point_to_point(enum dt_comm_op_kind k)
{
	return k == DT_COMM_SEND || k == DT_COMM_RECV;
}

void dt_slot_enter(struct dt_world *w, const struct dt_where *at)
{
	struct dt_slot *s = atomic_load_explicit(&w->me, memory_order_relaxed);
	uint32_t v = atomic_load_explicit(&s->version, memory_order_relaxed);

	atomic_store_explicit(&s->version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	s->at = *at;
	atomic_store_explicit(&s->version, v + 2, memory_order_release);
}

void dt_slot_leave(struct dt_world *w)
{
	static const struct dt_where computing;

	dt_slot_enter(w, &computing);
}

struct dt_where dt_where_op(const struct dt_comm *c, const struct dt_comm_op *op, uint64_t seq)
{
	struct dt_where at = {.kind = op->kind,
			      .group = c->index,
			      .peer = point_to_point(op->kind) ? c->ranks[op->root] : -1,
			      .seq = seq,
			      .since = dt_now()};

	strncpy(at.what, op->what ? op->what : "", sizeof(at.what) - 1);
	return at;
}

static void push(struct dt_comm_req *r)
{
	struct dt_comm *c = r->c;

	r->next = NULL;
	if (c->tail)
		c->tail->next = r;
	else
		c->head = r;
	c->tail = r;
	c->w->pending++;
}

/* One round of a group's pending operations; returns whether one of them ended. */
static bool step_comm(struct dt_comm *c)
{
	struct dt_comm_req **link = &c->head, *last = NULL;
	bool ended = false, held = false; /* held: an ordered operation is before the ones that follow */

	while (*link) {
		struct dt_comm_req *r = *link;
		int rc = held && r->t->ordered ? 0 : r->t->step(r, &r->err);

		if (rc == 0) {
			last = r;
			link = &r->next;
			held |= r->t->ordered;
			continue;
		}
		*link = r->next;
		if (c->tail == r)
			c->tail = last;
		c->w->pending--;
		r->status = rc < 0 ? rc : 0;
		r->done = ended = true;
	}
	return ended;
}

void dt_step_all(struct dt_world *w)
{
	for (int i = 0; i < w->ncomm && w->pending; i++)
		if (w->comm[i] && w->comm[i]->head)
			step_comm(w->comm[i]);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

struct idling {
	int round;
	double until;	 /* end of yielding; 0: not known yet */
	size_t progress; /* of the operation when waiting began */
};

/*
 * Waiting costs nothing at first, then the rest of a time slice, then sleep: the one that is waited for may
 * need our processor, be it that there are more ranks than processors (crowded) or that others compute here.
 * A yield that finds nobody else to run is hardly slower than a pause, so the spin can be short. Sleep has to
 * come late: waking takes so long, a tenth of a millisecond on a virtual machine, that whoever waits for the
 * one that wakes would fall asleep too, and so on to the end of the operation.
 */
static void idle(struct dt_comm *c, const struct dt_transport *t, struct idling *i)
{
	struct dt_world *w = c->w;
	int spin = w->crowded ? SPIN_CROWDED : SPIN, n = ++i->round;
	bool alone = w->pending == 1;

	if (n < spin) {
		relax();
		return;
	}
	if (w->crowded ? n < spin + YIELD_CROWDED : !i->until || n % 16 || dt_now() < i->until) {
		if (!i->until)
			i->until = dt_now() + YIELD_S;
		sched_yield();
	} else if (t->sleep && alone) {
		t->sleep(c);
	} else if (w->crowded && n < spin + 4096) {
		sched_yield();
	} else {
		nanosleep(&(struct timespec){0, 20000}, NULL);
	}
}

static void wait_done(struct dt_comm_req *r)
{
	struct idling i = {0};

	r->waited = true;
	while (dt_step_all(r->c->w), !r->done) {
		size_t progress = r->a + r->b + r->c_done + r->moved;

		if (progress != i.progress) /* a new wait, which may be short */
			i = (struct idling){.progress = progress};
		idle(r->c, r->t, &i);
	}
}

/* Refuses what cannot be, and makes an input that already lies in its place one that is in place. */
static int check(const struct dt_comm *c, struct dt_comm_op *o, struct dt_err *err)
{
	size_t bytes;
	bool wide = o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_REDUCE_SCATTER ||
		    o->kind == DT_COMM_ALL_TO_ALL || o->kind == DT_COMM_GATHER || o->kind == DT_COMM_SCATTER;

	if (__builtin_mul_overflow(o->n, (size_t)dt_dtype_size(o->t), &bytes) ||
	    (wide && __builtin_mul_overflow(bytes, (size_t)c->size, &bytes)))
		return dt_err_set(err, -EOVERFLOW, "%s '%s': %zu elements are too many",
				  dt_comm_op_name(o->kind), o->what, o->n);
	if (o->root < 0 || o->root >= c->size || (point_to_point(o->kind) && o->root == c->rank))
		return dt_err_set(err, -EINVAL, "%s '%s': no rank %d to talk to in group %s of %d",
				  dt_comm_op_name(o->kind), o->what, o->root, c->name, c->size);
	bytes = (size_t)c->rank * o->n *
		(size_t)dt_dtype_size(o->t); /* where my block lies in a wide buffer */
	if ((o->kind == DT_COMM_ALL_GATHER || (o->kind == DT_COMM_GATHER && c->rank == o->root)) && o->src &&
	    o->src == (char *)o->dst + bytes)
		o->src = NULL;
	if (o->kind == DT_COMM_SCATTER && c->rank == o->root && o->dst == (const char *)o->src + bytes)
		o->dst = NULL;
	if ((o->kind == DT_COMM_ALL_REDUCE || o->kind == DT_COMM_REDUCE_SCATTER ||
	     o->kind == DT_COMM_ALL_TO_ALL || (o->kind == DT_COMM_REDUCE && c->rank == o->root)) &&
	    o->src == o->dst)
		o->src = NULL;
	if (o->n && !o->src &&
	    ((c->rank == o->root && o->kind == DT_COMM_SCATTER) ||
	     (c->rank != o->root && (o->kind == DT_COMM_REDUCE || o->kind == DT_COMM_GATHER))))
		return dt_err_set(err, -EINVAL, "%s '%s': rank %d has nothing to send",
				  dt_comm_op_name(o->kind), o->what, c->rank);
	return 0;
}

/* The group's next number, seen by its peers. */
static uint64_t arrive(struct dt_comm *c, enum dt_comm_op_kind k)
{
	struct dt_slot *s = atomic_load_explicit(&c->w->me, memory_order_relaxed);

	if (point_to_point(k))
		return 0;
	c->seq++;
	atomic_store_explicit(&s->arrived[c->index], c->seq, memory_order_release);
	return c->seq;
}

static int run_here(struct dt_comm *c, struct dt_comm_op o, struct dt_err *err)
{
	const struct dt_transport *t;
	struct dt_where at;
	struct dt_comm_req r;
	int rc;

	t = dt_transport_of(c, &o);
	if (c->size == 1)
		return t->start(&(struct dt_comm_req){.c = c, .op = o}, err);
	r = (struct dt_comm_req){.c = c, .t = t, .op = o, .seq = arrive(c, o.kind)};
	at = dt_where_op(c, &o, r.seq);
	dt_slot_enter(c->w, &at);
	if (t->run && (!c->w->stepwise || c->mpi_only) && !point_to_point(o.kind)) {
		rc = t->run(c, &o, err);
	} else {
		rc = t->start(&r, err);
		if (!rc) {
			push(&r);
			wait_done(&r);
			rc = r.status;
			if (rc && err)
				*err = r.err;
		}
		free(r.mr);
	}
	dt_nccl_drop(&r);
	dt_slot_leave(c->w);
	return rc;
}

static int run(struct dt_comm *c, struct dt_comm_op o, struct dt_err *err)
{
	struct dt_stage *s;
	int rc = check(c, &o, err);

	if (rc == 0)
		rc = dt_stage_begin(c, &o, &s, err);
	if (rc < 0)
		return rc;
	return dt_stage_end(c, s, o.what, run_here(c, o, err), err);
}

static int start(struct dt_comm *c, struct dt_comm_op o, struct dt_comm_req **ret, struct dt_err *err)
{
	struct dt_stage *s;
	struct dt_comm_req *r;
	int rc = check(c, &o, err);

	if (rc == 0)
		rc = dt_stage_begin(c, &o, &s, err);
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return dt_stage_end(c, s, o.what,
				    dt_err_sys(err, -ENOMEM, "%s '%s'", dt_comm_op_name(o.kind), o.what),
				    err);
	r->stage = s;
	r->c = c;
	r->op = o;
	r->t = dt_transport_of(c, &o);
	r->seq = arrive(c, o.kind);
	rc = r->t->start(r, err);
	if (rc) {
		rc = dt_stage_end(c, s, o.what, rc, err);
		dt_nccl_drop(r);
		free(r->mr);
		free(r);
		return rc;
	}
	push(r);
	step_comm(c);
	*ret = r;
	return 0;
}

int dt_wait(struct dt_comm_req **req, double *exposed_s, struct dt_err *err)
{
	struct dt_comm_req *r = *req;
	double t0;
	int rc;

	if (!r)
		return 0;
	t0 = dt_now();
	if (!r->done) {
		struct dt_where at = dt_where_op(r->c, &r->op, r->seq);

		dt_slot_enter(r->c->w, &at);
		wait_done(r);
		dt_slot_leave(r->c->w);
	}
	rc = r->status;
	if (rc && err)
		*err = r->err;
	rc = dt_stage_end(r->c, r->stage, r->op.what, rc, err);
	if (exposed_s)
		*exposed_s += dt_now() - t0;
	dt_nccl_drop(r);
	free(r->mr);
	free(r);
	*req = NULL;
	return rc;
}

void dt_comm_poll(struct dt_world *w, double *exposed_s)
{
	double t0;

	if (!w->pending)
		return;
	t0 = dt_now();
	dt_step_all(w);
	if (exposed_s)
		*exposed_s += dt_now() - t0;
}

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
	return run(c, reduction(DT_COMM_ALL_REDUCE, dst, src, n, t, op, what), err);
}

int dt_reduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		      enum dt_redop op, const char *what, struct dt_err *err)
{
	return run(c, reduction(DT_COMM_REDUCE_SCATTER, dst, src, n, t, op, what), err);
}

int dt_all_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err)
{
	return run(c, make(DT_COMM_ALL_GATHER, dst, src, n, t, what), err);
}

int dt_broadcast(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int root, const char *what,
		 struct dt_err *err)
{
	return run(c, message(DT_COMM_BROADCAST, buf, NULL, n, t, root, 0, what), err);
}

int dt_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
	      int root, const char *what, struct dt_err *err)
{
	struct dt_comm_op o = reduction(DT_COMM_REDUCE, dst, src, n, t, op, what);

	o.root = root;
	return run(c, o, err);
}

int dt_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	      const char *what, struct dt_err *err)
{
	return run(c, message(DT_COMM_GATHER, dst, src, n, t, root, 0, what), err);
}

int dt_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	       const char *what, struct dt_err *err)
{
	return run(c, message(DT_COMM_SCATTER, dst, src, n, t, root, 0, what), err);
}

int dt_all_to_allv(struct dt_comm *c, void *dst, const size_t *dst_n, const void *src, const size_t *src_n,
		   enum dt_dtype t, const char *what, struct dt_err *err)
{
	size_t e = (size_t)dt_dtype_size(t), to = 0, from = 0;
	struct dt_comm_req **q = calloc(2 * (size_t)c->size, sizeof(struct dt_comm_req *));
	int rc = 0;

	if (!q)
		return dt_err_sys(err, -ENOMEM, "all-to-all '%s'", what);
	if (src_n[c->rank] != dst_n[c->rank])
		rc = dt_err_set(err, -EINVAL,
				"all-to-all '%s': rank %d sends itself %zu elements and expects %zu", what,
				c->rank, src_n[c->rank], dst_n[c->rank]);
	for (int j = 0; j < c->size && !rc; to += dst_n[j++])
		if (j != c->rank && dst_n[j])
			rc = dt_irecv(c, (char *)dst + to * e, dst_n[j], t, j, DT_TAG_MAX + 1, what, &q[j],
				      err);
	to = 0;
	for (int j = 0; j < c->rank; j++)
		to += dst_n[j];
	for (int j = 0; j < c->size && !rc; from += src_n[j++]) {
		const char *at = (const char *)src + from * e;

		if (j == c->rank && src_n[j] && dt_on_device(&c->w->device, dst))
			rc = c->w->device.copy(c->w->device.arg, (char *)dst + to * e, at, src_n[j] * e);
		else if (j == c->rank && src_n[j])
			memcpy((char *)dst + to * e, at, src_n[j] * e);
		else if (src_n[j])
			rc = dt_isend(c, at, src_n[j], t, j, DT_TAG_MAX + 1, what, &q[c->size + j], err);
	}
	for (int j = 0; j < 2 * c->size; j++) {
		int e2 = dt_wait(&q[j], NULL, rc ? NULL : err);

		rc = rc ? rc : e2;
	}
	free(q);
	return rc;
}

int dt_all_to_all(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err)
{
	return run(c, make(DT_COMM_ALL_TO_ALL, dst, src, n, t, what), err);
}

int dt_barrier(struct dt_comm *c, const char *what, struct dt_err *err)
{
	return run(c, make(DT_COMM_BARRIER, NULL, NULL, 0, DT_U8, what), err);
}

int dt_send(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	    const char *what, struct dt_err *err)
{
	return run(c, message(DT_COMM_SEND, NULL, buf, n, t, peer, tag, what), err);
}

int dt_recv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	    struct dt_err *err)
{
	return run(c, message(DT_COMM_RECV, buf, NULL, n, t, peer, tag, what), err);
}

int dt_iall_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
		   const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, reduction(DT_COMM_ALL_REDUCE, dst, src, n, t, op, what), ret, err);
}

int dt_ireduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		       enum dt_redop op, const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, reduction(DT_COMM_REDUCE_SCATTER, dst, src, n, t, op, what), ret, err);
}

int dt_iall_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		   struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, make(DT_COMM_ALL_GATHER, dst, src, n, t, what), ret, err);
}

int dt_ibroadcast(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int root, const char *what,
		  struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, message(DT_COMM_BROADCAST, buf, NULL, n, t, root, 0, what), ret, err);
}

int dt_ireduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
	       int root, const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	struct dt_comm_op o = reduction(DT_COMM_REDUCE, dst, src, n, t, op, what);

	o.root = root;
	return start(c, o, ret, err);
}

int dt_igather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	       const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, message(DT_COMM_GATHER, dst, src, n, t, root, 0, what), ret, err);
}

int dt_iscatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
		const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, message(DT_COMM_SCATTER, dst, src, n, t, root, 0, what), ret, err);
}

int dt_iall_to_all(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		   struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, make(DT_COMM_ALL_TO_ALL, dst, src, n, t, what), ret, err);
}

int dt_ibarrier(struct dt_comm *c, const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, make(DT_COMM_BARRIER, NULL, NULL, 0, DT_U8, what), ret, err);
}

int dt_isend(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	     const char *what, struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, message(DT_COMM_SEND, NULL, buf, n, t, peer, tag, what), ret, err);
}

int dt_irecv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	     struct dt_comm_req **ret, struct dt_err *err)
{
	return start(c, message(DT_COMM_RECV, buf, NULL, n, t, peer, tag, what), ret, err);
}

/* The lengths are gathered to everyone, so that each member knows how many messages there will be. */
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
