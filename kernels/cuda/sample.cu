/*
 * The logits are read twice, for the largest and for the weights, cut over blocks of CHUNK; where ranks
 * matter a third time, for the few tokens in the bins of weights that can stay. Then one block a row finds
 * the token: among those few, or in the chunk of ids that the draw falls into. Nothing is sorted. Rows whose
 * token is an argmax are read once; log-probabilities take two more readings. All sums are of integers, so
 * their order does not matter.
 *
 * A bin is 1/16 of the exponent. In the bin that a border falls into, tokens are told apart by rank keys: the
 * logit's bits, larger ones first, then the id; 256 parts of the range of keys at a time, until few are left.
 */
#include "kernels/cuda/kernel.h"

#define THREADS 256
#define WARPS	(THREADS / 32)
#define CHUNK	8192 /* of ids; DT_SAMPLE_VOCAB / CHUNK is at most THREADS */
#define BINS	512
#define LIST	4096 /* tokens kept apart, a row */
#define FEW	256

struct sample {
	struct dt_drawn *out;
	float *logits;
	int64_t vocab;
	int chunks;
	const struct dt_draw *draw;
	const struct dt_edit *edit;
	/* scratch */
	float *peak, *raw_peak;	 /* [rows, chunks] the largest; NaN: there is one */
	int32_t *peak_id;	 /* [rows, chunks] the lowest id with it */
	uint64_t *sum, *raw_sum; /* [rows, chunks] */
	uint64_t *bin_sum;	 /* [rows, BINS] */
	uint32_t *bin_n;	 /* [rows, BINS] tokens, then [rows]: how many the list has */
	uint32_t *list;		 /* [rows, LIST] ids */
	float *was;		 /* [nedits] logits before the edits */
};

DT_DEVICE bool is_finite(float x)
{
	return x - x == 0;
}

/* The better of (m, id) and another: larger, then lower. */
DT_DEVICE void better(float &m, int32_t &id, float m2, int32_t id2)
{
	if (m2 > m || (m2 == m && id2 < id)) {
		m = m2;
		id = id2;
	}
}

DT_DEVICE void warp_peak(float &m, int32_t &id, int &bad)
{
	for (int by = 16; by; by >>= 1) {
		const float m2 = __shfl_xor_sync(DT_ALL, m, by);
		const int32_t id2 = __shfl_xor_sync(DT_ALL, id, by);

		bad |= __shfl_xor_sync(DT_ALL, bad, by);
		better(m, id, m2, id2);
	}
}

template <int V> __global__ void __launch_bounds__(THREADS) peak_kernel(struct sample a, bool raw)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK,
		      part = row * a.chunks + blockIdx.x;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *m_of = (float *)dt_shared(), m = -INFINITY;
	int32_t *id_of = (int32_t *)(m_of + WARPS), id = INT32_MAX;
	int *bad_of = (int *)(id_of + WARPS), bad = 0;

	if (raw && !a.draw[row].score)
		return;
	for (int i = (int)threadIdx.x; !raw && blockIdx.x == 0 && i < BINS; i += THREADS) {
		a.bin_sum[row * BINS + i] = 0;
		a.bin_n[row * BINS + i] = 0;
		if (i == 0)
			a.bin_n[gridDim.y * (int64_t)BINS + row] = 0;
	}
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			bad |= r[k] != r[k];
			better(m, id, r[k], (int32_t)(j + k));
		}
	}
	warp_peak(m, id, bad);
	if (lane == 0) {
		m_of[warp] = m;
		id_of[warp] = id;
		bad_of[warp] = bad;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int w = 1; w < WARPS; w++) {
		better(m, id, m_of[w], id_of[w]);
		bad |= bad_of[w];
	}
	(raw ? a.raw_peak : a.peak)[part] = bad ? NAN : m;
	if (!raw)
		a.peak_id[part] = id;
}

/* The row's largest, not finite where there is no token to be had; each warp by itself. */
DT_DEVICE float row_peak(const float *peak, const int32_t *ids, int64_t row, int chunks, int32_t *ret_id)
{
	float m = -INFINITY;
	int32_t id = INT32_MAX;
	int bad = 0;

	for (int i = (int)threadIdx.x % 32; i < chunks; i += 32) {
		const float p = dt_ld1(peak, DT_F32, row * chunks + i);

		bad |= p != p;
		better(m, id, p, ids ? ids[row * chunks + i] : 0);
	}
	warp_peak(m, id, bad);
	if (ret_id)
		*ret_id = id;
	return bad ? NAN : m;
}

