/* Shared by the kernels of sample.cu: sums and searches over a block, and finding a token by rank. */
#ifndef DT_CUDA_SAMPLE_RANK_H
#define DT_CUDA_SAMPLE_RANK_H

#include "kernels/cuda/kernel.h"

#define THREADS 256
#define WARPS	(THREADS / 32)
#define CHUNK	8192 /* ids per chunk; DT_SAMPLE_VOCAB / CHUNK is at most THREADS */
#define BINS	512
#define LIST	4096 /* maximum number of listed tokens per row */
#define FEW	256

struct sample {
	struct dt_drawn *out;
	float *logits;
	int64_t vocab;
	int chunks;
	const struct dt_draw *draw;
	const struct dt_edit *edit;
	/* scratch */
	float *peak, *raw_peak;	 /* [rows, chunks] maxima; NaN if there is one */
	int32_t *peak_id;	 /* [rows, chunks] the lowest id with the maximum */
	uint64_t *sum, *raw_sum; /* [rows, chunks] */
	uint64_t *bin_sum;	 /* [rows, BINS] */
	uint32_t *bin_n;	 /* [rows, BINS] tokens per bin, then [rows] length of the list */
	uint32_t *list;		 /* [rows, LIST] ids */
	float *was;		 /* [nedits] logits before the edits */
};

DT_DEVICE bool is_finite(float x)
{
	return x - x == 0;
}

/* The better of (m, id) and another: larger, then lower id. */
DT_DEVICE void better(float &m, int32_t &id, float m2, int32_t id2)
{
	if (m2 > m || (m2 == m && id2 < id)) {
		m = m2;
		id = id2;
	}
}

DT_DEVICE int bin_of(double x)
{
	return (int)(x * -16); /* a power of two: exact, so contraction does not matter */
}

/* Adds to a 64-bit sum in two words of shared memory, with 32-bit atomics. */
DT_DEVICE void add_wide(uint32_t *low, uint32_t *high, uint64_t v)
{
	const uint32_t l = (uint32_t)v, old = atomicAdd(low, l), h = (uint32_t)(v >> 32) + (old + l < old);

	if (h)
		atomicAdd(high, h);
}

DT_DEVICE uint64_t of_wide(const uint32_t *low, const uint32_t *high, int i)
{
	return (uint64_t)high[i] << 32 | low[i];
}

/* Shared memory for scans over the threads of a block, and for broadcasting one thread's result. */
struct scan_shared {
	uint64_t warp[WARPS], n, sum;
	int at;
};

/* Exclusive prefix sum over the threads; *ret_all: the total. */
DT_DEVICE uint64_t before_me(uint64_t v, struct scan_shared *b, uint64_t *ret_all)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	uint64_t s = v, before = 0, all = 0;

	for (int by = 1; by < 32; by <<= 1) {
		const uint64_t o = __shfl_sync(DT_ALL, s, lane < by ? lane : lane - by);

		s += lane < by ? 0 : o;
	}
	__syncthreads();
	if (lane == 31)
		b->warp[warp] = s;
	__syncthreads();
	for (int w = 0; w < WARPS; w++) {
		before += w < warp ? b->warp[w] : 0;
		all += b->warp[w];
	}
	*ret_all = all;
	return before + s - v;
}

/* A prefix of the tokens in order of rank: their number, and the sum of their weights. */
struct cumulative {
	uint64_t n, sum;
};

/*
 * Finds, among `parts` sums (a multiple of THREADS), the one in which n tokens (by_n), or a sum of n, is
 * reached; 0 < n <= total. Adds those before it to *t.
 */
template <class F>
DT_DEVICE int find_part(F part, int parts, uint64_t n, bool by_n, struct cumulative *t, struct scan_shared *b)
{
	const int each = parts / THREADS, mine = (int)threadIdx.x * each;
	struct cumulative own = {0, 0}, at;
	uint64_t all;

	for (int i = mine; i < mine + each; i++) {
		const struct cumulative p = part(i);

		own.n += p.n;
		own.sum += p.sum;
	}
	at.n = before_me(own.n, b, &all);
	at.sum = before_me(own.sum, b, &all);
	for (int i = mine; i < mine + each; i++) {
		const struct cumulative p = part(i);

		if ((by_n ? at.n : at.sum) < n && n <= (by_n ? at.n + p.n : at.sum + p.sum)) {
			b->at = i;
			b->n = at.n;
			b->sum = at.sum;
		}
		at.n += p.n;
		at.sum += p.sum;
	}
	__syncthreads();
	t->n += b->n;
	t->sum += b->sum;
	return b->at;
}

