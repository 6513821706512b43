/* Paged attention and the cache's writes: against f64 (attention_ref.h), and against itself cut otherwise. */
#include "attention_ref.h"

/* A cache of scattered blocks, filled by kv_write; one sequence a batch entry. */
struct cache {
	struct dt_tensor k, v;
	int32_t *table;
	int max_blocks, block_size;
	int64_t *slot;
};

static struct cache cache_make(const struct dt_attn *p, enum dt_dtype type, int block_size, bool by_blocks)
{
	struct cache c = {.block_size = block_size};
	const int64_t rows = p->batch * p->seq;
	int64_t blocks, used;

	c.max_blocks = (int)((p->seq + block_size - 1) / block_size);
	blocks = p->batch * c.max_blocks + 3;
	c.table = calloc((size_t)blocks, sizeof *c.table);
	c.slot = calloc((size_t)rows, sizeof *c.slot);
	/* Never written rows stay NaN (int8: their scales): whoever reads one shows it. */
	c.k = tensor(type, blocks * block_size, dt_kv_row(p, type));
	c.v = copy_of(c.k);
	if (by_blocks) {
		c.k = dt_t3(c.k.data, type, blocks, block_size, dt_kv_row(p, type));
		c.v = dt_t3(c.v.data, type, blocks, block_size, dt_kv_row(p, type));
	}
	used = p->batch * c.max_blocks;
	for (int64_t i = 0; i < used; i++)
		c.table[i] = (int32_t)((i * (used % 7 ? 7 : 11) + 2) % used); /* a permutation */
	for (int64_t i = 0; i < rows; i++)
		c.slot[i] =
			(int64_t)c.table[i / p->seq * c.max_blocks + i % p->seq / block_size] * block_size +
			i % p->seq % block_size;
	return c;
}

/* Element j of head h of a slot's key or value in an int8 cache, and the head's scale, wherever they lie. */
static int from_cache(const struct cache *c, const struct dt_attn *p, bool key, int64_t slot, int64_t h,
		      int64_t j, float *scale)
{
	const int64_t d = p->head_dim, row = dt_kv_row(p, DT_I8);
	const uint8_t *at = key ? c->k.data : c->v.data;
	const bool grouped = c->k.ndim == 3 && dt_dev_kv_group(dev, DT_I8, d, false, c->block_size) == 16;

	if (!grouped) {
		at += slot * row + h * (d + 4);
		memcpy(scale, at + d, 4);
		return (int8_t)at[j];
	}
	at += slot / 16 * 16 * row + h * 16 * (d + 4);
	slot %= 16;
	memcpy(scale, at + 16 * d + 4 * slot, 4);
	return key ? at[j / 4 * 64 + slot * 4 + j % 4] - 128
		   : (int8_t)at[slot / 4 * 4 * d + 4 * j + slot % 4];
}

/* Puts what an int8 cache holds in place of the keys and values of x: a rounding of half a step at most. */
static void take_from_cache(double *x, const struct cache *c, const struct dt_attn *p)
{
	const int64_t d = p->head_dim;

	for (int64_t i = 0; i < p->batch * p->seq; i++)
		for (int64_t h = 0; h < 2 * p->kv_heads; h++) {
			const bool key = h < p->kv_heads;
			double *v = x + i * width(p) + (p->heads + h) * d, max = 0;
			float scale;

			for (int64_t j = 0; j < d; j++)
				max = fmax(max, fabs(v[j]));
			for (int64_t j = 0; j < d; j++) {
				const double got =
					from_cache(c, p, key, c->slot[i], h % p->kv_heads, j, &scale) *
					(double)scale;

				assert_true(fabs((double)scale * 127 - max) <= 1e-6 * max);
				if (!(fabs(got - v[j]) <= 0.5001 * (double)scale))
					fail_msg("element %lld is %.9g in the cache, was %.9g, step %.9g",
						 (long long)j, got, v[j], (double)scale);
				v[j] = got;
			}
		}
}

static struct dt_tensor sink; /* of the calls below; absent: none */

