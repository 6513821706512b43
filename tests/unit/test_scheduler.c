/*
 * The block pool and the scheduler, without a model: hand-made cases, then random traffic against the rules.
 */
#include "base/rng.h"
#include "serve/sched/scheduler.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_seq seq_of(int prompt, int out)
{
	return (struct dt_seq){.known = prompt, .max_rows = prompt + out - 1};
}

/* What the engine does after a forward pass: everything planned is computed, who caught up gets a token. */
static void run(struct dt_sched_item *it, int n)
{
	for (int i = 0; i < n; i++) {
		it[i].seq->computed += it[i].n;
		if (it[i].seq->computed == it[i].seq->known)
			it[i].seq->known++;
	}
}

static void test_pool(void **state)
{
	struct dt_block_table a = {0}, b = {0};
	bool seen[8] = {false};
	struct dt_kvpool p;

	assert_int_equal(dt_kvpool_init(&p, 0, 16, false), -EINVAL);
	assert_int_equal(dt_kvpool_init(&p, 8, 16, false), 0);
	assert_int_equal(dt_kvpool_blocks(&p, 0), 0);
	assert_int_equal(dt_kvpool_blocks(&p, 16), 1);
	assert_int_equal(dt_kvpool_blocks(&p, 17), 2);
	assert_int_equal(dt_kvpool_grow(&p, &a, 3), 0);
	assert_int_equal(dt_kvpool_grow(&p, &b, 6), -ENOSPC);
	assert_int_equal(b.n, 0);
	assert_int_equal(p.nfree, 5);
	assert_int_equal(dt_kvpool_grow(&p, &b, 5), 0);
	assert_int_equal(dt_kvpool_grow(&p, &b, 2), 0); /* already longer */
	assert_int_equal(p.nfree, 0);
	for (int i = 0; i < a.n + b.n; i++) {
		int32_t x = i < a.n ? a.b[i] : b.b[i - a.n];

		assert_in_range(x, 0, 7);
		assert_false(seen[x]);
		seen[x] = true;
	}
	assert_int_equal(dt_kvpool_slot(&p, &a, 37), a.b[2] * 16 + 5);
	dt_kvpool_free(&p, &a);
	dt_kvpool_free(&p, &b);
	assert_int_equal(p.nfree, 8);
	dt_kvpool_release(&p);
}

/* The blocks of a table that are found by their tokens, whoever asks. */
static int found(const struct dt_kvpool *p, uint64_t owner, uint64_t word, const int32_t *ids, int n)
{
	int idle;

	return dt_kvpool_match(p, (struct dt_kv_salt){owner, word, 0}, ids, n, &idle);
}

