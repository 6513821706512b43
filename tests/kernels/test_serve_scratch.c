/* kernels/scratch.h, ops of serving: what the functions beside the contracts say is what ops ask for. */
#define GROUP_THREADS 5
#include "group.h"

#include "kernels/attention.h"
#include "kernels/lora.h"
#include "kernels/quant.h"
#include "kernels/sample.h"

static const enum dt_format formats[] = {DT_FMT_F32, DT_FMT_BF16, DT_FMT_Q8_0, DT_FMT_Q4_0, DT_FMT_Q6_K};
enum { FORMATS = 5 };

static size_t taken(void)
{
	for (int b = 0; b < DT_SCRATCH_N; b++)
		if (b != DT_SCRATCH_OP)
			assert_int_equal(dt_dev_scratch_most(dev, (enum dt_scratch_buffer)b), 0);
	return dt_dev_scratch_most(dev, DT_SCRATCH_OP);
}

/* Ends the loan of nothing, which forgets what was asked for. */
static void forget(void)
{
	for (int b = 0; b < DT_SCRATCH_N; b++)
		dt_dev_scratch_lend(dev, (enum dt_scratch_buffer)b, NULL, 0);
}

static void check_op(const char *what, int rc, size_t planned)
{
	assert_int_equal(rc, 0);
	if (taken() != planned)
		fail_msg("%s: %zu bytes taken, %zu planned", what, taken(), planned);
	forget();
}

/* parts of `rows` rows each, in random formats. */
static struct dt_packed *packed(int64_t k, int64_t rows, const enum dt_format *f, int parts,
				struct dt_packed_kind *kind)
{
	struct dt_packed *w = NULL;

	*kind = (struct dt_packed_kind){.k = k};
	assert_int_equal(dt_packed_open(&w, dev, k), 0);
	for (int i = 0; i < parts; i++) {
		struct dt_tensor src = random_tensor(DT_F32, rows, k, 10 + (uint32_t)i, 1);

		assert_int_equal(dt_packed_append(w, dev, f[i], DT_FMT_F32, src.data, rows), 0);
		dt_packed_kind_add(kind, f[i]);
		free(src.data);
	}
	return w;
}

static void choose(enum dt_format f[3])
{
	for (int i = 0; i < 3; i++)
		f[i] = formats[rand() % FORMATS];
}

/* On both sides of what divides rows among threads, and of what fills tiles. */
static void test_products(void **state)
{
	static const int64_t rows[] = {1, 2, 13, 14, 16, 17, 27, 28, 32, 33, 100, 383, 384, 385, 769, 1000};
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);

	srand(1);
	for (int i = 0; i < 96; i++) {
		const int64_t m = rows[i % 16], k = rand() % 2 ? 256 : 768, n = 32;
		const int parts = 1 + rand() % 3;
		enum dt_format f[3];
		struct dt_packed_kind kind;
		struct dt_packed *w;
		struct dt_tensor x = random_tensor(DT_BF16, m, k, 1, 1), y = tensor(DT_F32, m, n * parts),
				 a = random_tensor(DT_F32, 4, k, 20, 0.1), room = tensor(DT_F32, m, 4),
				 b = random_tensor(DT_F32, n * parts, 4, 21, 1);
		const struct dt_lora_part part = {
			.n = m,
			.lane = {{.a = a.data, .b = b.data, .rank = 4, .cols = n * parts, .scale = 2}}};
		const struct dt_lora_batch lora = {DT_F32, 4, &part, 1};

		choose(f);
		w = packed(k, n, f, parts, &kind);
		forget();
		check_op("packed_matmul", dev->ops->packed_matmul(dev, y, x, w, DT_NONE),
			 dt_packed_matmul_scratch(&on, &kind, m));
		check_op("packed_lora", dev->ops->packed_lora(dev, y, x, w, DT_NONE, 0, room, &lora),
			 dt_packed_matmul_scratch(&on, &kind, m));
		if (parts == 2)
			check_op("packed_gated",
				 dev->ops->packed_gated(dev, dt_t2(y.data, DT_F32, m, n), x, w, DT_NONE,
							DT_ACT_SILU),
				 dt_packed_matmul_scratch(&on, &kind, m));
		dt_packed_close(w);
		free_all(x.data, y.data, a.data, b.data, room.data);
	}
}