/* The f64 results ro of keys alone become those with the sinks. */
static void ref_sinks(double *ro, const double *rl, const struct dt_attn *p)
{
	const int64_t d = p->head_dim;

	for (int64_t i = 0; i < p->batch * p->seq; i++)
		for (int64_t h = 0; sink.data && h < p->heads; h++) {
			const double lse = rl[(i / p->seq * p->heads + h) * p->seq + i % p->seq];

			for (int64_t c = 0; c < d; c++)
				ro[(i * p->heads + h) * d + c] /= 1 + exp(get(sink, h) - lse);
		}
}

/* o of all rows, every sequence's rows from .. to given in one call. */
static void run_paged(struct dt_tensor o, struct dt_tensor x, const struct cache *c, const struct dt_attn *p,
		      int64_t from, int64_t to, int64_t only)
{
	const int64_t n = to - from, size = dt_dtype_size(x.dtype), out = p->heads * p->head_dim;
	const int nseq = only < 0 ? (int)p->batch : 1;
	struct dt_tensor q = tensor(x.dtype, nseq * n, width(p)), r = tensor(x.dtype, nseq * n, out);
	int32_t start[9], len[8];
	struct dt_paged g = {.nseq = nseq,
			     .q_start = start,
			     .kv_len = len,
			     .block_table = c->table + (only < 0 ? 0 : only * c->max_blocks),
			     .max_blocks = c->max_blocks,
			     .block_size = c->block_size,
			     .sink = sink,
			     .further = 4096};

	for (int i = 0; i < nseq; i++) {
		const int64_t b = only < 0 ? i : only;

		start[i] = (int32_t)(i * n);
		start[i + 1] = (int32_t)((i + 1) * n);
		len[i] = (int32_t)to;
		memcpy((char *)q.data + i * n * width(p) * size,
		       (char *)x.data + (b * p->seq + from) * width(p) * size, (size_t)(n * width(p) * size));
	}
	assert_int_equal(dev->ops->attention_paged(dev, r, q, c->k, c->v, p, &g), 0);
	for (int i = 0; i < nseq; i++)
		memcpy((char *)o.data + ((only < 0 ? i : only) * p->seq + from) * out * size,
		       (char *)r.data + i * n * out * size, (size_t)(n * out * size));
	free_all(q.data, r.data);
}

static void one_paged(const struct dt_attn *p, enum dt_dtype type, enum dt_dtype cache_type, int block_size,
		      bool by_blocks)
{
	const int64_t rows = p->batch * p->seq, out = p->heads * p->head_dim;
	struct cache c = cache_make(p, cache_type, block_size, by_blocks);
	struct dt_tensor x = random_tensor(type, rows, width(p), 1, 1), whole = tensor(type, rows, out);
	struct dt_tensor cut = tensor(type, rows, out);
	double *rx = values(x), *ro = reals(rows * out), *rl = reals(rows * p->heads);

	assert_int_equal(dev->ops->kv_write(dev, c.k, c.v, x, p, c.slot), 0);
	if (cache_type == DT_I8)
		take_from_cache(rx, &c, p);
	ref_forward(ro, rl, p, rx);
	ref_sinks(ro, rl, p);
	run_paged(whole, x, &c, p, 0, p->seq, -1);
	check_close("paged o", whole, ro, type == DT_F32 ? 3e-6 : 2e-2, 0);
	/* In chunks of 1 + 5 + 29 + ..., sequence by sequence. */
	for (int64_t b = 0; b < p->batch; b++)
		for (int64_t i = 0, n = 1; i < p->seq; i += n, n = n * 5 % 67 + 1)
			run_paged(cut, x, &c, p, i, i + n < p->seq ? i + n : p->seq, b);
	check_same_bits("a prompt in chunks", whole, cut);
	/* Token by token, the sequences side by side; where that takes long, some of them. */
	for (int64_t i = 0; i < p->seq; i += emulated(dev) ? 1 + i % 37 : 1)
		run_paged(cut, x, &c, p, i, i + 1, -1);
	check_same_bits("a prompt by tokens", whole, cut);
	free_all(c.k.data, c.v.data, c.table, c.slot, x.data, whole.data, cut.data, rx, ro, rl);
}