static void test_pool_shares(void **state)
{
	struct dt_block_table a = {0}, b = {0}, c = {0};
	const struct dt_kv_salt salt = {1, 2, 0};
	int32_t ids[24], other[24], from = -1;
	struct dt_kvpool p;

	for (int i = 0; i < 24; i++)
		other[i] = ids[i] = i * 7;
	other[5] = 1;
	dt_kvpool_init(&p, 8, 4, true);
	dt_kvpool_grow(&p, &a, 5);
	dt_kvpool_publish(&p, &a, salt, ids, 18); /* four full blocks */
	assert_int_equal(a.published, 4);
	assert_int_equal(found(&p, 1, 2, ids, 24), 4);
	assert_int_equal(found(&p, 1, 2, ids, 15), 3);
	assert_int_equal(found(&p, 1, 2, other, 24), 1);   /* differs in the second block */
	assert_int_equal(found(&p, 1, 2, ids + 4, 20), 0); /* the same tokens elsewhere are not the same */
	assert_int_equal(found(&p, 2, 2, ids, 24), 0);	   /* nor for another tenant */
	assert_int_equal(found(&p, 1, 3, ids, 24), 0);	   /* nor under another salt */
	assert_int_equal(dt_kvpool_attach(&p, &b, salt, ids, 24), 0);
	assert_int_equal(b.n, 4);
	assert_memory_equal(a.b, b.b, 4 * sizeof(*a.b));
	assert_int_equal(p.nfree, 3);

	/* A partly filled block in two tables is copied before it is written; a lone one is not. */
	dt_kvpool_fork(&p, &c, &a, 5);
	assert_int_equal(dt_kvpool_own(&p, &c, 4, &from), 1);
	assert_int_equal(from, a.b[4]);
	assert_int_not_equal(c.b[4], a.b[4]);
	assert_int_equal(dt_kvpool_own(&p, &a, 4, &from), 0);
	assert_int_equal(p.nfree, 2);

	/* Two that computed the same block end up with one. */
	dt_kvpool_publish(&p, &a, salt, ids, 20);
	dt_kvpool_publish(&p, &c, salt, ids, 20);
	assert_int_equal(c.b[4], a.b[4]);
	assert_int_equal(p.nfree, 3);

	/* What nobody holds is still found, until its room is needed, last block first. */
	dt_kvpool_free(&p, &a);
	dt_kvpool_free(&p, &b);
	dt_kvpool_free(&p, &c);
	assert_int_equal(p.nfree, 8);
	assert_int_equal(found(&p, 1, 2, ids, 24), 5);
	dt_kvpool_grow(&p, &a, 3);
	assert_int_equal(found(&p, 1, 2, ids, 24), 5);
	dt_kvpool_grow(&p, &a, 5);
	assert_int_equal(found(&p, 1, 2, ids, 24), 3);
	dt_kvpool_free(&p, &a);
	dt_kvpool_release(&p);
}

/* The buckets in use grow with the blocks: all published ones are found, whenever they were entered. */
static void test_pool_grows_its_buckets(void **state)
{
	enum { BLOCKS = 5000, ROUND = 700 };
	static int32_t ids[BLOCKS];
	const struct dt_kv_salt salt = {1, 2, 0};
	struct dt_block_table a = {0};
	struct dt_kvpool p;

	for (int i = 0; i < BLOCKS; i++)
		ids[i] = i * 31;
	dt_kvpool_init(&p, BLOCKS, 1, true);
	for (int n = 1; n <= BLOCKS; n += ROUND) {
		dt_kvpool_grow(&p, &a, n);
		dt_kvpool_publish(&p, &a, salt, ids, n);
		assert_int_equal(found(&p, 1, 2, ids, BLOCKS), n);
	}
	assert_int_equal(p.mask, 8191);
	dt_kvpool_free(&p, &a);
	dt_kvpool_grow(&p, &a, BLOCKS); /* all are evicted, each from the bucket that it is in now */
	assert_int_equal(found(&p, 1, 2, ids, BLOCKS), 0);
	for (uint32_t i = 0; i <= p.most; i++)
		assert_int_equal(p.bucket[i], 0);
	dt_kvpool_free(&p, &a);
	dt_kvpool_release(&p);
}

static void test_chunked_prefill(void **state)
{
	struct dt_seq a = seq_of(25, 5), b = seq_of(4, 5);
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 100, 4, false);
	assert_int_equal(dt_sched_init(&s, &p, 4, 3, NULL, 0, NULL), -EINVAL);
	assert_int_equal(dt_sched_init(&s, &p, 4, 10, NULL, 0, NULL), 0);
	assert_int_equal(dt_sched_step(&s, it), 0);
	dt_sched_submit(&s, &a, NULL);
	dt_sched_submit(&s, &b, NULL);
	/* The short one does not wait for the long one: 25 = 6 + 9 + 9 + 1. */
	for (int i = 0; i < 4; i++) {
		static const int want[4] = {6, 9, 9, 1};

		assert_int_equal(dt_sched_step(&s, it), 2);
		assert_ptr_equal(it[0].seq, &a);
		assert_int_equal(it[0].n, want[i]);
		assert_ptr_equal(it[1].seq, &b);
		assert_int_equal(it[1].n, i == 0 ? 4 : 1);
		run(it, 2);
	}
	/* Both decode. */
	assert_int_equal(dt_sched_step(&s, it), 2);
	assert_int_equal(it[0].n, 1);
	assert_int_equal(it[0].first, 25);
	assert_int_equal(it[1].n, 1);
	dt_sched_remove(&s, &a);
	dt_sched_remove(&s, &b);
	dt_sched_remove(&s, &b); /* harmless */
	assert_int_equal(p.nfree, 100);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

