/*
 * Paged attention of 16-bit types on tensor cores, for decoding and prefill alike, so that a row has the same
 * bits however a prompt is cut. A block has one part of the keys (attention_paged.h) for 16 rows of q that
 * share a key/value head: the q heads of one token, or of several consecutive tokens of a sequence. A warp
 * has 64 of the keys at a time and starts copying all of them, with their values, to shared memory before it
 * uses the first: 72 KiB per block for heads of 64 to 256, two to three blocks per SM (Little's law: 29 KiB
 * per SM). The results of the warps are merged in the order of the keys.
 *
 * Rows share a tensor core product but do not affect each other: a key that a row does not see has weight 0
 * there, which leaves the row's sums unchanged.
 */
#include "kernels/cuda/attention_paged.h"

#include "kernels/cuda/mma.h"

#define ROWS 16
#define KEYS 64 /* keys per warp at a time: DT_TILE */

/* Rows of q of a block: tokens [head, head + n) of a sequence times `each` heads. */
struct slice {
	int seq, head, n, each;
	int first, last; /* range of keys that the first token sees */
};

/*
 * Block y has the slice that begins at row y * tokens of q; blocks past those have sequence y - tiles, if it
 * begins elsewhere. So the rows of a sequence in a tile are one slice.
 */
DT_DEVICE bool slice_of(struct slice &s, const struct paged &a)
{
	const int tiles = (int)dt_ceil_div(a.rows, a.tokens), y = a.tile + (int)blockIdx.y,
		  first = (int)a.first;

	if (y < tiles) {
		s.head = y * a.tokens;
		s.seq = find_seq(a, first + s.head);
	} else {
		s.seq = y - tiles;
		s.head = a.q_start[s.seq] - first;
		if (s.head <= 0 || s.head >= a.rows || s.head % a.tokens == 0 ||
		    a.q_start[s.seq + 1] == a.q_start[s.seq])
			return false;
	}
	const struct row r = row_of(a, s.seq, first + s.head);
	const int end = a.q_start[s.seq + 1] - first, tile = s.head / a.tokens * a.tokens + a.tokens;

	s.n = end < tile ? end : tile;
	s.n = (s.n < (int)a.rows ? s.n : (int)a.rows) - s.head;
	s.first = r.first;
	s.last = r.last;
	return true;
}

/* Copies 64 cache rows from key j on, of which `first` to `last` exist. One warp. */
template <int D>
DT_DEVICE void fetch(uint16_t *tile, const void *cache, const struct paged &a, const int64_t (&row)[2],
		     int64_t kv, bool (&there)[2])
{
	const int lane = (int)threadIdx.x % 32;
	const uint16_t *src = (const uint16_t *)cache;

	DT_UNROLL_BY(4)
	for (int i = 0; i < KEYS * D / 8 / 32; i++) {
		const int r = (i * 32 + lane) / (D / 8), c = (i * 32 + lane) % (D / 8) * 8;
		const int64_t at = __shfl_sync(DT_ALL, r < 32 ? row[0] : row[1], r % 32);
		const bool in = __shfl_sync(DT_ALL, (int)(r < 32 ? there[0] : there[1]), r % 32) && c < a.d;

		dt_cp_async(tile + r * (D + 8) + c, in ? src + (at * a.kv_heads + kv) * a.d + c : src,
			    in ? 16 : 0);
	}
	dt_cp_commit();
}

/* Turns scores into weights: s[n][e] of row lane / 4 + 8 (e / 2) and key n * 8 + 2 (lane % 4) + e % 2. */
template <int D>
DT_DEVICE void weigh(float (&s)[8][4], float (&o)[D / 8][4], float (&max)[2], float (&sum)[2],
		     const struct paged &a, int64_t key, const int (&first)[2], const int (&last)[2])
{
	const float k = dt_attn_unit(s, a.scale, a.cap);

	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		float top = max[h];

		DT_UNROLL
		for (int i = 0; i < 16; i++) {
			const int64_t j = key + i / 2 * 8 + i % 2;
			float &v = s[i / 2][2 * h + i % 2];

			v = j >= first[h] && j <= last[h] ? v * k : DT_NEGINF;
			top = v > top ? v : top;
		}
		weigh_half(s, o, max[h], sum[h], top, h);
	}
}

/* A warp's results for 16 rows. */
template <int D> struct found {
	float o[ROWS][D], max[ROWS], sum[ROWS];
};

