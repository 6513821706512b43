/*
 * Weights that memory does not hold: logits have the bits of a model that is all in memory, with as little
 * memory as there may be and more, dense and of mixtures, whatever the format; memory and reads are those
 * that the plan says; a file that was changed or cut off is never computed with.
 */
#include "infer_golden.h"

#include "base/rng.h"
#include "base/scratch.h"
#include "plan/inferplan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char files[64];
static struct dt_dev *dev;

static int open_both(void **state)
{
	if (make_dir(state) < 0)
		return -1;
	snprintf(files, sizeof(files), "%s/files", tests_dir());
	return dt_dev_open(&dev, DT_DEV_CPU, 0, 1) < 0 || mkdir(files, 0777) < 0 ? -1 : 0;
}

static int close_both(void **state)
{
	dt_dev_close(dev);
	return remove_dir(state);
}

/* Random, from a stream of its own for each of the parameters in turn. */
static float *random_value(const struct dt_param *p, void *turn)
{
	const struct dt_rng r = dt_rng_make(3, DT_RNG_INIT, (*(uint64_t *)turn)++);
	const int64_t n = dt_param_numel(p);
	float *w = malloc((size_t)n * sizeof(*w));

	dt_rng_fill_normal(&r, 0, w, (uint64_t)n, p->init == DT_INIT_ONES ? 1 : 0, 0.05f);
	return w;
}

/* More layers than golden models have: random weights. */
static struct dt_source *deep(const char *name, const char *preset, int64_t layers)
{
	struct dt_config c;
	struct dt_err err = {0};
	uint64_t turn = 0;

	assert_int_equal(dt_config_load(preset, &c, &err), 0);
	c.layers = layers;
	c.ffn = 192; /* whole blocks */
	return tests_checkpoint(&c, random_value, &turn, tests_dir(), name);
}

static struct dt_infer_params params(enum dt_dtype type, int weights)
{
	return (struct dt_infer_params){.dtype = type,
					.cache = type,
					.weights = weights,
					.max_tokens = ROWS,
					.max_seqs = ROWS,
					.blocks = BLOCKS,
					.block_size = BLOCK};
}

enum { SEQ = 12 };

/* A prompt of two sequences, then token after token; logits of all. */
static void run(struct dt_infer *m, float *out)
{
	const int64_t vocab = dt_infer_config(m)->vocab;
	int32_t ids[2 * SEQ];

	for (int i = 0; i < 2 * SEQ; i++)
		ids[i] = (int32_t)((i * 37 + 11) % vocab);
	pass(m, ids, SEQ, 0, 5, out);
	for (int at = 5; at < SEQ; at++)
		pass(m, ids, SEQ, at, at + 1, out);
}

static size_t logits_of(const struct dt_source *src)
{
	return 2 * SEQ * (size_t)dt_source_config(src)->vocab * sizeof(float);
}

/* With so much memory; false: it is less than there has to be. */
static bool same(const char *name, struct dt_source *src, struct dt_infer_params p, uint64_t memory,
		 const float *want, struct dt_infer_disk_facts *ret)
{
	float *got = malloc(logits_of(src));
	struct dt_infer *m;
	struct dt_err err;
	int rc;

	p.disk_dir = files;
	p.disk_memory = memory;
	rc = dt_infer_open(&m, dev, src, &p, &err);
	if (rc == -ENOSPC) {
		free(got);
		return false;
	}
	if (rc < 0)
		fail_msg("%s: %s", name, err.msg);
	for (int again = 0; again < 2; again++) {
		memset(got, 0xff, logits_of(src));
		run(m, got);
		if (memcmp(got, want, logits_of(src)))
			fail_msg("%s with %llu bytes: other bits", name, (unsigned long long)memory);
	}
	assert_true(dt_infer_disk_told(m, ret));
	assert_int_equal(dt_infer_bytes(m).weights, ret->plan.memory_bytes);
	assert_true(ret->plan.memory_bytes <= memory);
	assert_int_equal(dt_infer_reload(m, src, &err), -ENOTSUP);
	dt_infer_close(m);
	free(got);
	return true;
}

/* From all weights down to the least memory. Returns how often something was read while it served. */
static int down(const char *name, struct dt_source *src, struct dt_infer_params p)
{
	float *want = malloc(logits_of(src));
	struct dt_infer_disk_facts f = {0};
	struct dt_infer *m;
	struct dt_err err;
	uint64_t all;
	int read = 0, n = 0;

	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	run(m, want);
	all = dt_infer_bytes(m).weights;
	assert_false(dt_infer_disk_told(m, &f));
	dt_infer_close(m);
	for (uint64_t memory = 2 * all; n < 40; memory = f.plan.memory_bytes - 1, n++) {
		if (!same(name, src, p, memory, want, &f))
			break;
		if (!f.plan.experts) { /* 2 x (prompt and 7 tokens), and what the last pass has read ahead */
			const int64_t streamed = f.plan.pieces - f.plan.kept, passes = 2 * (1 + SEQ - 5);

			assert_in_range(f.read_bytes / (f.plan.slot_bytes ? f.plan.slot_bytes : 1),
					streamed > f.plan.slots ? streamed * passes - f.plan.slots : 0,
					streamed > f.plan.slots ? streamed * passes + f.plan.slots
								: f.plan.slots);
		}
		read += f.read_bytes > 0;
	}
	assert_in_range(n, 1, 40);
	free(want);
	return read;
}

