/* Buffers of a step. */
#include "plan/inferplan.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>

static int init_step(const struct dt_engine *e, struct dt_engine_buffers *s)
{
	const struct dt_engine_params *p = &e->p;
	size_t seqs = (size_t)p->max_seqs, tokens = (size_t)p->max_tokens;
	size_t table = (size_t)dt_kvpool_blocks(e->pool, p->max_len) * seqs;

	s->items = calloc(seqs, sizeof(*s->items));
	s->drafts = calloc(seqs, sizeof(*s->drafts));
	s->ids = calloc(tokens, sizeof(*s->ids));
	s->pos = calloc(tokens, sizeof(*s->pos));
	s->types = p->model.encoder ? calloc(tokens, sizeof(*s->types)) : NULL;
	s->seen = p->model.see ? calloc(tokens, sizeof(*s->seen)) : NULL;
	s->slot = calloc(tokens, sizeof(*s->slot));
	s->q_start = calloc(seqs + 1, sizeof(*s->q_start));
	s->kv_len = calloc(seqs, sizeof(*s->kv_len));
	s->want = calloc(seqs, sizeof(*s->want));
	s->table = calloc(table, sizeof(*s->table));
	s->state = calloc(seqs, sizeof(*s->state));
	s->replica = calloc(seqs, sizeof(*s->replica));
	s->pool_to = calloc(seqs, sizeof(*s->pool_to));
	s->adapter = calloc(seqs, sizeof(*s->adapter));
	if (!s->items || !s->drafts || !s->ids || !s->pos || !s->slot || !s->q_start || !s->kv_len ||
	    !s->want || !s->table || !s->state || !s->replica || !s->pool_to || !s->adapter ||
	    (p->model.encoder && !s->types) || (p->model.see && !s->seen))
		return -ENOMEM;
	s->batch = (struct dt_infer_batch){.ids = s->ids,
					   .pos = s->pos,
					   .types = s->types,
					   .slot = s->slot,
					   .q_start = s->q_start,
					   .kv_len = s->kv_len,
					   .block_table = s->table,
					   .state = s->state,
					   .want = s->want,
					   .replica = s->replica,
					   .seen = s->seen};
	return 0;
}

static void release_step(struct dt_engine_buffers *s)
{
	free(s->items);
	free(s->drafts);
	free(s->ids);
	free(s->pos);
	free(s->types);
	free(s->seen);
	free(s->slot);
	free(s->q_start);
	free(s->kv_len);
	free(s->want);
	free(s->table);
	free(s->state);
	free(s->replica);
	free(s->pool_to);
	free(s->adapter);
}

int dt_engine_buffers_init(struct dt_engine *e)
{
	struct dt_engine_results *o = &e->out;
	const size_t seqs = (size_t)e->p.max_seqs, vocab = (size_t)e->p.model.vocab;
	int rc = 0;

	e->flight = calloc((size_t)e->depth, sizeof(*e->flight));
	o->logits = malloc(DT_INFER_LOGITS_ROWS(seqs) * vocab * sizeof(*o->logits));
	o->draw = calloc(seqs, sizeof(*o->draw));
	o->drawn = calloc(seqs, sizeof(*o->drawn));
	o->row = calloc(seqs, sizeof(*o->row));
	o->todo = calloc(seqs, sizeof(*o->todo));
	o->top = calloc(seqs * DT_PROMPT_LOGPROBS_MAX, sizeof(*o->top));
	if (e->p.follows) {
		o->hidden = calloc((size_t)e->p.max_tokens, e->p.follows);
		o->given = calloc((size_t)e->p.max_tokens, e->p.follows);
		if (!o->hidden || !o->given)
			return -ENOMEM;
	}
	if (!e->flight || !o->logits || !o->draw || !o->drawn || !o->row || !o->todo || !o->top)
		return -ENOMEM;
	e->step = e->flight;
	for (int i = 0; i < e->depth && rc == 0; i++)
		rc = init_step(e, &e->flight[i]);
	return rc < 0 ? rc : dt_serve_sampler_init(&e->sampler, e->p.model.vocab);
}

void dt_engine_buffers_release(struct dt_engine *e)
{
	for (int i = 0; e->flight && i < e->depth; i++)
		release_step(&e->flight[i]);
	free(e->flight);
	free(e->out.logits);
	free(e->out.draw);
	free(e->out.drawn);
	free(e->out.row);
	free(e->out.todo);
	free(e->out.top);
	free(e->out.hidden);
	free(e->out.given);
	dt_serve_sampler_release(&e->sampler);
}
/* SPDX-License-Identifier: Apache-2.0 */