/* Merges all warps' results for the block's rows and stores them as a part, or in o if there is only one. */
template <class T, int D, int WARPS>
DT_DEVICE void join(const struct paged &a, const struct slice &s, const struct found<D> *f, int64_t head)
{
	for (int i = (int)threadIdx.x; i < s.n * s.each * (int)a.d; i += WARPS * 32) {
		const int r = i / (int)a.d, c = i % (int)a.d;
		const int64_t at = (s.head + r / s.each) * a.heads + head + r % s.each;
		const int64_t to = at * a.parts + blockIdx.x;
		float max = f[0].max[r], sum = 0, o = 0, base;

		for (int w = 1; w < WARPS; w++)
			max = f[w].max[r] > max ? f[w].max[r] : max;
		base = max == DT_NEGINF ? 0 : max;
		for (int w = 0; w < WARPS; w++) {
			const float k = exp2f(f[w].max[r] - base);

			sum = fmaf(f[w].sum[r], k, sum);
			o = fmaf(f[w].o[r][c], k, o);
		}
		if (a.parts == 1) {
			sum += sink_weight(a, head + r % s.each, base);
			dt_st1(a.o, (int)T::type, at * a.d + c, o / sum);
			continue;
		}
		dt_st1(a.part, DT_F32, to * a.d + c, o);
		if (c == 0) {
			dt_st1(a.max, DT_F32, to, max);
			dt_st1(a.sum, DT_F32, to, sum);
		}
	}
}

template <int D> constexpr int warps = 256 / D;

/* Copies the slice's rows of q, by all threads of the block; missing rows and columns become zero. */
template <int D>
DT_DEVICE void fetch_q(uint16_t *q, const struct paged &a, const struct slice &is, int64_t head)
{
	for (int i = (int)threadIdx.x; i < ROWS * D / 8; i += warps<D> * 32) {
		const int r = i / (D / 8), c = i % (D / 8) * 8;
		const bool in = r < is.n * is.each && c < a.d;
		const uint16_t *from = (const uint16_t *)a.q;

		from += in ? (is.head + r / is.each) * a.width + (head + r % is.each) * a.d + c : 0;
		dt_cp_async(q + r * (D + 8) + c, from, in ? 16 : 0);
	}
	dt_cp_commit();
}

/* Cache rows of this lane's two keys, of the warp's keys from j on. */
DT_DEVICE void rows_at(int64_t (&row)[2], bool (&there)[2], const struct paged &a, const struct slice &is,
		       int64_t j, int64_t end)
{
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int64_t key = j + 32 * i + (int)threadIdx.x % 32;

		there[i] = key >= is.first && key <= end;
		row[i] = there[i] ? cache_row(a, is.seq, key) : 0;
	}
}

/* Starts copying the warp's keys and values, as one group of async copies each. */
template <int D>
DT_DEVICE void fetch_keys(uint16_t *k, uint16_t *v, const struct paged &a, const int64_t (&row)[2],
			  bool (&there)[2], int64_t kv)
{
	fetch<D>(k, a.k, a, row, kv, there);
	fetch<D>(v, a.v, a, row, kv, there);
}

/* Stores the warp's results where other warps read them. */
template <int D>
DT_DEVICE void leave(struct found<D> *f, const float (&o)[D / 8][4], const float (&max)[2],
		     const float (&sum)[2])
{
	const int lane = (int)threadIdx.x % 32;

	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		const int r = lane / 4 + 8 * h;
		float all = sum[h] + __shfl_xor_sync(DT_ALL, sum[h], 1);

		all += __shfl_xor_sync(DT_ALL, all, 2);
		DT_UNROLL
		for (int i = 0; i < D / 4; i++)
			f->o[r][i / 2 * 8 + lane % 4 * 2 + i % 2] = o[i / 2][2 * h + i % 2];
		if (lane % 4 == 0) {
			f->max[r] = max[h];
			f->sum[r] = all;
		}
	}
}

/* The keys that this lane's two rows of a product see; a missing row sees none. */
DT_DEVICE void seen_by(int (&first)[2], int (&last)[2], const struct paged &a, const struct slice &is)
{
	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		const int token = ((int)threadIdx.x % 32 / 4 + 8 * h) / is.each;

		last[h] = token < is.n ? is.last + token : -1;
		first[h] = a.window > 0 && last[h] >= a.window ? last[h] - (int)a.window + 1 : 0;
	}
}

/*
 * Results of a warp for its keys from base to `end`: every W-th tile of KEYS. q: shared memory for the
 * queries, which all warps copy together, followed by memory for each warp's keys and values.
 */