static void test_paged(void **state)
{
	static const int block_sizes[] = {16, 1, 48, 5};

	for (int i = 0; i < SHAPES; i += emulated(dev) ? 2 : 1) {
		/* Of f32 and caches of int8 one kernel of a card has all types, as values: they take turns */
		if (!emulated(dev) || i % 4 == 0)
			one_paged(&shapes[i], DT_F32, DT_F32, block_sizes[i % 4], i % 2);
		one_paged(&shapes[i], DT_BF16, DT_BF16, block_sizes[i % 4], i % 2);
		if (!emulated(dev) || !i || i == 4)
			one_paged(&shapes[i], DT_F16, DT_F16, block_sizes[i % 4], i % 2);
		for (int t = 0; t < (emulated(dev) ? i % 4 / 2 : TYPES); t++)
			one_paged(&shapes[i], compute_types[t], DT_I8, block_sizes[i % 4], i % 2);
	}
	one_paged(&shapes[2], DT_BF16, DT_F32, 16, true);
	one_paged(&shapes[2], DT_F16, DT_F32, 16, false);
	for (int i = 0; i < SHAPES && !emulated(dev); i++) {
		one_paged(&shapes[i], DT_BF16, DT_BF16, block_sizes[i % 2 * 2], true);
		for (int t = 0; t < TYPES; t++)
			one_paged(&shapes[i], compute_types[t], DT_I8, block_sizes[i % 2 * 2], true);
	}
	/* More keys than a part of a card's kernel has. */
	one_paged(&(struct dt_attn){1, 270, 1, 1, 8, 0, 0.3f}, DT_F32, DT_F32, 16, false);
	one_paged(&(struct dt_attn){1, 270, 1, 1, 8, 200, 0.3f}, DT_F32, DT_F32, 16, true);
	one_paged(&(struct dt_attn){1, 530, 3, 1, 8, 0, 0.3f}, DT_BF16, DT_BF16, 16, false);
	one_paged(&(struct dt_attn){2, 270, 2, 2, 8, 200, 0.3f}, DT_F16, DT_F16, 16, true);
	/* As many elements as sums of bytes hold, and more. */
	for (int t = 0; t < 2 && !emulated(dev); t++)
		for (int d = 512; d <= 544; d += 32)
			one_paged(&(struct dt_attn){1, 40, 2, 1, d, 0, 0.05f}, t ? DT_F32 : DT_BF16, DT_I8,
				  16, true);
	/* More q heads to a key than a tile has rows. */
	one_paged(&(struct dt_attn){1, 70, 21, 1, 24, 0, 0.2f}, DT_BF16, DT_BF16, 16, false);
}

/* A sink per head, in one part or several, for rows and groups of the cache. */
static void test_sinks(void **state)
{
	static const struct dt_attn all[] = {
		{2, 40, 6, 2, 32, 0, 0.2f}, {2, 300, 4, 2, 64, 7, 0.2f}, {1, 530, 3, 1, 8, 0, 0.3f}};

	for (int i = 0; i < 3; i++)
		for (int t = 0; t < TYPES; t++) {
			const enum dt_dtype type = compute_types[t];

			sink = random_tensor(i == 1 ? type : DT_F32, 1, all[i].heads, 7, 3);
			put(sink, 0, 40); /* nearly all of the sum */
			put(sink, 1, -60);
			one_paged(&all[i], type, type, 16, t == 1);
			if (!emulated(dev) || t == 1)
				one_paged(&all[i], type, DT_I8, 16, true);
			free(sink.data);
		}
	sink = DT_NONE;
}

