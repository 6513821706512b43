/*
 * A saver that is killed, or that runs out of room, at any moment: the checkpoint before it stays whole and
 * `latest` never leads nowhere. Files of a checkpoint that HDF5 refuses are all named, in their order.
 */
#include "base/progress.h"
#include "base/rng.h"
#include "base/tmpfile.h"
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS 60
#define ROWS  96
#define COLS  1024

static char root[64];

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.40s/dt-crash-XXXXXX", base ? base : "/tmp");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	return dt_remove_tree(root, NULL);
}

/* Two ranks' shards of a tensor whose elements say the step. */
static int save(const char *dir, int64_t step, int keep, struct dt_err *err)
{
	static int32_t x[ROWS * COLS];
	json_t *lists[2] = {0}, *meta = json_object();
	char *tmp = NULL;
	int rc;

	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = (int32_t)step * 1000 + i;
	rc = dt_ckpt_begin(dir, step, &tmp, err);
	for (int r = 0; r < 2 && rc == 0; r++) {
		struct dt_piece p[3] = {{.name = "model/x",
					 .dtype = DT_I32,
					 .ndim = 2,
					 .global = {ROWS, COLS},
					 .off = {r * ROWS / 2, 0},
					 .shape = {ROWS / 2, COLS},
					 .data = x + r * (ROWS / 2) * COLS}};

		rc = dt_ckpt_write_shard(tmp, r, p, 1, false, &lists[r], err);
	}
	if (rc == 0)
		rc = dt_ckpt_commit(dir, step, meta, lists, 2, keep, err);
	json_decref(lists[0]);
	json_decref(lists[1]);
	json_decref(meta);
	free(tmp);
	return rc;
}

/* Where latest leads to, or nothing. */
static void latest(char text[64])
{
	char path[128];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/latest", root);
	n = readlink(path, text, 63);
	text[n > 0 ? n : 0] = '\0';
}

/* Opens without falling back, verifies, and compares every element. Returns the step. */
static int64_t check(const char *dir)
{
	static int32_t got[ROWS * COLS];
	struct dt_err err = {0};
	struct dt_ckpt *c;
	int64_t step;

	if (dt_ckpt_open(dir, &c, &err) < 0)
		fail_msg("%s", err.msg);
	if (dt_ckpt_note(c))
		fail_msg("latest was not whole: %s", dt_ckpt_note(c));
	step = dt_ckpt_step(c);
	if (dt_ckpt_read(c, 0, (int64_t[]){0, 0}, (int64_t[]){ROWS, COLS}, DT_I32, got, &err) < 0)
		fail_msg("%s", err.msg);
	for (int i = 0; i < ROWS * COLS; i++)
		if (got[i] != (int32_t)step * 1000 + i)
			fail_msg("step %lld: element %d is %d", (long long)step, i, got[i]);
	dt_ckpt_close(c);
	assert_int_equal(dt_ckpt_verify(dir, 1, NULL, NULL, NULL, &err), 0);
	return step;
}

static void killed_at_any_moment(void **state)
{
	struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, 2);
	struct dt_err err = {0};
	int64_t last = 0;
	double t0 = dt_now(), span;
	char before[64], now_at[64];
	int moved = 0;

	assert_int_equal(save(root, 0, 2, &err), 0);
	span = dt_now() - t0;
	span = span > 0.25 ? 0.25 : span; /* a slow disk must not make a slow test */
	for (int trial = 0; trial < KILLS; trial++) {
		pid_t pid;
		int64_t now;

		latest(before);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			/* sometimes the same step again, so that replacing is interrupted too */
			for (int64_t step = last + trial % 2;; step += 1)
				if (save(root, step, 2, &err) < 0)
					_exit(1);
		}
		/* at any moment; every third time early, and every third time after a save, however slow */
		if (trial % 3 == 2) {
			double t = dt_now();

			do {
				usleep(500);
				latest(now_at);
			} while (!strcmp(now_at, before) && dt_now() - t < 60);
		}
		usleep((useconds_t)(dt_rng_uniform53(&rng, (uint64_t)trial) * (trial % 3 ? 5e5 : 2.5e6) *
				    span));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		now = check(root);
		assert_true(now >= last);
		moved += now > last;
		last = now;
	}
	print_message("%d kills, %d of them after a whole step, last step %lld\n", KILLS, moved,
		      (long long)last);
	assert_true(moved > 5 && moved < KILLS);
}

