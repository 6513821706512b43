/*
 * A stand-in for the model: its "cache" keeps the ids themselves, and the logits of a row are numbers drawn
 * from a hash of every id the row can see through its block table. A wrong slot, block table, position or
 * recomputation changes the hash. expected_logits computes the same from the plain list of ids.
 */
#ifndef SERVE_FAKE_H
#define SERVE_FAKE_H

#include "base/rng.h"
#include "serve/engine/engine.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_VOCAB  258 /* one more id than the byte tokenizer */
#define FAKE_HIDDEN 3
#define FAKE_DEPTH  3 /* steps that may be under way */

struct fake {
	int blocks, block_size, max_tokens, max_seqs;
	int32_t *cache;				   /* [blocks * block_size]: id, -1: never written */
	atomic_int steps, tokens, copies, written; /* written: blocks that came from elsewhere */
	atomic_int fail;			   /* -EIO from the next pass on */
	atomic_int cycle;	 /* the next id depends on the last alone: greedy texts repeat themselves */
	atomic_int poison;	 /* NaN from the next pass on */
	atomic_int sleep_us;	 /* of every pass */
	atomic_int bad;		 /* rules of the batch that were broken */
	atomic_int drawn;	 /* passes that drew tokens */
	float *kept[FAKE_DEPTH]; /* logits of the steps under way, a ring */
	int oldest, under_way, most; /* most: that were at once */
};

static inline uint64_t fake_hash(uint64_t h, int32_t id)
{
	return (h ^ (uint64_t)(uint32_t)id) * 0x100000001b3ull + 0x9e3779b9;
}

static inline void fake_logits(uint64_t h, float *out)
{
	struct dt_rng r = dt_rng_make(h, DT_RNG_TEST, 0);

	dt_rng_fill_normal(&r, 0, out, FAKE_VOCAB, 0, 2);
	out[256] -= 3; /* end of text now and then */
}

static inline void expected_logits(const int32_t *ids, int n, float *out)
{
	uint64_t h = 14695981039346656037ull;

	for (int i = 0; i < n; i++)
		h = fake_hash(h, ids[i]);
	fake_logits(h, out);
}

static inline void fake_init(struct fake *f, int blocks, int block_size, int max_seqs, int max_tokens)
{
	memset(f, 0, sizeof(*f));
	f->blocks = blocks;
	f->block_size = block_size;
	f->max_seqs = max_seqs;
	f->max_tokens = max_tokens;
	f->cache = malloc((size_t)(blocks * block_size) * sizeof(*f->cache));
	for (int i = 0; i < blocks * block_size; i++)
		f->cache[i] = -1;
}

/* The hash of every id that a row sees. */
static inline int fake_row_hash(struct fake *f, const struct dt_infer_batch *b, int row, uint64_t *ret)
{
	uint64_t h = 14695981039346656037ull;
	int seq = 0;

	while (row >= b->q_start[seq + 1])
		seq++;
	if (b->kv_len[seq] != b->pos[b->q_start[seq + 1] - 1] + 1)
		f->bad++;
	for (int i = f->cycle ? b->pos[row] : 0; i <= b->pos[row]; i++) {
		int32_t block = b->block_table[seq * b->max_blocks + i / f->block_size];

		if (block < 0 || block >= f->blocks)
			return -EFAULT;
		h = fake_hash(h, f->cache[block * f->block_size + i % f->block_size]);
	}
	*ret = h;
	return 0;
}

static int fake_row(struct fake *f, const struct dt_infer_batch *b, int row, float *out)
{
	uint64_t h;
	const int rc = fake_row_hash(f, b, row, &h);

	if (rc == 0)
		fake_logits(h, out);
	return rc;
}

/* Tokens instead of logits, of which nothing is left. */
static inline void fake_draw(struct fake *f, const struct dt_infer_batch *b, float *logits)
{
	void *room = aligned_alloc(64, (dt_sample_room(FAKE_VOCAB) + 63) / 64 * 64);

	for (int i = 0; i < b->nwant; i++)
		dt_sample_row(room, &b->drawn[i], logits + (size_t)i * FAKE_VOCAB, FAKE_VOCAB, &b->draw[i],
			      b->edit);
	memset(logits, 0xff, (size_t)b->nwant * FAKE_VOCAB * sizeof(*logits));
	free(room);
	f->drawn++;
}

static inline int fake_copy_block(void *m, int replica, int32_t from, int32_t to)
{
	struct fake *f = m;

	f->copies++;
	memcpy(f->cache + to * f->block_size, f->cache + from * f->block_size,
	       (size_t)f->block_size * sizeof(*f->cache));
	return 0;
}

static inline int fake_read_block(void *m, int32_t block, void *to)
{
	const struct fake *f = m;

	memcpy(to, f->cache + block * f->block_size, (size_t)f->block_size * sizeof(*f->cache));
	return 0;
}

static inline int fake_write_block(void *m, int32_t block, const void *from)
{
	struct fake *f = m;

	f->written++;
	memcpy(f->cache + block * f->block_size, from, (size_t)f->block_size * sizeof(*f->cache));
	return 0;
}

