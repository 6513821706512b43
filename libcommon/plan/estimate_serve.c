/* Memory of a serving rank: weights, KV cache and the working set of a forward pass. */
#include "plan/entries.h"

#include "base/arena.h"
#include "plan/formulas.h"
#include "plan/inferplan.h"
#include "plan/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/*
 * Bytes of a sequence of len tokens in a stage's KV cache. windows: layers with a sliding window keep only
 * its tokens.
 */
static double sequence_bytes(const struct dt_serve_shape *s, const struct dt_local_dims *d, bool windows)
{
	const struct dt_config *c = s->config;
	double row =
		c->kv_rank ? (double)(c->kv_rank + c->rope_dim) : (double)(2 * d->kv_heads * c->head_dim);
	double sum = 0;
	int first, last;

	if (c->encoder) /* nothing is kept of its texts */
		return 0;
	dt_layout_stage(&s->layout, c, s->stage, &first, &last);
	for (int64_t i = first; i < last; i++) {
		int64_t w = windows ? dt_layer_window(c, i) : 0,
			len = w > 0 && w < s->max_len ? w : s->max_len;

		sum += (double)((len + s->block - 1) / s->block * s->block) * row;
	}
	return sum * s->cache_bits / 8;
}

static struct dt_entry *put(struct dt_estimate *t, int cat, double bytes, const char *name,
			    const char *formula, enum dt_exactness exactness)
{
	struct dt_entry *e = dt_entry_put(t, cat, bytes, DT_PH_FORWARD, DT_PH_FORWARD, name, formula);

	if (e)
		e->exactness = exactness;
	return e;
}

/* A formula-based estimate for any server. */
static void put_serving(struct dt_estimate *t, const struct dt_serve_shape *s, double weights,
			const struct dt_local_dims *d)
{
	const struct dt_config *c = s->config;
	struct dt_activation act[DT_ACT_N];
	double e = dt_dtype_size(s->compute), rows = (double)s->max_tokens, h = (double)c->hidden, work = 0;

	dt_activations(c, d, s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++)
		work += (double)dt_align_up(
			(uint64_t)(s->max_tokens * act[i].per_token * dt_dtype_size(act[i].dtype)));
	put(t, DT_MEM_WEIGHTS, weights, "weights", "local parameters x bits / 8", DT_MODELLED);
	put(t, DT_EST_CACHE, (double)s->max_seqs * sequence_bytes(s, d, true), "kv cache",
	    c->kv_rank	? "sequences x whole blocks of the longest x layers (kv_rank + rope_dim)"
	    : c->window ? "sequences x whole blocks of window or longest x 2 layers kv_heads head_dim"
			: "sequences x whole blocks of the longest x 2 layers kv_heads head_dim",
	    DT_MODELLED);
	put(t, DT_MEM_WORKSPACE, work, "layer working set", "batched tokens x activation table, one layer",
	    DT_MODELLED);
	put(t, DT_MEM_WORKSPACE, 3 * rows * h * e + (double)s->max_seqs * h * e + 8 * rows, "streams",
	    "(3 x batched tokens + sequences) x hidden, two statistics", DT_MODELLED);
	if (c->pos == DT_POS_ROPE)
		put(t, DT_MEM_WORKSPACE,
		    (double)(s->max_len * c->head_dim) * (c->rope_local_theta > 0 ? 8 : 4), "rope table",
		    "positions x head_dim, f32", DT_MODELLED);
	if (s->stage == s->layout.pp - 1 && !c->encoder)
		put(t, DT_MEM_LOGITS, (double)s->max_seqs * (double)d->vocab * 4, "logits",
		    "sequences x vocabulary, f32", DT_MODELLED);
}

/* Whether dt_infer_open supports the cache's type; *ret: that type. */
static bool own_cache(const struct dt_serve_shape *s, enum dt_dtype *ret)
{
	const double known[] = {8.0 * dt_dtype_size(s->compute), 32, dt_kv_bits(s->config, DT_KV_INT8)};
	const enum dt_dtype types[] = {s->compute, DT_F32, DT_I8};

	for (int i = 0; i < 3; i++)
		if (fabs(s->cache_bits - known[i]) < 1e-9) {
			*ret = types[i];
			return true;
		}
	return false;
}

