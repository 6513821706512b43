/* Boxes, round trips against the array in memory, every element type, damage of all kinds. */
#include "base/rng.h"
#include "base/tmpfile.h"
#include "ckpt/internal.h"
#include "ckpt/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static struct dt_rng rng;
static uint64_t drawn;
static char root[64];

static int64_t below(int64_t n)
{
	return (int64_t)dt_rng_below(&rng, drawn++, (uint64_t)n);
}

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");

	rng = dt_rng_make(20240601, DT_RNG_TEST, 1);
	snprintf(root, sizeof(root), "%.40s/dt-ckpt-XXXXXX", base ? base : "/tmp");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	return dt_remove_tree(root, NULL);
}

static const char *sub(const char *name)
{
	static char path[CK_PATH];

	return ck_join(path, root, name);
}

/* An array in memory, and boxes that cover it once, by splitting at random. */
struct whole {
	struct dt_piece p; /* all of it */
	char *data;
	struct dt_piece part[64];
	int n;
};

static void cut_rec(struct whole *w, struct dt_piece box, int depth)
{
	int d = (int)below(box.ndim);
	int64_t at, size = dt_dtype_size(box.dtype), n;
	struct dt_piece second;
	char *data;

	if (depth > 0 && box.shape[d] > 1) {
		at = 1 + below(box.shape[d] - 1);
		second = box;
		second.off[d] += at;
		second.shape[d] -= at;
		box.shape[d] = at;
		cut_rec(w, box, depth - 1);
		cut_rec(w, second, depth - 1);
		return;
	}
	n = ck_numel(box.ndim, box.shape);
	data = malloc((size_t)(n * size) + 1);
	for (int64_t i = 0; i < n; i++) { /* element by element, by index arithmetic alone */
		int64_t rest = i, from = 0, index[4];

		for (int e = box.ndim - 1; e >= 0; e--) {
			index[e] = box.off[e] + rest % box.shape[e];
			rest /= box.shape[e];
		}
		for (int e = 0; e < box.ndim; e++)
			from = from * box.global[e] + index[e];
		memcpy(data + i * size, w->data + from * size, (size_t)size);
	}
	box.data = data;
	w->part[w->n++] = box;
}

static void make_whole(struct whole *w, const char *name, enum dt_dtype t, int ndim, const int64_t *shape,
		       int depth)
{
	int64_t bytes;

	memset(w, 0, sizeof(*w));
	snprintf(w->p.name, sizeof(w->p.name), "%s", name);
	w->p.dtype = t;
	w->p.ndim = ndim;
	memcpy(w->p.global, shape, (size_t)ndim * sizeof(*shape));
	memcpy(w->p.shape, shape, (size_t)ndim * sizeof(*shape));
	bytes = ck_numel(ndim, shape) * dt_dtype_size(t);
	w->data = malloc((size_t)bytes + 1);
	for (int64_t i = 0; i < bytes; i++)
		w->data[i] = (char)dt_rng_u32(&rng, drawn++);
	w->p.data = w->data;
	cut_rec(w, w->p, depth);
}

static void free_whole(struct whole *w)
{
	for (int i = 0; i < w->n; i++)
		free((void *)w->part[i].data);
	free(w->data);
}

/* The pieces dealt to ranks at random, written and committed. */
static int save(const char *dir, int64_t step, struct whole *w, int nw, int ranks, bool compress, int keep,
		struct dt_err *err)
{
	static struct dt_piece mine[8][512];
	int n[8] = {0}, rc;
	json_t *lists[8] = {0}, *meta = json_pack("{s:s, s:I}", "layout", "dp1", "step", (json_int_t)step);
	char *tmp = NULL;

	for (int i = 0; i < nw; i++)
		for (int k = 0; k < w[i].n; k++) {
			int r = (int)below(ranks);

			mine[r][n[r]++] = w[i].part[k];
		}
	rc = dt_ckpt_begin(dir, step, &tmp, err);
	for (int r = 0; r < ranks && rc == 0; r++)
		rc = dt_ckpt_write_shard(tmp, r, mine[r], n[r], compress, &lists[r], err);
	if (rc == 0)
		rc = dt_ckpt_commit(dir, step, meta, lists, ranks, keep, err);
	for (int r = 0; r < ranks; r++)
		json_decref(lists[r]);
	json_decref(meta);
	free(tmp);
	return rc;
}