DT_DEVICE struct cumulative bin(const struct sample &a, int64_t row, int i)
{
	return {a.bin_n[row * BINS + i], a.bin_sum[row * BINS + i]};
}

/* The last bin with tokens that may stay, and the number of tokens up to its end. */
DT_DEVICE int last_bin(const struct sample &a, int64_t row, const struct dt_draw &d, struct scan_shared *b,
		       uint64_t *ret_n)
{
	const auto part = [&](int i) { return bin(a, row, i); };
	const bool by_n = d.top_k > 0 && d.top_k < a.vocab;
	struct cumulative t = {0, 0}, mine = {0, 0}, all;

	for (int i = (int)threadIdx.x; i < BINS; i += THREADS) {
		mine.n += part(i).n;
		mine.sum += part(i).sum;
	}
	before_me(mine.n, b, &all.n);
	before_me(mine.sum, b, &all.sum);
	const uint64_t n = !by_n		       ? dt_sample_share(d.top_p, all.sum)
			   : (uint64_t)d.top_k < all.n ? d.top_k
						       : all.n;
	const int i = find_part(part, BINS, n, by_n, &t, b);

	*ret_n = t.n + part(i).n;
	__syncthreads();
	return i;
}

/* The tokens of a row that may stay: those of the list, or all. */
struct source {
	const float *logits;
	const uint32_t *list; /* NULL: all ids */
	int64_t n;
	float max;
	double cold;
	uint64_t least;
};

struct token {
	uint64_t key, w;
	int bin; /* -1: weight 0 */
};

DT_DEVICE struct token token_of(const struct source &s, int64_t i)
{
	const uint32_t id = s.list ? s.list[i] : (uint32_t)i;
	const float l = dt_ld1(s.logits, DT_F32, id) + 0.f; /* -0 is 0 */
	const double x = dt_sample_x(l, s.max, s.cold);
	const uint64_t w = x < DT_SAMPLE_LEAST ? 0 : dt_sample_weight(x);
	uint32_t u;

	memcpy(&u, &l, 4);
	u = u >> 31 ? u : ~u & 0x7fffffff; /* larger logits give smaller keys */
	return {(uint64_t)u << 32 | id, w, w < s.least ? -1 : bin_of(x)};
}

/* Shared memory of pick_kernel. */
struct pick_shared {
	struct scan_shared scan;
	uint64_t key[FEW], w[FEW];
	uint32_t low[256], high[256], n[256];
	uint32_t few;
	uint64_t from, to, sum;
	uint32_t id;
};

/* The smallest and largest key of the bin's tokens, in d->from and d->to. */
DT_DEVICE void key_range(const struct source &s, int b, struct pick_shared *d)
{
	uint64_t *from = d->key, *to = d->w, lo = ~(uint64_t)0, hi = 0;

	for (int64_t i = threadIdx.x; i < s.n; i += THREADS) {
		const struct token t = token_of(s, i);

		if (t.bin == b) {
			lo = t.key < lo ? t.key : lo;
			hi = t.key > hi ? t.key : hi;
		}
	}
	from[threadIdx.x] = lo;
	to[threadIdx.x] = hi;
	__syncthreads();
	for (int by = THREADS / 2; by; by >>= 1) {
		if ((int)threadIdx.x < by) {
			const uint64_t f = from[threadIdx.x + by], t = to[threadIdx.x + by];

			from[threadIdx.x] = f < from[threadIdx.x] ? f : from[threadIdx.x];
			to[threadIdx.x] = t > to[threadIdx.x] ? t : to[threadIdx.x];
		}
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		d->from = from[0];
		d->to = to[0];
	}
	__syncthreads();
}