/* Kinds of weights that the plan says once for all numbers of rows: more rows never take less. */
static void test_order(void **state)
{
	struct dt_scratch_on on = dt_dev_scratch_on(dev);

	for (on.threads = 1; on.threads <= 16; on.threads *= 4)
		for (int amx = 0; amx < 2; amx++)
			for (int n = 0; n < 9; n += n ? 5 : 1) {
				const struct dt_packed_kind kind = {.k = 96, .parts = 2, .quantised = true};
				size_t before = 0;

				on.amx_int8 = amx;
				for (int64_t m = 1; m < 5000; m++) {
					const size_t now = n ? dt_packed_set_matmul_scratch(&on, &kind, n, m)
							     : dt_packed_matmul_scratch(&on, &kind, m);

					assert_true(now > before);
					before = now;
				}
			}
}

/* first [n + 1]: m rows dealt at random over n weights, some of which get none. */
static void deal(int32_t *first, int n, int64_t m)
{
	first[0] = 0;
	for (int i = 0; i < n; i++)
		first[i + 1] = (int32_t)(rand() % 3 && i + 1 < n ? first[i] + rand() % (m - first[i] + 1)
					 : i + 1 < n		 ? first[i]
								 : m);
}

static void test_sets(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	enum { N = 6, K = 256 };

	srand(2);
	for (int i = 0; i < 60; i++) {
		const int parts = 1 + rand() % 2, n = 1 + rand() % N;
		const int64_t m = 1 + rand() % 120;
		enum dt_format f[3];
		struct dt_packed_kind kind;
		struct dt_packed *w[N];
		struct dt_packed_set *set;
		struct dt_tensor x = random_tensor(DT_BF16, m, K, 1, 1), y = tensor(DT_F32, m, 24 * parts);
		int32_t first[N + 1];
		const struct dt_meet p = {.first = first};

		choose(f);
		for (int e = 0; e < n; e++)
			w[e] = packed(K, 24, f, parts, &kind);
		assert_int_equal(dt_packed_set_open(&set, dev, w, n), 0);
		deal(first, n, m);
		forget();
		check_op("packed_set_matmul", dev->ops->packed_set_matmul(dev, y, x, set, &p),
			 dt_packed_set_matmul_scratch(&on, &kind, n, m));
		dt_packed_set_close(set);
		for (int e = 0; e < n; e++)
			dt_packed_close(w[e]);
		free_all(x.data, y.data);
	}
}

static void test_ends(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	static const int64_t widths[] = {32, 96, 100, 4096};

	for (int i = 0; i < 4; i++)
		for (int64_t rows = 1; rows < 40; rows += 12) {
			const enum dt_format f = widths[i] % 32 ? DT_FMT_BF16 : DT_FMT_Q8_0;
			const int64_t vocab = widths[i] + 1;
			struct dt_packed_kind kind;
			struct dt_packed *w = packed(widths[i], 40, &f, 1, &kind);
			struct dt_tensor y = tensor(DT_BF16, rows, widths[i]),
					 logits = random_tensor(DT_F32, rows, vocab, 3, 1);
			int32_t ids[40] = {0};
			struct dt_draw draw[40];
			struct dt_drawn out[40];

			for (int64_t r = 0; r < rows; r++)
				draw[r] = (struct dt_draw){.cold = 1, .top_p = 0.5, .repetition = 1};
			forget();
			check_op("packed_embed", dev->ops->packed_embed(dev, y, w, ids, 0, 40, 2),
				 dt_packed_embed_scratch(&on, widths[i]));
			check_op("sample", dev->ops->sample(dev, out, logits, draw, NULL, 0),
				 dt_sample_scratch(&on, rows, vocab));
			dt_packed_close(w);
			free_all(y.data, logits.data);
		}
}