static void test_long_prefill_leaves_decode_its_token(void **state)
{
	struct dt_seq a = seq_of(2, 50), b = seq_of(100, 2), c = seq_of(1, 2);
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 100, 4, false);
	dt_sched_init(&s, &p, 4, 8, NULL, 0, NULL);
	dt_sched_submit(&s, &a, NULL);
	assert_int_equal(dt_sched_step(&s, it), 1);
	run(it, 1);
	dt_sched_submit(&s, &b, NULL);
	dt_sched_submit(&s, &c, NULL);
	for (int i = 0; i < 16; i++) { /* 100 = 16 * 6 + 4 */
		assert_int_equal(dt_sched_step(&s, it), 3);
		assert_ptr_equal(it[0].seq, &a);
		assert_int_equal(it[0].n, 1);
		assert_int_equal(it[1].n, 6);
		assert_ptr_equal(it[2].seq, &c);
		assert_int_equal(it[2].n, 1);
		run(it, 3);
	}
	assert_int_equal(dt_sched_step(&s, it), 3);
	assert_int_equal(it[1].n, 4); /* b's rest */
	dt_sched_remove(&s, &a);
	dt_sched_remove(&s, &b);
	dt_sched_remove(&s, &c);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

static void test_preempts_the_latest(void **state)
{
	struct dt_seq q[3] = {seq_of(4, 9), seq_of(4, 9), seq_of(4, 9)};
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 7, 4, false);
	dt_sched_init(&s, &p, 4, 64, NULL, 0, NULL);
	for (int i = 0; i < 3; i++)
		dt_sched_submit(&s, &q[i], NULL);
	assert_int_equal(dt_sched_step(&s, it), 3); /* a block each */
	run(it, 3);
	for (int i = 0; i < 4; i++) { /* a second block each: 6 of 7 */
		assert_int_equal(dt_sched_step(&s, it), 3);
		run(it, 3);
	}
	/* q[0] takes the seventh, q[1] finds none: q[2] goes back to the front of the waiting list. */
	assert_int_equal(dt_sched_step(&s, it), 2);
	assert_int_equal(s.preemptions, 1);
	assert_ptr_equal(TAILQ_FIRST(&s.tenant[0].waiting), &q[2]);
	assert_int_equal(q[2].computed, 0);
	assert_int_equal(q[2].known, 9);
	assert_int_equal(q[2].blocks.n, 0);
	run(it, 2);
	dt_sched_remove(&s, &q[0]);
	/* It comes back and computes all it knows. */
	assert_int_equal(dt_sched_step(&s, it), 2);
	assert_ptr_equal(it[1].seq, &q[2]);
	assert_int_equal(it[1].n, 9);
	dt_sched_remove(&s, &q[1]);
	dt_sched_remove(&s, &q[2]);
	assert_int_equal(p.nfree, 7);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

/* Two long prompts: the older is sure of a quarter of what is left, the one that needs less gets the rest. */
static void test_old_prefill_does_not_starve(void **state)
{
	struct dt_seq old = seq_of(200, 2), q = seq_of(30, 2);
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 100, 4, false);
	dt_sched_init(&s, &p, 4, 18, NULL, 0, NULL);
	dt_sched_submit(&s, &old, NULL);
	dt_sched_submit(&s, &q, NULL);
	assert_int_equal(dt_sched_step(&s, it), 2);
	assert_int_equal(it[0].n, 1 + 4);
	assert_int_equal(it[1].n, 1 + 12);
	dt_sched_remove(&s, &old);
	dt_sched_remove(&s, &q);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