static int put_on_disk(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_param *part,
		       const enum dt_format *format, int n, struct dt_err *err)
{
	struct dt_entry *e;
	int rc = dt_weights_disk_plan(s->config, part, format, n, s->compute, s->weights_memory, &t->disk,
				      err);

	if (rc < 0)
		return rc;
	t->disk.host = s->weights_host;
	put(t, DT_MEM_WEIGHTS, (double)t->disk.stays_bytes, "weights that stay",
	    "in their format, whole large pages from 16 MiB on", DT_EXACT);
	put(t, DT_MEM_WEIGHTS, (double)(t->disk.memory_bytes - t->disk.stays_bytes),
	    s->weights_host ? "weights from the host" : "weights read from disk",
	    t->disk.experts ? "slots x the largest expert" : "slots x the largest layer", DT_EXACT);
	e = put(t, DT_MEM_WEIGHTS, (double)t->disk.file_bytes,
		s->weights_host ? "weights on the host" : "file of weights",
		t->disk.experts ? "experts in whole blocks" : "layers that do not stay, in whole blocks",
		DT_EXACT);
	if (e)
		e->place = s->weights_host ? DT_PLACE_HOST : DT_PLACE_DISK;
	return 0;
}

static int put_weights(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_kept_as *kept,
		       struct dt_err *err)
{
	uint64_t plain = 0, packed = 0;

	if (s->weights_memory)
		return put_on_disk(t, s, kept->part, kept->format, kept->n, err);
	for (int i = 0; i < kept->n; i++) {
		dt_infer_place(s->config, &kept->part[i], s->compute, &plain);
		packed += dt_infer_packed(s->config, &kept->part[i], kept->format[i]);
	}
	put(t, DT_MEM_WEIGHTS, (double)packed, "matrices",
	    "panels of 16 rows in their format, whole large pages from 16 MiB on", DT_EXACT);
	put(t, DT_MEM_WEIGHTS, (double)(plain ? plain : DT_ALIGN), "vectors, plain matrices",
	    "elements x bytes", DT_EXACT);
	return 0;
}

/* What a pass needs at its peak. */
static void put_work(struct dt_estimate *t, const struct dt_memory_plan *work)
{
	for (int i = 0; i < work->n; i++)
		if (work->buf[i].at_peak)
			put(t, DT_MEM_WORKSPACE, (double)work->buf[i].bytes, work->buf[i].name,
			    "batched tokens x columns, at the peak", DT_EXACT);
	put(t, DT_MEM_WORKSPACE, (double)work->gap_bytes, "gaps between buffers",
	    "left by the placement of buffers", DT_EXACT);
}

/* What dt_infer_open and the engine allocate (plan/inferplan.h). */
static int put_own(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_params *table,
		   const struct dt_local *local, struct dt_err *err)
{
	const struct dt_serving serving = {.config = s->config,
					   .compute = s->compute,
					   .rows = s->max_tokens,
					   .outputs = s->max_seqs,
					   .adapters = s->loras ? s->lora_rank : 0,
					   .layout = s->layout,
					   .at = {.tp = s->tp_rank, .pp = s->stage}};
	int64_t blocks = s->max_seqs * ((s->max_len + s->block - 1) / s->block);
	struct dt_scratch tower = {0};
	struct dt_memory_plan work;
	struct dt_kept_as kept;
	enum dt_dtype cache = s->compute;
	int rc = dt_kept_as_open(s, table, local, &kept, err);

	if (rc == 0)
		rc = put_weights(t, s, &kept, err);
	if (rc == 0 && s->config->tower.hidden)
		rc = dt_put_tower(t, s, &tower, err);
	if (rc < 0) {
		dt_kept_as_release(&kept);
		return rc;
	}
	own_cache(s, &cache);
	if (dt_config_attends(s->config))
		put(t, DT_EST_CACHE,
		    (double)dt_infer_cache(s->config, &s->layout, serving.at, cache, blocks, s->block),
		    "kv cache",
		    s->config->kv_rank
			    ? "sequences x whole blocks of the longest x layers (kv_rank + rope_dim)"
			    : "sequences x whole blocks of the longest x 2 layers kv_heads head_dim",
		    DT_EXACT);
	if (s->config->ssm_heads)
		put(t, DT_EST_CACHE, (double)dt_infer_states(s->config, &s->layout, serving.at, s->max_seqs),
		    "states", "sequences x layers of Mamba-2 (convolution's window + states), f32", DT_EXACT);
	rc = dt_memory_plan_serving(&serving, s->max_len, &work, err);
	if (rc == 0) {
		put_work(t, &work);
		dt_put_scratch(t, s, &serving, &work.stage, &kept, cache, &tower);
		dt_memory_plan_release(&work);
	}
	dt_kept_as_release(&kept);
	if (rc < 0)
		return rc;
	if (s->stage == 0 && s->tp_rank == 0) /* this rank samples */
		put(t, DT_MEM_LOGITS,
		    (double)(DT_INFER_LOGITS_ROWS(s->max_seqs * s->layout.dp) * s->config->vocab) * 4,
		    "logits", "(sequences of all replicas + 2) x vocabulary, f32", DT_EXACT);
	if (s->layout.pp > 1 && s->stage == s->layout.pp - 1 &&
	    s->tp_rank == 0) /* sent to the rank that samples */
		put(t, DT_MEM_LOGITS, (double)(s->max_seqs * s->config->vocab) * 4, "logits",
		    "sequences x vocabulary, f32", DT_EXACT);
	return 0;
}

