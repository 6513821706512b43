#include "nn/model.h"

#include "plan/fp8.h"

#include <errno.h>
#include <stdlib.h>

void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int layer, int act,
		      int slot)
{
	const struct dt_buf *b = dt_memory_find(plan, id, layer, act, slot);

	return b ? base + b->offset : NULL;
}

/* n bytes to p on the device, at once. */
static int put(struct dt_dev *dev, void *p, const void *from, size_t n)
{
	int rc = dt_dev_copy(dev, p, from, n);

	return rc < 0 ? rc : dt_dev_sync(dev);
}

static int bind_rope(struct dt_model *m, const struct dt_memory_plan *plan, char *base, int64_t seq)
{
	float *rope = dt_plan_address(plan, base, DT_B_ROPE, -1, -1, -1), *table;
	int64_t half = seq * m->c->head_dim / 2;
	int rc;

	if (!rope || m->rope_cos)
		return 0;
	table = malloc((size_t)half * 2 * sizeof(*table));
	if (!table)
		return -ENOMEM;
	dt_rope_table(m->c, seq, table, table + half);
	rc = put(m->dev, rope, table, (size_t)half * 2 * sizeof(*table));
	m->rope_cos = rope;
	m->rope_sin = rope + half;
	m->rope_positions = seq;
	if (rc == 0 && m->c->rope_local_theta > 0) {
		rope = dt_plan_address(plan, base, DT_B_ROPE_LOCAL, -1, -1, -1);
		dt_rope_local_table(m->c, seq, table, table + half);
		rc = put(m->dev, rope, table, (size_t)half * 2 * sizeof(*table));
		m->local_cos = rope;
		m->local_sin = rope + half;
	}
	free(table);
	return rc;
}

static int bind_positions(const struct dt_pass *p, struct dt_dev *dev)
{
	int32_t *pos = malloc((size_t)p->rows * sizeof(*pos));
	int rc;

	if (!pos)
		return -ENOMEM;
	for (int64_t i = 0; i < p->rows; i++)
		pos[i] = (int32_t)(i % p->seq);
	rc = put(dev, p->pos, pos, (size_t)p->rows * sizeof(*pos));
	free(pos);
	return rc;
}

/* The host's side of what it writes and reads. */
static int bind_host(struct dt_pass *p, struct dt_dev *dev)
{
	size_t n = (size_t)p->rows * sizeof(int32_t);
	int rc;

	if (dt_dev_is_host(dev)) {
		p->host_ids = p->ids;
		p->host_targets = p->targets;
		return 0;
	}
	if ((rc = dt_dev_host_alloc(dev, (void **)&p->host_ids, n)) < 0 ||
	    (rc = dt_dev_host_alloc(dev, (void **)&p->host_targets, n)) < 0)
		return rc;
	return dt_dev_host_alloc(dev, (void **)&p->host_ce, 4 * n);
}

int dt_pass_upload(const struct dt_pass *p, struct dt_dev *dev, struct dt_err *err)
{
	size_t n = (size_t)p->rows * sizeof(int32_t);
	int rc;

	if (dt_dev_is_host(dev))
		return 0;
	rc = dt_dev_copy(dev, p->ids, p->host_ids, n);
	if (rc == 0)
		rc = dt_dev_copy(dev, p->targets, p->host_targets, n);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy samples to the device") : 0;
}

static void bind_fp8(struct dt_pass *p, const struct dt_run *s, const struct dt_memory_plan *plan, char *base)
{
	struct dt_fp8_plan f;

	dt_fp8_plan(s, (struct dt_coords){0}, &f);
	p->fp8 = (struct dt_fp8_room){.rows = dt_plan_address(plan, base, DT_B_FP8_ROWS, -1, -1, -1),
				      .turned = dt_plan_address(plan, base, DT_B_FP8_TURNED, -1, -1, -1),
				      .weight = dt_plan_address(plan, base, DT_B_FP8_WEIGHT, -1, -1, -1),
				      .scale = dt_plan_address(plan, base, DT_B_FP8_SCALES, -1, -1, -1)};
	for (int i = 0; i < DT_STASH_N; i++)
		p->fp8.used[i] = f.used[i];
}