/* ---- paged attention ---- */

struct batch {
	int n;
	int64_t rows[8], keys[8];
};

/* What attention takes for a batch whose blocks are all the same one. */
static size_t attend(const struct dt_attn *p, enum dt_dtype type, enum dt_dtype cache, const struct batch *b)
{
	enum { BLOCK = 16 };
	const int64_t in = (p->heads + dt_kv_parts(p) * p->kv_heads) * p->head_dim;
	int32_t table[8 * 400] = {0}, start[9] = {0}, len[8];
	const struct dt_paged g = {b->n, start, len, table, 400, BLOCK, 0};
	struct dt_tensor k = tensor(cache, BLOCK, dt_kv_row(p, cache)),
			 v = p->value_dim ? DT_NONE : tensor(cache, BLOCK, dt_kv_row(p, cache)), q, o;

	for (int i = 0; i < b->n; i++) {
		start[i + 1] = start[i] + (int32_t)b->rows[i];
		len[i] = (int32_t)b->keys[i];
	}
	memset(k.data, 0, bytes_of(k));
	if (v.data)
		memset(v.data, 0, bytes_of(v));
	q = random_tensor(type, start[b->n], in, 5, 1);
	o = tensor(type, start[b->n], p->heads * dt_attn_value_dim(p));
	k = dt_t3(k.data, cache, 1, BLOCK, dt_kv_row(p, cache));
	if (v.data)
		v = dt_t3(v.data, cache, 1, BLOCK, dt_kv_row(p, cache));
	forget();
	assert_int_equal(dev->ops->attention_paged(dev, o, q, k, v, p, &g), 0);
	free_all(k.data, v.data, q.data, o.data);
	return taken();
}

/* A batch within the limits. */
static struct batch any_batch(const struct dt_paged_most *most)
{
	struct batch b = {.n = 1 + rand() % (int)most->seqs};
	int64_t rows = most->rows, keys = most->all_keys;

	b.n = b.n > rows ? (int)rows : b.n;
	for (int i = 0; i < b.n; i++) {
		const int64_t rest = b.n - i - 1, can = rows - rest, room = keys - rest * most->rows;

		b.rows[i] = rand() % 3 || can < 2 ? 1 : 1 + rand() % can;
		b.keys[i] = rand() % 3 ? most->keys : b.rows[i] + rand() % most->keys;
		b.keys[i] = b.keys[i] > room ? room : b.keys[i];
		b.keys[i] = b.keys[i] > most->keys ? most->keys : b.keys[i];
		b.keys[i] = b.keys[i] < b.rows[i] ? b.rows[i] : b.keys[i];
		rows -= b.rows[i];
		keys -= b.keys[i];
	}
	return b;
}

/* A batch with as many spans as the limits allow for n sequences, the first of which has `rows` rows. */
static struct batch full_batch(const struct dt_paged_most *most, int n, int64_t rows)
{
	struct batch b = {.n = n, .rows = {rows}};
	int64_t keys = most->all_keys;

	for (int i = 0; i < n; i++) {
		const int64_t room = keys - (n - i - 1), can = room < most->keys ? room : most->keys;

		b.rows[i] = i ? 1 : rows;
		b.keys[i] = can < rows ? can : (can - 1) / 1024 * 1024 + 1;
		b.keys[i] = b.keys[i] < b.rows[i] ? b.rows[i] : b.keys[i];
		keys -= b.keys[i];
	}
	return b;
}

