/*
 * base/tmpfile.h: a reader sees the old file or the whole new one, whatever happens to the writer. And
 * base/step_name.h.
 */
#include "base/tmpfile.h"

#include "base/step_name.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], path[128];

static int setup(void **state)
{
	strcpy(dir, "/tmp/dt-test-tmpfile-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/out", dir);
	return 0;
}

static int teardown(void **state)
{
	return dt_remove_tree(dir, NULL);
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void assert_content(const char *name, const char *want)
{
	char got[256] = "";
	FILE *f = fopen(name, "r");

	assert_non_null(f);
	got[fread(got, 1, sizeof(got) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(got, want);
}

static size_t leftovers(void)
{
	char pattern[160];
	size_t n;
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/*.tmp.*", dir);
	n = glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
	globfree(&g);
	return n;
}

static void commit_replaces(void **state)
{
	struct dt_err err = {0};
	struct dt_tmpfile t;

	write_file(path, "old");
	assert_int_equal(dt_tmpfile_open(&t, path, &err), 0);
	fputs("new", t.f);
	assert_content(path, "old");
	assert_int_equal(dt_tmpfile_commit(&t, &err), 0);
	assert_content(path, "new");
	assert_int_equal(leftovers(), 0);
	dt_tmpfile_abort(&t); /* nothing after a commit */
	assert_content(path, "new");
}

/* A file that only its owner may read stays so. */
static void permissions_stay(void **state)
{
	struct dt_err err = {0};
	struct dt_tmpfile t;
	struct stat st;

	write_file(path, "old");
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(dt_tmpfile_open(&t, path, &err), 0);
	fputs("new", t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), 0);
	assert_content(path, "new");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void abort_keeps_the_old(void **state)
{
	struct dt_err err = {0};
	struct dt_tmpfile t;

	write_file(path, "old");
	assert_int_equal(dt_tmpfile_open(&t, path, &err), 0);
	fputs("half", t.f);
	dt_tmpfile_abort(&t);
	dt_tmpfile_abort(&t);
	assert_content(path, "old");
	assert_int_equal(leftovers(), 0);
}

static void kill_in_the_middle_keeps_the_old(void **state)
{
	int status;
	pid_t pid;

	write_file(path, "old");
	pid = fork();
	if (pid == 0) {
		struct dt_tmpfile t;

		if (dt_tmpfile_open(&t, path, NULL) < 0)
			_exit(1);
		fputs("half", t.f);
		fflush(t.f);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_content(path, "old");
	assert_int_equal(leftovers(), 1); /* what remains has another name */
}

static void full_disk_keeps_the_old(void **state)
{
	static const char block[1 << 16];
	struct rlimit was, small;
	struct dt_err err = {0};
	struct dt_tmpfile t;

	write_file(path, "old");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = was;
	small.rlim_cur = 1000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(dt_tmpfile_open(&t, path, &err), 0);
	for (int i = 0; i < 10000; i++)
		fputc('x', t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), -EFBIG);
	/* the reason is told also if nothing is left in the buffer */
	assert_int_equal(dt_tmpfile_open(&t, path, &err), 0);
	fwrite(block, 1, sizeof(block), t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_non_null(strstr(err.msg, path));
	assert_content(path, "old");
	assert_int_equal(leftovers(), 0);
}

static void devices_are_written_not_replaced(void **state)
{
	struct dt_err err = {0};
	struct dt_tmpfile t;
	char fifo[160], got[16] = "";
	struct stat st;
	int fd;

	assert_int_equal(dt_tmpfile_open(&t, "/dev/full", &err), 0);
	fputs("x", t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), -ENOSPC);
	/* the reason is told also if the error came before the end */
	assert_int_equal(dt_tmpfile_open(&t, "/dev/full", &err), 0);
	for (int i = 0; i < 100000; i++)
		fputc('x', t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), -ENOSPC);
	assert_int_equal(stat("/dev/full", &st), 0);
	assert_true(S_ISCHR(st.st_mode));

	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	fd = open(fifo, O_RDWR);
	assert_int_equal(dt_tmpfile_open(&t, fifo, &err), 0);
	fputs("through", t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), 0);
	assert_int_equal(read(fd, got, sizeof(got)), 7);
	assert_string_equal(got, "through");
	close(fd);
	assert_int_equal(stat(fifo, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
}

static void links_stay(void **state)
{
	char link[160], target[64] = "";
	struct dt_err err = {0};
	struct dt_tmpfile t;
	struct stat st;

	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(symlink("out", link), 0);
	assert_int_equal(dt_tmpfile_open(&t, link, &err), -ENOENT); /* it points to nothing */
	assert_non_null(strstr(err.msg, "link to a missing file"));
	assert_int_equal(dt_out_check(link, &err), -ENOENT);
	write_file(path, "old");
	assert_int_equal(dt_tmpfile_open(&t, link, &err), 0);
	fputs("new", t.f);
	assert_int_equal(dt_tmpfile_commit(&t, &err), 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(readlink(link, target, sizeof(target) - 1), 3);
	assert_content(path, "new");
	assert_int_equal(leftovers(), 0);
}

static void only_files_are_replaced(void **state)
{
	char fifo[160], link[160], *real;
	struct dt_err err = {0};
	FILE *f;

	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(symlink("fifo", link), 0);
	assert_int_equal(dt_out_path(fifo, &real, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "a FIFO"));
	assert_int_equal(dt_out_path(link, &real, &err), -EINVAL);
	assert_int_equal(dt_out_path("/dev/null", &real, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "a device"));
	assert_int_equal(dt_out_path(dir, &real, &err), -EISDIR);
	assert_int_equal(dt_out_stream(dir, false, &f, &err), -EISDIR);
	assert_int_equal(dt_out_path(path, &real, &err), 0); /* missing */
	assert_string_equal(real, path);
	free(real);
}

static void places_that_are_asked_before(void **state)
{
	char fifo[160], under[160], in_file[160];
	struct dt_err err = {0};

	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	snprintf(under, sizeof(under), "%s/missing/out", dir);
	snprintf(in_file, sizeof(in_file), "%s/out/out", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(dt_out_check(fifo, &err), 0); /* written in place */
	assert_int_equal(dt_out_check("/dev/null", &err), 0);
	assert_int_equal(dt_out_check(path, &err), 0); /* missing */
	assert_int_equal(dt_out_check(dir, &err), -EISDIR);
	assert_int_equal(dt_out_check(under, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "missing/out"));
	write_file(path, "x");
	assert_int_equal(dt_out_check(path, &err), 0);
	assert_int_equal(dt_out_check(in_file, &err), -ENOTDIR);
	if (geteuid() != 0) { /* root may write everywhere */
		assert_int_equal(chmod(dir, 0500), 0);
		assert_int_equal(dt_out_check(path, &err), -EACCES);
		assert_int_equal(chmod(dir, 0700), 0);
	}
}

static void folders_that_are_asked_before(void **state)
{
	char under[160], in_file[160], link[160];
	struct dt_err err = {0};

	snprintf(under, sizeof(under), "%s/missing/too", dir);
	snprintf(in_file, sizeof(in_file), "%s/out/a/b", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(dt_out_check_dir(dir, &err), 0);
	assert_int_equal(dt_out_check_dir(under, &err), 0);
	assert_int_equal(access(under, F_OK), -1); /* not made yet */
	assert_int_equal(dt_out_check_dir("missing/too", &err), 0);
	assert_int_equal(dt_out_check_dir("/dev/null", &err), -ENOTDIR);
	assert_string_equal(err.msg, "cannot write into '/dev/null': it is a device");
	write_file(path, "x");
	assert_int_equal(dt_out_check_dir(path, &err), -ENOTDIR);
	assert_non_null(strstr(err.msg, "it is a file"));
	assert_int_equal(dt_out_check_dir(in_file, &err), -ENOTDIR);
	assert_int_equal(symlink("nothing", link), 0);
	assert_int_equal(dt_out_check_dir(link, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "link to a missing folder"));
	if (geteuid() != 0) { /* root may write everywhere */
		assert_int_equal(chmod(dir, 0500), 0);
		assert_int_equal(dt_out_check_dir(dir, &err), -EACCES);
		assert_int_equal(dt_out_check_dir(under, &err), -EACCES);
		assert_int_equal(chmod(dir, 0700), 0);
	}
}

static void files_of_a_folder(void **state)
{
	char full[PATH_MAX + 8], cwd[PATH_MAX];

	assert_non_null(getcwd(cwd, sizeof(cwd)));
	snprintf(full, sizeof(full), "%s/no/m", cwd);
	assert_true(dt_out_in("no/m", "no"));
	assert_true(dt_out_in("./no//m", "no/"));
	assert_true(dt_out_in("no/./m", "./no/."));
	assert_true(dt_out_in(full, "no"));
	assert_true(dt_out_in("no/m", full) == false && dt_out_in("m", "."));
	assert_false(dt_out_in("no-m", "no")); /* begins alike */
	assert_false(dt_out_in("no", "no"));
	assert_false(dt_out_in("no/a/m", "no"));
	assert_false(dt_out_in("no", "no/m"));
	assert_false(dt_out_in("/no/m", "no"));
	assert_true(dt_out_in(".no/.m", ".no"));
	assert_true(dt_out_in("/m", "/"));
}

static void outputs_that_are_inputs(void **state)
{
	char other[160], link[160], dotted[160];

	snprintf(other, sizeof(other), "%s/other", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	snprintf(dotted, sizeof(dotted), "%s/./out", dir);
	assert_true(dt_out_is(path, dotted)); /* neither exists yet */
	assert_false(dt_out_is(path, other));
	write_file(path, "x");
	assert_false(dt_out_is(path, other));
	assert_false(dt_out_is(other, path));
	assert_true(dt_out_is(path, dotted));
	assert_int_equal(symlink("out", link), 0);
	assert_true(dt_out_is(path, link));
	assert_true(dt_out_is(link, path));
	assert_false(dt_out_is("/dev/null", "/dev/null")); /* nothing is lost */
}

static void impossible_places(void **state)
{
	struct dt_err err = {0};
	struct dt_tmpfile t;

	assert_int_equal(dt_tmpfile_open(&t, "/nonexistent/x", &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nonexistent/x"));
	assert_int_equal(dt_tmpfile_open(&t, dir, &err), -EISDIR);
}

static int mode_of(const char *at)
{
	struct stat st;

	assert_int_equal(stat(at, &st), 0);
	return st.st_mode & 0777;
}

/* A new folder that is its owner's alone; its parents and an existing one keep their permissions. */
static void folders_of_their_own(void **state)
{
	char parent[160], own[200], slash[210];
	struct dt_err err = {0};
	const mode_t mask = umask(022);

	snprintf(parent, sizeof(parent), "%s/open", dir);
	snprintf(own, sizeof(own), "%s/own", parent);
	snprintf(slash, sizeof(slash), "%s//", own);
	assert_int_equal(dt_mkdir_own(slash, &err), 0);
	assert_int_equal(mode_of(own), 0700);
	assert_int_equal(mode_of(parent), 0755);
	assert_int_equal(chmod(own, 0750), 0);
	assert_int_equal(dt_mkdir_own(own, &err), 0);
	assert_int_equal(mode_of(own), 0750);
	umask(mask);
	assert_int_equal(dt_remove_tree(parent, &err), 0);
}

static void folders(void **state)
{
	char deep[160], link[160], file[200], target[64] = "";
	struct dt_err err = {0};

	snprintf(deep, sizeof(deep), "%s/a/b/c", dir);
	assert_int_equal(dt_mkdir_p(deep, &err), 0);
	assert_int_equal(dt_mkdir_p(deep, &err), 0); /* already there */
	snprintf(file, sizeof(file), "%s/file", deep);
	write_file(file, "x");
	assert_int_equal(dt_mkdir_p(file, &err), -ENOTDIR); /* a file in its place */
	assert_int_equal(dt_fsync_dir(deep, &err), 0);
	assert_int_equal(dt_fsync_path(file, &err), 0);
	assert_int_equal(dt_fsync_path("/nonexistent", &err), -ENOENT);

	snprintf(link, sizeof(link), "%s/latest", dir);
	assert_int_equal(dt_symlink_replace("a", link, &err), 0);
	assert_int_equal(dt_symlink_replace("a/b", link, &err), 0);
	assert_int_equal(readlink(link, target, sizeof(target) - 1), 3);
	assert_string_equal(target, "a/b");
	assert_int_equal(leftovers(), 0);

	assert_int_equal(dt_remove_tree(link, &err), 0); /* the link, not what it points to */
	assert_int_equal(access(deep, F_OK), 0);
	snprintf(deep, sizeof(deep), "%s/a", dir);
	assert_int_equal(dt_remove_tree(deep, &err), 0);
	assert_int_equal(access(deep, F_OK), -1);
	assert_int_equal(dt_remove_tree(deep, &err), 0); /* missing is no error */
}

/* Runs dt_close_stdout in a child whose stdout is fd, -1: closed, after writing bytes; returns its errno. */
static int close_stdout_on(int fd, int bytes)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGPIPE, SIG_IGN);
		if (fd < 0)
			close(1);
		else
			dup2(fd, 1);
		for (int i = 0; i < bytes; i++)
			putchar('x');
		_exit(-dt_close_stdout(NULL));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void close_stdout(void **state)
{
	int full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_WRONLY), p[2];

	fflush(stdout);
	assert_int_equal(close_stdout_on(null, 10), 0);
	assert_int_equal(close_stdout_on(full, 0), 0);
	assert_int_equal(close_stdout_on(full, 10), ENOSPC);
	assert_int_not_equal(close_stdout_on(full, 100001), 0);
	assert_int_equal(pipe(p), 0);
	close(p[0]);
	assert_int_equal(close_stdout_on(-1, 0), 0);
	assert_int_equal(close_stdout_on(-1, 10), EBADF);
	assert_int_equal(close_stdout_on(p[1], 10), EPIPE);
	assert_int_equal(close_stdout_on(p[1], 1 << 16), EPIPE);
	close(p[1]);
	close(full);
	close(null);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void names_of_steps(void **state)
{
	static const char *const others[] = {
		"step-",
		"step-1",
		"step-00000001.tmp",
		"step-00000001-best",
		"step-000000001",
		"step--0000001",
		"step-+0000001",
		"step- 0000001",
		"Step-00000001",
		"step-99999999999999999999",
	};
	static const int64_t steps[] = {0, 1, 99999999, 100000000, INT64_MAX};
	char name[DT_STEP_NAME];

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		dt_step_name(name, steps[i]);
		assert_int_equal(dt_step_of(name), steps[i]);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		assert_int_equal(dt_step_of(others[i]), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(commit_replaces),
		T(permissions_stay),
		T(abort_keeps_the_old),
		T(kill_in_the_middle_keeps_the_old),
		T(full_disk_keeps_the_old),
		T(devices_are_written_not_replaced),
		T(links_stay),
		T(only_files_are_replaced),
		T(places_that_are_asked_before),
		T(folders_that_are_asked_before),
		T(files_of_a_folder),
		T(outputs_that_are_inputs),
		T(impossible_places),
		T(folders),
		T(folders_of_their_own),
		cmocka_unit_test(close_stdout),
		cmocka_unit_test(names_of_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
