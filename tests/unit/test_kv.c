/*
 * The prefix cache beyond the pool, over a stand-in model whose tokens depend on every id that the cache has:
 * whatever is evicted, written, read, damaged or lost, tokens are those of the plain loop.
 */
#include "base/tmpfile.h"
#include "serve/engine/kvhost.h"
#include "serve/engine/kvio.h"
#include "serve_engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { SIZE = 4, PROMPTS = 12, PROMPT = 60, OUT = 12, BLOCK = SIZE * 4 };

static char dir[] = "/tmp/test-kv-XXXXXX";
static FILE *said; /* what was logged */
static struct dt_log note = {.name = "test", .rank = -1};

static struct dt_kvdisk *open_disk(uint64_t size, uint64_t name)
{
	const struct dt_kvdisk_params p = {.dir = dir,
					   .size = size,
					   .name = name,
					   .about = "{}",
					   .block_bytes = BLOCK,
					   .block_size = SIZE,
					   .log = &note};
	struct dt_kvdisk *d;
	struct dt_err err;

	if (dt_kvdisk_open(&d, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return d;
}

static int fresh(void **state)
{
	kv_host = 0;
	kv_disk = NULL;
	rewind(said);
	if (ftruncate(fileno(said), 0) < 0)
		return -1;
	return dt_remove_tree(dir, NULL) < 0 || mkdir(dir, 0700) < 0 ? -1 : 0;
}

/* Whether the log has said so. */
static bool was_said(const char *what)
{
	char line[1024];
	bool found = false;

	fflush(said);
	rewind(said);
	while (fgets(line, sizeof(line), said))
		found |= strstr(line, what) != NULL;
	fseek(said, 0, SEEK_END);
	return found;
}

struct used {
	int computed, written;	  /* tokens; blocks put into the pool from elsewhere */
	struct dt_kvio_counts io; /* of blocks */
};

/* Every prompt so many times, `together` of them at once, in a new engine with a small pool. */
static struct used serve(int times, int together)
{
	struct dt_call *c[PROMPTS];
	struct used u;
	struct fake f;
	struct dt_engine *e = start(&f, 60, 4, 16, PROMPTS);

	for (int i = 0; i < times * PROMPTS; i += together) {
		for (int k = 0; k < together; k++)
			submit(e, c[k] = ask_alike((i + k) % PROMPTS, 3, PROMPT, OUT));
		for (int k = 0; k < together; k++) {
			dt_call_wait_done(c[k]);
			assert_right(&c[k]->req[0]);
			dt_call_drop(c[k]);
		}
	}
	u = (struct used){
		.computed = f.tokens, .written = f.written, .io = dt_engine_metrics(e)->beyond.disk};
	finish(e, &f);
	return u;
}

/* The pool holds three or four prompts, host memory all: from the second time on little is computed. */
static void test_host(void **state)
{
	struct used without = serve(3, 1), with;

	kv_host = 400 * BLOCK;
	with = serve(3, 1);
	assert_int_equal(without.written, 0);
	assert_true(with.written > PROMPTS * 8);
	assert_true(with.computed < without.computed * 2 / 3);
	(void)serve(3, PROMPTS);
	kv_host = 2 * BLOCK; /* the smallest: each block is overwritten at once */
	(void)serve(3, 4);
}

/* A new engine finds what an ended one has written. */
static void test_restart(void **state)
{
	struct used first, second;

	kv_disk = open_disk(1 << 20, 7);
	first = serve(1, 1);
	dt_kvdisk_close(kv_disk);
	kv_disk = open_disk(1 << 20, 7);
	second = serve(1, 1);
	assert_true(second.written > PROMPTS * 7);
	assert_true(second.computed < first.computed / 2);
	assert_int_equal(second.io.failed, 0);
	dt_kvdisk_close(kv_disk);

	kv_disk = open_disk(1 << 20, 8); /* of another model */
	second = serve(1, 1);
	assert_int_equal(second.computed, first.computed);
	kv_host = 100 * BLOCK;
	(void)serve(3, PROMPTS);
	dt_kvdisk_close(kv_disk);
}

/* For each file of a folder and those below. */
static void each_file(const char *at, void (*f)(const char *path, int i), int *n)
{
	DIR *d = opendir(at);
	const struct dirent *e;
	char path[4096];
	struct stat st;

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", at, e->d_name);
		if (e->d_name[0] == '.' || lstat(path, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode))
			each_file(path, f, n);
		else if (strlen(e->d_name) == 33)
			f(path, (*n)++);
	}
	closedir(d);
}

static void damage(const char *path, int i)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	char byte;

