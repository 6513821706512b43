/*
 * Warpgroup products (four warps) on tensor cores, asynchronous, with the second operand in shared memory
 * (PTX ISA: wgmma.mma_async m64nNk16, sm_90a only). A warp has 16 of the 64 rows, in the register layout of
 * mma.h.
 *
 * Tiles: rows of 64 16-bit elements, 128 bytes, whose eight 16-byte pieces are swizzled to avoid bank
 * conflicts between eight rows: piece p of row r is stored at p ^ r % 8 (the ISA's 128-byte swizzle). Wider
 * tiles are several such panels, one after another. A tile is aligned to 1024 bytes.
 */
#ifndef DT_KERNELS_CUDA_WGMMA_H
#define DT_KERNELS_CUDA_WGMMA_H

#include "kernels/cuda/mma.h"
#ifndef __CUDACC__
#include "kernels/cuda/emulate/memory.h"
#endif

/* ROWS rows from p on. */
template <int ROWS> struct dt_wg_tile {
	uint16_t *p;
};

/* Address of elements col .. col + 7 of a row; col is a multiple of 8. */
template <int ROWS> DT_DEVICE uint16_t *dt_wg_at(struct dt_wg_tile<ROWS> t, int row, int col)
{
	return t.p + col / 64 * ROWS * 64 + row * 64 + (col % 64 / 8 ^ row % 8) * 8;
}

/* Rows row .. row + 15, columns col .. col + 15, as mma.h's first operand. One warp. */
template <int ROWS>
DT_DEVICE void dt_wg_fragment(uint32_t (&r)[4], struct dt_wg_tile<ROWS> t, int row, int col)
{
	const int lane = (int)threadIdx.x % 32;

	dt_ldmatrix(r, dt_wg_at(t, row + lane % 16, col + lane / 16 * 8));
}

#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define DT_WG_ASM(...) asm volatile(__VA_ARGS__)
#else
#define DT_WG_ASM(...) __trap()
#endif

/* Shared memory, aligned up for tiles: launches request 1024 bytes more. */
DT_DEVICE char *dt_wg_shared(void)
{
	char *p = dt_shared();

	return p + (1024 - dt_shared_address(p) % 1024) % 1024;
}

