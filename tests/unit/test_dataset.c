/* Datasets: what is written is read back, damage is refused, the order depends on seed and epoch only. */
#include "data/dataset.h"

#include "base/io.h"
#include "base/rng.h"
#include "base/tmpfile.h"
#include "data/shard_set.h"
#include "data/text_source.h"
#include "data/tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/dt-dataset-XXXXXX";

static const char *at(const char *name)
{
	static char path[4][256];
	static int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

static int setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	return dt_remove_tree(dir, NULL);
}

static int files(void)
{
	DIR *d = opendir(dir);
	int n = -2; /* . and .. */

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct dt_tokenizer *tokenizer(const char *text)
{
	struct dt_tokenizer *t;
	struct dt_err err = {0};

	if (dt_tokenizer_from_text(text, strlen(text), &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static int32_t value(int64_t i)
{
	struct dt_rng r = dt_rng_make(3, DT_RNG_TEST, 0);

	return (int32_t)(dt_rng_u32(&r, (uint64_t)i) & 0xff);
}

/* n tokens, value(i), in documents of 1000 with their end-of-text tokens counted in n. */
static void make(const char *path, int64_t n, int64_t max_shard, int shards)
{
	struct dt_tokenizer *t = tokenizer("byte");
	struct dt_dataset_writer *w;
	struct dt_err err = {0};

	if (dt_dataset_create(path, t, max_shard, "a test", &w, &err) < 0)
		fail_msg("%s", err.msg);
	if (shards)
		dt_dataset_set_shards(w, shards);
	for (int64_t i = 0; i < n; i++) {
		int32_t v = value(i);

		if (i % 1000 == 999)
			assert_int_equal(dt_dataset_end_document(w, &err), 0);
		else
			assert_int_equal(dt_dataset_append(w, &v, 1, &err), 0);
	}
	if (dt_dataset_finish(w, &err) < 0)
		fail_msg("%s", err.msg);
	dt_tokenizer_close(t);
}

static struct dt_dataset *open_it(const char *path)
{
	struct dt_dataset *d;
	struct dt_err err = {0};

	if (dt_dataset_open(path, &d, &err) < 0)
		fail_msg("%s", err.msg);
	return d;
}

static void check_all(struct dt_dataset *d, int64_t n)
{
	static const int64_t sizes[] = {1, 2, 7, 999, 5000};
	int32_t buf[5000];
	struct dt_err err = {0};
	int k = 0;

	for (int64_t i = 0; i < n; k++) {
		int64_t part = sizes[k % 5] < n - i ? sizes[k % 5] : n - i;

		if (dt_dataset_read(d, i, part, buf, &err) < 0)
			fail_msg("%s", err.msg);
		for (int64_t j = 0; j < part; j++)
			assert_int_equal(buf[j], (i + j) % 1000 == 999 ? 256 : value(i + j));
		i += part;
	}
	assert_int_equal(dt_dataset_read(d, n, 1, buf, &err), -ERANGE);
	assert_int_equal(dt_dataset_read(d, -1, 1, buf, &err), -ERANGE);
	assert_int_equal(dt_dataset_read(d, 0, n + 1, buf, &err), -ERANGE);
	assert_int_equal(dt_dataset_read(d, 1, INT64_MAX, buf, &err), -ERANGE);
}

static void test_round_trip(void **state)
{
	static const struct {
		int64_t n, max;
		int shards, want;
	} cases[] = {{1, 0, 0, 1}, {70001, 0, 0, 1}, {70001, 20000, 0, 4}, {70001, 0, 7, 7}, {3, 0, 9, 3}};

	for (size_t i = 0; i < 5; i++) {
		struct dt_dataset_info info;
		struct dt_dataset *d;
		struct dt_err err = {0};

		make(at("D.h5"), cases[i].n, cases[i].max, cases[i].shards);
		d = open_it(at("D.h5"));
		dt_dataset_info(d, &info);
		assert_int_equal(info.tokens, cases[i].n);
		assert_int_equal(info.documents, cases[i].n / 1000);
		assert_int_equal(info.vocab, 257);
		assert_int_equal(info.shards, cases[i].want);
		assert_string_equal(info.source, "a test");
		assert_int_equal(info.tokenizer_bytes, 4);
		assert_string_equal(info.tokenizer_text, "byte");
		check_all(d, cases[i].n);
		if (dt_dataset_verify(d, &err) < 0)
			fail_msg("%s", err.msg);
		dt_dataset_close(d);
		assert_int_equal(files(), cases[i].want == 1 ? 1 : cases[i].want + 1);
		teardown(NULL);
		setup(NULL);
	}
}

/* A vocabulary past 65536 needs four bytes a token. */
static void test_wide_ids(void **state)
{
	struct dt_tokenizer *t =
		tokenizer("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":70000},\"merges\":[]},"
			  "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}");
	struct dt_dataset_writer *w;
	struct dt_dataset_info info;
	struct dt_dataset *d;
	struct dt_err err = {0};
	int32_t ids[] = {0, 70000, 65536, 65535, 1}, back[5], bad = 70001;

	assert_int_equal(dt_dataset_create(at("D.h5"), t, 0, NULL, &w, &err), 0);
	assert_int_equal(dt_dataset_append(w, ids, 5, &err), 0);
	assert_int_equal(dt_dataset_append(w, &bad, 1, &err), -EINVAL);
	bad = -1;
	assert_int_equal(dt_dataset_append(w, &bad, 1, &err), -EINVAL);
	assert_int_equal(dt_dataset_end_document(w, &err), 0); /* there is no end-of-text token */
	assert_int_equal(dt_dataset_finish(w, &err), 0);
	d = open_it(at("D.h5"));
	dt_dataset_info(d, &info);
	assert_int_equal(info.token_bytes, 4);
	assert_int_equal(info.tokens, 5);
	assert_int_equal(dt_dataset_read(d, 0, 5, back, &err), 0);
	assert_memory_equal(ids, back, sizeof(ids));
	dt_dataset_close(d);
	dt_tokenizer_close(t);
}

static void test_nothing_before_finish(void **state)
{
	struct dt_tokenizer *t = tokenizer("byte");
	struct dt_dataset_writer *w;
	struct dt_err err = {0};
	int32_t v = 1;

	assert_int_equal(dt_dataset_create(at("D.h5"), t, 0, "", &w, &err), 0);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(dt_dataset_append(w, &v, 1, &err), 0);
	assert_int_equal(files(), 0);
	dt_dataset_abandon(w);
	assert_int_equal(files(), 0);
	assert_int_equal(dt_dataset_create(at("D.h5"), t, 0, "", &w, &err), 0);
	assert_int_equal(dt_dataset_finish(w, &err), -EINVAL); /* empty */
	assert_int_equal(files(), 0);
	assert_int_equal(dt_dataset_create(at("no/D.h5"), t, 0, "", &w, &err), -ENOENT);
	dt_tokenizer_close(t);
}

static void refuse(const char *path, const char *why)
{
	struct dt_dataset *d = NULL;
	struct dt_err err = {0};
	int rc = dt_dataset_open(path, &d, &err);

	if (rc >= 0 || d || !strstr(err.msg, why))
		fail_msg("result %d, message '%s', expected '%s'", rc, err.msg, why);
}

static void test_truncated(void **state)
{
	long n;
	FILE *f;

	make(at("D.h5"), 20000, 0, 0);
	f = fopen(at("D.h5"), "r");
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	fclose(f);
	for (long len = n - 1; len > 0; len -= 1 + n / 50) {
		assert_int_equal(truncate(at("D.h5"), len), 0);
		refuse(at("D.h5"), len > 100 ? "truncated" : at("D.h5"));
	}
	assert_int_equal(truncate(at("D.h5"), 0), 0);
	refuse(at("D.h5"), "not an HDF5 file");
}

static void test_foreign(void **state)
{
	hid_t f;
	FILE *plain = fopen(at("text"), "w");

	fputs("not HDF5 at all", plain);
	fclose(plain);
	refuse(at("text"), "not an HDF5 file");
	refuse(at("missing.h5"), "No such file");
	f = H5Fcreate(at("other.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(f);
	refuse(at("other.h5"), "not a dataset made by dt");
}

static void change_attr(const char *path, const char *name, int64_t v)
{
	hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), a = H5Aopen(f, name, H5P_DEFAULT);

	assert_true(a >= 0 && H5Awrite(a, H5T_NATIVE_INT64, &v) >= 0);
	H5Aclose(a);
	H5Fclose(f);
}

static void test_contradictions(void **state)
{
	struct dt_dataset *d;
	struct dt_err err = {0};
	int32_t buf[100];
	hid_t f;

	make(at("D.h5"), 5000, 0, 0);
	change_attr(at("D.h5"), "vocab", 100);
	d = open_it(at("D.h5"));
	assert_int_equal(dt_dataset_read(d, 0, 100, buf, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "vocabulary"));
	dt_dataset_close(d);
	change_attr(at("D.h5"), "vocab", -3);
	refuse(at("D.h5"), "vocab");
	change_attr(at("D.h5"), "vocab", 257);
	change_attr(at("D.h5"), "version", 2);
	refuse(at("D.h5"), "version");
	change_attr(at("D.h5"), "version", 1);
	change_attr(at("D.h5"), "crc32", 12345);
	d = open_it(at("D.h5"));
	assert_int_equal(dt_dataset_verify(d, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "checksum"));
	dt_dataset_close(d);
	f = H5Fopen(at("D.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	H5Ldelete(f, "tokens", H5P_DEFAULT);
	H5Fclose(f);
	refuse(at("D.h5"), "tokens");
}

/* Documents of 1, 2, 3 ... tokens with the end-of-text token behind each; every third is empty. */
static void make_apart(const char *path, int documents, int shards)
{
	struct dt_tokenizer *t = tokenizer("byte");
	struct dt_dataset_writer *w;
	struct dt_err err = {0};
	const int32_t a = 'a';

	assert_int_equal(dt_dataset_create(path, t, 0, "a test", &w, &err), 0);
	dt_dataset_keep_apart(w);
	dt_dataset_set_shards(w, shards);
	for (int i = 0; i < documents; i++) {
		for (int k = 0; i % 3 && k < i; k++)
			assert_int_equal(dt_dataset_append(w, &a, 1, &err), 0);
		assert_int_equal(dt_dataset_end_document(w, &err), 0);
	}
	assert_int_equal(dt_dataset_finish(w, &err), 0);
	dt_tokenizer_close(t);
}

/* Against the end-of-text tokens themselves. */
static void test_documents_apart(void **state)
{
	int32_t id[200], first[200];
	struct dt_dataset_info info;
	struct dt_err err = {0};
	struct dt_dataset *d;
	const int64_t wrong = 77;
	hid_t f, set;

	for (int shards = 1; shards < 4; shards += 2) {
		make_apart(at("D.h5"), 20, shards);
		d = open_it(at("D.h5"));
		dt_dataset_info(d, &info);
		assert_true(info.apart && info.documents == 20 && info.tokens < 200);
		assert_int_equal(dt_dataset_read(d, 0, info.tokens, id, &err), 0);
		for (int64_t from = 0; from < info.tokens; from++) {
			int64_t n = info.tokens - from, starts = 0;
			int32_t want = 0;

			dt_dataset_first(d, from, n, first);
			for (int64_t i = 0; i < n; i++) {
				if (from + i == 0 || id[from + i - 1] == 256) {
					want = (int32_t)i;
					starts++;
				}
				assert_int_equal(first[i], want);
				assert_int_equal(dt_dataset_starts(d, from, i + 1), starts);
			}
		}
		dt_dataset_close(d);
	}
	make_apart(at("D.h5"), 20, 1);
	f = H5Fopen(at("D.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	set = H5Dopen2(f, "document_starts", H5P_DEFAULT);
	assert_true(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, (int64_t[20]){0}) >= 0);
	assert_true(H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT,
			     (int64_t[20]){0, 5, wrong, 6}) >= 0);
	H5Dclose(set);
	H5Fclose(f);
	refuse(at("D.h5"), "document 3 has an invalid start, token 6");
	make(at("D.h5"), 5000, 0, 0);
	d = open_it(at("D.h5"));
	dt_dataset_info(d, &info);
	dt_dataset_first(d, 990, 20, first);
	assert_true(!info.apart && first[15] == 0 && dt_dataset_starts(d, 0, 5000) == 0);
	dt_dataset_close(d);
}

/* The tokens of a shard become as many of four bytes. */
static void widen(const char *path)
{
	hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), old = H5Dopen2(f, "tokens", H5P_DEFAULT);
	hid_t space = H5Dget_space(old), wide;
	const hssize_t n = H5Sget_simple_extent_npoints(space);
	int32_t *v = calloc((size_t)n, sizeof(*v));

	assert_true(v && H5Dread(old, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0);
	H5Dclose(old);
	H5Ldelete(f, "tokens", H5P_DEFAULT);
	wide = H5Dcreate2(f, "tokens", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	assert_true(H5Dwrite(wide, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0);
	H5Dclose(wide);
	H5Sclose(space);
	H5Fclose(f);
	free(v);
}

static void test_shards_are_checked(void **state)
{
	make(at("D.h5"), 5000, 0, 2);
	widen(at("D-00001-of-00002.h5"));
	refuse(at("D.h5"), "tokens of 4 bytes, but 2 in the shards before it");
	make(at("D.h5"), 5000, 0, 2);
	make(at("E.h5"), 5002, 0, 2);
	assert_int_equal(rename(at("E-00001-of-00002.h5"), at("D-00001-of-00002.h5")), 0);
	refuse(at("D.h5"), "2501 tokens");
	assert_int_equal(rename(at("E-00000-of-00002.h5"), at("D-00001-of-00002.h5")), 0);
	make(at("E.h5"), 5000, 0, 2);
	assert_int_equal(rename(at("E-00000-of-00002.h5"), at("D-00001-of-00002.h5")), 0);
	refuse(at("D.h5"), "another dataset");
	assert_int_equal(unlink(at("D-00001-of-00002.h5")), 0);
	refuse(at("D.h5"), "D-00001-of-00002.h5");
}

static void test_sampler(void **state)
{
	enum { SEQ = 10, N = 5005, SAMPLES = 500 };
	struct dt_sampler a, b, plain;
	struct dt_dataset *d, *sharded;
	struct dt_err err = {0};
	int32_t x[SEQ + 1], y[SEQ + 1];
	int same = 0, moved = 0;

	make(at("D.h5"), N, 0, 0);
	make(at("S.h5"), N, 0, 3);
	d = open_it(at("D.h5"));
	sharded = open_it(at("S.h5"));
	assert_int_equal(dt_sampler_init(&a, d, SEQ, 42, true, &err), 0);
	assert_int_equal(dt_sampler_init(&b, sharded, SEQ, 42, true, &err), 0);
	assert_int_equal(dt_sampler_init(&plain, d, SEQ, 0, false, &err), 0);
	assert_int_equal(a.samples, SAMPLES);
	for (int epoch = 0; epoch < 3; epoch++) {
		int seen[SAMPLES] = {0};

		/* backwards: what a sample is does not depend on those read before */
		for (int i = SAMPLES - 1; i >= 0; i--) {
			int at_token = -1;

			assert_int_equal(dt_sampler_get(&a, epoch * SAMPLES + i, x, &err), 0);
			assert_int_equal(dt_sampler_get(&b, epoch * SAMPLES + i, y, &err), 0);
			assert_memory_equal(x, y, sizeof(x));
			for (int k = 0; k < SAMPLES && at_token < 0; k++) {
				assert_int_equal(dt_sampler_get(&plain, k, y, &err), 0);
				if (!memcmp(x, y, sizeof(x)))
					at_token = k;
			}
			assert_in_range(at_token, 0, SAMPLES - 1);
			seen[at_token]++;
			moved += at_token != i;
		}
		for (int k = 0; k < SAMPLES; k++)
			assert_int_equal(seen[k], 1);
	}
	assert_true(moved > 3 * SAMPLES * 9 / 10);
	for (int i = 0; i < SAMPLES; i++) { /* epochs and seeds differ */
		assert_int_equal(dt_sampler_get(&a, i, x, &err), 0);
		assert_int_equal(dt_sampler_get(&a, SAMPLES + i, y, &err), 0);
		same += !memcmp(x, y, sizeof(x));
		b.seed = 43;
		assert_int_equal(dt_sampler_get(&b, i, y, &err), 0);
		same += !memcmp(x, y, sizeof(x));
	}
	assert_in_range(same, 0, 20);
	assert_int_equal(dt_sampler_get(&plain, SAMPLES + 3, x, &err), 0);
	for (int i = 0; i <= SEQ; i++)
		assert_int_equal(x[i], value(3 * SEQ + i));
	assert_int_equal(dt_sampler_get(&a, -1, x, &err), -EINVAL);
	assert_int_equal(dt_sampler_init(&a, d, N, 0, true, &err), -EINVAL);
	assert_int_equal(dt_sampler_init(&a, d, 0, 0, true, &err), -EINVAL);
	dt_dataset_close(d);
	dt_dataset_close(sharded);
}

struct seen {
	char train[256], eval[256];
};

static int note(void *ctx, const char *s, size_t n, bool eval, uint64_t where, struct dt_err *err)
{
	struct seen *seen = ctx;
	char *to = eval ? seen->eval : seen->train;

	snprintf(to + strlen(to), 256 - strlen(to), "[%.*s]", (int)n, s);
	return 0;
}

static void check_source(struct dt_text_source s, const char *content, const char *train, const char *eval)
{
	const char *path = at("in.txt");
	struct seen seen = {{0}, {0}};
	struct dt_err err = {0};
	FILE *f = fopen(path, "w");

	fputs(content, f);
	fclose(f);
	if (dt_text_source_open(&s, 1, &path, &err) < 0 || dt_text_source_read(&s, note, &seen, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(s.read_bytes, strlen(content));
	dt_text_source_close(&s);
	assert_string_equal(seen.train, train);
	assert_string_equal(seen.eval, eval);
}

static void test_text_source(void **state)
{
	struct dt_text_source s = {.format = DT_TEXT_PLAIN, .field = "text"};

	check_source(s, "0123456789", "[0123456789]", "");
	s.separator = "--";
	check_source(s, "a--b----c--", "[a][b][c]", "");
	s.separator = NULL;
	s.eval_percent = 10;
	check_source(s, "0123456789", "[012345678]", "[9]");
	check_source(s, "0123456789abcde", "[0123456789abc]", "[de]"); /* floor(13.5) */
	s.eval_percent = 50;
	check_source(s, "ab\xc3\xa9z", "[ab]", "[\xc3\xa9z]");
	check_source(s, "\xf0\x9f\xa6\x99", "", "[\xf0\x9f\xa6\x99]");
	s.separator = "|";
	check_source(s, "ab|cd|efgh", "[ab][cd]", "[efgh]");
	s.eval_percent = 60;
	check_source(s, "ab|cd|efgh", "[ab][c]", "[d][efgh]");
	s.eval_percent = 40;
	s.format = DT_TEXT_JSONL;
	check_source(s, "{\"text\":\"a\"}\n\n{\"text\":\"b\\u0000\"}\n{\"text\":\"c\"}", "[a][b]", "[c]");
}

/* Makes file name of n bytes of values with a list behind them; whether the spool became it. */
static bool fill_file(const char *name, const char *values, int64_t n, bool only)
{
	const int64_t list[] = {3, 1, 2};
	const hsize_t dim = (hsize_t)n;
	struct set_file f = {.tmp = (char *)name};
	struct stat of, st;
	struct dt_err err = {0};
	hid_t h = set_create(name);
	int spool;

	assert_int_equal(set_spool_open(name, &spool, &err), 0);
	assert_int_equal(dt_write_all(spool, values, (size_t)n, SET_HEAD), 0);
	assert_int_equal(fstat(spool, &of), 0);
	assert_int_equal(set_put_place(h, "values", H5T_STD_U8LE, 1, &dim, &f.offset), 0);
	assert_int_equal(f.offset, SET_HEAD); /* or every data set is copied */
	assert_int_equal(dt_h5_put_list(h, "list", H5T_STD_I64LE, H5T_NATIVE_INT64, 3, list, false), 0);
	H5Fclose(h);
	assert_int_equal(set_fill(&f, spool, 0, n, only), 0);
	assert_int_equal(stat(name, &st), 0);
	close(spool);
	return st.st_ino == of.st_ino;
}

static void check_same_bytes(const char *a, const char *b)
{
	static char x[65536], y[65536];
	const int fa = open(a, O_RDONLY), fb = open(b, O_RDONLY);
	const ssize_t n = dt_read_all(fa, x, sizeof(x), 0);

	assert_true(n > 0 && n == dt_read_all(fb, y, sizeof(y), 0));
	assert_memory_equal(x, y, (size_t)n);
	close(fa);
	close(fb);
}

static void test_spool_becomes_the_file(void **state)
{
	static const int64_t size[] = {1, 2047, 2048, 30000};
	const int nameless = open(dir, O_TMPFILE | O_RDWR, 0600);
	char values[30000];

	for (size_t i = 0; i < sizeof(values); i++)
		values[i] = (char)(i * 7 + 1);
	for (int i = 0; i < 4; i++) {
		assert_true(fill_file(at("a.h5"), values, size[i], true) == (nameless >= 0));
		assert_false(fill_file(at("b.h5"), values, size[i], false));
		check_same_bytes(at("a.h5"), at("b.h5"));
		assert_int_equal(files(), 2);
	}
	if (nameless >= 0)
		close(nameless);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wide_ids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_before_finish, setup, teardown),
		cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
		cmocka_unit_test_setup_teardown(test_contradictions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_documents_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shards_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sampler, setup, teardown),
		cmocka_unit_test_setup_teardown(test_text_source, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spool_becomes_the_file, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