	assert_true(fd >= 0);
	fstat(fd, &st);
	switch (i % 4) {
	case 0: /* one bit, somewhere */
		assert_int_equal(pread(fd, &byte, 1, i * 7 % st.st_size), 1);
		byte ^= 1 << i / 4 % 8;
		assert_int_equal(pwrite(fd, &byte, 1, i * 7 % st.st_size), 1);
		break;
	case 1:
		assert_int_equal(ftruncate(fd, i % st.st_size), 0);
		break;
	case 2:
		assert_int_equal(pwrite(fd, "somebody else's file, which has nothing to do with it", 53, 0),
				 53);
		break;
	}
	close(fd);
}

static void test_damage(void **state)
{
	struct used first, second;
	int n = 0;

	kv_disk = open_disk(1 << 20, 7);
	first = serve(1, 1);
	each_file(dir, damage, &n);
	assert_true(n > 60);
	second = serve(1, 1);
	assert_true(second.io.failed > 0 && second.computed > 0 && second.computed <= first.computed);
	assert_true(was_said("it is not a cache block") && was_said("computed again"));
	(void)serve(2, PROMPTS);
	dt_kvdisk_close(kv_disk);
}

/* A change of any bit of a file is noticed. */
static void test_every_bit(void **state)
{
	const struct dt_kvkey key = {{5, 6}};
	const int32_t ids[SIZE] = {1, 2, 3, 4}, others[SIZE] = {1, 2, 3, 5};
	char data[BLOCK] = "keys and values", got[BLOCK], path[4096], file[512];
	ssize_t n;
	int fd;

	kv_disk = open_disk(1 << 20, 7);
	assert_int_equal(dt_kvdisk_get(kv_disk, key, ids, got), -ENOENT);
	assert_int_equal(dt_kvdisk_put(kv_disk, key, ids, data), 0);
	assert_int_equal(dt_kvdisk_get(kv_disk, key, ids, got), 0);
	assert_memory_equal(data, got, BLOCK);
	snprintf(path, sizeof(path), "%s/%016x/00/%014x%016x.kv", dir, 7, 5, 6);
	fd = open(path, O_RDONLY);
	n = read(fd, file, sizeof(file));
	assert_true(n > BLOCK + 16);
	close(fd);
	for (ssize_t bit = 0; bit < 8 * n; bit++) {
		file[bit / 8] ^= 1 << bit % 8;
		unlink(path);
		fd = open(path, O_WRONLY | O_CREAT, 0600);
		assert_int_equal(write(fd, file, (size_t)n), n);
		close(fd);
		assert_int_equal(dt_kvdisk_get(kv_disk, key, ids, got), -EBADMSG);
		file[bit / 8] ^= 1 << bit % 8;
	}
	unlink(path);
	assert_int_equal(dt_kvdisk_put(kv_disk, key, ids, data), 0);
	assert_int_equal(dt_kvdisk_get(kv_disk, key, others, got), -EBADMSG);
	assert_int_equal(symlink("/dev/zero", path), 0);
	assert_int_equal(dt_kvdisk_get(kv_disk, key, ids, got), -EBADMSG);
	dt_kvdisk_close(kv_disk);
}

/* Files that cannot grow stand in for a disk that is full. */
static void test_full(void **state)
{
	struct rlimit old, none = {0};
	struct used first, second;

	signal(SIGXFSZ, SIG_IGN);
	kv_disk = open_disk(1 << 20, 7);
	getrlimit(RLIMIT_FSIZE, &old);
	none = (struct rlimit){30, old.rlim_max};
	fflush(said);
	note.f = NULL; /* which could not grow either */
	setrlimit(RLIMIT_FSIZE, &none);
	first = serve(1, 1);
	setrlimit(RLIMIT_FSIZE, &old);
	note.f = said;
	assert_int_equal(first.io.written, 0);
	second = serve(1, 1);
	assert_int_equal(second.computed, first.computed);
	second = serve(1, 1);
	assert_true(second.computed < first.computed / 2);
	dt_kvdisk_close(kv_disk);
}

static uint64_t total;