static void test_tenants_share_by_weight(void **state)
{
	const struct dt_share share[3] = {{.weight = 3}, {.weight = 1}, {.weight = 1, .priority = 1}};
	enum { N = 80 };
	struct dt_seq q[2 * N + 1];
	struct dt_sched_item it[4];
	int done[3] = {0};
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 100, 4, false);
	dt_sched_init(&s, &p, 4, 64, share, 3, NULL);
	for (int i = 0; i < 2 * N; i++) { /* all of tenant 0's come first */
		q[i] = seq_of(10, 2);
		q[i].tenant = i / N;
		dt_sched_submit(&s, &q[i], NULL);
	}
	q[2 * N] = seq_of(10, 2);
	q[2 * N].tenant = 2;
	for (int step = 0; step < 40; step++) {
		int n = dt_sched_step(&s, it);

		if (step == 20)
			dt_sched_submit(&s, &q[2 * N], NULL);
		for (int i = 0; i < n; i++) {
			it[i].seq->computed += it[i].n;
			dt_sched_computed(&s, it[i].seq, it[i].n);
			if (it[i].seq->computed == it[i].seq->known && it[i].seq->known++ == 11) {
				done[it[i].seq->tenant]++;
				dt_sched_remove(&s, it[i].seq);
			}
		}
		if (step == 24) /* it overtook all that waited */
			assert_int_equal(done[2], 1);
	}
	/* 4 places, 2 steps a sequence: 80 places, of which tenant 2 took 1. */
	assert_in_range(done[0], 57, 62);
	assert_in_range(done[1], 18, 22);
	for (int i = 0; i < 2 * N; i++)
		dt_sched_remove(&s, &q[i]);
	assert_int_equal(p.nfree, 100);
	assert_int_equal(s.waiting, 0);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

/* Within a tenant the urgent go first, in the order they came; what ran before keeps its place; the others
 * lose blocks. */
static void test_urgent_ones_first(void **state)
{
	static const int urgency[] = {0, -1, 5, 0, 5, -1}, order[] = {2, 4, 0, 3, 1, 5};
	struct dt_seq q[6], running = seq_of(4, 40), calm = seq_of(4, 40), keen = seq_of(5, 40);
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 100, 4, false);
	dt_sched_init(&s, &p, 1, 64, NULL, 0, NULL);
	for (int i = 0; i < 6; i++) {
		q[i] = seq_of(4, 2);
		q[i].urgency = urgency[i];
		dt_sched_submit(&s, &q[i], NULL);
	}
	for (int i = 0; i < 6; i++) {
		assert_int_equal(dt_sched_step(&s, it), 1);
		assert_ptr_equal(it[0].seq, &q[order[i]]);
		dt_sched_remove(&s, it[0].seq);
	}
	dt_sched_release(&s);
	dt_kvpool_release(&p);

	dt_kvpool_init(&p, 12, 4, false); /* three that grow until the blocks are out: the calm one goes */
	dt_sched_init(&s, &p, 3, 64, NULL, 0, NULL);
	calm.urgency = -1;
	dt_sched_submit(&s, &running, NULL);
	dt_sched_submit(&s, &calm, NULL);
	dt_sched_submit(&s, &keen, NULL);
	for (int step = 0; step < 30 && s.preemptions == 0; step++)
		run(it, dt_sched_step(&s, it));
	assert_int_equal(s.preemptions, 1);
	assert_int_equal(calm.state, DT_SEQ_WAITING);
	dt_sched_remove(&s, &running);
	dt_sched_remove(&s, &calm);
	dt_sched_remove(&s, &keen);
	assert_int_equal(p.nfree, 12);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

static void test_refuses_what_never_fits(void **state)
{
	struct dt_seq fits = seq_of(10, 3), not = seq_of(10, 4);
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 3, 4, false);
	dt_sched_init(&s, &p, 1, 8, NULL, 0, NULL);
	assert_int_equal(dt_sched_submit(&s, &fits, NULL), 0);
	assert_int_equal(dt_sched_submit(&s, &not, NULL), -E2BIG);
	assert_int_equal(s.waiting, 1);
	dt_sched_remove(&s, &fits);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

