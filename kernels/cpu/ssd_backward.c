/*
 * The chunked scan, backward, in the notation of ssd.h. With M = L o G o dt, G = C B^T, and dS, dS' the
 * gradients of the states in front of the chunk and behind it:
 *   dS = e_last dS' + C^T (e o dy)             dM = dy x^T
 *   dx = M^T dy + w o dt o (B dS') + D dy           dG = sum over the group's heads of dM o L o dt
 *   dC = dG B + e o (dy S^T)                   dB = dG^T C + w o dt o (x dS'^T)
 * and of the sums cs: each factor exp(cs_i - cs_j) adds its gradient times itself to cs_i, and takes it from
 * cs_j.
 */
#include "kernels/cpu/ssd.h"

#include <math.h>

struct back {
	struct dt_ssd s;
	struct dt_tensor dxbc, dt, dy;
	float *dstates; /* [batch, chunks, heads, state, head_dim]: gradients of states behind each chunk */
	float *parts;	/* [batch, chunks, 3, heads]: shares of the gradients of dt_bias, a_log and d */
};

/* A thread's memory in chunk_backward. */
struct room {
	float *b, *c, *bt, *db, *dc, *t; /* [Q, state]; bt [state, Q] */
	float *g, *dg, *m, *dm;		 /* [Q, Q] */
	float *x, *xt, *dy, *dx, *v;	 /* [Q, head_dim]; xt [head_dim, Q] */
	float *st;			 /* [head_dim, state] */
	float *e, *w, *dcs, *ddt;	 /* [Q] */
	float *raw;			 /* [Q, heads]: gradients of t */
};

static struct room room_of(float *own, const struct dt_ssm *p)
{
	const int64_t q = DT_SSM_CHUNK, n = q * p->state, d = q * p->head_dim;
	struct room r;

	r.b = own, r.c = r.b + n, r.bt = r.c + n, r.db = r.bt + n, r.dc = r.db + n, r.t = r.dc + n;
	r.g = r.t + n, r.dg = r.g + q * q, r.m = r.dg + q * q;
	r.dm = r.m + q * q;
	r.x = r.dm + q * q, r.xt = r.x + d, r.dy = r.xt + d, r.dx = r.dy + d, r.v = r.dx + d;
	r.st = r.v + d;
	r.e = r.st + p->head_dim * p->state, r.w = r.e + q, r.dcs = r.w + q, r.ddt = r.dcs + q;
	r.raw = r.ddt + q;
	return r;
}

/* Gradients of a head's states, from the last chunk on. */
static void states_backward(const struct back *k, int64_t batch, int64_t head, float *own)
{
	const struct dt_ssm *p = k->s.p;
	const int64_t n = p->state, d = p->head_dim, group = head / (p->heads / p->groups);
	const struct room r = room_of(own, p);

	memset(dt_ssd_state(&k->s, k->dstates, batch, k->s.chunks - 1, head), 0,
	       (size_t)(n * d) * sizeof(*own));
	for (int64_t i = k->s.chunks - 1; i > 0; i--) {
		const struct dt_ssd_chunk c = dt_ssd_chunk(&k->s, batch, i);
		const float *from = dt_ssd_state(&k->s, k->dstates, batch, i, head),
			    keep = dt_ssd_factors(&k->s, &c, batch, head, r.e, r.w);
		float *to = dt_ssd_state(&k->s, k->dstates, batch, i - 1, head);

		dt_ssd_get(r.c, k->s.xbc, dt_ssm_conv(p), c.row, c.n,
			   dt_ssm_inner(p) + (p->groups + group) * n, n);
		dt_ssd_get(r.dy, k->dy, dt_ssm_inner(p), c.row, c.n, head * d, d);
		dt_ssd_scale(r.dy, r.e, c.n, d);
		for (int64_t j = 0; j < n * d; j++)
			to[j] = keep * from[j];
		dt_ssd_mul(to, d, r.c, 1, n, r.dy, d, n, d, c.n, true);
	}
}

