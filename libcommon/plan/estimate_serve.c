/* What a rank of a server holds: weights, cache and the working set of a forward pass. */
#include "plan/entries.h"

#include "base/arena.h"
#include "plan/formulas.h"

#include <errno.h>
#include <math.h>

/* Bytes of one sequence of len tokens in the cache, all layers. windows: those with one keep no more than it.
 */
static double sequence_bytes(const struct dt_serve_shape *s, const struct dt_local_dims *d, bool windows)
{
	const struct dt_config *c = s->config;
	double row =
		c->kv_rank ? (double)(c->kv_rank + c->rope_dim) : (double)(2 * d->kv_heads * c->head_dim);
	double sum = 0;

	for (int64_t i = 0; i < c->layers; i++) {
		int64_t w = windows ? dt_layer_window(c, i) : 0,
			len = w > 0 && w < s->max_len ? w : s->max_len;

		sum += (double)((len + s->block - 1) / s->block * s->block) * row;
	}
	return sum * s->cache_bits / 8;
}

static void put_serving(struct dt_estimate *t, const struct dt_serve_shape *s, double weights,
			const struct dt_local_dims *d, bool plain)
{
	const struct dt_config *c = s->config;
	struct dt_activation act[DT_ACT_N];
	struct dt_local_dims widest = *d;
	double e = dt_dtype_size(s->compute), rows = (double)s->max_tokens, h = (double)c->hidden, work = 0;
	bool dt = s->account == DT_ACCOUNT_DT;

	dt_layer_dims(c, c->layers - 1, s->layout.tp, s->tp_rank, &widest);
	dt_activations(c, &widest, s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++)
		work += (double)dt_align_up(
			(uint64_t)(s->max_tokens * act[i].per_token * dt_dtype_size(act[i].dtype)));
	dt_entry_put(t, DT_MEM_WEIGHTS, weights, DT_PH_FORWARD, DT_PH_FORWARD, "weights",
		     "local parameters x bits / 8");
	dt_entry_put(t, DT_EST_CACHE, (double)s->max_seqs * sequence_bytes(s, d, !dt), DT_PH_FORWARD,
		     DT_PH_FORWARD, "kv cache",
		     c->kv_rank ? "sequences x whole blocks of the longest x layers (kv_rank + rope_dim)"
		     : c->window && !dt
			     ? "sequences x whole blocks of window or longest x 2 layers kv_heads head_dim"
			     : "sequences x whole blocks of the longest x 2 layers kv_heads head_dim");
	dt_entry_put(t, DT_MEM_WORKSPACE, work, DT_PH_FORWARD, DT_PH_FORWARD, "layer working set",
		     "batched tokens x activation table, one layer");
	dt_entry_put(t, DT_MEM_WORKSPACE, 3 * rows * h * e + (double)s->max_seqs * h * e + 8 * rows,
		     DT_PH_FORWARD, DT_PH_FORWARD, "streams",
		     "(3 x batched tokens + sequences) x hidden, two statistics");
	if (c->pos == DT_POS_ROPE)
		dt_entry_put(t, DT_MEM_WORKSPACE,
			     (double)(c->max_seq * c->head_dim) * (c->rope_local_theta > 0 ? 8 : 4),
			     DT_PH_FORWARD, DT_PH_FORWARD, "rope table", "positions x head_dim, f32");
	dt_entry_put(t, DT_MEM_LOGITS, (double)s->max_seqs * (double)d->vocab * 4, DT_PH_FORWARD,
		     DT_PH_FORWARD, "logits", "sequences x vocabulary, f32");
	/* dt-serve repacks weights for the processor and lays its working set out by itself. */
	for (int i = 0; i < t->n; i++)
		t->e[i].exactness = dt && (t->e[i].cat == DT_EST_CACHE || t->e[i].cat == DT_MEM_LOGITS)
					    ? DT_EXACT
					    : DT_MODELLED;
	if (s->framework_bytes) {
		struct dt_entry *f = dt_entry_put(t, DT_EST_FRAMEWORK, (double)s->framework_bytes,
						  DT_PH_FORWARD, DT_PH_FORWARD, "framework", "as given");

		if (f)
			f->exactness = DT_CALIBRATED;
	}
}