/* With a window in every layer a sequence holds the blocks of the window, however long it gets. */
static void test_window_gives_back(void **state)
{
	struct dt_seq a = seq_of(30, 200), b = seq_of(3, 20);
	struct dt_sched_item it[2];
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 64, 4, false);
	dt_sched_init(&s, &p, 2, 16, NULL, 0, NULL);
	s.window = 10;
	dt_sched_submit(&s, &a, NULL);
	while (a.known < 230) {
		int n = dt_sched_step(&s, it), first = a.computed - s.window + 1;

		assert_int_equal(n, 1);
		for (int i = 0; i < a.blocks.n;
		     i++) /* what the next token sees is there, nothing before it */
			assert_int_equal(a.blocks.b[i] >= 0, (i + 1) * 4 > first);
		run(it, n);
		dt_sched_computed(&s, &a, it[0].n);
		if (a.computed > 30)
			assert_in_range(64 - p.nfree, 3, 4);
	}
	/* Choices of a request, and what is preempted or ends, hold and give back what is there. */
	b.leader = &a;
	b.known = a.known;
	b.max_rows = a.known + 2;
	dt_sched_submit(&s, &b, NULL);
	assert_true(dt_sched_fork(&s, &b));
	assert_int_equal(b.blocks.gone, a.blocks.gone);
	assert_int_equal(dt_sched_step(&s, it), 2);
	dt_sched_remove(&s, &a);
	assert_true(p.nfree < 64);
	dt_sched_remove(&s, &b);
	assert_int_equal(p.nfree, 64);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

/* The rules of a step, for each replica: its items stand together, and its blocks are all somewhere. */
static void check_replica(const struct dt_sched *s, int replica, const struct dt_sched_item *it, int n)
{
	const struct dt_kvpool *pool = &s->pool[replica];
	int tokens = 0, rows = 0, held = 0, running = 0;
	struct dt_seq *q;

	for (int i = 0; i < n; i++) {
		assert_int_equal(it[i].seq->state, DT_SEQ_RUNNING);
		assert_int_equal(it[i].seq->replica, replica);
		assert_int_equal(it[i].first, it[i].seq->computed);
		assert_true(it[i].n >= 1);
		assert_true(it[i].first + it[i].n <= it[i].seq->known);
		assert_true(it[i].seq->blocks.n * pool->block_size >= it[i].first + it[i].n);
		tokens += it[i].n;
		for (int r = it[i].first; r < it[i].first + it[i].n; r++)
			rows += dt_seq_scored(it[i].seq, r) || r == it[i].seq->known - 1;
	}
	assert_true(n <= dt_sched_step_seqs(s));
	assert_true(tokens <= s->max_tokens / s->replicas);
	assert_true(rows <= dt_sched_step_seqs(s));
	TAILQ_FOREACH (q, &s->running, in_list)
		if (q->replica == replica) {
			held += q->blocks.n - q->blocks.gone;
			running++;
		}
	if (s->depth == 1)
		assert_int_equal(n, running); /* everyone moves */
	assert_int_equal(running, s->running_on[replica]);
	/* Shared blocks are held more than once. */
	assert_true(held + pool->nfree >= pool->nblocks);
	if (!pool->share)
		assert_int_equal(held + pool->nfree, pool->nblocks);
}

/* Steps under way, the oldest first. */
enum { STEP_ITEMS = 12 };
struct steps {
	struct dt_sched_item it[3][STEP_ITEMS];
	int n[3], count;
};

static void check_step(const struct dt_sched *s, const struct dt_sched_item *it, int n)
{
	bool taken[STEP_ITEMS] = {false};
	const struct dt_seq *q;
	int at = 0, end;

	TAILQ_FOREACH (q, &s->running, in_list) {
		assert_in_range(q->place, 0, s->max_seqs - 1);
		assert_false(taken[q->place]);
		taken[q->place] = true;
	}
	for (int r = 0; r < s->replicas; r++, at = end) {
		for (end = at; end < n && it[end].seq->replica == r;)
			end++;
		check_replica(s, r, it + at, end - at);
	}
	assert_int_equal(at, n);
}