static void test_families(void **state)
{
	static const char *const models[] = {"gpt2",  "llama", "gemma3", "mixtral",   "qwen3moe",
					     "olmo2", "phi3",  "olmoe",	 "deepseek2", "deepseek3"};

	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		struct dt_source *src;
		struct golden g;

		golden_open(&g, models[i]);
		src = golden_checkpoint(&g, tests_dir(), models[i]);
		down(models[i], src, params(DT_F32, -1));
		down(models[i], src, params(DT_BF16, -1));
		if (dt_source_config(src)->experts && !dt_source_config(src)->kv_rank)
			assert_true(down(models[i], src, params(DT_F32, DT_FMT_Q8_0)) > 0);
		dt_source_close(src);
		golden_close(&g);
	}
}

static void test_deep(void **state)
{
	static const int formats[] = {-1, DT_FMT_BF16, DT_FMT_Q8_0, DT_FMT_Q4_0};

	for (int k = 0; k < 2; k++) {
		struct dt_source *src = deep(k ? "deep-gpt2" : "deep", k ? "gpt2-tiny" : "llama-tiny", 9);

		for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
			assert_true(down("deep", src, params(DT_F32, formats[i])) >= 5);
		dt_source_close(src);
	}
}

/* The one file that this process has open in the folder, which has no name; of so many bytes. */
static int the_file(uint64_t bytes)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *e;
	char path[300], to[300], found[300] = "";
	struct stat st;
	int fd;

	assert_non_null(d);
	while ((e = readdir(d))) { /* nothing is opened meanwhile, which would be listed, too */
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		if (!strstr(to, "dt-scratch-"))
			continue;
		assert_string_equal(found, "");
		snprintf(found, sizeof(found), "%s", path);
	}
	closedir(d);
	fd = open(found, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, bytes);
	return fd;
}

static int one_pass(struct dt_infer *m, struct dt_err *err)
{
	const int32_t zero = 0, one = 1, q_start[2] = {0, 1};
	const int64_t slot = 0;
	float *logits = malloc((size_t)dt_infer_config(m)->vocab * sizeof(*logits));
	const struct dt_infer_batch b = {.nseq = 1,
					 .ntokens = 1,
					 .ids = &zero,
					 .pos = &zero,
					 .slot = &slot,
					 .q_start = q_start,
					 .kv_len = &one,
					 .block_table = &zero,
					 .max_blocks = 1,
					 .want = &zero,
					 .nwant = 1};
	int rc = dt_infer_forward(m, &b, logits, err);

	free(logits);
	return rc;
}

static void test_damaged(void **state)
{
	struct dt_source *src = deep("damaged", "llama-tiny", 9);
	struct dt_infer_params p = params(DT_F32, -1);
	struct dt_infer_disk_facts f;
	struct dt_infer *m;
	struct dt_err err;
	char all[4096];

	assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), 0);
	p.disk_memory = dt_infer_bytes(m).weights * 2 / 3;
	dt_infer_close(m);
	p.disk_dir = "/nowhere/at/all";
	assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nowhere/at/all"));
	p.disk_dir = files;
	for (int cut = 0; cut < 2; cut++) {
		int fd;

		assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), 0);
		assert_true(dt_infer_disk_told(m, &f));
		assert_true(f.plan.file_bytes > 4 * f.plan.slot_bytes);
		assert_int_equal(one_pass(m, &err), 0);
		fd = the_file(f.plan.file_bytes);
		if (cut) {
			assert_int_equal(ftruncate(fd, (off_t)f.plan.slot_bytes), 0);
		} else {
			memset(all, 0x5a, sizeof(all));
			for (off_t at = 0; at < (off_t)f.plan.file_bytes; at += (off_t)f.plan.slot_bytes)
				assert_int_equal(pwrite(fd, all, sizeof(all), at), sizeof(all));
		}
		close(fd);
		/* Slots hold fewer pieces than the file, so that every pass reads some that are gone. */
		assert_true(f.plan.slots * f.plan.slot_bytes < f.plan.file_bytes);
		for (int again = 0; again < 3; again++) {
			const int rc = one_pass(m, &err);

			if (rc != (cut ? -EIO : -EBADMSG))
				fail_msg("%s, %s, pass %d: %d%s%s", cut ? "cut" : "changed", f.how, again, rc,
					 rc ? ": " : "", rc ? err.msg : "");
			assert_non_null(strstr(err.msg, files));
		}
		dt_infer_close(m);
	}
	dt_source_close(src);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, open_both, close_both);
}
/* SPDX-License-Identifier: Apache-2.0 */