DT_DEVICE int bin_of(double x)
{
	return (int)(x * -16); /* a power of two: the same bits whether made one instruction or not */
}

/* Sums of 64 bits in two words of shared memory, whose additions are the hardware's. */
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

template <int V> __global__ void __launch_bounds__(THREADS) weigh_kernel(struct sample a, bool raw)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK,
		      part = row * a.chunks + blockIdx.x;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const struct dt_draw d = a.draw[row];
	const float max = row_peak(raw ? a.raw_peak : a.peak, NULL, row, a.chunks, NULL);
	const uint64_t least = raw ? 1 : dt_sample_least(d.min_p);
	const double cold = raw ? 1 : d.cold;
	const bool ranks = !raw && dt_sample_by_rank(&d, a.vocab);
	uint32_t *low = (uint32_t *)dt_shared() + 2 * WARPS, *high = low + BINS, *n = high + BINS;
	uint64_t sum = 0;

	if ((raw ? !d.score : d.cold == 0) || !is_finite(max))
		return;
	for (int i = (int)threadIdx.x; ranks && i < BINS; i += THREADS)
		low[i] = high[i] = n[i] = 0;
	__syncthreads();
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			const double x = dt_sample_x(r[k], max, cold);
			const uint64_t w = dt_sample_weight(x);

			if (w < least)
				continue;
			sum += w;
			if (ranks) {
				add_wide(&low[bin_of(x)], &high[bin_of(x)], w);
				atomicAdd(&n[bin_of(x)], 1u);
			}
		}
	}
	sum = dt_block_sum(sum, (uint64_t *)dt_shared());
	if (threadIdx.x == 0)
		(raw ? a.raw_sum : a.sum)[part] = sum;
	for (int i = (int)threadIdx.x; ranks && i < BINS; i += THREADS)
		if (n[i]) {
			atomicAdd((unsigned long long *)&a.bin_sum[row * BINS + i],
				  (unsigned long long)of_wide(low, high, i));
			atomicAdd(&a.bin_n[row * BINS + i], n[i]);
		}
}

__global__ void __launch_bounds__(THREADS) edit_kernel(struct sample a)
{
	const int64_t row = blockIdx.x;
	const struct dt_draw d = a.draw[row];

	for (int i = d.first + (int)threadIdx.x; i < d.first + d.edits; i += THREADS) {
		const struct dt_edit e = a.edit[i];
		float *l = &a.logits[row * a.vocab + e.id];

		a.was[i] = *l;
		*l = dt_sample_edit(*l, &d, e);
	}
}

/* Where threads have found one thing for all of them, and what sums over threads need. */
struct board {
	uint64_t warp[WARPS], n, sum;
	int at;
};

/* The sum over the threads before this one; *ret_all: over all. */
DT_DEVICE uint64_t before_me(uint64_t v, struct board *b, uint64_t *ret_all)
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

/* Tokens in the order of their ranks, and the sum of their weights. */
struct tally {
	uint64_t n, sum;
};

/*
 * Of [parts] tallies, parts a multiple of THREADS, the part in which n tokens (by_n), or a sum of n, is
 * reached, n > 0 being no more than there is; *t: what lies before it is added.
 */