/* The next step is planned, of sequences that no other one has; false: there is none. */
static bool begin_step(struct dt_sched *s, struct steps *w)
{
	struct dt_sched_item *it = w->it[w->count];
	int n = dt_sched_step(s, it);
	const struct dt_seq *q;

	assert_true(n > 0 || w->count > 0 || s->waiting + s->nrunning == 0);
	check_step(s, it, n);
	for (int i = 0; i < w->count; i++)
		for (int k = 0; k < w->n[i]; k++)
			for (int j = 0; j < n; j++)
				assert_ptr_not_equal(it[j].seq, w->it[i][k].seq);
	TAILQ_FOREACH (q, &s->running, in_list) /* everyone moves soon */
		assert_true(s->turn - q->turn <= 12 * s->depth);
	w->n[w->count] = n;
	w->count += n > 0;
	return n > 0;
}

/* The oldest step has run. */
static int end_step(struct dt_sched *s, struct steps *w, struct dt_sched_item *it)
{
	int n = w->count > 0 ? w->n[0] : 0;

	memcpy(it, w->it[0], sizeof(w->it[0]));
	w->count -= w->count > 0;
	for (int i = 0; i < w->count; i++) {
		memcpy(w->it[i], w->it[i + 1], sizeof(w->it[i]));
		w->n[i] = w->n[i + 1];
	}
	run(it, n);
	for (int i = 0; i < n; i++) {
		it[i].seq->busy = false;
		dt_sched_computed(s, it[i].seq, it[i].n);
	}
	return n;
}

/* Random traffic with cancellations in a pool that is too small: all rules at all steps, no leaks. */
static void random_traffic(bool share, int window, int replicas, int depth)
{
	enum { N = 300 };
	struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, 0);
	struct dt_sched_item it[12];
	struct steps under_way = {0};
	struct dt_kvpool p[2];
	struct dt_sched s;
	int done = 0, submitted = 0, steps = 0, most = 0;
	uint64_t k = 0;
	struct dt_seq *q = calloc(N, sizeof(*q));
	int *target = calloc(N, sizeof(*target));
	int32_t *text = calloc(200, sizeof(*text)); /* all of one text: every prefix can be shared */

	for (int i = 0; i < replicas; i++)
		dt_kvpool_init(&p[i], 20, 4, share);
	dt_sched_init(&s, p, 6 * replicas, 16 * replicas, NULL, 0, NULL);
	s.replicas = replicas;
	s.window = window;
	s.depth = depth;
	while (done < N) {
		int n;

		for (int burst = (int)dt_rng_below(&rng, k++, 3); burst > 0 && submitted < N; burst--) {
			int prompt = 1 + (int)dt_rng_below(&rng, k++, 40),
			    out = 1 + (int)dt_rng_below(&rng, k++, 40);

			q[submitted] = seq_of(prompt, out);
			q[submitted].tokens = text;
			q[submitted].score_end = dt_rng_below(&rng, k++, 4) ? 0 : prompt;
			if (q[submitted].score_end > 0)
				q[submitted].score_first = (int)dt_rng_below(&rng, k++, (uint64_t)prompt);
			target[submitted] = prompt + out;
			assert_int_equal(dt_sched_submit(&s, &q[submitted++], NULL), 0);
		}
		while (under_way.count < depth && begin_step(&s, &under_way))
			most = under_way.count > most ? under_way.count : most;
		n = end_step(&s, &under_way, it);
		for (int i = 0; i < n; i++) {
			int id = (int)(it[i].seq - q);

			assert_true(q[id].computed <= q[id].max_rows);
			if (q[id].known == target[id] || dt_rng_below(&rng, k++, 200) == 0) {
				dt_sched_remove(&s, it[i].seq);
				done++;
			}
		}
		if (TAILQ_FIRST(&s.tenant[0].waiting) && dt_rng_below(&rng, k++, 100) == 0) {
			dt_sched_remove(&s, TAILQ_LAST(&s.tenant[0].waiting, dt_seq_list));
			done++;
		}
		assert_true(++steps < 100000);
	}
	assert_true(share ? s.prefix_hits > 1000 : window || s.preemptions > 10);
	for (int i = 0; i < replicas; i++)
		assert_int_equal(p[i].nfree, 20);
	assert_int_equal(s.nrunning + s.waiting, 0);
	assert_int_equal(most, depth);
	dt_sched_release(&s);
	for (int i = 0; i < replicas; i++)
		dt_kvpool_release(&p[i]);
	free(q);
	free(target);
	free(text);
}