/* The most that batches take, each at most `planned`. */
static size_t most_taken(const struct dt_attn *p, const enum dt_dtype t[2], const struct dt_paged_most *most,
			 size_t planned)
{
	size_t all = 0;
	int64_t rows = 1;

	for (int n = 1, k = 0; k < 40 || n <= most->seqs; k++) {
		const bool full = n <= most->seqs && n - 1 + rows <= most->rows;
		const struct batch b = full ? full_batch(most, n, rows) : any_batch(most);
		const size_t bytes = attend(p, t[0], t[1], &b);

		if (bytes > planned)
			fail_msg("%d heads, %d sequences: %zu bytes taken, %zu planned", (int)p->heads, b.n,
				 bytes, planned);
		all = bytes > all ? bytes : all;
		rows = full ? rows + 1 : 1;
		n += !full;
	}
	return all;
}

/* No batch takes more than planned, and the one that takes most takes just that. */
static void test_attention(void **state)
{
	static const struct dt_attn shapes[] = {
		{.heads = 2, .kv_heads = 2, .head_dim = 16, .scale = 1},
		{.heads = 8, .kv_heads = 1, .head_dim = 32, .scale = 1},
		{.heads = 40, .kv_heads = 2, .head_dim = 24, .scale = 1},
		{.heads = 4, .kv_heads = 1, .head_dim = 24, .value_dim = 16, .scale = 1},
		{.heads = 32, .kv_heads = 1, .head_dim = 24, .value_dim = 16, .scale = 1},
		{.heads = 100, .kv_heads = 1, .head_dim = 24, .value_dim = 16, .scale = 1},
		{.heads = 2, .kv_heads = 2, .head_dim = 16, .window = 1500, .scale = 1},
	};
	static const struct dt_paged_most limits[] = {
		{1, 1, 3000, 3000},  {4, 4, 4100, 16400},  {5, 12, 3100, 15500},
		{3, 40, 1024, 3072}, {8, 16, 5000, 12000}, {2, 1, 2048, 4096},
	};
	static const enum dt_dtype types[][2] = {
		{DT_F32, DT_F32}, {DT_BF16, DT_BF16}, {DT_BF16, DT_F32}, {DT_BF16, DT_I8}};
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);

	srand(3);
	for (int i = 0; i < 7 * 6; i++) {
		const struct dt_attn *p = &shapes[i / 6];
		const struct dt_paged_most *most = &limits[i % 6];
		const enum dt_dtype *t = types[p->value_dim ? rand() % 2 : rand() % 4];
		const size_t planned = dt_attention_paged_scratch(&on, t[0], t[1], p, most);
		const size_t all = most_taken(p, t, most, planned);

		if (all != planned && !p->window)
			fail_msg("%d heads, limits %d: at most %zu bytes taken, %zu planned", (int)p->heads,
				 i % 6, all, planned);
	}
}

/* What is reserved serves ops; it is no asking. */
static void test_reserve(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	const size_t n = dt_sample_scratch(&on, 3, 1000);
	struct dt_tensor logits = random_tensor(DT_F32, 3, 1000, 3, 1);
	struct dt_draw draw[3] = {{0}};
	struct dt_drawn out[3];
	size_t before;

	forget();
	assert_int_equal(dt_dev_scratch_reserve(dev, &(struct dt_scratch){.bytes = {n}}), 0);
	before = dt_dev_scratch_bytes(dev);
	assert_true(before >= n);
	assert_int_equal(taken(), 0);
	check_op("sample", dev->ops->sample(dev, out, logits, draw, NULL, 0), n);
	assert_int_equal(dt_dev_scratch_reserve(dev, &(struct dt_scratch){.bytes = {n}}), 0);
	assert_int_equal(dt_dev_scratch_reserve(dev, &(struct dt_scratch){.bytes = {n / 2}}), 0);
	assert_int_equal(dev->ops->sample(dev, out, logits, draw, NULL, 0), 0);
	assert_int_equal(dt_dev_scratch_bytes(dev), before);
	free(logits.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),  cmocka_unit_test(test_order),
		cmocka_unit_test(test_sets),	  cmocka_unit_test(test_ends),
		cmocka_unit_test(test_attention), cmocka_unit_test(test_reserve),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
