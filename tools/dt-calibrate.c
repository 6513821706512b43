/*
 * dt-calibrate: times the operations of training on this machine, for dt-plan --ops.
 *
 * For every number of processes that share the cores, as many are started; each times the same point at the
 * same time, so that caches and memory are shared as ranks of a run share them. Operands move through a
 * window of memory, since those of a run are seldom still in a core's own cache.
 */
#include "base/log.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "kernels/ops.h"
#include "plan/optimes.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3, REPEATS = 64, MAX_CORES = 1024 };

#define COLD_MB 96.0 /* of passes over all parameters: seldom in a cache */
#define SLOW_S	0.1  /* a point that took this long is not repeated further */

static struct {
	double seconds, window_mb, weights_mb;
	int64_t cores;
	const char *out;
} a;

static const char *const examples[] = {
	"dt-calibrate --seconds 60 --out ops.json",
	"dt-calibrate | dt-plan --gpu cpu --gpus 2 --ops - gpt2-124m",
	NULL,
};

static const struct dt_opt opts[] = {
	{"seconds", 0, DT_OPT_REAL, &a.seconds, "S", "time to take, about", .min = 0.1, .max = 3600,
	 .def = "45"},
	{"cores", 0, DT_OPT_INT, &a.cores, "N", "use so many", .min = 1, .max = MAX_CORES,
	 .def_text = "all that this process may run on"},
	{"window", 0, DT_OPT_REAL, &a.window_mb, "MIB",
	 "memory that operands move through, which decides how cold they are", .min = 0.1, .max = 4096,
	 .def = "4"},
	{"weights-window", 0, DT_OPT_REAL, &a.weights_mb, "MIB", "the same for weights and their gradients",
	 .min = 0.1, .max = 4096, .def = "24"},
	{"out", 'o', DT_OPT_STR, &a.out, "FILE", "where to write; - is standard output",
	 .complete = DT_COMPLETE_FILE, .def = "-"},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-calibrate",
	.summary = "time the operations of training on this machine, for dt-plan",
	.operands = "",
	.examples = examples,
	.opts = opts,
};

/* ---- memory ---- */

struct pool { /* operands: read ones keep their values, written ones go elsewhere */
	char *p;
	size_t at, size, window, dirty; /* dirty: bytes that may have been written */
};

struct bench {
	struct dt_dev *dev;
	struct pool in, out, w; /* w: weights and their gradients */
	int32_t *ids;
	enum dt_dtype type;
};

enum { IDS = 1 << 16 };
#define POOL ((size_t)224 << 20)

static size_t bytes_of(enum dt_dtype t, int64_t r, int64_t c)
{
	return ((size_t)(r * c * dt_dtype_size(t)) + 63) / 64 * 64;
}

static struct dt_tensor take(struct pool *p, enum dt_dtype t, int64_t r, int64_t c)
{
	size_t n = bytes_of(t, r, c);
	struct dt_tensor x;

	if (p->at + n > p->size || (p->at > 0 && p->at + n > p->window))
		p->at = 0;
	x = dt_t2(p->p + p->at, t, r, c);
	p->at += n;
	p->dirty = p->at > p->dirty ? p->at : p->dirty;
	return x;
}

static struct dt_tensor flat(struct pool *p, enum dt_dtype t, int64_t n)
{
	struct dt_tensor x = take(p, t, 1, n);

	return dt_t1(x.data, t, n);
}

/* Small numbers in either type: pairs of bf16, which also are f32. */
static void fill_pool(struct pool *p)
{
	uint16_t *w = (uint16_t *)p->p;

	for (size_t i = 0; i < p->dirty / 4; i++)
		w[2 * i] = w[2 * i + 1] =
			(uint16_t)(0x3c00 + (i * 2654435761u >> 20 & 0x1ff) + (i & 1) * 0x8000);
	p->at = p->dirty = 0;
}

static int pool_init(struct pool *p, size_t size, double window_mb)
{
	p->size = size;
	p->window = (size_t)(window_mb * (1 << 20));
	p->p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->p == MAP_FAILED)
		return -ENOMEM;
	p->dirty = size;
	fill_pool(p);
	return 0;
}

/* ---- one operation ---- */