/* The last token of sequences of several lengths in one call. */
static void run_last(struct dt_tensor o, struct dt_tensor x, const struct cache *c, const struct dt_attn *p,
		     const int32_t *len, int n)
{
	const int64_t row = width(p) * dt_dtype_size(x.dtype);
	struct dt_tensor q = tensor(x.dtype, n, width(p));
	int32_t start[9];
	const struct dt_paged g = {n, start, len, c->table, c->max_blocks, c->block_size};

	for (int i = 0; i <= n; i++)
		start[i] = i;
	for (int i = 0; i < n; i++)
		memcpy((char *)q.data + i * row, (char *)x.data + (i * p->seq + len[i] - 1) * row,
		       (size_t)row);
	assert_int_equal(dev->ops->attention_paged(dev, o, q, c->k, c->v, p, &g), 0);
	free(q.data);
}

/*
 * Keys past one span and past several (cpu/paged.h): a prompt, whose tasks have all of a row's spans, and
 * tokens, whose spans are tasks, also of sequences with one span and with none but a first key.
 */
static void one_of_spans(const struct dt_attn *p, enum dt_dtype type, enum dt_dtype cache_type,
			 bool by_blocks)
{
	/* The spans of the second are so many that a task takes all key heads (cpu/attention_paged.c). */
	static const int32_t len[2][4] = {{40, 2100, 1024, 1025}, {2100, 2099, 2049, 2100}};
	const int64_t out = p->heads * p->head_dim, size = dt_dtype_size(type);
	struct cache c = cache_make(p, cache_type, 16, by_blocks);
	struct dt_tensor x = random_tensor(type, 4 * p->seq, width(p), 1, 1),
			 whole = tensor(type, 4 * p->seq, out), last = tensor(type, 4, out),
			 expect = tensor(type, 4, out);

	assert_int_equal(dev->ops->kv_write(dev, c.k, c.v, x, p, c.slot), 0);
	run_paged(whole, x, &c, p, 0, p->seq, -1);
	for (int l = 0; l < 2; l++) {
		run_last(last, x, &c, p, len[l], 4);
		for (int i = 0; i < 4; i++)
			memcpy((char *)expect.data + i * out * size,
			       (char *)whole.data + (i * p->seq + len[l][i] - 1) * out * size,
			       (size_t)(out * size));
		check_same_bits("tokens of several lengths", expect, last);
	}
	free_all(c.k.data, c.v.data, c.table, c.slot, x.data, whole.data, last.data, expect.data);
}

static void test_spans(void **state)
{
	static const struct dt_attn all[] = {
		{4, 2100, 6, 2, 32, 0, 0.2f},
		{4, 2100, 4, 4, 64, 1500, 0.125f},
	};

	if (emulated(dev))
		skip();
	for (int i = 0; i < 2; i++)
		for (int by = 0; by < 2; by++) {
			one_of_spans(&all[i], DT_BF16, DT_BF16, by);
			one_of_spans(&all[i], DT_BF16, DT_I8, by);
			one_of_spans(&all[i], DT_F32, DT_F32, by);
		}
	one_paged(&(struct dt_attn){1, 2100, 3, 1, 8, 0, 1}, DT_F32, DT_F32, 16, false);
	one_paged(&(struct dt_attn){1, 1300, 2, 1, 16, 1200, 0.3f}, DT_BF16, DT_BF16, 16, true);
}

/* How far an int8 cache is from one of f32: normal numbers, which are what caches hold, many keys of 64. */
static void test_int8_error(void **state)
{
	const int64_t n = emulated(dev) ? 100 : 1000;
	const struct dt_attn p = {1, n, 4, 2, 64, 0, 0.125f};
	struct cache c[2] = {cache_make(&p, DT_F32, 16, false), cache_make(&p, DT_I8, 16, true)};
	struct dt_tensor x = tensor(DT_F32, n, width(&p)),
			 o[2] = {tensor(DT_F32, n, 256), tensor(DT_F32, n, 256)};
	double off = 0, size = 0;

	for (int64_t i = 0; i < dt_numel(x); i++) /* nearly normal */
		put(x, i, rnd(1, i) + rnd(2, i) + rnd(3, i));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dev->ops->kv_write(dev, c[i].k, c[i].v, x, &p, c[i].slot), 0);
		run_paged(o[i], x, &c[i], &p, 0, p.seq, -1);
	}
	for (int64_t i = 0; i < dt_numel(o[0]); i++) {
		off += pow(get(o[1], i) - get(o[0], i), 2);
		size += pow(get(o[0], i), 2);
	}
	print_message("int8 against f32 cache: outputs differ by %.2g of their size\n", sqrt(off / size));
	assert_true(sqrt(off / size) < 0.02);
	assert_true(off > 0);
	for (int i = 0; i < 2; i++)
		free_all(c[i].k.data, c[i].v.data, c[i].table, c[i].slot, o[i].data);
	free(x.data);
}