/* The whole save under a limit on file size that hits it a little later each time. */
static void no_room(void **state)
{
	struct dt_err err = {0};
	char dir[128];
	int failed = 0, saved = 0;

	snprintf(dir, sizeof(dir), "%s/small", root);
	assert_int_equal(save(dir, 1, 0, &err), 0);
	for (rlim_t limit = 0; limit < 320 << 10; limit += limit < 8192 ? 256 : 15000) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			struct rlimit r = {limit, limit};

			signal(SIGXFSZ, SIG_IGN);
			setrlimit(RLIMIT_FSIZE, &r);
			status = save(dir, 2, 0, &err);
			H5close(); /* what HDF5 could not write must not trip it at the end */
			if (status == 0)
				_exit(0);
			if (status == -EFBIG && strstr(err.msg, "File too large"))
				_exit(1);
			fprintf(stderr, "%d: %s\n", status, err.msg);
			_exit(2);
		}
		waitpid(pid, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
			fail_msg("limit %llu: status %x", (unsigned long long)limit, status);
		failed += WEXITSTATUS(status) == 1;
		saved += WEXITSTATUS(status) == 0;
		assert_int_equal(check(dir), WEXITSTATUS(status) == 0 ? 2 : 1);
		if (saved)
			break;
	}
	print_message("%d limits refused, then one was enough\n", failed);
	assert_true(failed > 20 && saved == 1);
}

/* A disk that is really full, where this machine lets us mount one. */
static void full_disk(void **state)
{
	char dir[128];
	int status;
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/disk", root);
	assert_int_equal(dt_mkdir_p(dir, NULL), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct dt_err err = {0};
		int rc;

		if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("none", dir, "tmpfs", 0, "size=640k") < 0)
			_exit(77);
		if (save(dir, 1, 0, &err) < 0)
			_exit(2);
		rc = save(dir, 2, 0, &err);
		if (rc != -ENOSPC || !strstr(err.msg, "No space left")) {
			fprintf(stderr, "%d %s\n", rc, err.msg);
			_exit(3);
		}
		_exit(check(dir) == 1 ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("no mounting here\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

struct found {
	int n;
	char text[8][1200];
};

static void note_finding(void *arg, const char *text)
{
	struct found *f = arg;

	assert_true(f->n < 8);
	snprintf(f->text[f->n++], sizeof(f->text[0]), "%s", text);
}

/* No file has HDF5's first bytes: any number of workers reports the shards in order, then the index. */
static void damaged_files_are_reported_in_order(void **state)
{
	static const char *const names[] = {"shard-00000.h5", "shard-00001.h5", "index.h5"};
	static const int workers[] = {0, 1, 2, 3, 4, 100};
	struct dt_err err = {0};
	char dir[96], path[256];

	snprintf(dir, sizeof(dir), "%s/damaged", root);
	assert_int_equal(save(dir, 5, 2, &err), 0);
	for (int i = 0; i < 3; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/step-00000005/%s", dir, names[i]);
		fd = open(path, O_WRONLY);
		assert_true(fd >= 0);
		assert_int_equal(pwrite(fd, "damaged!", 8, 0), 8);
		close(fd);
	}
	for (size_t w = 0; w < sizeof(workers) / sizeof(*workers); w++) {
		struct found f = {0};

		assert_int_equal(dt_ckpt_verify(dir, workers[w], note_finding, &f, NULL, &err), 3);
		assert_int_equal(f.n, 3);
		for (int i = 0; i < 3; i++)
			if (!strstr(f.text[i], names[i]))
				fail_msg("%d workers, finding %d: %s", workers[w], i, f.text[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(no_room),
		cmocka_unit_test(full_disk),
		cmocka_unit_test(damaged_files_are_reported_in_order),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
