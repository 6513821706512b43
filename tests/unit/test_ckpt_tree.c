/* The tree of dt-shard-ckpt ls, line by line, of checkpoints made for it. */
#include "base/tmpfile.h"
#include "ckpt/look.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct spec {
	const char *name;
	int64_t rows, cols;
	int cut; /* bands of rows */
};

static char root[PATH_MAX];
static char data[1 << 16];

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.400s/dt-tree-XXXXXX", base ? base : "/tmp");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	return dt_remove_tree(root, NULL);
}

static struct dt_ckpt *make(const struct spec *v, int n)
{
	struct dt_piece p[256] = {0};
	struct dt_err err = {0};
	struct dt_ckpt *c = NULL;
	json_t *list = NULL, *meta = json_pack("{s:s, s:i}", "layout", "dp1", "step", 1);
	char *tmp = NULL;
	int k = 0;

	for (int i = 0; i < n; i++)
		for (int b = 0; b < v[i].cut; b++, k++) {
			p[k] = (struct dt_piece){.dtype = DT_F32,
						 .ndim = 2,
						 .global = {v[i].rows, v[i].cols},
						 .off = {v[i].rows / v[i].cut * b},
						 .shape = {v[i].rows / v[i].cut, v[i].cols},
						 .data = data};
			snprintf(p[k].name, sizeof(p[k].name), "%s", v[i].name);
		}
	if (dt_ckpt_begin(root, 1, &tmp, &err) < 0 ||
	    dt_ckpt_write_shard(tmp, 0, p, k, false, &list, &err) < 0 ||
	    dt_ckpt_commit(root, 1, meta, &list, 1, 0, &err) < 0 || dt_ckpt_open(root, &c, &err) < 0)
		fail_msg("%s", err.msg);
	json_decref(list);
	json_decref(meta);
	free(tmp);
	return c;
}

static void on_line(void *arg, const struct dt_tree_line *l)
{
	fprintf(arg, "%d %s x%d t%d p%d %dB\n", l->depth, l->label, (int)l->copies, l->tensor,
		(int)l->npieces, (int)l->bytes);
}

static void check(const struct spec *v, int n, bool all, const char *want)
{
	struct dt_ckpt *c = make(v, n);
	struct dt_err err = {0};
	char *got;
	size_t len;
	FILE *f = open_memstream(&got, &len);

	assert_int_equal(dt_ckpt_tree(c, all, on_line, f, &err), 0);
	fclose(f);
	dt_ckpt_close(c);
	assert_string_equal(got, want);
	free(got);
}

#define N(v) ((int)(sizeof(v) / sizeof((v)[0])))

/* A manifest is by name. Bytes of a rows by cols tensor are 4 rows cols; two layers are alike, the third
 * has one more row. */
static void test_alike(void **state)
{
	static const struct spec v[] = {
		{"model/embed.weight", 4, 2, 2},    {"model/layers.0.q.weight", 2, 2, 1},
		{"model/layers.0.q.bias", 1, 2, 1}, {"model/layers.1.q.weight", 2, 2, 1},
		{"model/layers.1.q.bias", 1, 2, 1}, {"model/layers.2.q.weight", 3, 2, 1},
		{"model/layers.2.q.bias", 1, 2, 1},
	};

	check(v, N(v), false,
	      "0 model x1 t-1 p8 112B\n"
	      "1 embed.weight x1 t0 p2 32B\n"
	      "1 layers x1 t-1 p6 80B\n"
	      "2 {0..1}.q x2 t-1 p4 48B\n"
	      "3 bias x1 t1 p2 16B\n"
	      "3 weight x1 t2 p2 32B\n"
	      "2 2.q x1 t-1 p2 32B\n"
	      "3 bias x1 t5 p1 8B\n"
	      "3 weight x1 t6 p1 24B\n");
	check(v, 5, false,
	      "0 model x1 t-1 p6 80B\n"
	      "1 embed.weight x1 t0 p2 32B\n"
	      "1 layers.{0..1}.q x2 t-1 p4 48B\n"
	      "2 bias x1 t1 p2 16B\n"
	      "2 weight x1 t2 p2 32B\n");
	check(v, 5, true,
	      "0 model x1 t-1 p6 80B\n"
	      "1 embed.weight x1 t0 p2 32B\n"
	      "1 layers x1 t-1 p4 48B\n"
	      "2 0.q x1 t-1 p2 24B\n"
	      "3 bias x1 t1 p1 8B\n"
	      "3 weight x1 t2 p1 16B\n"
	      "2 1.q x1 t-1 p2 24B\n"
	      "3 bias x1 t3 p1 8B\n"
	      "3 weight x1 t4 p1 16B\n");
}