static int product(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	enum dt_dtype t = b->type, head = op == DT_T_HEAD ? DT_F32 : t;
	struct dt_tensor x, y, w;

	if (op == DT_T_MUL || op == DT_T_HEAD) {
		x = take(&b->in, t, n[0], n[2]);
		w = take(&b->w, t, n[1], n[2]);
		y = take(&b->out, head, n[0], n[1]);
		return b->dev->ops->matmul(b->dev, y, x, false, w, true,
					   op == DT_T_MUL ? flat(&b->in, t, n[1]) : DT_NONE, false);
	}
	if (op == DT_T_MUL_X || op == DT_T_HEAD_X) {
		int64_t cols = op == DT_T_HEAD_X ? n[2] : n[1], from = op == DT_T_HEAD_X ? n[1] : n[2];

		x = take(&b->in, t, n[0], from);
		w = take(&b->w, t, from, cols);
		y = take(&b->out, t, n[0], cols);
		return b->dev->ops->matmul(b->dev, y, x, false, w, false, DT_NONE, false);
	}
	x = take(&b->in, t, n[0], n[1]);
	w = take(&b->in, t, n[0], n[2]);
	y = take(&b->w, DT_F32, n[1], n[2]);
	return b->dev->ops->matmul(b->dev, y, x, true, w, false, DT_NONE,
				   op == DT_T_MUL_ADD || op == DT_T_HEAD_ADD);
}

static int attention(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	struct dt_attn p = {.batch = n[0] / 4,
			    .seq = n[1],
			    .heads = 4,
			    .kv_heads = 4,
			    .head_dim = n[2],
			    .scale = (float)(1 / sqrt((double)n[2]))};
	int64_t rows = p.batch * n[1], cols = 4 * n[2];
	struct dt_tensor qkv = take(&b->in, b->type, rows, 3 * cols), lse = flat(&b->out, DT_F32, rows * 4);

	if (op == DT_T_ATTENTION)
		return b->dev->ops->attention_forward(b->dev, take(&b->out, b->type, rows, cols), lse, qkv,
						      &p);
	return b->dev->ops->attention_backward(
		b->dev, take(&b->out, b->type, rows, 3 * cols), take(&b->in, b->type, rows, cols),
		take(&b->in, b->type, rows, cols), flat(&b->in, DT_F32, rows * 4), qkv, &p);
}

static int norm(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	const struct dt_ops *o = b->dev->ops;
	struct dt_tensor x = take(&b->in, b->type, n[0], n[1]), d = take(&b->in, b->type, n[0], n[1]);
	struct dt_tensor y = take(&b->out, b->type, n[0], n[1]), s = take(&b->out, b->type, n[0], n[1]);
	struct dt_tensor w = flat(&b->in, b->type, n[1]), w2 = flat(&b->in, b->type, n[1]);
	struct dt_tensor g = flat(&b->out, DT_F32, n[1]), g2 = flat(&b->out, DT_F32, n[1]);
	bool forward = op == DT_T_LAYERNORM || op == DT_T_RMSNORM;
	struct pool *stats = forward ? &b->out : &b->in;
	struct dt_tensor mean = flat(stats, DT_F32, n[0]), rstd = flat(stats, DT_F32, n[0]);

	switch (op) {
	case DT_T_LAYERNORM:
		return o->layernorm_forward(b->dev, y, mean, rstd, s, x, d, w, w2, 1e-5f);
	case DT_T_LAYERNORM_B:
		return o->layernorm_backward(b->dev, y, g, g2, d, y, x, mean, rstd, w);
	case DT_T_RMSNORM:
		return o->rmsnorm_forward(b->dev, y, rstd, s, x, d, w, false, 1e-5f);
	default:
		return o->rmsnorm_backward(b->dev, y, g, d, y, x, rstd, w, false);
	}
}

static int rope(struct bench *b, const int64_t n[3])
{
	struct dt_tensor qkv = take(&b->out, b->type, n[0], n[1]);
	struct dt_tensor table = take(&b->in, DT_F32, 2, 256 * 16);
	struct dt_rope p = {.rot_heads = n[1] / 32,
			    .head_dim = 32,
			    .rot_dim = 32,
			    .pairing = DT_ROPE_HALF,
			    .cos = table.data,
			    .sin = (float *)table.data + 256 * 16,
			    .positions = 256};

	return b->dev->ops->rope(b->dev, qkv, &p, b->ids, false);
}