/* Makes this thread's writes and copies to shared memory visible to products after the next barrier. */
DT_DEVICE void dt_wg_written(void)
{
	DT_WG_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Fences registers before the products that follow. */
DT_DEVICE void dt_wg_begin(void)
{
	DT_WG_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

DT_DEVICE void dt_wg_commit(void)
{
	DT_WG_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the last LEFT groups of products are done. */
template <int LEFT> DT_DEVICE void dt_wg_wait(void)
{
	DT_WG_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/*
 * The ISA's matrix descriptor for data that begins `at` elements, a multiple of 8, after p; lead: bytes
 * between panels if rows are k. Eight rows: 1024 bytes. Descriptors in a tile differ by constants, which are
 * added to the lower word: shared memory is smaller than the range of the 14-bit address.
 */
DT_DEVICE uint64_t dt_wg_desc(const uint16_t *p, int at, unsigned lead)
{
	const uint32_t low = (dt_shared_address(p) >> 4 & 0x3fff) | lead >> 4 << 16;

	return (uint64_t)(1024 >> 4 | 1 << 30) << 32 | (low + (uint32_t)at / 8);
}

/* clang-format off */
#define DT_WG_D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define DT_WG_D32(i) DT_WG_D4(i), DT_WG_D4(i + 1), DT_WG_D4(i + 2), DT_WG_D4(i + 3), DT_WG_D4(i + 4), DT_WG_D4(i + 5), \
		     DT_WG_D4(i + 6), DT_WG_D4(i + 7)
#define DT_WG_R32 \
	"{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
	"%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define DT_WG_R64 \
	"{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
	"%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
	"%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define DT_WG_OP(n, type) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " "
/* clang-format on */

/* d[64, 64 or 128] (+)= a in registers times b, given by desc, whose rows are n, or k if TRANS. */
template <class T, bool TRANS, int N>
DT_DEVICE void dt_wg_issue(float (&d)[N][4], const uint32_t (&a)[4], uint64_t desc, bool add)
{
#define DT_WG_RS(n, type, regs, ins, in)                                                                     \
	DT_WG_ASM("{.reg .pred p; setp.ne.b32 p, " in(5) ", 0;" DT_WG_OP(n, type) regs                       \
		  ", {" in(0) "," in(1) "," in(2) "," in(3) "}, " in(4) ", p, 1, 1, " in(6) ";}"             \
		  : ins                                                                                      \
		  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"((int)add), "n"((int)TRANS)    \
		  : "memory")
#define DT_WG_BEHIND32(i) DT_WG_BEHIND32_##i
#define DT_WG_BEHIND32_0  "%32"
#define DT_WG_BEHIND32_1  "%33"
#define DT_WG_BEHIND32_2  "%34"
#define DT_WG_BEHIND32_3  "%35"
#define DT_WG_BEHIND32_4  "%36"
#define DT_WG_BEHIND32_5  "%37"
#define DT_WG_BEHIND32_6  "%38"
#define DT_WG_BEHIND64(i) DT_WG_BEHIND64_##i
#define DT_WG_BEHIND64_0  "%64"
#define DT_WG_BEHIND64_1  "%65"
#define DT_WG_BEHIND64_2  "%66"
#define DT_WG_BEHIND64_3  "%67"
#define DT_WG_BEHIND64_4  "%68"
#define DT_WG_BEHIND64_5  "%69"
#define DT_WG_BEHIND64_6  "%70"
#define DT_WG_ALL32	  DT_WG_D32(0)
#define DT_WG_ALL64	  DT_WG_D32(0), DT_WG_D32(8)
	static_assert(N == 8 || N == 16, "64 or 128 columns");
	if constexpr (N == 8) {
		if constexpr ((int)T::type == DT_BF16)
			DT_WG_RS(64, bf16, DT_WG_R32, DT_WG_ALL32, DT_WG_BEHIND32);
		else
			DT_WG_RS(64, f16, DT_WG_R32, DT_WG_ALL32, DT_WG_BEHIND32);
	} else {
		if constexpr ((int)T::type == DT_BF16)
			DT_WG_RS(128, bf16, DT_WG_R64, DT_WG_ALL64, DT_WG_BEHIND64);
		else
			DT_WG_RS(128, f16, DT_WG_R64, DT_WG_ALL64, DT_WG_BEHIND64);
	}
}

/* The same with a in shared memory too, row-major. */
template <class T, int N> DT_DEVICE void dt_wg_issue(float (&d)[N][4], uint64_t a, uint64_t desc, bool add)
{
#define DT_WG_SS(n, type, regs, ins, in)                                                                     \
	DT_WG_ASM("{.reg .pred p; setp.ne.b32 p, " in(2) ", 0;" DT_WG_OP(n, type) regs                       \
		  ", " in(0) ", " in(1) ", p, 1, 1, 0, 0;}"                                                  \
		  : ins                                                                                      \
		  : "l"(a), "l"(desc), "r"((int)add)                                                         \
		  : "memory")
	static_assert(N == 8 || N == 16, "64 or 128 columns");
	if constexpr (N == 8) {
		if constexpr ((int)T::type == DT_BF16)
			DT_WG_SS(64, bf16, DT_WG_R32, DT_WG_ALL32, DT_WG_BEHIND32);
		else
			DT_WG_SS(64, f16, DT_WG_R32, DT_WG_ALL32, DT_WG_BEHIND32);
	} else {
		if constexpr ((int)T::type == DT_BF16)
			DT_WG_SS(128, bf16, DT_WG_R64, DT_WG_ALL64, DT_WG_BEHIND64);
		else
			DT_WG_SS(128, f16, DT_WG_R64, DT_WG_ALL64, DT_WG_BEHIND64);
	}
}

/* d (+)= a times the transpose of b's rows, for b's columns k .. k + 15. */
template <class T, int N, int ROWS>
DT_DEVICE void dt_wg_rows(float (&d)[N][4], const uint32_t (&a)[4], struct dt_wg_tile<ROWS> b, int k,
			  bool add)
{
	dt_wg_issue<T, false>(d, a, dt_wg_desc(b.p, k / 64 * ROWS * 64 + k % 64, 0), add);
}

/* The same with a's 64 rows from `row` on in shared memory, columns k .. k + 15. */
template <class T, int N, int ROWS, int AROWS>
DT_DEVICE void dt_wg_rows(float (&d)[N][4], struct dt_wg_tile<AROWS> a, int row, struct dt_wg_tile<ROWS> b,
			  int k, bool add)
{
	dt_wg_issue<T>(d, dt_wg_desc(a.p + row * 64, k / 64 * AROWS * 64 + k % 64, 0),
		       dt_wg_desc(b.p, k / 64 * ROWS * 64 + k % 64, 0), add);
}

/* d (+)= a times b's rows k .. k + 15, whose columns are d's. */
template <class T, int N, int ROWS>
DT_DEVICE void dt_wg_cols(float (&d)[N][4], const uint32_t (&a)[4], struct dt_wg_tile<ROWS> b, int k,
			  bool add)
{
	dt_wg_issue<T, true>(d, a, dt_wg_desc(b.p, k * 64, ROWS * 128), add);
}
#else
/*
 * In the emulation a product is computed only when its group is waited for: from the registers and shared
 * memory at that time, into registers that keep their old values until then.
 */
struct dt_wg_job {
	void (*run)(const struct dt_wg_job &);
	float (*d)[4];
	const uint32_t *a; /* registers; NULL: rows from `row` on of tile */
	uint16_t *tile, *b;
	int row, k, group;
	bool add;
};

struct dt_wg_jobs {
	int n, groups;
	struct dt_wg_job job[64];
};

static inline struct dt_wg_jobs &dt_wg_jobs(void)
{
	static struct dt_wg_jobs all[1024];

	return all[threadIdx.x];
}

static inline void dt_wg_queue(struct dt_wg_job job)
{
	struct dt_wg_jobs &all = dt_wg_jobs();

	if (all.n == 64)
		dt_emu_die("more products under way than the emulation keeps");
	job.group = all.groups;
	all.job[all.n++] = job;
}

static inline char *dt_wg_shared(void)
{
	if (dt_wg_jobs().n)
		dt_emu_die("products that nobody waited for");
	return dt_shared();
}

static inline void dt_wg_written(void)
{
}

static inline void dt_wg_begin(void)
{
}

static inline void dt_wg_commit(void)
{
	dt_wg_jobs().groups++;
}

template <int LEFT> static inline void dt_wg_wait(void)
{
	struct dt_wg_jobs &all = dt_wg_jobs();
	int left = 0;

	for (int i = 0; i < all.n; i++)
		if (all.job[i].group < all.groups - LEFT)
			all.job[i].run(all.job[i]);
		else
			all.job[left++] = all.job[i];
	all.n = left;
}

/* One warp's rows of a product, eight columns at a time. */
template <class T, int N, int ROWS, int AROWS, bool COLS> static void dt_wg_run(const struct dt_wg_job &j)
{
	const int lane = (int)threadIdx.x % 32;
	uint32_t a[4];

	if (j.a)
		memcpy(a, j.a, sizeof a);
	else
		dt_wg_fragment(a, dt_wg_tile<AROWS>{j.tile}, j.row + (int)threadIdx.x % 128 / 32 * 16, j.k);
	for (int n = 0; n < N; n++) {
		uint32_t b[2] = {0, 0};

		for (int i = 0; i < 4; i++) {
			const int deep = j.k + lane % 4 * 2 + i % 2 + i / 2 * 8, across = n * 8 + lane / 4;
			const int row = COLS ? deep : across, col = COLS ? across : deep;
			const uint16_t *p = dt_wg_at(dt_wg_tile<ROWS>{j.b}, row, col / 8 * 8) + col % 8;

			dt_touch(p, 2);
			b[i / 2] |= (uint32_t)*p << i % 2 * 16;
		}
		for (int i = 0; i < 4 && !j.add; i++)
			j.d[n][i] = 0;
		dt_mma<T>(j.d[n], a, b[0], b[1]);
	}
}

template <class T, int N, int ROWS>
static inline void dt_wg_rows(float (&d)[N][4], const uint32_t (&a)[4], struct dt_wg_tile<ROWS> b, int k,
			      bool add)
{
	dt_wg_queue({dt_wg_run<T, N, ROWS, ROWS, false>, d, a, NULL, b.p, 0, k, 0, add});
}

template <class T, int N, int ROWS, int AROWS>
static inline void dt_wg_rows(float (&d)[N][4], struct dt_wg_tile<AROWS> a, int row,
			      struct dt_wg_tile<ROWS> b, int k, bool add)
{
	dt_wg_queue({dt_wg_run<T, N, ROWS, AROWS, false>, d, NULL, a.p, b.p, row, k, 0, add});
}

template <class T, int N, int ROWS>
static inline void dt_wg_cols(float (&d)[N][4], const uint32_t (&a)[4], struct dt_wg_tile<ROWS> b, int k,
			      bool add)
{
	dt_wg_queue({dt_wg_run<T, N, ROWS, ROWS, true>, d, a, NULL, b.p, 0, k, 0, add});
}
#endif

#endif
/* SPDX-License-Identifier: Apache-2.0 */