static void add(const char *path, int i)
{
	struct stat st;

	total += stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* The folder does not grow past its size; what was used last stays. */
static void test_size(void **state)
{
	const uint64_t room = 60 * (BLOCK + 16 + 48);
	int n = 0;

	kv_disk = open_disk(room, 7);
	(void)serve(2, 1);
	total = 0;
	each_file(dir, add, &n);
	assert_true(n > 30 && total <= room);
	dt_kvdisk_close(kv_disk);
	kv_disk = open_disk(room / 2, 7); /* by opening too */
	total = 0;
	each_file(dir, add, &n);
	assert_true(total <= room / 2);
	dt_kvdisk_close(kv_disk);
}

/* Requests that leave while their blocks are read leave nothing behind; choices wait for their leader. */
static void test_leaving(void **state)
{
	enum { N = 60 };
	struct dt_call *c[N];
	struct fake f;
	struct dt_engine *e;

	kv_disk = open_disk(1 << 20, 7);
	(void)serve(1, 1);
	e = start(&f, 60, 4, 16, 3 * N);
	for (int i = 0; i < N; i++) {
		c[i] = ask_alike(i % PROMPTS, 3, PROMPT, OUT);
		if (i % 3 == 1) {
			dt_call_drop(c[i]);
			c[i] = dt_call_new(3);
			for (int k = 0; k < 3; k++) {
				struct dt_call *o = ask_alike(i % PROMPTS, 3, PROMPT, OUT);

				dt_serve_req_set_prompt(&c[i]->req[k], o->req[0].tokens,
							(size_t)o->req[0].nprompt, OUT);
				c[i]->req[k].choice = (uint32_t)k;
				dt_call_drop(o);
			}
			c[i]->ask.sampling.temperature = 0;
			c[i]->ask.ignore_eos = true;
		}
		submit(e, c[i]);
		if (i % 3 == 0)
			dt_engine_cancel(e, c[i]);
	}
	for (int i = 0; i < N; i++) {
		dt_call_wait_done(c[i]);
		for (int k = 0; k < c[i]->n && i % 3; k++)
			assert_right(&c[i]->req[k]);
		dt_call_drop(c[i]);
	}
	finish(e, &f);
	dt_kvdisk_close(kv_disk);
}

/* What two servers of one machine write into one folder, both find. */
static void test_shared(void **state)
{
	struct dt_kvdisk *other;
	struct used u;

	kv_disk = open_disk(1 << 20, 7);
	other = open_disk(1 << 20, 7);
	(void)serve(1, 1);
	dt_kvdisk_close(kv_disk);
	kv_disk = other;
	u = serve(1, 1);
	assert_true(u.io.read > PROMPTS * 7);
	dt_kvdisk_close(kv_disk);
}

static atomic_bool begun;
static atomic_int early, late;

static int forward_when_begun(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	(*(begun ? &late : &early))++;
	return fake_forward(m, b, logits, err);
}

/*
 * The engine of several ranks is held until its caller sends no more messages. It then measures the time of a
 * block, on all ranks.
 */
static void test_held(void **state)
{
	struct dt_engine_params p;
	struct dt_engine *e;
	struct dt_call *c;
	struct fake f;
	struct dt_err err;

	kv_host = 100 * BLOCK;
	e = start(&f, 40, 2, 64, 4);
	p = *dt_engine_params(e);
	dt_engine_close(e);
	p.model.begin = NULL;
	p.model.depth = 1;
	p.model.forward = forward_when_begun;
	p.kv_always = false;
	p.held = true;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dt_engine_open(&e, &p, &err), 0);
		usleep(50000);
		if (i == 1) {
			begun = true;
			dt_engine_begin(e);
			c = one(1, 3);
			submit(e, c);
			dt_call_wait_done(c);
			assert_int_equal(c->req[0].nout, 3);
			dt_call_drop(c);
			assert_int_equal(dt_engine_wait_idle(e, 30), 0);
		}
		dt_engine_close(e);
	}
	fake_release(&f);
	assert_int_equal(early, 0);
	assert_true(late >= 4); /* one at least to measure */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_held, fresh),      cmocka_unit_test_setup(test_host, fresh),
		cmocka_unit_test_setup(test_restart, fresh),   cmocka_unit_test_setup(test_damage, fresh),
		cmocka_unit_test_setup(test_every_bit, fresh), cmocka_unit_test_setup(test_full, fresh),
		cmocka_unit_test_setup(test_size, fresh),      cmocka_unit_test_setup(test_leaving, fresh),
		cmocka_unit_test_setup(test_shared, fresh),
	};
	int rc;

	said = tmpfile();
	if (!mkdtemp(dir) || !said)
		return 1;
	note.f = said;
	rc = cmocka_run_group_tests(tests, setup, teardown);
	dt_remove_tree(dir, NULL);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