static int rows(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	const struct dt_ops *o = b->dev->ops;
	enum dt_dtype t = b->type;
	struct dt_tensor x, y;

	switch (op) {
	case DT_T_ACT:
		return o->act_forward(b->dev, take(&b->out, t, n[0], n[1]), take(&b->in, t, n[0], n[1]),
				      DT_ACT_GELU_TANH);
	case DT_T_ACT_B:
		x = take(&b->in, t, n[0], n[1]);
		return o->act_backward(b->dev, take(&b->out, t, n[0], n[1]), x, take(&b->in, t, n[0], n[1]),
				       DT_ACT_GELU_TANH);
	case DT_T_GATED:
		return o->gated_forward(b->dev, take(&b->out, t, n[0], n[1]), take(&b->in, t, n[0], 2 * n[1]),
					DT_ACT_SILU);
	case DT_T_GATED_B:
		x = take(&b->in, t, n[0], n[1]);
		return o->gated_backward(b->dev, take(&b->out, t, n[0], 2 * n[1]), x,
					 take(&b->in, t, n[0], 2 * n[1]), DT_ACT_SILU);
	case DT_T_COLSUM:
		return o->colsum(b->dev, flat(&b->out, DT_F32, n[1]), take(&b->in, t, n[0], n[1]));
	case DT_T_EMBED:
		x = take(&b->in, t, 256, n[1]);
		return o->embedding_forward(b->dev, take(&b->out, t, n[0], n[1]), b->ids, b->ids, x, x, 0);
	case DT_T_EMBED_B:
		y = take(&b->out, DT_F32, 256, n[1]);
		return o->embedding_backward(b->dev, y, take(&b->out, DT_F32, 256, n[1]),
					     take(&b->in, t, n[0], n[1]), b->ids, b->ids, 0);
	default:
		x = take(&b->in, t, n[0], n[1]);
		return o->add(b->dev, take(&b->out, t, n[0], n[1]), x, take(&b->in, t, n[0], n[1]));
	}
}

/* As the trainer has it: the logits of a chunk were just written, their gradient goes beside them. */
static int cross_entropy(struct bench *b, const int64_t n[3])
{
	static float stat[3][512];
	struct dt_tensor l = take(&b->in, DT_F32, n[0], n[1]), d = take(&b->out, b->type, n[0], n[1]);
	int rc = b->dev->ops->ce_stats(b->dev, stat[0], stat[1], stat[2], l, b->ids, 0);

	return rc < 0 ? rc : b->dev->ops->ce_grad(b->dev, d, l, stat[0], stat[1], b->ids, 1, 0);
}

static int flats(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	static const enum dt_optim_kind kind[] = {DT_OPTIM_SGD, DT_OPTIM_MOMENTUM, DT_OPTIM_ADAMW};
	const struct dt_ops *o = b->dev->ops;
	struct dt_tensor p = flat(&b->w, DT_F32, n[0]), g = flat(&b->w, DT_F32, n[0]);
	struct dt_optim how = {.lr = 1e-6f,
			       .beta1 = 0.9f,
			       .beta2 = 0.95f,
			       .eps = 1e-8f,
			       .weight_decay = 0.1f,
			       .grad_scale = 1,
			       .t = 10};
	double sum;

	if (op == DT_T_SUMSQ)
		return o->sumsq(b->dev, &sum, g);
	if (op == DT_T_FILL)
		return o->fill(b->dev, p, 0.5f);
	if (op == DT_T_CONVERT)
		return o->convert(b->dev, flat(&b->w, b->type, n[0]), g);
	how.kind = kind[op - DT_T_OPTIM0];
	return o->optim_step(b->dev, &how, b->type == DT_F32 ? DT_NONE : flat(&b->w, b->type, n[0]), p, g,
			     op == DT_T_OPTIM0 ? DT_NONE : flat(&b->w, DT_F32, n[0]),
			     op == DT_T_OPTIM2 ? flat(&b->w, DT_F32, n[0]) : DT_NONE);
}

static int operate(struct bench *b, enum dt_timed op, const int64_t n[3])
{
	if (op <= DT_T_HEAD_ADD)
		return product(b, op, n);
	if (op <= DT_T_ATTENTION_B)
		return attention(b, op, n);
	if (op <= DT_T_RMSNORM_B)
		return norm(b, op, n);
	if (op == DT_T_ROPE)
		return rope(b, n);
	if (op == DT_T_CE)
		return cross_entropy(b, n);
	return op < DT_T_OPTIM0 ? rows(b, op, n) : flats(b, op, n);
}

static int by_value(const void *x, const void *y)
{
	double p = *(const double *)x, q = *(const double *)y;

	return (p > q) - (p < q);
}