/* Blocks that the window has left behind may be anyone's: not looked at, not even their numbers. */
static void test_blocks_behind_the_window(void **state)
{
	const int64_t seq = emulated(dev) ? 40 : 150;
	const struct dt_attn p = {2, seq, 4, 2, 32, seq / 3, 0.125f};
	struct dt_tensor x = random_tensor(DT_BF16, 2 * seq, width(&p), 1, 1),
			 whole = tensor(DT_BF16, 2 * seq, 128), cut = tensor(DT_BF16, 2 * seq, 128);

	for (int t = 0; t < 4; t++) {
		struct cache c = cache_make(&p, t % 2 ? DT_I8 : DT_BF16, t >= 2 ? 16 : 8, t >= 2);
		const int64_t size = c.block_size;

		assert_int_equal(dev->ops->kv_write(dev, c.k, c.v, x, &p, c.slot), 0);
		run_paged(whole, x, &c, &p, 0, p.seq, -1);
		for (int64_t i = 0, n = 1; i < p.seq; i += n, n = n % 3 + 1) {
			const int64_t to = i + n < p.seq ? i + n : p.seq;

			for (int b = 0; b < p.batch; b++) /* gone: number and contents */
				for (int64_t j = 0; (j + 1) * size <= i + 1 - p.window; j++) {
					int32_t *block = &c.table[b * c.max_blocks + j];
					const size_t row =
						(size_t)(dt_kv_row(&p, c.k.dtype) * dt_dtype_size(c.k.dtype));

					if (*block >= 0 && *block < 1 << 30) {
						memset((char *)c.k.data + (size_t)(*block * size) * row, 0xff,
						       (size_t)size * row);
						memset((char *)c.v.data + (size_t)(*block * size) * row, 0xff,
						       (size_t)size * row);
					}
					*block = j % 2 ? -1 : 1 << 30;
				}
			run_paged(cut, x, &c, &p, i, to, -1);
		}
		check_same_bits("without what is behind the window", whole, cut);
		free_all(c.k.data, c.v.data, c.table, c.slot);
	}
	free_all(x.data, whole.data, cut.data);
}

static void test_refused(void **state)
{
	struct dt_attn p = {1, 8, 2, 2, 16, 0, 0.25f};
	struct dt_tensor x = random_tensor(DT_F32, 8, 96, 1, 1), o = tensor(DT_F32, 8, 32);
	struct dt_tensor k = random_tensor(DT_F32, 16, 32, 2, 1), lse = tensor(DT_F32, 2, 8);
	int32_t start[] = {0, 8}, len[] = {8}, table[] = {0, 1};
	int64_t slot[8] = {0, 1, 2, 3, 4, 5, 6, 16};
	struct dt_paged g = {1, start, len, table, 2, 8};

	assert_int_equal(dev->ops->kv_write(dev, k, k, x, &p, slot), -EINVAL);
	table[0] = 2;
	assert_int_equal(dev->ops->attention_paged(dev, o, x, k, k, &p, &g), -EINVAL);
	table[0] = 0;
	len[0] = 17;
	assert_int_equal(dev->ops->attention_paged(dev, o, x, k, k, &p, &g), -EINVAL);
	len[0] = 8;
	start[0] = -1, start[1] = 7; /* eight rows, the first before the tensor */
	assert_int_equal(dev->ops->attention_paged(dev, o, x, k, k, &p, &g), -EINVAL);
	p.softcap = -1;
	start[0] = 0, start[1] = 8;
	assert_int_equal(dev->ops->attention_paged(dev, o, x, k, k, &p, &g), -EINVAL);
	assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, &p), -EINVAL);
	p.softcap = 0;
	p.kv_heads = 3;
	assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, &p), -EINVAL);
	free_all(x.data, o.data, k.data, lse.data);
}