/* A range of keys in one bin, and the number of tokens in it. */
struct keys {
	int bin;
	uint64_t from, to, members;
};

DT_DEVICE bool has(const struct keys &k, const struct token &t)
{
	return t.bin == k.bin && t.key >= k.from && t.key <= k.to;
}

/*
 * Splits the keys into 256 parts; *k becomes the part in which n is reached (find_part), and *t adds what
 * precedes it.
 */
DT_DEVICE void narrow(const struct source &s, struct keys *k, uint64_t n, bool by_n, struct cumulative *t,
		      struct pick_shared *d)
{
	int shift = 0;

	while ((k->to - k->from) >> shift > 255)
		shift++;
	d->low[threadIdx.x] = d->high[threadIdx.x] = d->n[threadIdx.x] = 0;
	__syncthreads();
	for (int64_t i = threadIdx.x; i < s.n; i += THREADS) {
		const struct token one = token_of(s, i);

		if (has(*k, one)) {
			const int part = (int)((one.key - k->from) >> shift);

			add_wide(&d->low[part], &d->high[part], one.w);
			atomicAdd(&d->n[part], 1u);
		}
	}
	__syncthreads();
	const auto part = [&](int i) -> struct cumulative {
		return {d->n[i], of_wide(d->low, d->high, i)};
	};
	const int p = find_part(part, 256, n - (by_n ? t->n : t->sum), by_n, t, &d->scan);

	k->members = d->n[p];
	k->from += (uint64_t)p << shift;
	k->to = shift && k->to - k->from >= (uint64_t)1 << shift ? k->from + ((uint64_t)1 << shift) - 1
		: shift						 ? k->to
								 : k->from;
	__syncthreads();
}

/* Collects the tokens with these keys, at most FEW, in d->key and d->w. */
DT_DEVICE void collect(const struct source &s, const struct keys &k, struct pick_shared *d)
{
	if (threadIdx.x == 0)
		d->few = 0;
	__syncthreads();
	for (int64_t i = threadIdx.x; i < s.n; i += THREADS) {
		const struct token one = token_of(s, i);

		if (has(k, one)) {
			const uint32_t at = atomicAdd(&d->few, 1u);

			d->key[at] = one.key;
			d->w[at] = one.w;
		}
	}
	__syncthreads();
}

/* Of the collected tokens, the one at which n is reached, after the prefix t: in d->id and d->sum. */
DT_DEVICE void pick_of_few(uint64_t n, bool by_n, struct cumulative t, struct pick_shared *d)
{
	if (threadIdx.x < d->few) {
		const uint64_t key = d->key[threadIdx.x];

		for (uint32_t i = 0; i < d->few; i++) {
			t.n += d->key[i] < key;
			t.sum += d->key[i] < key ? d->w[i] : 0;
		}
		const uint64_t at = by_n ? t.n : t.sum, with = by_n ? t.n + 1 : t.sum + d->w[threadIdx.x];

		if (at < n && n <= with) {
			d->id = (uint32_t)key;
			d->sum = t.sum + d->w[threadIdx.x];
		}
	}
	__syncthreads();
}

/*
 * Returns the id of the token at which n tokens, or a sum of n, is reached in order of rank; *ret_sum: the
 * sum up to and including it.
 */
DT_DEVICE uint32_t by_rank(const struct sample &a, int64_t row, const struct source &s, uint64_t n, bool by_n,
			   struct pick_shared *d, uint64_t *ret_sum)
{
	struct cumulative t = {0, 0};
	const int b = find_part([&](int i) { return bin(a, row, i); }, BINS, n, by_n, &t, &d->scan);
	struct keys k = {b, 0, ~(uint64_t)0, bin(a, row, b).n};

	__syncthreads();
	if (k.members > FEW) {
		key_range(s, b, d);
		k.from = d->from;
		k.to = d->to;
		__syncthreads();
	}
	while (k.members > FEW)
		narrow(s, &k, n, by_n, &t, d);
	collect(s, k, d);
	pick_of_few(n, by_n, t, d);
	*ret_sum = d->sum;
	const uint32_t id = d->id;

	__syncthreads();
	return id;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