template <class T, int D>
DT_DEVICE void attend(float (&o)[D / 8][4], float (&max)[2], float (&sum)[2], const struct paged &a,
		      const struct slice &is, uint16_t *q, int64_t head, int64_t kv, int64_t base,
		      int64_t end)
{
	constexpr int W = warps<D>, room = KEYS * (D + 8);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t stop = dt_min64(base + PART, end + 1);
	uint16_t *k = q + ROWS * (D + 8) + warp * 2 * room, *v = k + room;
	int64_t row[2], j = base + warp * KEYS;
	int first[2], last[2];
	bool there[2];
	float s[8][4];

	seen_by(first, last, a, is);
	while (j + KEYS <= is.first)
		j += W * KEYS;
	rows_at(row, there, a, is, j < stop ? j : base, end);
	dt_wait_before();
	fetch_q<D>(q, a, is, head);
	/* Starts copying the first keys before waiting for q: decoding then waits for memory once. */
	if (j < stop) {
		fetch_keys<D>(k, v, a, row, there, kv);
		dt_cp_wait<2>();
	} else {
		dt_cp_wait<0>();
	}
	__syncthreads(); /* q has arrived */
	while (j < stop) {
		dt_cp_wait<1>();
		__syncwarp();
		dt_attn_scores<T, D>(s, q, 0, k);
		weigh<D>(s, o, max, sum, a, j + lane % 4 * 2, first, last);
		dt_cp_wait<0>();
		__syncwarp();
		dt_attn_gather<T, D>(o, s, v);
		__syncwarp(); /* before the next keys are copied */
		j += W * KEYS;
		if (j < stop) {
			rows_at(row, there, a, is, j, end);
			fetch_keys<D>(k, v, a, row, there, kv);
		}
	}
}

template <class T, int D> __global__ void __launch_bounds__(warps<D> * 32) paged_tile_kernel(struct paged a)
{
	const int group = (int)(a.heads / a.kv_heads), chunks = (group + ROWS - 1) / ROWS;
	const int before = (int)blockIdx.z % chunks * ROWS; /* heads of the group handled by other blocks */
	const int64_t kv = blockIdx.z / chunks, head = kv * group + before, base = (int64_t)blockIdx.x * PART;
	float o[D / 8][4], max[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0};
	struct found<D> *f = (struct found<D> *)dt_shared();
	struct slice is;

	dt_let_next();
	if (!slice_of(is, a))
		return;
	is.each = group - before < ROWS ? group - before : ROWS;
	const int64_t end = is.last + is.n - 1; /* the last key that any token sees */

	if (base > end || base + PART <= is.first)
		return;
	dt_zero(o);
	attend<T, D>(o, max, sum, a, is, (uint16_t *)dt_shared(), head, kv, base, end);
	__syncthreads();
	leave<D>(f + threadIdx.x / 32, o, max, sum);
	__syncthreads();
	join<T, D, warps<D>>(a, is, f, head);
}

template <class T> static void (*kernel_of(int64_t d))(struct paged)
{
	return d <= 64	  ? paged_tile_kernel<T, 64>
	       : d <= 128 ? paged_tile_kernel<T, 128>
			  : paged_tile_kernel<T, 256>;
}

bool dt_paged_in_tiles(const struct paged *a)
{
	return a->tq != DT_F32 && a->tk == a->tq && a->d <= 256 && a->dv == a->d && a->width % 8 == 0 &&
	       dt_by_8(a->d, a->q, a->k, a->v);
}

int dt_paged_tiles(const struct dt_cuda *c, struct paged a)
{
	const int64_t group = a.heads / a.kv_heads, d = a.d <= 64 ? 64 : a.d <= 128 ? 128 : 256;
	const size_t smem = (size_t)(ROWS + 256 / d * 2 * KEYS) * (size_t)(d + 8) * 2;

	a.tokens = (int)(group < ROWS ? ROWS / group : 1);
	const unsigned heads = (unsigned)(a.kv_heads * dt_ceil_div(group, ROWS));

	return dt_in_pieces(dt_ceil_div(a.rows, a.tokens) + a.nseq, [&](int64_t first, unsigned n) {
		a.tile = (int)first;
		return DT_LAUNCH_EARLY(
			c, a.rows <= DT_FEW_ROWS,
			(a.tq == DT_BF16 ? kernel_of<struct dt_bf16>(a.d) : kernel_of<struct dt_f16>(a.d)),
			dim3((unsigned)a.parts, n, heads), (unsigned)(256 / d * 32), smem, a);
	});
}
/* SPDX-License-Identifier: Apache-2.0 */