template <class F>
DT_DEVICE int find_part(F part, int parts, uint64_t n, bool by_n, struct tally *t, struct board *b)
{
	const int each = parts / THREADS, mine = (int)threadIdx.x * each;
	struct tally own = {0, 0}, at;
	uint64_t all;

	for (int i = mine; i < mine + each; i++) {
		const struct tally p = part(i);

		own.n += p.n;
		own.sum += p.sum;
	}
	at.n = before_me(own.n, b, &all);
	at.sum = before_me(own.sum, b, &all);
	for (int i = mine; i < mine + each; i++) {
		const struct tally p = part(i);

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

DT_DEVICE struct tally bin(const struct sample &a, int64_t row, int i)
{
	return {a.bin_n[row * BINS + i], a.bin_sum[row * BINS + i]};
}

/* The last bin that holds tokens which may stay, and how many there are up to its end. */
DT_DEVICE int last_bin(const struct sample &a, int64_t row, const struct dt_draw &d, struct board *b,
		       uint64_t *ret_n)
{
	const auto part = [&](int i) { return bin(a, row, i); };
	const bool by_n = d.top_k > 0 && d.top_k < a.vocab;
	struct tally t = {0, 0}, mine = {0, 0}, all;

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

template <int V> __global__ void __launch_bounds__(THREADS) gather_kernel(struct sample a)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const struct dt_draw d = a.draw[row];
	const float max = row_peak(a.peak, NULL, row, a.chunks, NULL);
	const uint64_t least = dt_sample_least(d.min_p);
	uint32_t *count = &a.bin_n[gridDim.y * (int64_t)BINS + row];
	uint64_t n;

	if (d.cold == 0 || !is_finite(max) || !dt_sample_by_rank(&d, a.vocab))
		return;
	const int end = last_bin(a, row, d, (struct board *)dt_shared(), &n);

	if (n > LIST)
		return;
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			const double x = dt_sample_x(r[k], max, d.cold);

			/* Nearly all are told by x, without their weight. */
			if (x >= DT_SAMPLE_LEAST && bin_of(x) <= end && dt_sample_weight(x) >= least)
				a.list[row * LIST + atomicAdd(count, 1u)] = (uint32_t)(j + k);
		}
	}
}

/* A row's tokens that can stay: those of the list, or all. */
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
	int bin; /* -1: its weight is 0 */
};

DT_DEVICE struct token token_of(const struct source &s, int64_t i)
{
	const uint32_t id = s.list ? s.list[i] : (uint32_t)i;
	const float l = dt_ld1(s.logits, DT_F32, id) + 0.f; /* -0 is 0 */
	const double x = dt_sample_x(l, s.max, s.cold);
	const uint64_t w = x < DT_SAMPLE_LEAST ? 0 : dt_sample_weight(x);
	uint32_t u;

	memcpy(&u, &l, 4);
	u = u >> 31 ? u : ~u & 0x7fffffff; /* a larger logit is a smaller number */
	return {(uint64_t)u << 32 | id, w, w < s.least ? -1 : bin_of(x)};
}

/* Shared memory of pick_kernel. */
struct desk {
	struct board board;
	uint64_t key[FEW], w[FEW];
	uint32_t low[256], high[256], n[256];
	uint32_t few;
	uint64_t from, to, sum;
	uint32_t id;
};

/* The smallest and largest key of the bin's tokens, to d->from and d->to. */
DT_DEVICE void key_range(const struct source &s, int b, struct desk *d)
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

/* The keys from .. to of one bin, and how many tokens have them. */
struct keys {
	int bin;
	uint64_t from, to, members;
};

DT_DEVICE bool has(const struct keys &k, const struct token &t)
{
	return t.bin == k.bin && t.key >= k.from && t.key <= k.to;
}

/*
 * The keys are cut into 256 parts; *k becomes the part in which n is reached (find_part), *t counts what is
 * in front of it.
 */
DT_DEVICE void narrow(const struct source &s, struct keys *k, uint64_t n, bool by_n, struct tally *t,
		      struct desk *d)
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
	const auto part = [&](int i) -> struct tally {
		return {d->n[i], of_wide(d->low, d->high, i)};
	};
	const int p = find_part(part, 256, n - (by_n ? t->n : t->sum), by_n, t, &d->board);

	k->members = d->n[p];
	k->from += (uint64_t)p << shift;
	k->to = shift && k->to - k->from >= (uint64_t)1 << shift ? k->from + ((uint64_t)1 << shift) - 1
		: shift						 ? k->to
								 : k->from;
	__syncthreads();
}

/* The tokens with these keys, FEW at most, to d->key and d->w. */
DT_DEVICE void collect(const struct source &s, const struct keys &k, struct desk *d)
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

/* Of those collected, the one at which n is reached, t being in front of them all: to d->id and d->sum. */
DT_DEVICE void pick_of_few(uint64_t n, bool by_n, struct tally t, struct desk *d)
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
 * The token at which n tokens, or a sum of n, is reached in the order of ranks: its id, *ret_sum: the sum up
 * to it and with it.
 */