static inline int fake_forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct fake *f = m;

	f->steps++;
	f->tokens += b->ntokens;
	if (f->sleep_us)
		usleep((useconds_t)f->sleep_us);
	if (f->fail)
		return dt_err_set(err, -EIO, "the fake model was told to fail");
	if (b->ntokens > f->max_tokens || b->nseq > f->max_seqs || b->nwant > f->max_seqs)
		f->bad++;
	for (int i = 0; i < b->ntokens; i++) {
		if (b->slot[i] < 0 || b->slot[i] >= (int64_t)f->blocks * f->block_size)
			return dt_err_set(err, -EFAULT, "slot out of range");
		f->cache[b->slot[i]] = b->ids[i];
	}
	for (int i = 0; b->pool && i < b->nseq; i++) /* hidden state: id, position, 1 */
		for (int t = b->q_start[i]; b->pool[i] && t < b->q_start[i + 1]; t++) {
			b->pool[i][0] += (float)b->ids[t];
			b->pool[i][1] += (float)b->pos[t];
			b->pool[i][2] += 1;
		}
	for (int i = 0; b->hidden && i < b->ntokens; i++)
		if (fake_row_hash(f, b, i, (uint64_t *)b->hidden + i) < 0)
			return dt_err_set(err, -EFAULT, "block out of range");
	for (int i = 0; i < b->nwant; i++) {
		if (fake_row(f, b, b->want[i], logits + (size_t)i * FAKE_VOCAB) < 0)
			return dt_err_set(err, -EFAULT, "block out of range");
		if (f->poison)
			logits[(size_t)i * FAKE_VOCAB + 7] = NAN;
	}
	if (b->draw)
		fake_draw(f, b, logits);
	return 0;
}

/*
 * A module for a further token. A final hidden state of the model is the hash of what its row sees; with the
 * next id this is the model's next one, so that the module foresees what the model will draw.
 */
static inline int fake_module_forward(void *m, const struct dt_infer_batch *b, float *logits,
				      struct dt_err *err)
{
	struct fake *f = m;
	uint64_t *h = malloc((size_t)b->ntokens * sizeof(*h));

	f->steps++;
	f->bad += b->ntokens > f->max_tokens || b->nseq > f->max_seqs || b->nwant > f->max_seqs || !b->given;
	for (int s = 0; s < b->nseq; s++)
		for (int i = b->q_start[s]; i < b->q_start[s + 1]; i++) {
			const int at = b->pos[i],
				  block = b->block_table[s * b->max_blocks + at / f->block_size];

			f->bad += b->slot[i] != (int64_t)block * f->block_size + at % f->block_size ||
				  b->kv_len[s] - at != b->q_start[s + 1] - i;
			h[i] = fake_hash(((const uint64_t *)b->given)[i], b->ids[i]);
		}
	for (int i = 0; i < b->nwant; i++)
		fake_logits(f->cycle ? (uint64_t)i : h[b->want[i]], logits + (size_t)i * FAKE_VOCAB);
	if (b->hidden)
		memcpy(b->hidden, h, (size_t)b->ntokens * sizeof(*h));
	free(h);
	if (b->draw)
		fake_draw(f, b, logits);
	return 0;
}

static inline int fake_begin(void *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct fake *f = m;
	float **at = &f->kept[(f->oldest + f->under_way) % FAKE_DEPTH];
	int rc;

	if (f->under_way == FAKE_DEPTH || b->draw || b->nwant > (f->max_seqs + FAKE_DEPTH - 1) / FAKE_DEPTH)
		return dt_err_set(err, -EINVAL, "a step that cannot be");
	free(*at);
	*at = malloc(((size_t)b->nwant + 1) * FAKE_VOCAB * sizeof(**at));
	rc = fake_forward(m, b, *at, err);
	f->under_way += rc == 0;
	f->most = f->under_way > f->most ? f->under_way : f->most;
	return rc;
}

static inline int fake_take(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct fake *f = m;

	memcpy(logits, f->kept[f->oldest], (size_t)b->nwant * FAKE_VOCAB * sizeof(*logits));
	f->oldest = (f->oldest + 1) % FAKE_DEPTH;
	f->under_way--;
	if (b->draw)
		fake_draw(f, b, logits);
	return 0;
}

static inline void fake_release(struct fake *f)
{
	for (int i = 0; i < FAKE_DEPTH; i++)
		free(f->kept[i]);
	free(f->cache);
}

/* Opens an engine of 4 sequences over a stand-in model, and the byte tokenizer. 0 or a negative errno. */
static inline int fake_open(struct fake *f, struct dt_tokenizer **tok, struct dt_engine **engine,
			    double stuck_after)
{
	struct dt_engine_params p = {
		.model = {.m = f, .forward = fake_forward, .vocab = FAKE_VOCAB, .eos = {256}, .neos = 1},
		.max_seqs = 4,
		.max_tokens = 16,
		.max_len = 100,
		.blocks = 100,
		.block_size = 4,
		.queue = 8,
		.share_prefixes = true,
		.stuck_after = stuck_after};
	int rc = dt_tokenizer_open("byte", tok, NULL);

	if (rc < 0)
		return rc;
	fake_init(f, p.blocks, p.block_size, p.max_seqs, p.max_tokens);
	p.tok = *tok;
	return dt_engine_open(engine, &p, NULL);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