/* What differs in the cut alone is not alike; groups inside groups multiply. */
static void test_cut_and_nest(void **state)
{
	static const struct spec cut[] = {{"m/0.w", 4, 2, 1}, {"m/1.w", 4, 2, 2}};
	static const struct spec nest[] = {{"m/0.e.0", 1, 2, 1},
					   {"m/0.e.1", 1, 2, 1},
					   {"m/1.e.0", 1, 2, 1},
					   {"m/1.e.1", 1, 2, 1},
					   {"m/x", 1, 2, 1}};

	check(cut, 2, false, "0 m x1 t-1 p3 64B\n1 0.w x1 t0 p1 32B\n1 1.w x1 t1 p2 32B\n");
	check(nest, N(nest), false, "0 m x1 t-1 p5 40B\n1 {0..1}.e.{0..1} x4 t0 p4 32B\n1 x x1 t4 p1 8B\n");
}

/* Numbers out of order, in steps, with gaps; names that only look like numbers or like a branch. */
static void test_numbers(void **state)
{
	static const struct spec v[] = {{"m/10", 1, 2, 1}, {"m/2", 1, 2, 1}, {"m/4", 1, 2, 1},
					{"m/6", 1, 2, 1},  {"m/7", 1, 2, 1}, {"m/1", 2, 2, 1},
					{"m/3", 2, 2, 1},  {"m/5", 2, 2, 1}, {"m/01", 2, 2, 1}};
	static const struct spec odd[] = {
		{"m/a", 1, 2, 1}, {"m/a-b", 1, 2, 1}, {"m/a.b", 1, 2, 1}, {"m/a.c.d", 1, 2, 1}};

	check(v, N(v), false,
	      "0 m x1 t-1 p9 104B\n"
	      "1 {1..5..2} x3 t1 p3 48B\n"
	      "1 {2..6..2,7,10} x5 t2 p5 40B\n"
	      "1 01 x1 t0 p1 16B\n");
	check(odd, N(odd), false,
	      "0 m x1 t-1 p4 32B\n"
	      "1 a x1 t0 p1 8B\n"
	      "1 a-b x1 t1 p1 8B\n"
	      "1 a x1 t-1 p2 16B\n"
	      "2 b x1 t2 p1 8B\n"
	      "2 c.d x1 t3 p1 8B\n");
}

/* The list has whole names. */
static void test_json(void **state)
{
	static const struct spec v[] = {{"model/a", 2, 2, 2}, {"v/b.c", 1, 3, 1}};
	struct dt_tensors *t = NULL;
	struct dt_err err = {0};
	json_t *got, *want = json_pack("[{s:s,s:s,s:[ii],s:[ii],s:i,s:i},{s:s,s:s,s:[ii],s:[ii],s:i,s:i}]",
				       "name", "model/a", "dtype", "f32", "shape", 2, 2, "cut", 2, 1,
				       "pieces", 2, "bytes", 16, "name", "v/b.c", "dtype", "f32", "shape", 1,
				       3, "cut", 1, 1, "pieces", 1, "bytes", 12);

	dt_ckpt_close(make(v, N(v)));
	assert_int_equal(dt_tensors_open(root, &t, &err), 0);
	got = dt_tensors_json(t);
	assert_true(json_equal(got, want));
	json_decref(got);
	json_decref(want);
	dt_tensors_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alike),
		cmocka_unit_test(test_cut_and_nest),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