DT_DEVICE uint32_t by_rank(const struct sample &a, int64_t row, const struct source &s, uint64_t n, bool by_n,
			   struct desk *d, uint64_t *ret_sum)
{
	struct tally t = {0, 0};
	const int b = find_part([&](int i) { return bin(a, row, i); }, BINS, n, by_n, &t, &d->board);
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

DT_DEVICE uint32_t pick_by_rank(const struct sample &a, int64_t row, const struct dt_draw &d, float max,
				struct desk *desk)
{
	struct source s = {a.logits + row * a.vocab, NULL, a.vocab, max, d.cold, dt_sample_least(d.min_p)};
	struct tally mine = {0, 0}, all;
	uint64_t n;

	last_bin(a, row, d, &desk->board, &n);
	if (n <= LIST) {
		s.list = a.list + row * LIST;
		s.n = (int64_t)n;
	}
	for (int i = (int)threadIdx.x; i < BINS; i += THREADS) {
		mine.n += bin(a, row, i).n;
		mine.sum += bin(a, row, i).sum;
	}
	before_me(mine.n, &desk->board, &all.n);
	before_me(mine.sum, &desk->board, &all.sum);
	if (d.top_k > 0 && d.top_k < a.vocab && (uint64_t)d.top_k < all.n)
		by_rank(a, row, s, (uint64_t)d.top_k, true, desk, &all.sum);
	if (d.top_p < 1)
		by_rank(a, row, s, dt_sample_share(d.top_p, all.sum), false, desk, &all.sum);
	/* The draw goes from the last rank to the first. */
	n = all.sum - dt_sample_below(&d, all.sum);
	return by_rank(a, row, s, n, false, desk, &all.sum);
}

/* All may come, in the order of ids: the chunk that the draw falls into, a thread's ids in it, the id. */
DT_DEVICE uint32_t pick_by_id(const struct sample &a, int64_t row, const struct dt_draw &d, float max,
			      struct desk *desk)
{
	const uint64_t least = dt_sample_least(d.min_p);
	const float *l = a.logits + row * a.vocab;
	const int each = CHUNK / THREADS;
	struct tally t = {0, 0};
	uint64_t total, s = (int)threadIdx.x < a.chunks ? a.sum[row * a.chunks + threadIdx.x] : 0;

	before_me(s, &desk->board, &total);
	const uint64_t n = dt_sample_below(&d, total) + 1;
	const auto chunk = [&](int i) -> struct tally {
		return {0, i < a.chunks ? a.sum[row * a.chunks + i] : 0};
	};
	const int64_t first = (int64_t)find_part(chunk, THREADS, n, false, &t, &desk->board) * CHUNK;
	const int64_t from = first + (int64_t)threadIdx.x * each;

	s = 0;
	for (int64_t i = from; i < from + each && i < a.vocab; i++) {
		const uint64_t w = dt_sample_weight(dt_sample_x(dt_ld1(l, DT_F32, i), max, d.cold));

		s += w < least ? 0 : w;
	}
	uint64_t at = t.sum + before_me(s, &desk->board, &total);