/* Within the chunk, where m is L: dG, the gradients of dt and of cs that come from M, and M in L's place. */
static DT_SIMD void ssd_back_m(const struct room *r, const float *dt, int64_t n)
{
	const int64_t q = DT_SSM_CHUNK;

	for (int64_t i = 0; i < n; i++) {
		float sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int64_t j = 0; j <= i; j++) {
			const float l = r->m[i * q + j], v = r->dm[i * q + j] * l, s = v * r->g[i * q + j];

			r->dg[i * q + j] += v * dt[j];
			r->m[i * q + j] = l * r->g[i * q + j] * dt[j];
			r->dcs[j] -= s * dt[j];
			r->ddt[j] += s;
			sum += s * dt[j];
		}
		r->dcs[i] += sum;
	}
}

static DT_SIMD float ssd_dot(const float *a, const float *b, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* What the states in front of the chunk and behind it add to dC, dB, dx and the gradients of cs and dt. */
static void from_states(const struct back *k, const struct room *r, const struct dt_ssd_chunk *c,
			int64_t batch, int64_t chunk, int64_t head, const float *dt)
{
	const struct dt_ssm *p = k->s.p;
	const int64_t n = p->state, d = p->head_dim, last = c->n - 1;
	const float *s = dt_ssd_state(&k->s, k->s.states, batch, chunk, head),
		    *ds = dt_ssd_state(&k->s, k->dstates, batch, chunk, head);

	dt_ssd_turn(r->st, n, s, n, d);
	dt_ssd_mul(r->t, n, r->dy, d, 1, r->st, n, c->n, n, d, false);
	dt_ssd_scale(r->t, r->e, c->n, n);
	for (int64_t i = 0; i < c->n; i++) {
		r->dcs[i] += ssd_dot(r->t + i * n, r->c + i * n, n);
		for (int64_t j = 0; j < n; j++)
			r->dc[i * n + j] += r->t[i * n + j];
	}
	dt_ssd_turn(r->st, n, ds, n, d);
	dt_ssd_mul(r->t, n, r->x, d, 1, r->st, n, c->n, n, d, false);
	dt_ssd_scale(r->t, r->w, c->n, n);
	for (int64_t i = 0; i < c->n; i++) {
		const float u = ssd_dot(r->t + i * n, r->b + i * n, n);

		r->ddt[i] += u;
		r->dcs[i] -= u * dt[i];
		r->dcs[last] += u * dt[i];
		for (int64_t j = 0; j < n; j++)
			r->db[i * n + j] += dt[i] * r->t[i * n + j];
	}
	r->dcs[last] += r->e[last] * ssd_dot(s, ds, n * d);
	dt_ssd_mul(r->v, d, r->b, n, 1, ds, d, c->n, d, n, false);
	for (int64_t i = 0; i < c->n; i++)
		for (int64_t j = 0; j < d; j++)
			r->dx[i * d + j] =
				r->w[i] * dt[i] * r->v[i * d + j] + k->s.d[head] * r->dy[i * d + j];
}

static void head_backward(const struct back *k, const struct room *r, const struct dt_ssd_chunk *c,
			  int64_t batch, int64_t chunk, int64_t head, float *part)
{
	const struct dt_ssm *p = k->s.p;
	const int64_t q = DT_SSM_CHUNK, d = p->head_dim;
	const float *dt = k->s.dt + (batch * p->heads + head) * p->seq + c->at;
	double later = 0, bias = 0, a_log = 0;

	dt_ssd_get(r->x, k->s.xbc, dt_ssm_conv(p), c->row, c->n, head * d, d);
	dt_ssd_get(r->dy, k->dy, dt_ssm_inner(p), c->row, c->n, head * d, d);
	dt_ssd_turn(r->xt, q, r->x, c->n, d);
	dt_ssd_factors(&k->s, c, batch, head, r->e, r->w);
	dt_ssd_mask(r->m, NULL, &k->s, c, batch, head);
	dt_ssd_mul(r->dm, q, r->dy, d, 1, r->xt, q, c->n, c->n, d, false);
	memset(r->dcs, 0, 2 * (size_t)q * sizeof(float)); /* ddt, too */
	ssd_back_m(r, dt, c->n);
	from_states(k, r, c, batch, chunk, head, dt);
	dt_ssd_mul(r->dx, d, r->m, 1, q, r->dy, d, c->n, d, c->n, true);
	dt_ssd_put(k->dxbc, dt_ssm_conv(p), c->row, c->n, head * d, d, r->dx);
	part[2 * p->heads + head] = ssd_dot(r->x, r->dy, c->n * d);
	for (int64_t i = c->n - 1; i >= 0; i--) {
		const float a = k->s.a[head];
		double raw;

		later += (double)r->dcs[i]; /* of dt_i A, which all later sums contain */
		a_log += later * (double)(dt[i] * a);
		/* the derivative of softplus: 1 - exp(-dt) */
		raw = ((double)r->ddt[i] + later * (double)a) * -expm1(-(double)dt[i]);
		r->raw[i * p->heads + head] = (float)raw;
		bias += raw;
	}
	part[head] = (float)bias;
	part[p->heads + head] = (float)a_log;
}

static void chunk_backward(const struct back *k, int64_t batch, int64_t chunk, float *own)
{
	const struct dt_ssm *p = k->s.p;
	const struct dt_ssd_chunk c = dt_ssd_chunk(&k->s, batch, chunk);
	const int64_t q = DT_SSM_CHUNK, n = p->state, inner = dt_ssm_inner(p), wide = dt_ssm_conv(p),
		      each = p->heads / p->groups;
	float *part = k->parts + (batch * k->s.chunks + chunk) * 3 * p->heads;
	const struct room r = room_of(own, p);

	for (int64_t i = 0; i < p->groups; i++) {
		dt_ssd_get(r.b, k->s.xbc, wide, c.row, c.n, inner + i * n, n);
		dt_ssd_get(r.c, k->s.xbc, wide, c.row, c.n, inner + (p->groups + i) * n, n);
		dt_ssd_turn(r.bt, q, r.b, c.n, n);
		dt_ssd_mul(r.g, q, r.c, n, 1, r.bt, q, c.n, c.n, n, false);
		memset(r.dg, 0, (size_t)(q * q) * sizeof(float));
		memset(r.db, 0, (size_t)(q * n) * sizeof(float));
		memset(r.dc, 0, (size_t)(q * n) * sizeof(float));
		for (int64_t h = i * each; h < (i + 1) * each; h++)
			head_backward(k, &r, &c, batch, chunk, h, part);
		dt_ssd_mul(r.dc, n, r.dg, q, 1, r.b, n, c.n, n, c.n, true);
		dt_ssd_mul(r.db, n, r.dg, 1, q, r.c, n, c.n, n, c.n, true);
		dt_ssd_put(k->dxbc, wide, c.row, c.n, inner + i * n, n, r.db);
		dt_ssd_put(k->dxbc, wide, c.row, c.n, inner + (p->groups + i) * n, n, r.dc);
	}
	dt_ssd_put(k->dt, p->heads, c.row, c.n, 0, p->heads, r.raw);
}

int dt_cpu_ssm_scan_backward(struct dt_dev *dev, struct dt_tensor dxbc, struct dt_tensor dt,
			     struct dt_tensor ddt_bias, struct dt_tensor da_log, struct dt_tensor dd,
			     struct dt_tensor dy, struct dt_tensor xbc, struct dt_tensor t,
			     struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			     const struct dt_ssm *p)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const struct dt_tensor out[3] = {ddt_bias, da_log, dd};
	struct back k = {.s = {.p = p, .xbc = xbc, .t = t}, .dxbc = dxbc, .dt = dt, .dy = dy};
	float *room = dt_cpu_scratch(dev, dt_ssm_scan_backward_scratch(&on, p));
	const int64_t all = p->batch * p->heads;
	int64_t chunks;

	if (!room)
		return -ENOMEM;
	k.dstates = dt_ssd_open(dev, &k.s, room, dt_bias, a_log, d, true);
	k.parts = k.dstates + dt_ssd_state_size(p);
	chunks = p->batch * k.s.chunks;
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(dy) > DT_SERIAL)
	for (int64_t i = 0; i < all; i++)
		states_backward(&k, i / p->heads, i % p->heads,
				k.s.own + omp_get_thread_num() * k.s.own_each);
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(dy) > DT_SERIAL)
	for (int64_t i = 0; i < chunks; i++)
		chunk_backward(&k, i / k.s.chunks, i % k.s.chunks,
			       k.s.own + omp_get_thread_num() * k.s.own_each);
	for (int v = 0; v < 3; v++)
		for (int64_t i = 0; i < chunks && out[v].data; i++)
			for (int64_t h = 0; h < p->heads; h++)
				((float *)out[v].data)[h] += k.parts[(i * 3 + v) * p->heads + h];
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