/* As dt-serve refuses what it does not do with encoders and with layers of Mamba-2. */
static int check_kind(const struct dt_serve_shape *s, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	const char *what = dt_layout_world(&s->layout) > 1 ? "over several ranks"
			   : s->loras			   ? "with adapters"
			   : s->weights_memory		   ? "with weights on disk"
							   : NULL;

	if (what && (c->encoder || c->ssm_heads))
		return dt_err_set(err, -ENOTSUP, "'%s' %s not served %s", c->name,
				  c->encoder ? "is an encoder, which is" : "has layers of Mamba-2, which are",
				  what);
	if (!c->encoder || s->max_tokens >= s->max_len)
		return 0;
	return dt_err_set(
		err, -EINVAL,
		"an encoder computes a text in one step: --max-tokens %lld is below the length of %lld",
		(long long)s->max_tokens, (long long)s->max_len);
}

static int check(const struct dt_serve_shape *s, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	struct dt_layout one = s->layout;
	enum dt_dtype cache;
	int rc;

	if (s->layout.zero > 0)
		return dt_err_set(err, -ENOTSUP, "a server's layout is over tp, pp, cp, ep and dp only");
	if (s->max_seqs < 1 || s->max_len < 1 || s->block < 1 || s->max_tokens < 1)
		return dt_err_set(err, -EINVAL,
				  "a server needs room for at least one sequence, token and block");
	if (c->pos == DT_POS_LEARNED && s->max_len > c->max_seq)
		return dt_err_set(err, -EINVAL, "length %lld exceeds the %lld positions of '%s'",
				  (long long)s->max_len, (long long)c->max_seq, c->name);
	if (s->weights_memory && s->account != DT_ACCOUNT_DT)
		return dt_err_set(err, -EINVAL, "--weights-memory needs --account dt");
	if (s->layout.cp > 1 && s->account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "a server with context parallelism (cp) needs --account dt");
	if (s->account != DT_ACCOUNT_DT)
		return 0;
	if (one.cp == 1)
		/* each replica is whole, except experts that it shares with other replicas */
		one.dp = one.ep;
	if (s->compute == DT_F16 || !own_cache(s, &cache))
		return dt_err_set(err, -ENOTSUP,
				  "the KV cache of dt-serve has its compute type, fp32 or int8");
	if (c->tower.hidden && dt_layout_world(&s->layout) > 1)
		return dt_err_set(err, -ENOTSUP, "'%s' reads images, and is not served over several ranks",
				  c->name);
	rc = check_kind(s, err);
	if (rc < 0 || c->encoder)
		return rc;
	rc = dt_config_servable(c, err);
	return rc < 0 ? rc : dt_serving_check(c, &one, err);
}

/*
 * Bytes of a rank's part of a tensor that an adapter replaces whole, stored as if a base file had it in f32.
 */
static double whole_bytes(const struct dt_serve_shape *s, const struct dt_param *p,
			  const struct dt_local_param *box)
{
	const struct dt_param part = dt_infer_part(p, box);
	const int asked = s->stored ? -1 : dt_weight_kept_as(s->config, &part, s->weights);

	if (!dt_infer_packs(&part))
		return (double)(box->numel *
				dt_dtype_size(dt_infer_plain_type(s->config, &part, s->compute)));
	return (double)dt_infer_packed(s->config, &part,
				       dt_infer_format(&part, asked, DT_FMT_F32, s->compute));
}

/*
 * An adapter's bytes on a rank: low-rank factors in the compute type, gains and shifts of magnitudes in f32,
 * and tensors replaced whole.
 */
static double adapter_bytes(const struct dt_serve_shape *s, const struct dt_params *table,
			    const struct dt_local *local)
{
	double sum = 0;

	for (int i = 0; i < local->n; i++) {
		const struct dt_param *p = &table->p[local->p[i].index];

		if (p->role == DT_W_LORA_A || p->role == DT_W_LORA_B)
			sum += (double)(local->p[i].numel * dt_dtype_size(s->compute));
		else if (p->role == DT_W_LORA_M)
			sum += (double)local->p[i].numel * 8;
		else if (!p->frozen)
			sum += whole_bytes(s, p, &local->p[i]);
	}
	return sum;
}

/*
 * The rank's parts of the adapters in memory: for every linear in the compute type; with magnitudes (DoRA)
 * also factors and shifts of its rows in f32; and modules that adapters replace whole.
 */