	if (at < n && n <= at + s)
		for (int64_t i = from; at < n; i++) {
			const uint64_t w = dt_sample_weight(dt_sample_x(dt_ld1(l, DT_F32, i), max, d.cold));

			at += w < least ? 0 : w;
			desk->id = (uint32_t)i;
		}
	__syncthreads();
	return desk->id;
}

/* How likely the token is, by thread 0. */
DT_DEVICE void score(const struct sample &a, int64_t row, const struct dt_draw &d, struct dt_drawn *r)
{
	if (is_finite(r->max))
		for (int i = 0; i < a.chunks; i++)
			r->sum += a.raw_sum[row * a.chunks + i];
	if (r->id < 0)
		return;
	r->logit = dt_ld1(a.logits, DT_F32, row * a.vocab + r->id);
	for (int i = d.first; i < d.first + d.edits; i++)
		if (a.edit[i].id == r->id)
			r->logit = a.was[i];
}

__global__ void __launch_bounds__(THREADS) pick_kernel(struct sample a)
{
	const int64_t row = blockIdx.x;
	const struct dt_draw d = a.draw[row];
	struct desk *desk = (struct desk *)dt_shared();
	struct dt_drawn r = {-1, 0, 0, 0, 0};
	int32_t best;
	const float max = row_peak(a.peak, a.peak_id, row, a.chunks, &best);

	if (d.score)
		r.max = row_peak(a.raw_peak, NULL, row, a.chunks, NULL);
	if (is_finite(max))
		r.id = d.cold == 0			? best
		       : dt_sample_by_rank(&d, a.vocab) ? (int32_t)pick_by_rank(a, row, d, max, desk)
							: (int32_t)pick_by_id(a, row, d, max, desk);
	if (threadIdx.x)
		return;
	if (d.score)
		score(a, row, d, &r);
	a.out[row] = r;
}

/* Everything below is the host's. */

struct cutter {
	char *at;
	size_t n;
};

template <class T> static void take(struct cutter *c, T **ret, int64_t n)
{
	*ret = c->at ? (T *)(c->at + c->n) : NULL;
	c->n += ((size_t)n * sizeof(T) + 15) / 16 * 16;
}

/* Scratch from at on; NULL: only how much. */
static size_t lay_out(struct sample *a, char *at, int64_t rows, int64_t nedits)
{
	struct cutter c = {at, 0};
	const int64_t parts = rows * a->chunks;

	take(&c, &a->peak, parts);
	take(&c, &a->raw_peak, parts);
	take(&c, &a->peak_id, parts);
	take(&c, &a->sum, parts);
	take(&c, &a->raw_sum, parts);
	take(&c, &a->bin_sum, rows * BINS);
	take(&c, &a->bin_n, rows * BINS + rows);
	take(&c, &a->list, rows * LIST);
	take(&c, &a->was, nedits);
	return c.n;
}

template <int V>
static int start(const struct dt_cuda *c, const struct sample &a, unsigned rows, enum dt_draw_kind kind)
{
	const dim3 parts((unsigned)a.chunks, rows);
	const size_t words = WARPS * 2 + 3 * BINS;
	int rc = 0;

	if (kind == DT_DRAW_SCORED) {
		rc = DT_LAUNCH(c, peak_kernel<V>, parts, THREADS, WARPS * 12, a, true);
		if (rc == 0)
			rc = DT_LAUNCH(c, weigh_kernel<V>, parts, THREADS, words * 4, a, true);
	}
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, edit_kernel, rows, THREADS, 0, a);
	if (rc == 0)
		rc = DT_LAUNCH(c, peak_kernel<V>, parts, THREADS, WARPS * 12, a, false);
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, weigh_kernel<V>, parts, THREADS, words * 4, a, false);
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, gather_kernel<V>, parts, THREADS, sizeof(struct board), a);
	return rc == 0 ? DT_LAUNCH(c, pick_kernel, rows, THREADS, sizeof(struct desk), a) : rc;
}

int dt_cuda_sample(struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits, const struct dt_draw *d,
		   const struct dt_edit *edit, int64_t nedits)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(logits), vocab = dt_cols(logits);
	struct sample a = {out, (float *)logits.data, vocab, (int)dt_ceil_div(vocab, CHUNK)};
	struct dt_table t[] = {{d, (size_t)rows * sizeof *d, NULL},
			       {edit, (size_t)nedits * sizeof *edit, NULL}};
	char *scratch;
	int rc;

	if (!c)
		return -ENODEV;
	scratch = (char *)dt_cuda_scratch(dev, lay_out(&a, NULL, rows, nedits));
	if (!scratch)
		return -ENOMEM;
	lay_out(&a, scratch, rows, nedits);
	rc = dt_cuda_tables(dev, t, 2);
	if (rc < 0)
		return rc;
	a.draw = (const struct dt_draw *)t[0].ret;
	a.edit = (const struct dt_edit *)t[1].ret;
	if (dt_by_8(vocab, logits.data))
		return start<8>(c, a, (unsigned)rows, dt_draw_kind(d, rows));
	return start<1>(c, a, (unsigned)rows, dt_draw_kind(d, rows));
}
/* SPDX-License-Identifier: Apache-2.0 */
