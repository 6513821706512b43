/* An engine over the stand-in model, as several tests start it. */
#ifndef SERVE_ENGINE_H
#define SERVE_ENGINE_H

#include "base/progress.h"
#include "serve/engine/engine.h"
#include "serve_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct dt_tokenizer *tok;
static int guesses;		 /* tokens the engines that start() makes guess */
static double stuck_after = 600; /* seconds of a pass, of the same */
static bool overlaps;		 /* several steps are under way at once */
static bool draws;		 /* the models draw tokens themselves */
static struct fake *drafter;	 /* the model that guesses; NULL: from the text */
static bool follows;		 /* that model is the model's module for a further token */
static struct dt_dev *dev;	 /* whose threads compute log-probabilities; NULL: one thread does */
static uint64_t kv_host;	 /* where the prefix cache of these engines goes on */
static struct dt_kvdisk *kv_disk;
static const struct dt_kvpeers_params *peers; /* servers that compute prompts for these engines */
static uint64_t cache_name;
static struct dt_schedtrace *trace; /* where these engines record decisions */

static inline int setup(void **state)
{
	return dt_tokenizer_open("byte", &tok, NULL);
}

static inline int teardown(void **state)
{
	dt_tokenizer_close(tok);
	return 0;
}

static inline struct dt_engine *start(struct fake *f, int blocks, int max_seqs, int max_tokens, int queue)
{
	struct dt_engine_params p = {.model = {.m = f,
					       .forward = fake_forward,
					       .depth = overlaps ? FAKE_DEPTH : 1,
					       .begin = fake_begin,
					       .take = fake_take,
					       .copy_block = fake_copy_block,
					       .read_block = fake_read_block,
					       .write_block = fake_write_block,
					       .block_bytes = 4 * sizeof(int32_t),
					       .draws = draws,
					       .vocab = FAKE_VOCAB,
					       .hidden = FAKE_HIDDEN},
				     .tok = tok,
				     .max_seqs = max_seqs,
				     .max_tokens = max_tokens,
				     .dev = dev,
				     .max_len = 120,
				     .blocks = blocks,
				     .block_size = 4,
				     .queue = queue,
				     .share_prefixes = true,
				     .draft = guesses,
				     .kv_host = kv_host,
				     .kv_disk = kv_disk,
				     .kv_always = true,
				     .peers = peers,
				     .cache_name = cache_name,
				     .trace = trace,
				     .stuck_after = stuck_after};
	struct dt_engine *e;
	struct dt_err err;

	if (drafter) {
		p.drafter = p.model;
		p.drafter.m = drafter;
		if (follows) {
			p.drafter.forward = fake_module_forward;
			p.follows = sizeof(uint64_t);
		}
		fake_init(drafter, blocks, 4, max_seqs, max_tokens);
	}
	fake_init(f, blocks, 4, max_seqs, max_tokens);
	if (dt_engine_open(&e, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return e;
}

static inline void finish(struct dt_engine *e, struct fake *f)
{
	struct dt_metrics *m = dt_engine_metrics(e);

	assert_int_equal(dt_engine_wait_idle(e, 30), 0);
	pthread_mutex_lock(&m->mu);
	assert_int_equal(m->running, 0);
	assert_int_equal(m->waiting, 0);
	assert_true(m->kv_usage == 0);
	assert_int_equal(m->drawn_steps, f->drawn);
	pthread_mutex_unlock(&m->mu);
	assert_int_equal(f->bad, 0);
	dt_engine_close(e);
	fake_release(f);
}

static inline void submit(struct dt_engine *e, struct dt_call *c)
{
	struct dt_err err;

	if (dt_engine_submit(e, c, &err) < 0)
		fail_msg("%s", err.msg);
}

static inline struct dt_call *one(int first, int max_tokens)
{
	struct dt_call *c = dt_call_new(1);
	int32_t id = first;

	dt_serve_req_set_prompt(&c->req[0], &id, 1, max_tokens);
	c->ask.sampling.temperature = 0;
	return c;
}

/* Prompt i of about n tokens, greedily `out` more; of `alike` neighbours the first half is the same. */
static inline struct dt_call *ask_alike(int i, int alike, int n, int out)
{
	struct dt_call *c = dt_call_new(1);
	int32_t ids[512];

	for (int k = 0; k < n; k++)
		ids[k] = (k < n / 2 ? i / alike * 31 + k * 7 : i * 13 + k * 11) % 256;
	dt_serve_req_set_prompt(&c->req[0], ids, n - i % 5, out);
	c->ask.sampling.temperature = 0;
	c->ask.ignore_eos = true;
	return c;
}

/* What was answered is what the stand-in model gives without any cache. */
static inline void assert_right(const struct dt_serve_req *r)
{
	struct dt_sampling p = dt_serve_req_sampling(r);
	struct dt_serve_sampler s;

	assert_int_equal(r->finish, DT_FINISH_LENGTH);
	dt_serve_sampler_init(&s, FAKE_VOCAB);
	for (int i = 0; i < r->nout; i++) {
		float logits[FAKE_VOCAB];

		expected_logits(r->tokens, r->nprompt + i, logits);
		assert_int_equal(r->tokens[r->nprompt + i],
				 dt_sample(&s, &p, logits, r->tokens, (size_t)r->nprompt, dt_serve_req_out(r),
					   (size_t)i));
	}
	dt_serve_sampler_release(&s);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
