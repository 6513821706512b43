/* The threads of a block as fibers, and their synchronisation. */
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size);
}
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* 256 KiB plus 17 cache lines, so that the stack tops of a warp map to different cache sets. */
#define STACK (((size_t)256 << 10) + 17 * 64)

enum state : uint8_t { FRESH, READY, BLOCK, WARP, UNTIL, DONE };

/*
 * A resumable stack: the compiler's builtin setjmp and longjmp, which ignore signals and cleanups. The
 * library's versions would take a third of the emulation time.
 */
typedef void *place[5];

struct fiber {
	bool lives; /* owns a suspended stack, in or between threads */
	dim3 id;
	const char *what; /* the operation it waits in */
	place at;
	bool (*until)(void *);
	void *until_arg;
#ifdef ASAN
	void *fake;
#endif
};

struct warp {
	int arrived, turn;
	const char *what;
	uint64_t met; /* operations so far */
	alignas(64) char slot[2][32 * 64];
};

static struct fiber fiber[DT_EMU_THREADS];
static enum state states[DT_EMU_THREADS]; /* states of the fibers; contiguous, as a warp's change together */
static struct warp warp[DT_EMU_THREADS / 32];
static char *stacks;
static place scheduler;
static struct fiber *self;
static int me; /* number of the running fiber */
static bool backward;
static int nthreads, nblocked, ndone;
static void (*body_fn)(void *);
static void *body_arg;
static const char *kernel_name;
static char *shared, *shared_end;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
#ifdef ASAN
static const void *main_bottom;
static size_t main_size;
static void *main_fake;
#endif

void dt_emu_die(const char *why)
{
	fprintf(stderr, "emulated kernel %s, block %u %u %u, thread %u %u: %s\n",
		kernel_name ? kernel_name : "(none)", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
		threadIdx.y, why);
	abort();
}

char *dt_emu_shared(void)
{
	return shared;
}

void dt_emu_touch(const void *p, size_t n)
{
	const char *c = (const char *)p;

	if ((uintptr_t)p % n)
		dt_emu_die("an access is not aligned to its size");
	if ((c < shared || c + n > shared_end) && !dt_emu_is_device(p, n))
		dt_emu_die("an access is outside of device and shared memory");
}

/* Separate functions: a function may not jump to a place that it set itself. */
[[noreturn]] static __attribute__((noinline)) void leave(void)
{
	__builtin_longjmp(scheduler, 1);
}

[[noreturn]] static __attribute__((noinline)) void go_on(struct fiber *f)
{
	__builtin_longjmp(f->at, 1);
}

/*
 * A function in which other stacks run: callers must not assume registers and variables unchanged because its
 * own instructions do not change them.
 */
#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noipa))
#endif

static void run_as(int i)
{
	me = i;
	self = &fiber[i];
	threadIdx = self->id;
}

/*
 * Suspends the running fiber: switches to its neighbour in the warp if that is suspended with a stack, as
 * between two warp operations; otherwise to the scheduler.
 */
static APART void yield(void)
{
	struct fiber *f = self;

	if (__builtin_setjmp(f->at) == 0) {
#ifdef ASAN
		__sanitizer_start_switch_fiber(&f->fake, main_bottom, main_size);
#else
		const int next = (me & ~31) | ((backward ? me - 1 : me + 1) & 31);

		if (states[next] == READY) {
			run_as(next);
			go_on(self);
		}
#endif
		leave();
	}
#ifdef ASAN
	__sanitizer_finish_switch_fiber(f->fake, &main_bottom, &main_size);
#endif
}

/* Called when a thread has ended: returns control to the scheduler. */
static APART void end(void)
{
	if (__builtin_setjmp(self->at) == 0) {
#ifdef ASAN
		__sanitizer_start_switch_fiber(&self->fake, main_bottom, main_size);
#endif
		leave();
	}
#ifdef ASAN
	__sanitizer_finish_switch_fiber(self->fake, &main_bottom, &main_size);
#endif
}

/* A stack runs its thread number in one block after another. */
static void start(void)
{
#ifdef ASAN
	__sanitizer_finish_switch_fiber(NULL, &main_bottom, &main_size);
#endif
	for (;;) {
		body_fn(body_arg);
		states[me] = DONE;
		end();
	}
}

[[noreturn]] static void begin(struct fiber *f)
{
	static ucontext_t context;

	f->lives = true;
	if (getcontext(&context) < 0)
		dt_emu_die("no context");
	context.uc_stack.ss_sp = stacks + (size_t)(f - fiber) * STACK;
	context.uc_stack.ss_size = STACK;
	makecontext(&context, start, 0);
	setcontext(&context);
	abort();
}

static APART void resume(int i)
{
	struct fiber *f = &fiber[i];

	run_as(i);
	if (__builtin_setjmp(scheduler)) {
#ifdef ASAN
		__sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
		return;
	}
#ifdef ASAN
	__sanitizer_start_switch_fiber(&main_fake, stacks + (size_t)(f - fiber) * STACK, STACK);
#endif
	states[i] = READY;
	if (f->lives)
		go_on(f);
	begin(f);
}