/* Slot -1 leaves the cache alone. */
static void test_kv_write_skips(void **state)
{
	struct dt_attn p = {1, 3, 1, 1, 4, 0, 1};
	struct dt_tensor x = random_tensor(DT_BF16, 3, 12, 1, 1);
	struct dt_tensor k = random_tensor(DT_BF16, 5, 4, 2, 1), v = random_tensor(DT_BF16, 5, 4, 3, 1);
	struct dt_tensor k0 = copy_of(k), v0 = copy_of(v);
	int64_t slot[] = {4, -1, 0};

	assert_int_equal(dev->ops->kv_write(dev, k, v, x, &p, slot), 0);
	for (int64_t i = 0; i < 20; i++) {
		const int64_t row = i / 4 == 4 ? 0 : i / 4 == 0 ? 2 : -1;

		assert_true(get(k, i) == (row < 0 ? get(k0, i) : get(x, row * 12 + 4 + i % 4)));
		assert_true(get(v, i) == (row < 0 ? get(v0, i) : get(x, row * 12 + 8 + i % 4)));
	}
	free_all(x.data, k.data, v.data, k0.data, v0.data);
}

/* Bytes of a cache of 96 slots after 70 rows of x, some of them nowhere, in one call or in one a row. */
static char *cache_after(struct dt_tensor x, const struct dt_attn *p, enum dt_dtype cache, bool at_once)
{
	const int64_t cols = dt_kv_row(p, cache), bytes = 96 * cols * dt_dtype_size(cache);
	char *data = calloc(2, (size_t)bytes);
	struct dt_tensor k = dt_t3(data, cache, 6, 16, cols), v = dt_t3(data + bytes, cache, 6, 16, cols);
	int64_t slot[70];

	assert_non_null(data);
	for (int64_t i = 0; i < 70; i++)
		slot[i] = i == 50 || i == 68 ? -1 : i < 40 ? 11 + i : 24 + i; /* 64 for row 40 */
	if (at_once)
		assert_int_equal(dev->ops->kv_write(dev, k, v, x, p, slot), 0);
	for (int64_t i = 0; !at_once && i < 70; i++) {
		const struct dt_tensor one = dt_t2(dt_at(x, i * dt_cols(x)), x.dtype, 1, dt_cols(x));

		assert_int_equal(dev->ops->kv_write(dev, k, v, one, p, slot + i), 0);
	}
	return data;
}

/* Whether rows fill groups of slots (cpu/kv.h) or come one by one does not matter. */
static void test_kv_write_at_once(void **state)
{
	static const struct {
		enum dt_dtype cache, x;
		int64_t dim;
	} list[] = {{DT_BF16, DT_BF16, 96}, {DT_BF16, DT_BF16, 160}, {DT_I8, DT_BF16, 96},
		    {DT_I8, DT_BF16, 288},  {DT_I8, DT_F32, 64},     {DT_F32, DT_BF16, 32}};

	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		const struct dt_attn p = {.heads = 4, .kv_heads = 2, .head_dim = list[i].dim, .scale = 1};
		struct dt_tensor x = random_tensor(list[i].x, 70, 8 * p.head_dim, 1, 1);
		char *a = cache_after(x, &p, list[i].cache, true),
		     *b = cache_after(x, &p, list[i].cache, false);

		assert_memory_equal(a, b,
				    2 * 96 * dt_kv_row(&p, list[i].cache) * dt_dtype_size(list[i].cache));
		free_all(x.data, a, b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paged),
		cmocka_unit_test(test_sinks),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_kv_write_skips),
		cmocka_unit_test(test_kv_write_at_once),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_int8_error),
		cmocka_unit_test(test_blocks_behind_the_window),
	};

	return without_tiles() ? 77 : cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