/* Two steps under way halve those that run, also when some have ended and others come. */
static void test_steps_under_way(void **state)
{
	struct dt_sched_item it[STEP_ITEMS];
	struct steps w = {0};
	struct dt_kvpool p;
	struct dt_sched s;
	struct dt_seq q[10];

	dt_kvpool_init(&p, 40, 4, false);
	dt_sched_init(&s, &p, 10, 40, NULL, 0, NULL);
	s.depth = 2;
	for (int i = 0; i < 10; i++)
		q[i] = seq_of(3, 9);
	for (int i = 0; i < 7; i++)
		dt_sched_submit(&s, &q[i], NULL);
	assert_true(begin_step(&s, &w) && begin_step(&s, &w));
	assert_int_equal(w.n[0], 4);
	assert_int_equal(w.n[1], 3);
	assert_int_equal(dt_sched_step(&s, it), 0); /* all are under way */
	assert_int_equal(end_step(&s, &w, it), 4);
	for (int i = 0; i < 3; i++)
		dt_sched_remove(&s, &q[i]);
	assert_true(begin_step(&s, &w));
	assert_int_equal(w.n[1], 1); /* the fourth */
	assert_int_equal(end_step(&s, &w, it), 3);
	for (int i = 7; i < 10; i++)
		dt_sched_submit(&s, &q[i], NULL);
	assert_true(begin_step(&s, &w));
	assert_int_equal(w.n[1], 4); /* of seven again, those that have waited and then the new ones */
	assert_ptr_equal(w.it[1][0].seq, &q[4]);
	assert_int_equal(end_step(&s, &w, it), 1);
	assert_true(begin_step(&s, &w));
	assert_int_equal(w.n[1], 3);
	for (int i = 3; i < 10; i++)
		dt_sched_remove(&s, &q[i]);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

static void test_random_traffic(void **state)
{
	for (int replicas = 1; replicas <= 2; replicas++)
		for (int depth = 1; depth <= 3; depth++)
			for (int window = 0; window <= 9; window += 9) {
				random_traffic(false, window, replicas, depth);
				random_traffic(true, window, replicas, depth);
			}
}

/* Sequences are spread over replicas but follow a cached prefix; choices stay with their prompt. */
static void test_replicas(void **state)
{
	int32_t text[16] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct dt_seq q[6], child = {.tokens = text, .known = 8, .max_rows = 12};
	struct dt_sched_item it[6];
	struct dt_kvpool p[2];
	struct dt_sched s;

	for (int i = 0; i < 2; i++)
		assert_int_equal(dt_kvpool_init(&p[i], 12, 4, true), 0);
	assert_int_equal(dt_sched_init(&s, p, 6, 24, NULL, 0, NULL), 0);
	s.replicas = 2;
	for (int i = 0; i < 4; i++) {
		q[i] = seq_of(8, 4);
		q[i].tokens = i == 1 ? text : NULL;
		assert_int_equal(dt_sched_submit(&s, &q[i], NULL), 0);
	}
	assert_int_equal(dt_sched_step(&s, it), 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(q[i].replica, i % 2);
		assert_int_equal(it[i].seq->replica, i / 2);
		assert_int_equal(it[i].n, i % 2 ? 4 : 8); /* 12 tokens a replica */
	}
	run(it, 4);
	for (int i = 0; i < 4; i++)
		dt_sched_computed(&s, it[i].seq, it[i].n);
	assert_int_equal(dt_sched_step(&s, it), 4);
	run(it, 4);
	for (int i = 0; i < 4; i++)
		dt_sched_computed(&s, it[i].seq, it[i].n);
	/* Its beginning is on replica 1. */
	dt_sched_remove(&s, &q[2]);
	q[4] = seq_of(8, 1);
	q[4].tokens = text;
	assert_int_equal(dt_sched_submit(&s, &q[4], NULL), 0);
	assert_int_equal(dt_sched_step(&s, it), 4);
	assert_int_equal(q[4].replica, 1);
	assert_int_equal(q[4].cached, 4);
	dt_sched_remove(&s, &q[3]);
	dt_sched_remove(&s, &q[4]);
	child.leader = &q[1];
	assert_int_equal(dt_sched_submit(&s, &child, NULL), 0);
	assert_true(dt_sched_fork(&s, &child));
	assert_int_equal(child.replica, 1);
	child.known++;
	q[5] = seq_of(49, 1);
	assert_int_equal(dt_sched_submit(&s, &q[5], NULL), -E2BIG); /* two replicas' blocks are not one's */
	/* Both write behind the shared prompt: the copy is on their replica. */
	q[1].computed = 8;
	q[1].known = 10;
	assert_true(dt_sched_step(&s, it) >= 3);
	for (int i = 0; i < s.ncopy; i++)
		assert_int_equal(s.copy[i].replica, 1);
	dt_sched_remove(&s, &child);
	dt_sched_remove(&s, &q[0]);
	dt_sched_remove(&s, &q[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(p[i].nfree, 12);
		assert_int_equal(s.running_on[i], 0);
		dt_kvpool_release(&p[i]);
	}
	dt_sched_release(&s);
}

/* Rows of a full pool that no token is in: at most the rest of each sequence's last block. */
static void test_little_is_wasted(void **state)
{
	enum { BLOCKS = 4096, SIZE = 16, SEQS = 128, N = 400 };
	struct dt_rng rng = dt_rng_make(9, DT_RNG_TEST, 4);
	struct dt_seq *q = calloc(N, sizeof(*q)), *x;
	struct dt_sched_item items[SEQS];
	double worst = 0, fullest = 0;
	struct dt_kvpool p;
	struct dt_sched s;
	int left = N, n;

	assert_int_equal(dt_kvpool_init(&p, BLOCKS, SIZE, false), 0);
	assert_int_equal(dt_sched_init(&s, &p, SEQS, 1024, NULL, 0, NULL), 0);
	for (int i = 0; i < N; i++) {
		q[i] = seq_of(64 + (int)(dt_rng_u32(&rng, (uint64_t)(2 * i)) % 960),
			      16 + (int)(dt_rng_u32(&rng, (uint64_t)(2 * i + 1)) % 496));
		assert_int_equal(dt_sched_submit(&s, &q[i], NULL), 0);
	}
	while (left > 0) {
		int used = BLOCKS - p.nfree, tokens = 0;

		n = dt_sched_step(&s, items);
		assert_true(n > 0);
		used = BLOCKS - p.nfree;
		TAILQ_FOREACH (x, &s.running, in_list)
			tokens += x->known;
		worst = fmax(worst, (double)(used * SIZE - tokens) / (BLOCKS * SIZE));
		fullest = fmax(fullest, (double)used / BLOCKS);
		run(items, n);
		for (int i = 0; i < n; i++)
			if (items[i].seq->known > items[i].seq->max_rows) {
				dt_sched_remove(&s, items[i].seq);
				left--;
			}
	}
	assert_int_equal(p.nfree, BLOCKS);
	assert_true(fullest > 0.95);
	if (worst > 0.04)
		fail_msg("%.2f %% of the pool", 100 * worst);
	free(q);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_pool_shares),
		cmocka_unit_test(test_pool_grows_its_buckets),
		cmocka_unit_test(test_chunked_prefill),
		cmocka_unit_test(test_urgent_ones_first),
		cmocka_unit_test(test_long_prefill_leaves_decode_its_token),
		cmocka_unit_test(test_old_prefill_does_not_starve),
		cmocka_unit_test(test_tenants_share_by_weight),
		cmocka_unit_test(test_preempts_the_latest),
		cmocka_unit_test(test_refuses_what_never_fits),
		cmocka_unit_test(test_window_gives_back),
		cmocka_unit_test(test_replicas),
		cmocka_unit_test(test_little_is_wasted),
		cmocka_unit_test(test_steps_under_way),
		cmocka_unit_test(test_random_traffic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