static void check_boxes(struct dt_ckpt *c, const struct whole *w, int times)
{
	int i = dt_ckpt_find(c, w->p.name);
	int64_t size = dt_dtype_size(w->p.dtype);
	struct dt_err err = {0};

	assert_true(i >= 0);
	for (int k = 0; k < times; k++) {
		int64_t off[4], shape[4], n;
		char *got;

		for (int d = 0; d < w->p.ndim; d++) {
			off[d] = k && w->p.global[d] ? below(w->p.global[d]) : 0;
			shape[d] = k ? below(w->p.global[d] - off[d] + 1) : w->p.global[d];
		}
		n = ck_numel(w->p.ndim, shape);
		got = malloc((size_t)(n * size) + 1);
		if (dt_ckpt_read(c, i, off, shape, w->p.dtype, got, &err) < 0)
			fail_msg("%s", err.msg);
		for (int64_t e = 0; e < n; e++) {
			int64_t rest = e, from = 0, index[4];

			for (int d = w->p.ndim - 1; d >= 0; d--) {
				index[d] = off[d] + rest % shape[d];
				rest /= shape[d];
			}
			for (int d = 0; d < w->p.ndim; d++)
				from = from * w->p.global[d] + index[d];
			if (memcmp(got + e * size, w->data + from * size, (size_t)size))
				fail_msg("%s: element %lld of box %d is wrong", w->p.name, (long long)e, k);
		}
		free(got);
	}
}

static void ranges_are_boxes(void **state)
{
	for (int trial = 0; trial < 2000; trial++) {
		struct dt_piece box = {.dtype = DT_I32, .ndim = 1 + (int)below(4)}, part[9];
		int64_t numel = 1, first, n, next;
		int32_t *data;
		int k;

		for (int d = 0; d < box.ndim; d++) {
			box.off[d] = below(5);
			box.shape[d] = 1 + below(6);
			box.global[d] = box.off[d] + box.shape[d] + below(3);
			numel *= box.shape[d];
		}
		data = malloc((size_t)numel * 4);
		for (int64_t i = 0; i < numel; i++)
			data[i] = (int32_t)i;
		box.data = data;
		first = below(numel + 1);
		n = below(numel - first + 1);
		k = dt_pieces_of_range(&box, first, n, part);
		assert_in_range(k, 0, 2 * box.ndim + 1);
		next = first;
		for (int i = 0; i < k; i++) {
			int64_t m = ck_numel(box.ndim, part[i].shape), lin = 0;

			for (int d = 0; d < box.ndim; d++)
				lin = lin * box.shape[d] + part[i].off[d] - box.off[d];
			assert_int_equal(lin, next);
			for (int64_t e = 0; e < m; e++) { /* contiguous, in order, at the right place */
				int64_t rest = e, at = 0, index[4];

				for (int d = box.ndim - 1; d >= 0; d--) {
					index[d] = part[i].off[d] - box.off[d] + rest % part[i].shape[d];
					rest /= part[i].shape[d];
				}
				for (int d = 0; d < box.ndim; d++)
					at = at * box.shape[d] + index[d];
				assert_int_equal(((const int32_t *)part[i].data)[e], at);
				assert_int_equal(at, next);
				next++;
			}
		}
		assert_int_equal(next, first + n);
		free(data);
	}
}

static void sums_are_those_of_zlib(void **state)
{
	unsigned char *x = malloc(70000);

	for (int i = 0; i < 70000; i++)
		x[i] = (unsigned char)dt_rng_u32(&rng, drawn++);
	for (int trial = 0; trial < 4000; trial++) {
		size_t at = (size_t)below(100), n = (size_t)below(trial % 4 ? 700 : 69900),
		       cut = (size_t)below((int64_t)n + 1);
		uint32_t want = (uint32_t)crc32(0, x + at, (uInt)n), got = dt_crc32(0, x + at, n);

		assert_int_equal(got, want);
		assert_int_equal(dt_crc32(dt_crc32(0, x + at, cut), x + at + cut, n - cut), want);
	}
	free(x);
}