/* The median over about `seconds`. before: that of the round before, 0 in the first. */
static int time_point(struct bench *b, enum dt_timed op, const int64_t n[3], double seconds, double before,
		      double *ret)
{
	double t[REPEATS], start;
	int i = 0, rc = 0;

	if (before < SLOW_S) /* makes what is kept by shape */
		rc = operate(b, op, n);
	start = dt_now();
	while (rc >= 0 && i < REPEATS && (i < 1 || dt_now() - start < seconds)) {
		double t0 = dt_now();

		rc = operate(b, op, n);
		t[i++] = dt_now() - t0;
	}
	if (rc < 0)
		return rc;
	qsort(t, (size_t)i, sizeof(*t), by_value);
	*ret = t[i / 2];
	return 0;
}

/* ---- processes ---- */

struct shared {
	pthread_barrier_t barrier;
	int failed; /* an errno of one of them */
	int points;
	double s[]; /* [processes][ROUNDS][points] */
};

static int points_of(const struct dt_op_mode *m)
{
	int n = 0;

	for (int op = 0; op < DT_T_N; op++)
		for (int type = 0; type < DT_OP_TYPES; type++)
			n += dt_grid_points(&m->g[op][type]);
	return n;
}

static int bench_init(struct bench *b, int threads)
{
	int rc = dt_dev_open(&b->dev, DT_DEV_CPU, 0, threads);

	if (rc < 0 || (rc = pool_init(&b->in, POOL, a.window_mb)) < 0 ||
	    (rc = pool_init(&b->out, POOL, a.window_mb)) < 0 ||
	    (rc = pool_init(&b->w, POOL, a.weights_mb)) < 0)
		return rc;
	b->ids = calloc(IDS, sizeof(*b->ids));
	for (int i = 0; b->ids && i < IDS; i++)
		b->ids[i] = i * 7919 % 256;
	return b->ids ? 0 : -ENOMEM;
}

/* Every point once, beside the other processes. */
static int one_round(struct bench *b, const struct dt_op_mode *m, struct shared *sh, double *s, int r,
		     double seconds, struct dt_progress *bar)
{
	static const enum dt_dtype types[DT_OP_TYPES] = {DT_F32, DT_BF16};
	int at = 0, rc = 0;

	for (int op = 0; op < DT_T_N && rc >= 0; op++)
		for (int type = 0; type < DT_OP_TYPES && rc >= 0; type++) {
			const struct dt_op_grid *g = &m->g[op][type];

			b->type = types[type];
			b->w.window = (size_t)((op >= DT_T_OPTIM0 ? COLD_MB : a.weights_mb) * (1 << 20));
			fill_pool(&b->out);
			fill_pool(&b->w);
			for (int i = 0; i < dt_grid_points(g) && rc >= 0; i++, at++) {
				int64_t n[3];

				dt_grid_sizes(g, i, n);
				pthread_barrier_wait(&sh->barrier);
				rc = time_point(b, op, n, seconds, r ? s[at] : 0,
						&s[(size_t)r * (size_t)sh->points + (size_t)at]);
				if (bar)
					dt_progress_set(bar, bar->done + 1);
			}
		}
	return rc;
}

/*
 * One process. Rounds lie apart in time, so that what else the machine does for a moment spoils one at most.
 */
static int work(const struct dt_op_mode *m, int cores, int number, struct shared *sh, double seconds,
		struct dt_progress *bar)
{
	struct bench b = {0};
	int rc = bench_init(&b, cores / m->processes);

	for (int r = 0; r < ROUNDS && rc >= 0; r++)
		rc = one_round(&b, m, sh, &sh->s[number * ROUNDS * sh->points], r, seconds, bar);
	return rc;
}

static int wait_all(const pid_t *pid, int n, struct shared *sh)
{
	int left = n, status, rc = 0;

	while (left > 0) {
		pid_t done = waitpid(-1, &status, 0);
		bool mine = false;

		for (int i = 0; i < n; i++)
			mine |= pid[i] == done;
		if (done < 0 && errno == EINTR)
			continue;
		if (!mine)
			return -ECHILD;
		left--;
		if (status && rc == 0) { /* the others wait for it at the barrier */
			rc = sh->failed ? -sh->failed : -ECHILD;
			for (int i = 0; i < n; i++)
				if (pid[i] != done)
					kill(pid[i], SIGKILL);
		}
	}
	return rc;
}