void dt_emu_barrier(void)
{
	if (ndone)
		dt_emu_die("a barrier that another thread has left behind");
	if (++nblocked < nthreads) {
		states[me] = BLOCK;
		self->what = "__syncthreads";
		yield();
		return;
	}
	nblocked = 0;
	for (int i = 0; i < nthreads; i++)
		states[i] = states[i] == BLOCK ? READY : states[i];
}

void dt_emu_until(bool (*is)(void *), void *arg, const char *what)
{
	if (is(arg))
		return;
	states[me] = UNTIL;
	self->what = what;
	self->until = is;
	self->until_arg = arg;
	yield();
}

char *dt_emu_slot(void)
{
	const struct warp *w = &warp[me / 32];

	return (char *)w->slot[w->turn] + me % 32 * 64;
}

const char *dt_emu_meet(const char *what)
{
	struct warp *w = &warp[me / 32];
	const char *slot = w->slot[w->turn];

	if (!w->arrived)
		w->what = what;
	if (w->what != what)
		dt_emu_die("the lanes of a warp meet in different operations");
	if (++w->arrived < 32) {
		states[me] = WARP;
		self->what = what;
		yield();
		return slot;
	}
	w->arrived = 0;
	w->turn = !w->turn;
	w->met++;
	memset(&states[me & ~31], READY, 32);
	return slot;
}

uint64_t dt_emu_met(void)
{
	return warp[me / 32].met;
}

static void stuck(void)
{
	for (int i = 0; i < nthreads; i++)
		if (states[i] == BLOCK || states[i] == WARP || states[i] == UNTIL)
			fprintf(stderr, "thread %u waits in %s\n", fiber[i].id.x, fiber[i].what);
	dt_emu_die("threads wait for others that never come");
}

/* Runs each runnable thread of a warp once. Returns whether there was one. */
static bool run_warp(int first)
{
	bool went = false;

	for (int k = 0; k < 32; k++) {
		const int i = first + (backward ? 31 - k : k);

		if (states[i] == UNTIL && fiber[i].until(fiber[i].until_arg))
			states[i] = READY;
		if (states[i] != FRESH && states[i] != READY)
			continue;
		resume(i);
		went = true;
		if (states[me] != DONE) /* me: control may have passed to others */
			continue;
		if (dt_emu_copies(me))
			dt_emu_die("a thread ended with copies under way");
		if (nblocked)
			dt_emu_die("a thread ended while others wait in a barrier");
		ndone++;
	}
	return went;
}

/*
 * A warp runs as far as it can before the next one: if it writes too early, others still read the old data.
 * Odd launches run from the last thread to the first: a card guarantees neither order.
 */
static void run_block(void)
{
	memset(states, FRESH, (size_t)nthreads);
	for (int i = 0; i < nthreads; i++) {
		const unsigned u = (unsigned)i;

		fiber[i].id = dim3(u % blockDim.x, u / blockDim.x % blockDim.y, u / blockDim.x / blockDim.y);
	}
	for (int i = 0; i < nthreads / 32; i++) /* not cleared: slots are written before they are read */
		warp[i].arrived = warp[i].turn = 0;
	nblocked = ndone = 0;
	dt_emu_no_copies(nthreads);
	while (ndone < nthreads) {
		bool went = false;

		for (int w = 0; w < nthreads / 32; w++)
			while (run_warp((backward ? nthreads / 32 - 1 - w : w) * 32))
				went = true;
		if (!went && !dt_emu_copy_one())
			stuck();
	}
	dt_emu_settled();
}

static int ready(void)
{
	if (stacks)
		return 0;
	stacks = (char *)mmap(NULL, DT_EMU_THREADS * STACK, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	shared = (char *)aligned_alloc(4096, (DT_EMU_SHARED + 2 * 4096 - 1) / 4096 * 4096);
	return stacks == MAP_FAILED || !shared ? -ENOMEM : 0;
}

int dt_emu_run(const struct dt_emu_launch *l)
{
	const dim3 grid = l->grid, block = l->block;
	const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
	int rc;

	pthread_mutex_lock(&one_at_a_time);
	rc = ready();
	if (rc < 0) {
		pthread_mutex_unlock(&one_at_a_time);
		return rc;
	}
	dt_emu_open_memory(true);
	kernel_name = l->name;
	dt_emu_note(l->name);
	body_fn = l->body;
	body_arg = l->arg;
	gridDim = grid;
	blockDim = block;
	nthreads = (int)(block.x * block.y * block.z);
	shared_end = shared + l->smem;
	backward = dt_emu_launches() / 2 % 2;
	for (uint64_t i = 0; i < blocks; i++) {
		const uint64_t at = dt_emu_launches() % 2 ? blocks - 1 - i : i;

		blockIdx = dim3((unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
				(unsigned)(at / grid.x / grid.y));
		memset(shared, 0xff, l->smem);
		run_block();
	}
	shared_end = shared;
	kernel_name = NULL;
	dt_emu_open_memory(false);
	pthread_mutex_unlock(&one_at_a_time);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