static void large_pieces_are_split(void **state)
{
	struct dt_piece rows = {
		.dtype = DT_F32, .ndim = 2, .global = {100, 1 << 20}, .shape = {100, 1 << 20}};
	struct dt_piece wide = {.dtype = DT_U8, .ndim = 2, .global = {2, 100 << 20}, .shape = {2, 100 << 20}};
	struct dt_piece *v = NULL;
	int n = 0, cap = 0;

	assert_int_equal(ck_split(&rows, CK_PIECE_BYTES, &v, &n, &cap), 0);
	assert_int_equal(n, 7); /* 16 rows of 4 MiB in each */
	assert_int_equal(v[6].off[0], 96);
	assert_int_equal(v[6].shape[0], 4);
	n = 0;
	assert_int_equal(ck_split(&wide, CK_PIECE_BYTES, &v, &n, &cap), 0);
	assert_int_equal(n, 4); /* each row of 100 MiB is two */
	assert_int_equal(v[3].off[0], 1);
	assert_int_equal(v[3].off[1], 64 << 20);
	assert_int_equal(v[3].shape[1], 36 << 20);
	free(v);
}

static void round_trips(void **state)
{
	static const int64_t odd[4] = {7, 5, 3, 11};
	struct dt_err err = {0};

	for (int packed = 0; packed < 2; packed++) {
		struct whole w[DT_DTYPE_N + 3];
		struct dt_ckpt *c;
		char name[80];
		int n = 0, k;

		for (int t = 0; t < DT_DTYPE_N; t++) {
			snprintf(name, sizeof(name), "model/%s", dt_dtype_name((enum dt_dtype)t));
			make_whole(&w[n++], name, (enum dt_dtype)t, 1 + t % 4, odd, 3);
		}
		make_whole(&w[n++], "m/large", DT_F32, 2, (const int64_t[]){301, 97}, 4);
		make_whole(&w[n++], "v/empty", DT_F32, 2, (const int64_t[]){0, 5}, 0);
		make_whole(&w[n++], "v/long", DT_BF16, 1, (const int64_t[]){1 << 20}, 3);
		if (save(sub("rt"), packed, w, n, 5, packed, 0, &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(dt_ckpt_open(sub("rt"), &c, &err), 0);
		assert_null(dt_ckpt_note(c));
		assert_int_equal(dt_ckpt_step(c), packed);
		assert_int_equal(dt_ckpt_ntensors(c), n);
		for (k = 0; k < n; k++)
			check_boxes(c, &w[k], w[k].p.ndim > 1 ? 60 : 12);
		dt_ckpt_close(c);
		k = dt_ckpt_verify(sub("rt"), 3, NULL, NULL, NULL, &err);
		assert_int_equal(k, 0);
		for (k = 0; k < n; k++)
			free_whole(&w[k]);
	}
}

/* Ranks without anything, more ranks than elements, pieces without elements: torch issue 108869. */
static void empty_pieces_and_shards(void **state)
{
	struct dt_piece p[4];
	float x[6] = {1, 2, 3, 4, 5, 6}, got[6];
	json_t *lists[4], *meta = json_object();
	struct dt_err err = {0};
	struct dt_ckpt *c;
	char *tmp;

	assert_int_equal(dt_ckpt_begin(sub("empty"), 3, &tmp, &err), 0);
	for (int r = 0; r < 4; r++) {
		int64_t lo = r * 2 < 6 ? r * 2 : 6, hi = r * 2 + 2 < 6 ? r * 2 + 2 : 6;

		p[r] = (struct dt_piece){.name = "model/x",
					 .dtype = DT_F32,
					 .ndim = 1,
					 .global = {6},
					 .off = {lo},
					 .shape = {hi - lo},
					 .data = x + lo};
		assert_int_equal(dt_ckpt_write_shard(tmp, r, &p[r], 1, false, &lists[r], &err), 0);
	}
	assert_int_equal(dt_ckpt_commit(sub("empty"), 3, meta, lists, 4, 0, &err), 0);
	assert_int_equal(dt_ckpt_open(sub("empty"), &c, &err), 0);
	assert_int_equal(c->m.nfile, 3);
	assert_int_equal(dt_ckpt_read(c, 0, (int64_t[]){0}, (int64_t[]){6}, DT_F32, got, &err), 0);
	assert_memory_equal(got, x, sizeof(x));
	dt_ckpt_close(c);
	for (int r = 0; r < 4; r++)
		json_decref(lists[r]);
	json_decref(meta);
	free(tmp);
}

static void converts_between_f32_and_bf16(void **state)
{
	float x[5] = {1.0f, -2.5f, 3.14159274f, 1e-30f, 65504.0f}, back[5];
	uint16_t h[5], got[5];
	struct dt_piece p[2] = {
		{.name = "model/f", .dtype = DT_F32, .ndim = 1, .global = {5}, .shape = {5}, .data = x},
		{.name = "model/h", .dtype = DT_BF16, .ndim = 1, .global = {5}, .shape = {5}, .data = h}};
	struct dt_err err = {0};
	struct dt_ckpt *c;
	json_t *list, *meta = json_object();
	char *tmp;

	for (int i = 0; i < 5; i++)
		h[i] = dt_f32_to_bf16(x[i]);
	assert_int_equal(h[2], 0x4049); /* pi */
	assert_int_equal(dt_ckpt_begin(sub("conv"), 0, &tmp, &err), 0);
	assert_int_equal(dt_ckpt_write_shard(tmp, 0, p, 2, false, &list, &err), 0);
	assert_int_equal(dt_ckpt_commit(sub("conv"), 0, meta, &list, 1, 0, &err), 0);
	assert_int_equal(dt_ckpt_open(sub("conv"), &c, &err), 0);
	assert_int_equal(dt_ckpt_read(c, dt_ckpt_find(c, "model/f"), (int64_t[]){1}, (int64_t[]){3}, DT_BF16,
				      got, &err),
			 0);
	assert_memory_equal(got, h + 1, 6);
	assert_int_equal(dt_ckpt_read(c, dt_ckpt_find(c, "model/h"), (int64_t[]){0}, (int64_t[]){5}, DT_F32,
				      back, &err),
			 0);
	for (int i = 0; i < 5; i++)
		assert_true(back[i] == dt_bf16_to_f32(h[i]));
	assert_int_equal(dt_ckpt_read(c, 0, (int64_t[]){0}, (int64_t[]){5}, DT_I32, back, &err), -EINVAL);
	assert_int_equal(dt_ckpt_read(c, 0, (int64_t[]){3}, (int64_t[]){3}, DT_F32, back, &err), -EINVAL);
	dt_ckpt_close(c);
	json_decref(list);
	json_decref(meta);
	free(tmp);
}

/* A commit must refuse lists that leave a hole, overlap or disagree, and leave nothing visible behind. */
static void commit_refuses(void **state)
{
	float x[8] = {0};
	struct dt_piece a = {
		.name = "model/x", .dtype = DT_F32, .ndim = 1, .global = {8}, .shape = {5}, .data = x};
	struct dt_piece hole = a, lap = a, other = a;
	struct dt_piece *bad[] = {&hole, &lap, &other};
	static const char *const why[] = {"its pieces hold 7 of 8", "overlap", "disagree"};
	json_t *meta = json_object();

	hole.off[0] = 6;
	hole.shape[0] = 2;
	lap.off[0] = 4;
	lap.shape[0] = 4;
	other.global[0] = 9;
	other.off[0] = 5;
	other.shape[0] = 4;
	for (int i = 0; i < 3; i++) {
		struct dt_err err = {0};
		struct dt_ckpt *c;
		json_t *lists[2];
		char *tmp;

		assert_int_equal(dt_ckpt_begin(sub("bad"), 1, &tmp, &err), 0);
		assert_int_equal(dt_ckpt_write_shard(tmp, 0, &a, 1, false, &lists[0], &err), 0);
		assert_int_equal(dt_ckpt_write_shard(tmp, 1, bad[i], 1, false, &lists[1], &err), 0);
		assert_true(dt_ckpt_commit(sub("bad"), 1, meta, lists, 2, 0, &err) < 0);
		if (!strstr(err.msg, why[i]))
			fail_msg("'%s' does not say '%s'", err.msg, why[i]);
		assert_true(dt_ckpt_open(sub("bad"), &c, &err) < 0);
		json_decref(lists[0]);
		json_decref(lists[1]);
		free(tmp);
	}
	json_decref(meta);
}

static bool there(const char *name)
{
	return access(sub(name), F_OK) == 0;
}

static void keeps_the_newest(void **state)
{
	struct whole w;
	struct dt_err err = {0};
	struct dt_ckpt *c;

	make_whole(&w, "model/x", DT_F32, 2, (const int64_t[]){6, 4}, 2);
	assert_int_equal(save(sub("keep"), 1, &w, 1, 2, false, 2, &err), 0);
	assert_int_equal(save(sub("keep"), 2, &w, 1, 2, false, 2, &err), 0);
	assert_int_equal(save(sub("keep"), 2, &w, 1, 2, false, 2, &err), 0); /* again: replaced */
	assert_true(there("keep/step-00000001"));
	assert_int_equal(mkdir(sub("keep/step-00000009.tmp"), 0777), 0); /* a crash's */
	assert_int_equal(mkdir(sub("keep/step-00000007"), 0777), 0);	 /* nobody's: no manifest */
	assert_int_equal(save(sub("keep"), 3, &w, 1, 2, false, 2, &err), 0);
	assert_int_equal(err.code, 0);
	assert_false(there("keep/step-00000001"));
	assert_false(there("keep/step-00000009.tmp"));
	assert_true(there("keep/step-00000002"));
	assert_true(there("keep/step-00000007"));
	/* the newest loses a shard: it does not count, and the good one below stays */
	assert_int_equal(unlink(sub("keep/step-00000003/shard-00000.h5")) *
				 unlink(sub("keep/step-00000003/shard-00001.h5")),
			 0);
	assert_int_equal(save(sub("keep"), 4, &w, 1, 2, false, 2, &err), 0);
	assert_true(there("keep/step-00000002"));
	assert_true(there("keep/step-00000003"));
	assert_int_equal(dt_ckpt_newest(sub("keep"), 9), 4);
	assert_int_equal(dt_ckpt_newest(sub("keep"), 3), 2);
	assert_int_equal(dt_ckpt_newest(sub("keep"), 1), -1);
	assert_int_equal(dt_ckpt_newest(sub("nowhere"), 9), -1);
	/* going back to an earlier step never removes what it has just written */
	assert_int_equal(save(sub("keep"), 1, &w, 1, 2, false, 1, &err), 0);
	assert_true(there("keep/step-00000001"));
	assert_false(there("keep/step-00000002"));
	/* latest is broken: the newest complete one, and a note */
	assert_int_equal(unlink(sub("keep/latest")), 0);
	assert_int_equal(symlink("step-00000044", sub("keep/latest")), 0);
	assert_int_equal(dt_ckpt_open(sub("keep"), &c, &err), 0);
	assert_int_equal(dt_ckpt_step(c), 1);
	assert_non_null(dt_ckpt_note(c));
	dt_ckpt_close(c);
	free_whole(&w);
}

static json_t *read_manifest(const char *path)
{
	json_t *root_json = json_load_file(path, 0, NULL);

	assert_non_null(root_json);
	json_object_del(root_json, "manifest_crc32");
	return root_json;
}

static int parse_json(json_t *o, struct dt_err *err)
{
	struct ck_manifest m;
	char *text;
	size_t n;
	int rc;

	assert_int_equal(ck_manifest_text(o, &text, &n, err), 0);
	rc = ck_manifest_parse(text, n, "manifest", &m, err);
	free(text);
	if (rc == 0)
		ck_manifest_release(&m);
	return rc;
}

/* One lie at a time, in a manifest whose own checksum is right. */
static void manifest_lies_are_found(void **state)
{
	static const struct {
		const char *where, *value, *says;
	} lie[] = {
		{"version", "2", "newer than 1"},
		{"format", "\"other\"", "not the manifest"},
		{"files.0.name", "\"../../etc/passwd\"", "not the name of a shard"},
		{"files.0.name", "\"/etc/passwd\"", "not the name of a shard"},
		{"files.0.name", "\"..\"", "not the name of a shard"},
		{"files.0.bytes", "10", "extends beyond the end of 'shard"},
		{"files.0.bytes", "-1", "out of range"},
		{"files", "3", "'files' is not a list"},
		{"tensors.0.name", "\"nokind\"", "invalid name"},
		{"tensors.0.name", "\"model/../x\"", "invalid name"},
		{"tensors.0.name", "\"model/a\\u001b[2J\"", "invalid name"},
		{"tensors.1.name", "\"model/a\"", "listed twice"},
		{"tensors.0.dtype", "\"f31\"", "unknown dtype"},
		{"tensors.0.shape", "[1073741824, 1073741824]", "its size is invalid"},
		{"tensors.0.shape", "[4, 4, 4, 4, 4]", "list of 1 to 4"},
		{"tensors.0.shape", "[4, \"x\"]", "an element that is not a size"},
		{"tensors.0.shape", "[6, 5]", "its pieces hold"},
		{"tensors.0.pieces.0.offset", "[5, 0]", "extends beyond the tensor"},
		{"tensors.0.pieces.0.offset", "[-1, 0]", "an element that is not a size"},
		{"tensors.0.pieces.0.offset", "[9223372036854775807, 0]", "an element that is not a size"},
		{"tensors.0.pieces.0.shape", "[0, 4]", "an element that is not a size"},
		{"tensors.0.pieces.0.shape", "[6]", "a wrong number of dimensions"},
		{"tensors.0.pieces.0.file", "1", "out of range"},
		{"tensors.0.pieces.0.at", "9223372036854775807", "extends beyond the end of 'shard"},
		{"tensors.0.pieces.0.crc32", "\"xyz\"", "hexadecimal"},
		{"tensors.0.pieces.0.filter", "\"lzma\"", "a filter that this version does not support"},
		{"tensors.0.pieces.0.filter", "\"shuffle+deflate\"", "'stored_bytes' is missing"},
		{"tensors.0.pieces.0.at", "null", "'at' is missing"},
		{"tensors.0.pieces.1.offset", "[0, 0]", "overlap"},
		{"tensors.1.pieces.0.at", "@0.0", "share bytes"},
	};
	float x[24] = {0};
	struct dt_piece p[3] = {
		{.name = "model/a", .dtype = DT_F32, .ndim = 2, .global = {6, 4}, .shape = {3, 4}, .data = x},
		{.name = "model/a",
		 .dtype = DT_F32,
		 .ndim = 2,
		 .global = {6, 4},
		 .off = {3, 0},
		 .shape = {3, 4},
		 .data = x},
		{.name = "model/b",
		 .dtype = DT_F32,
		 .ndim = 2,
		 .global = {3, 4},
		 .shape = {3, 4},
		 .data = x}};
	struct dt_err err = {0};
	json_t *list, *meta = json_object(), *whole;
	char *tmp;

	assert_int_equal(dt_ckpt_begin(sub("lies"), 1, &tmp, &err), 0);
	assert_int_equal(dt_ckpt_write_shard(tmp, 0, p, 3, false, &list, &err), 0);
	assert_int_equal(dt_ckpt_commit(sub("lies"), 1, meta, &list, 1, 0, &err), 0);
	whole = read_manifest(sub("lies/latest/manifest.json"));
	assert_int_equal(parse_json(whole, &err), 0);
	for (size_t i = 0; i < sizeof(lie) / sizeof(*lie); i++) {
		json_t *o = json_deep_copy(whole), *at = o, *v;
		char path[80], *word, *next;

		snprintf(path, sizeof(path), "%s", lie[i].where);
		for (word = path; (next = strchr(word, '.')); word = next + 1) {
			*next = '\0';
			at = json_is_array(at) ? json_array_get(at, (size_t)atoi(word))
					       : json_object_get(at, word);
		}
		if (lie[i].value[0] == '@') { /* the place of another tensor's piece */
			const json_t *t = json_array_get(json_object_get(o, "tensors"), 0);

			v = json_deep_copy(
				json_object_get(json_array_get(json_object_get(t, "pieces"), 0), "at"));
		} else {
			v = json_loads(lie[i].value, JSON_DECODE_ANY, NULL);
		}
		assert_non_null(v);
		json_object_set_new(at, word, v);
		if (parse_json(o, &err) == 0)
			fail_msg("%s = %s was believed", lie[i].where, lie[i].value);
		if (!strstr(err.msg, lie[i].says))
			fail_msg("%s = %s: '%s' does not say '%s'", lie[i].where, lie[i].value, err.msg,
				 lie[i].says);
		json_decref(o);
	}
	json_decref(whole);
	json_decref(list);
	json_decref(meta);
	free(tmp);
}

/*
 * Random edits of a real manifest, half of them with the checksum made right again so that they reach the
 * parser's depths; what is believed is opened and read, under the sanitizers in the sanitizer build.
 */
static void manifest_fuzz(void **state)
{
	static const char *const words[] = {"0", "-1", "9", "99999999999", "\"",   "[",
					    "]", "{",  "}", ",",	   "null", "1e9"};
	struct whole w[2];
	struct dt_err err = {0};
	char *good, *text, buf[65536], path[CK_PATH];
	size_t n;
	int believed = 0, refused = 0;

	make_whole(&w[0], "model/a", DT_F32, 2, (const int64_t[]){9, 7}, 3);
	make_whole(&w[1], "m/b", DT_BF16, 3, (const int64_t[]){4, 3, 5}, 2);
	assert_int_equal(save(sub("fuzz"), 1, w, 2, 3, false, 0, &err), 0);
	snprintf(path, sizeof(path), "%s", sub("fuzz/step-00000001/manifest.json"));
	assert_int_equal(dt_read_file(path, 1 << 20, &good, &n, &err), 0);
	text = malloc(n + 4096);
	for (int trial = 0; trial < 4000; trial++) {
		size_t len = n, at;
		int edits = 1 + (int)below(3);
		struct ck_manifest m;
		struct dt_ckpt *c;
		char *body;
		FILE *f;

		memcpy(text, good, n + 1);
		for (int e = 0; e < edits; e++) {
			const char *word = words[below(sizeof(words) / sizeof(*words))];
			size_t k = strlen(word), cut = (size_t)below(4);

			at = (size_t)below((int64_t)len - 8);
			if (below(4)) { /* another digit for a digit: still JSON, mostly a lie */
				at += strcspn(text + at, "0123456789");
				if (at < len - 8)
					text[at] = (char)('0' + below(10));
			} else if (below(2)) {
				text[at] = (char)below(256);
			} else {
				memmove(text + at + k, text + at + cut, len - at - cut);
				memcpy(text + at, word, k);
				len += k - cut;
			}
		}
		text[len] = '\0';
		body = strstr(text, ",\n\"manifest_crc32\"");
		if (body && below(2))
			len = (size_t)(body - text) +
			      (size_t)sprintf(body, ",\n\"manifest_crc32\":\"%08x\"}\n",
					      (unsigned)crc32(0, (const void *)text, (uInt)(body - text)));
		if (ck_manifest_parse(text, len, "fuzz", &m, &err) < 0) {
			assert_true(err.msg[0] && err.code < 0);
			refused++;
			continue;
		}
		ck_manifest_release(&m);
		believed++;
		f = fopen(path, "w");
		fwrite(text, 1, len, f);
		fclose(f);
		if (dt_ckpt_open(sub("fuzz/step-00000001"), &c, &err) == 0) {
			for (int i = 0; i < dt_ckpt_ntensors(c); i++) {
				struct dt_ckpt_tensor t;

				dt_ckpt_tensor(c, i, &t);
				if (t.bytes <= sizeof(buf))
					dt_ckpt_read(c, i, (int64_t[4]){0}, t.shape, t.dtype, buf, &err);
			}
			dt_ckpt_close(c);
		}
	}
	print_message("%d believed, %d refused\n", believed, refused);
	assert_true(believed > 50 && refused > 1000);
	free(good);
	free(text);
	free_whole(&w[0]);
	free_whole(&w[1]);
}

/* Every byte of the elements is under a checksum: flip each bit position somewhere in each piece. */
static void flipped_bits_are_found(void **state)
{
	struct whole w;
	struct dt_err err = {0};
	struct dt_ckpt *c;

	make_whole(&w, "model/x", DT_F32, 2, (const int64_t[]){33, 21}, 3);
	assert_int_equal(save(sub("flip"), 1, &w, 1, 2, false, 0, &err), 0);
	assert_int_equal(dt_ckpt_open(sub("flip"), &c, &err), 0);
	for (int trial = 0; trial < 200; trial++) {
		const struct ck_piece *p = &c->m.piece[below(c->m.npiece)];
		off_t at = (off_t)(p->at + (uint64_t)below((int64_t)p->bytes));
		char path[CK_PATH], name[96];
		unsigned char b, flip;
		float *got = malloc((size_t)ck_numel(2, p->shape) * 4);
		int fd;

		snprintf(name, sizeof(name), "flip/step-00000001/%s", c->m.file[p->file].name);
		fd = open(ck_join(path, root, name), O_RDWR);
		assert_int_equal(pread(fd, &b, 1, at), 1);
		flip = b ^ (unsigned char)(1 << below(8));
		assert_int_equal(pwrite(fd, &flip, 1, at), 1);
		assert_int_equal(dt_ckpt_read(c, 0, p->off, p->shape, DT_F32, got, &err), -EBADMSG);
		assert_non_null(strstr(err.msg, "checksum mismatch"));
		assert_non_null(strstr(err.msg, c->m.file[p->file].name));
		assert_int_equal(pwrite(fd, &b, 1, at), 1);
		assert_int_equal(dt_ckpt_read(c, 0, p->off, p->shape, DT_F32, got, &err), 0);
		close(fd);
		free(got);
	}
	dt_ckpt_close(c);
	free_whole(&w);
}

/* Anything, anywhere in a shard or the index: verify must answer, not fall over. Half of it is HDF5's own. */
static void verify_survives_damage(void **state)
{
	struct whole w[2];
	struct dt_err err = {0};
	int found = 0;

	make_whole(&w[0], "model/x", DT_F32, 2, (const int64_t[]){33, 21}, 3);
	make_whole(&w[1], "model/y", DT_F32, 2, (const int64_t[]){133, 21}, 3);
	assert_int_equal(save(sub("dmg"), 1, w, 2, 2, true, 0, &err), 0);
	for (int trial = 0; trial < 150; trial++) {
		static const char *const names[] = {"dmg/step-00000001/shard-00000.h5",
						    "dmg/step-00000001/shard-00001.h5",
						    "dmg/step-00000001/index.h5"};
		int fd = open(sub(names[below(3)]), O_RDWR), rc;
		unsigned char was[4], is[4];
		struct stat st;
		off_t at;

		assert_int_equal(fstat(fd, &st), 0);
		at = (off_t)below(st.st_size - 4);
		assert_int_equal(pread(fd, was, 4, at), 4);
		for (int i = 0; i < 4; i++)
			is[i] = (unsigned char)below(256);
		assert_int_equal(pwrite(fd, is, 4, at), 4);
		rc = dt_ckpt_verify(sub("dmg"), 1 + trial % 4, NULL, NULL, NULL, &err);
		assert_true(rc >= 0);
		found += rc > 0;
		assert_int_equal(pwrite(fd, was, 4, at), 4);
		close(fd);
	}
	print_message("%d of 150 damages found; the others hit padding\n", found);
	assert_int_equal(dt_ckpt_verify(sub("dmg"), 1, NULL, NULL, NULL, &err), 0);
	free_whole(&w[0]);
	free_whole(&w[1]);
}

static void differences_are_measured(void **state)
{
	float x[6] = {1, -2, 3, -8, 5, 6}, y[6] = {1, -2, 3.5f, -8, 5, 6}, z[6] = {1, -2, 3, -8, 5, 6};
	float *v[3] = {x, y, z};
	static const char *const name[] = {"da", "db", "dc"};
	struct dt_diff exact = {.tolerance = -1}, loose = {.tolerance = 0.0626},
		       tight = {.tolerance = 0.0624};
	struct dt_tensors *c[3];
	struct dt_err err = {0};
	struct dt_tensor_stats s;

	for (int i = 0; i < 3; i++) {
		struct dt_piece p = {.name = "model/x",
				     .dtype = DT_F32,
				     .ndim = 1,
				     .global = {6},
				     .shape = {6},
				     .data = v[i]};
		json_t *list, *meta = json_object();
		char *tmp;

		assert_int_equal(dt_ckpt_begin(sub(name[i]), 1, &tmp, &err), 0);
		assert_int_equal(dt_ckpt_write_shard(tmp, 0, &p, 1, false, &list, &err), 0);
		assert_int_equal(dt_ckpt_commit(sub(name[i]), 1, meta, &list, 1, 0, &err), 0);
		assert_int_equal(dt_tensors_open(sub(name[i]), &c[i], &err), 0);
		json_decref(list);
		json_decref(meta);
		free(tmp);
	}
	assert_int_equal(dt_tensors_diff(c[0], c[2], &exact, &err), 0);
	assert_int_equal(dt_tensors_diff(c[0], c[1], &exact, &err), 1);
	assert_int_equal(dt_tensors_diff(c[0], c[1], &tight, &err), 1); /* 0.5 / 8 = 0.0625 */
	assert_int_equal(dt_tensors_diff(c[0], c[1], &loose, &err), 0);
	assert_int_equal(dt_tensor_stats(c[0], 0, &s, &err), 0);
	assert_true(s.n == 6 && s.min == -8 && s.max == 6);
	assert_true(s.mean > 0.8333 && s.mean < 0.8334); /* 5 / 6 */
	assert_true(s.std > 4.7404 && s.std < 4.7406);	 /* sqrt(139 / 6 - 25 / 36) */
	for (int i = 0; i < 3; i++)
		dt_tensors_close(c[i]);
}

/* HDF5 1.10 itself leaks where it gives up on a damaged file. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libhdf5";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_boxes),	    cmocka_unit_test(sums_are_those_of_zlib),
		cmocka_unit_test(large_pieces_are_split),   cmocka_unit_test(round_trips),
		cmocka_unit_test(empty_pieces_and_shards),  cmocka_unit_test(converts_between_f32_and_bf16),
		cmocka_unit_test(commit_refuses),	    cmocka_unit_test(keeps_the_newest),
		cmocka_unit_test(manifest_lies_are_found),  cmocka_unit_test(manifest_fuzz),
		cmocka_unit_test(flipped_bits_are_found),   cmocka_unit_test(verify_survives_damage),
		cmocka_unit_test(differences_are_measured),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