/* Of each point the middle one of its rounds, the mean over the processes. */
static void put_times(struct dt_op_mode *m, const struct shared *sh)
{
	int at = 0;

	for (int op = 0; op < DT_T_N; op++)
		for (int type = 0; type < DT_OP_TYPES; type++)
			for (int i = 0; i < dt_grid_points(&m->g[op][type]); i++, at++)
				for (int k = 0; k < m->processes; k++) {
					double t[ROUNDS];

					for (int r = 0; r < ROUNDS; r++)
						t[r] = sh->s[(k * ROUNDS + r) * sh->points + at];
					qsort(t, ROUNDS, sizeof(*t), by_value);
					m->g[op][type].s[i] += t[ROUNDS / 2] / m->processes;
				}
}

/* Times a mode. */
static int run_mode(struct dt_op_mode *m, int cores, double seconds, struct dt_err *err)
{
	int points = points_of(m), n = m->processes, rc = 0;
	size_t bytes = sizeof(struct shared) + sizeof(double) * (size_t)(n * ROUNDS * points);
	struct shared *sh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[MAX_CORES];
	pthread_barrierattr_t attr;
	struct dt_progress bar;
	char label[32];

	if (sh == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot measure");
	sh->points = points;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, (unsigned)n);
	snprintf(label, sizeof(label), "%d x %d cores", n, cores / n);
	dt_progress_start(&bar, stderr, label, (uint64_t)points * ROUNDS, false);
	for (int i = 0; i < n && rc == 0; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			int e = work(m, cores, i, sh, seconds / points / ROUNDS, i ? NULL : &bar);

			if (e < 0)
				sh->failed = -e;
			_exit(e < 0);
		}
		if (pid[i] < 0) {
			rc = -errno;
			for (int k = 0; k < i; k++)
				kill(pid[k], SIGKILL);
			wait_all(pid, i, sh);
		}
	}
	rc = rc < 0 ? rc : wait_all(pid, n, sh);
	dt_progress_end(&bar);
	if (rc == 0)
		put_times(m, sh);
	munmap(sh, bytes);
	return rc < 0 ? dt_err_sys(err, rc, "cannot measure on %d processes", n) : 0;
}

static int cores_here(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int measure(struct dt_op_times *t, struct dt_err *err)
{
	int rc, middle;

	t->cores = a.cores ? (int)a.cores : cores_here();
	if (t->cores > MAX_CORES)
		t->cores = MAX_CORES;
	/* All cores, one each, and on larger machines one number between. */
	t->mode[t->nmode++].processes = 1;
	for (middle = 1; middle * middle * 4 <= t->cores; middle *= 2)
		;
	if (middle > 1)
		t->mode[t->nmode++].processes = middle;
	if (t->cores > 1)
		t->mode[t->nmode++].processes = t->cores;
	/* Little time is for small sizes: large ones take seconds to try once. */
	rc = dt_op_times_init(t, a.seconds < 5 ? 3 : a.seconds < 20 ? 1 : 0, err);
	for (int i = 0; i < t->nmode && rc == 0; i++)
		rc = run_mode(&t->mode[i], t->cores, a.seconds / t->nmode, err);
	return rc;
}

static int write_out(const struct dt_op_times *t, struct dt_err *err)
{
	json_t *o = dt_op_times_to_json(t);
	struct dt_tmpfile f;
	int rc;

	if (!strcmp(a.out, "-")) {
		rc = dt_json_write_line(stdout, o, err);
	} else {
		rc = dt_tmpfile_open(&f, a.out, err);
		if (rc == 0 && (rc = dt_json_write_line(f.f, o, err)) < 0)
			dt_tmpfile_abort(&f);
		else if (rc == 0)
			rc = dt_tmpfile_commit(&f, err);
	}
	json_decref(o);
	return rc;
}

static int fail(const struct dt_err *err)
{
	if (err->code != -EPIPE)
		fprintf(stderr, "dt-calibrate: %s\n", err->msg);
	return DT_EXIT_FAILED;
}

static int run(struct dt_err *err)
{
	struct dt_op_times t = {0};
	struct dt_dev *dev = NULL;
	int rc = measure(&t, err);

	if (rc == 0 && (rc = dt_dev_open(&dev, DT_DEV_CPU, 0, 1)) < 0)
		dt_err_sys(err, rc, "cannot open the processor as a device");
	if (rc == 0) {
		snprintf(t.isa, sizeof(t.isa), "%s", dt_dev_isa(dev));
		dt_dev_close(dev);
		rc = write_out(&t, err);
	}
	dt_op_times_release(&t);
	return rc < 0 ? fail(err) : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, nargs;

	dt_dev_spin_less(argv);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (nargs > 0)
		status = dt_opt_usage_error(&program, stderr, "'%s': no operands are taken", argv[1]);
	else if (nargs == 0)
		status = run(&err);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = fail(&err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