/* Bytes that dt_infer_open takes beside what the format says: routers, and what an RMSNorm multiplies by, are
 * f32.
 */
static double kept_wider(const struct dt_serve_shape *s, const struct dt_param *p, double numel)
{
	bool plain = s->weights < DT_WF_Q8_0, scale = dt_param_is_scale(p) && s->config->norm == DT_NORM_RMS;

	if (s->account != DT_ACCOUNT_DT || s->weight_bytes)
		return 0;
	if (p->role == DT_W_ROUTER || (plain && scale))
		return numel * (4 - dt_weight_bits(s->weights) / 8);
	return 0;
}

/* The cache's type is one that dt_infer_open knows. */
static bool is_own_cache(const struct dt_serve_shape *s)
{
	const double known[] = {8.0 * dt_dtype_size(s->compute), 32, dt_kv_bits(s->config, DT_KV_INT8)};

	for (int i = 0; i < 3; i++)
		if (fabs(s->cache_bits - known[i]) < 1e-9)
			return true;
	return false;
}

static int check(const struct dt_serve_shape *s, struct dt_err *err)
{
	const struct dt_config *c = s->config;

	if (s->layout.pp > 1 || s->layout.cp > 1 || s->layout.zero > 0)
		return dt_err_set(err, -ENOTSUP, "serving is laid out over tp, ep and dp only");
	if (s->max_seqs < 1 || s->max_len < 1 || s->block < 1 || s->max_tokens < 1)
		return dt_err_set(err, -EINVAL,
				  "a server has room for at least one sequence, token and block");
	if (c->pos == DT_POS_LEARNED && s->max_len > c->max_seq)
		return dt_err_set(err, -EINVAL, "length %lld exceeds the %lld positions of '%s'",
				  (long long)s->max_len, (long long)c->max_seq, c->name);
	if (s->account != DT_ACCOUNT_DT)
		return 0;
	if (!is_own_cache(s))
		return dt_err_set(err, -ENOTSUP,
				  "dt-serve keeps its cache in the type it computes in, in fp32 or in int8");
	return dt_config_servable(c, err);
}

int dt_estimate_serve(const struct dt_serve_shape *asked, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_serve_shape shape = *asked, *s = &shape;
	const struct dt_config *c = s->config;
	struct dt_estimate t = {0};
	struct dt_params table = {0};
	struct dt_local local = {0};
	struct dt_local_dims d;
	struct dt_coords at = {.tp = s->tp_rank};
	double weights = 0, wider = 0;
	bool plain = s->weights < DT_WF_Q8_0;
	int rc;

	if (s->cache_bits <= 0)
		s->cache_bits = 8.0 * dt_dtype_size(s->compute);
	rc = check(s, err);
	if (rc == 0)
		rc = dt_model_params(c, &table, err);
	if (rc < 0)
		return rc;
	rc = dt_local_build(&table, c, &s->layout, at, &local, err);
	if (rc < 0)
		goto out;
	for (int i = 0; i < local.n; i++) {
		t.params += local.p[i].numel;
		weights +=
			dt_weight_bytes(c, &table.p[local.p[i].index], (double)local.p[i].numel, s->weights);
		wider += kept_wider(s, &table.p[local.p[i].index], (double)local.p[i].numel);
	}
	if (plain) /* one flat buffer, alignment included */
		weights = (double)local.numel * dt_weight_bits(s->weights) / 8;
	weights += wider;
	if (s->weight_bytes) /* what a file holds, over the ranks that share it */
		weights = (double)s->weight_bytes * weights / dt_whole_weight_bytes(c, &table, s->weights);
	dt_local_dims(c, s->layout.tp, s->tp_rank, &d);
	put_serving(&t, s, weights, &d, plain && !s->weight_bytes);
	rc = dt_entries_finish(&t, err);
	if (rc == 0)
		*ret = t;
out:
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