static int put_adapters(struct dt_estimate *t, const struct dt_serve_shape *s, struct dt_coords at,
			struct dt_err *err)
{
	struct dt_config c = *s->config;
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc;

	if (!s->loras)
		return 0;
	c.lora = (struct dt_lora){.rank = s->lora_rank, .alpha = 1, .targets = "all", .dora = s->loras_dora};
	if (s->loras_whole && strlen(s->loras_whole) >= sizeof(c.lora.modules_to_save))
		return dt_err_set(err, -EINVAL, "the expression of --lora-modules-to-save is too long");
	if (s->loras_whole)
		strcpy(c.lora.modules_to_save, s->loras_whole);
	rc = dt_model_params(&c, &table, err);
	if (rc == 0)
		rc = dt_local_build(&table, &c, &s->layout, at, &local, err);
	if (rc == 0)
		put(t, DT_EST_ADAPTERS, (double)s->loras * adapter_bytes(s, &table, &local), "adapters",
		    s->loras_whole ? "in memory x (rank x (in + out) of every linear x bytes + modules saved)"
		    : s->loras_dora ? "in memory x (rank x (in + out) x bytes + rows x 8) of every linear"
				    : "in memory x rank x (in + out) of every linear x bytes",
		    s->account == DT_ACCOUNT_DT ? DT_EXACT : DT_MODELLED);
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}

/* Bytes of a rank's weights in their format; unquantised ones include alignment. */
static double weights_of(const struct dt_serve_shape *s, const struct dt_params *table,
			 const struct dt_local *local)
{
	double sum = 0;

	for (int i = 0; i < local->n; i++)
		sum += dt_weight_bytes(s->config, &table->p[local->p[i].index], (double)local->p[i].numel,
				       s->weights);
	if (s->weights < DT_WF_Q8_0)
		sum = (double)local->numel * dt_weight_bits(s->weights) / 8;
	if (s->weight_bytes) /* size of the file, divided over the ranks */
		sum = (double)s->weight_bytes * sum / dt_whole_weight_bytes(s->config, table, s->weights);
	return sum;
}

/* Ends the list, and hands it over or releases it. */
static int give(int rc, struct dt_estimate *t, struct dt_estimate *ret, struct dt_err *err)
{
	if (rc == 0)
		rc = dt_entries_finish(t, err);
	if (rc == 0)
		*ret = *t;
	else
		dt_estimate_release(t);
	return rc;
}

/* Everything that a rank of s holds; of: the whole model. */
static int put_all(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_config *of,
		   const struct dt_params *table, struct dt_local *local, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	const struct dt_coords at = {.tp = s->tp_rank, .pp = s->stage};
	struct dt_scratch tower = {0};
	struct dt_local_dims d;
	int rc = dt_local_build(table, c, &s->layout, at, local, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < local->n; i++)
		t->params += local->p[i].numel;
	dt_layer_dims(c, c->layers - 1, s->layout.tp, s->tp_rank, &d);
	if (s->account == DT_ACCOUNT_DT)
		rc = put_own(t, s, table, local, err);
	else
		put_serving(t, s, weights_of(s, table, local), &d);
	if (rc == 0 && s->account == DT_ACCOUNT_GENERIC)
		rc = dt_put_scratch_of_any(t, s, err);
	if (rc == 0 && s->account != DT_ACCOUNT_DT && c->tower.hidden)
		rc = dt_put_tower(t, s, &tower, err);
	if (rc == 0 && dt_infer_labels(of))
		put(t, DT_MEM_WEIGHTS, (double)dt_infer_labels(of), "classes",
		    "(hidden + classes) x (hidden + 1), f32", DT_EXACT);
	if (rc == 0)
		rc = put_adapters(t, s, at, err);
	if (rc == 0 && s->framework_bytes)
		put(t, DT_EST_FRAMEWORK, (double)s->framework_bytes, "framework", "as given", DT_CALIBRATED);
	return rc;
}

int dt_estimate_serve(const struct dt_serve_shape *asked, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_serve_shape shape = *asked, *s = &shape;
	const struct dt_config served = dt_infer_config_of(asked->config), *c = &served;
	struct dt_estimate t = {0};
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc;

	if (dt_config_is_image(c))
		return give(dt_estimate_images(s, &t, err), &t, ret, err);
	s->config = c;
	if (c->ssm_heads && s->account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has layers of Mamba-2, which other accounts than dt do not know",
				  c->name);
	s->block = dt_infer_block(c, s->block, s->max_len);
	if (s->cache_bits <= 0)
		s->cache_bits = 8.0 * dt_dtype_size(s->compute);
	rc = check(s, err);
	if (rc == 0)
		rc = dt_model_params(c, &table, err);
	if (rc < 0)
		return rc;
	rc = give(put_all(&t, s, asked->config, &table, &local, err), &t, ret, err);
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