static void bind_layers(struct dt_pass *p, const struct dt_model *m, const struct dt_memory_plan *plan,
			char *base, const struct dt_chunk *ch, int slot)
{
	for (int l = ch->first; l < ch->last; l++) {
		int number = l - ch->first, local = ch->local + number,
		    set = dt_keep_set(p->recompute, number);

		for (int a = 0; a < DT_ACT_N; a++)
			p->act[local][a] =
				dt_activation_saved(a, p->recompute, number)
					? dt_plan_address(plan, base, DT_B_ACT, l, a, slot)
					: dt_plan_address(plan, base, DT_B_ACT_SHARED, -1, a, set ? set : -1);
		for (int i = 0; i < DT_STASH_N; i++)
			p->stash[local][i] = dt_plan_address(plan, base, DT_B_STASH, l, i, slot);
	}
	p->split = p->stash[ch->local][0] != NULL;
}

int dt_pass_bind(struct dt_pass *p, struct dt_model *m, const struct dt_run *s,
		 const struct dt_memory_plan *plan, char *base, int chunk, int slot, struct dt_err *err)
{
#define SHARED(id) dt_plan_address(plan, base, id, -1, -1, -1)
#define OWN(id)	   dt_plan_address(plan, base, id, -1, -1, number)
	int rc, number = chunk * (int)(s->layout.pp > 1 && s->accumulation > 0 ? s->accumulation : 1) + slot;

	*p = (struct dt_pass){.rows = s->microbatch * s->seq,
			      .batch = s->microbatch,
			      .seq = s->seq,
			      .recompute = s->recompute,
			      .loss_chunk = plan->loss_chunk,
			      .ids = OWN(DT_B_IDS),
			      .targets = OWN(DT_B_TARGETS),
			      .pos = SHARED(DT_B_POS),
			      .gather = SHARED(DT_B_GATHER),
			      .delta = SHARED(DT_B_DELTA),
			      .dresid = OWN(DT_B_DRESID),
			      .out = OWN(DT_B_OUT),
			      .dnorm = SHARED(DT_B_DNORM),
			      .dsmall = SHARED(DT_B_DSMALL),
			      .dlarge = SHARED(DT_B_DLARGE),
			      .final_resid = OWN(DT_B_FINAL_RESID),
			      .final_norm = OWN(DT_B_FINAL_NORM),
			      .final_mean = OWN(DT_B_FINAL_MEAN),
			      .final_rstd = OWN(DT_B_FINAL_RSTD),
			      .logits = SHARED(DT_B_LOGITS),
			      .dlogits = SHARED(DT_B_DLOGITS),
			      .ce = SHARED(DT_B_CE_STATS)};
#undef SHARED
#undef OWN
	if (!p->dlogits)
		p->dlogits = p->logits;
	bind_fp8(p, s, plan, base);
	p->act = calloc((size_t)m->nlayer, sizeof(*p->act));
	p->stash = calloc((size_t)m->nlayer, sizeof(*p->stash));
	rc = p->act && p->stash ? 0 : -ENOMEM;
	if (rc == 0 && (rc = bind_host(p, m->dev)) == 0 && (rc = bind_positions(p, m->dev)) == 0)
		rc = bind_rope(m, plan, base, s->seq);
	m->norm_scale = dt_plan_address(plan, base, DT_B_NORM_SCALE, -1, -1, -1);
	if (rc < 0) {
		dt_pass_release(p, m->dev);
		return dt_err_sys(err, rc, "cannot bind the activations");
	}
	bind_layers(p, m, plan, base, &m->chunk[chunk], slot);
	return 0;
}

void dt_pass_release(struct dt_pass *p, struct dt_dev *dev)
{
	if (p->host_ids != p->ids) {
		dt_dev_host_free(dev, p->host_ids);
		dt_dev_host_free(dev, p->host_targets);
		dt_dev_host_free(dev, p->host_ce);
	}
	free(p->act);
	free(p->stash);
	p->act = NULL;
	p->stash = NULL;
}
