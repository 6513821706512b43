/*
 * A model served over the ranks that mpirun started: test_served LAYOUT. Every family and format against
 * PyTorch's logits (tests/data/golden_models.py) and against one rank, each rank's memory against the
 * estimate of a server, and what cannot be cut.
 */
#include "base/rng.h"
#include "ckpt/export.h"
#include "comm/comm.h"
#include "infer_golden.h"
#include "plan/estimate.h"

#include <errno.h>
#include <unistd.h>

static struct dt_infer_ranks ranks;
static struct dt_comm *all;
static struct dt_dev *dev;
static bool first;
static char dir[] = "/tmp/dt-served-XXXXXX";

static struct dt_infer_params params(enum dt_dtype dtype, int weights)
{
	return (struct dt_infer_params){.dtype = dtype,
					.cache = dtype,
					.weights = weights,
					.max_tokens = ROWS,
					.max_seqs = ROWS,
					.blocks = BLOCKS,
					.block_size = BLOCK};
}

/* What this rank holds is what dt-memest says of it. */
static void check_memory(struct dt_infer *m, struct dt_source *src)
{
	const struct dt_config *c = dt_infer_config(m);
	const struct dt_params *table = dt_source_params(src);
	int8_t *stored = malloc((size_t)table->n);
	struct dt_serve_shape s = {.config = c,
				   .layout = ranks.layout,
				   .tp_rank = ranks.at.tp,
				   .stage = ranks.at.pp,
				   .account = DT_ACCOUNT_DT,
				   .compute = DT_F32,
				   .stored = stored,
				   .max_seqs = ROWS,
				   .max_len = c->max_seq,
				   .block = BLOCK,
				   .max_tokens = ROWS,
				   .scratch = dt_dev_scratch_on(dev)};
	struct dt_infer_memory have = dt_infer_bytes(m);
	uint64_t blocks = ROWS * (uint64_t)((c->max_seq + BLOCK - 1) / BLOCK);
	struct dt_estimate e;
	struct dt_err err;

	for (int i = 0; i < table->n; i++)
		stored[i] = (int8_t)dt_source_format(src, i);
	if (dt_estimate_serve(&s, &e, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(have.weights, e.cat_bytes[DT_MEM_WEIGHTS]);
	assert_int_equal(have.work, e.cat_bytes[DT_MEM_WORKSPACE]);
	assert_int_equal(have.scratch, e.cat_bytes[DT_MEM_SCRATCH]);
	assert_int_equal(have.cache / BLOCKS, e.cat_bytes[DT_EST_CACHE] / blocks);
	dt_estimate_release(&e);
	free(stored);
}

/* Both sequences in parts of 5 tokens. */
static float *logits_of(struct dt_infer *m, const int32_t *ids, int seq, int64_t n)
{
	float *got = malloc((size_t)n * sizeof(*got));

	memset(got, 0xff, (size_t)n * sizeof(*got));
	for (int at = 0; at < seq; at += 5)
		pass(m, ids, seq, at, at + 5 < seq ? at + 5 : seq, got);
	return got;
}

/* Two sequences, and where they are known PyTorch's logits of them. */
struct asked {
	int32_t *ids;
	int seq;
	int64_t n; /* logits */
	float *want;
};

static struct asked ask_golden(struct golden *g)
{
	struct asked a = {.ids = golden_i32(g, "ids", NULL), .seq = (int)golden_int(g, "/", "seq")};

	a.want = golden_f32(g, "logits", &a.n);
	return a;
}

static void release_asked(struct asked *a)
{
	free(a->ids);
	free(a->want);
}

/* Stages that compute a pass in parts, of two rows and more and of three, give the same bits. */
static void compare_parts(const char *name, struct dt_source *src, const struct asked *a,
			  struct dt_infer_params p, const float *whole)
{
	for (p.part_rows = 2; p.part_rows <= 3; p.part_rows++) {
		struct dt_infer *m;
		struct dt_err err;
		float *got;

		if (dt_infer_open(&m, dev, src, &p, &err) < 0)
			fail_msg("%s: %s", name, err.msg);
		got = logits_of(m, a->ids, a->seq, a->n);
		dt_infer_close(m);
		if (first && memcmp(got, whole, (size_t)a->n * sizeof(*got)))
			fail_msg("%s: parts of %d rows give other logits", name, p.part_rows);
		free(got);
	}
}

/* tol: the distance from one rank's logits. */
static void compare(const char *name, struct dt_source *src, const struct asked *a, struct dt_infer_params p,
		    double tol)
{
	struct dt_infer *m;
	struct dt_err err;
	float *cut, *one;

	p.ranks = &ranks;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	if (p.dtype == DT_F32 && p.weights < 0)
		check_memory(m, src);
	cut = logits_of(m, a->ids, a->seq, a->n);
	dt_infer_close(m);
	if (ranks.layout.pp > 1)
		compare_parts(name, src, a, p, cut);
	if (first) {
		p.ranks = NULL;
		assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), 0);
		one = logits_of(m, a->ids, a->seq, a->n);
		dt_infer_close(m);
		golden_assert_close(name, cut, one, a->n, 1e-3, tol);
		if (a->want && p.dtype == DT_F32)
			golden_assert_close(name, cut, a->want, a->n, 1e-3, 1e-4);
		free(one);
	}
	assert_int_equal(dt_barrier(all, "compared", &err), 0);
	free(cut);
}

static void test_families(void **state)
{
	static const char *const models[] = {
		"gpt2",	   "llama",   "qwen2",	   "qwen3",	 "mistral",
		"llama31", "gemma3",  "phi3",	   "gemma2",	 "olmo2",
		"olmo3",   "smollm3", "mixtral",   "qwen3moe",	 "olmoe",
		"glm4",	   "glm4moe", "minimaxm2", "gptoss",	 "granite",
		"neox",	   "neoxseq", "phi4",	   "granitemoe", "granitemoeshared",
		"cohere",  "cohere2", "starcoder2"};

	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		struct dt_source *src;
		struct asked a;
		struct golden g;
		struct dt_err err;

		golden_open(&g, models[i]);
		a = ask_golden(&g);
		src = golden_checkpoint(&g, dir, models[i]);
		if (dt_serving_check(dt_source_config(src), &ranks.layout, &err) == 0) {
			compare(models[i], src, &a, params(DT_F32, -1), 1e-5);
			/* no gross error; of experts with close scores another one may be chosen */
			if (!dt_source_config(src)->experts)
				compare(models[i], src, &a, params(DT_BF16, -1), 0.1);
		} else {
			print_message("%s: %s\n", models[i], err.msg);
		}
		dt_source_close(src);
		release_asked(&a);
		golden_close(&g);
	}
}

static struct dt_source *as_file(struct dt_source *src, const char *name, enum dt_source_kind to, int format)
{
	struct dt_export x = {.to = to, .format = format};
	struct dt_source *file = NULL;
	struct dt_err err;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s-file", dir, name);
	if (dt_export(src, path, &x, &err) < 0 ||
	    dt_source_open(path, DT_SOURCE_AUTO, "none", &file, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	return file;
}

static void test_files(void **state)
{
	static const struct {
		const char *model;
		enum dt_source_kind to;
	} v[] = {
		{"gpt2", DT_SOURCE_GGUF},	 {"llama", DT_SOURCE_GGUF},
		{"phi3", DT_SOURCE_GGUF},	 {"mistral", DT_SOURCE_SAFETENSORS},
		{"gpt2", DT_SOURCE_SAFETENSORS}, {"phi3", DT_SOURCE_SAFETENSORS},
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++) {
		struct dt_source *src, *file;
		struct asked a;
		char name[64];
		struct golden g;

		golden_open(&g, v[i].model);
		a = ask_golden(&g);
		snprintf(name, sizeof(name), "from-%zu", i);
		src = golden_checkpoint(&g, dir, name);
		file = as_file(src, name, v[i].to, DT_FMT_F32);
		compare(v[i].model, file, &a, params(DT_F32, -1), 1e-5);
		dt_source_close(file);
		dt_source_close(src);
		release_asked(&a);
		golden_close(&g);
	}
}

static float *random_value(const struct dt_param *p, void *none)
{
	const struct dt_rng r = dt_rng_make(7, DT_RNG_INIT, dt_hash_str(p->name));
	const size_t n = (size_t)dt_param_numel(p);
	const bool ones = p->init == DT_INIT_ONES;
	float *w = malloc(n * sizeof(*w));

	(void)none;
	dt_rng_fill_normal(&r, 0, w, n, ones ? 1 : 0, ones ? 0 : 0.05f);
	return w;
}

/* A model whose rows are whole blocks, of random weights. */
static struct dt_source *random_model(int64_t hidden, const char *name)
{
	struct dt_config c;
	struct dt_err err;

	assert_int_equal(dt_config_load("llama-tiny", &c, &err), 0);
	c.hidden = hidden;
	c.ffn = 2 * hidden;
	c.heads = 8;
	c.kv_heads = 4;
	c.head_dim = hidden / 8;
	c.vocab = 301;
	c.max_seq = 64;
	return tests_checkpoint(&c, random_value, NULL, dir, name);
}

/*
 * Blocks of a file are cut without unpacking. Activations are rounded to 8 bits for these products, and a sum
 * in another order now and then to the other side: what is told apart is a block in the wrong place.
 */
static void test_blocks(void **state)
{
	static const enum dt_format kept[] = {DT_FMT_Q8_0, DT_FMT_Q4_0};
	struct dt_source *src = random_model(256, "wide");
	struct asked a = {.seq = 12, .ids = calloc(24, sizeof(int32_t)), .n = 24 * 301};

	for (int i = 0; i < 24; i++)
		a.ids[i] = 37 * i % 301;
	compare("f32", src, &a, params(DT_F32, -1), 1e-5);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		const char *name = dt_format_info(kept[i])->name;
		struct dt_source *file = as_file(src, name, DT_SOURCE_GGUF, (int)kept[i]);

		assert_int_equal(dt_source_format(file, 2), kept[i]);
		compare(name, src, &a, params(DT_F32, (int)kept[i]), 0.03);
		compare(name, file, &a, params(DT_F32, -1), 0.03);
		dt_source_close(file);
	}
	dt_source_close(src);
	free(a.ids);
}

/* A cut through blocks is refused by name. */
static void test_through_blocks(void **state)
{
	struct dt_source *src = random_model(32, "narrow"),
			 *file = as_file(src, "narrow", DT_SOURCE_GGUF, DT_FMT_Q8_0);
	struct dt_infer_params p = params(DT_F32, -1);
	struct dt_infer *m;
	struct dt_err err;

	p.ranks = &ranks;
	if (ranks.layout.tp > 1) {
		assert_int_equal(dt_infer_open(&m, dev, file, &p, &err), -ENOTSUP);
		print_message("%s\n", err.msg);
		assert_non_null(strstr(err.msg, "attn.o.weight"));
	}
	dt_source_close(file);
	dt_source_close(src);
}

static int release(void **state)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	dt_dev_close(dev);
	return system(cmd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_files),
					   cmocka_unit_test(test_blocks),
					   cmocka_unit_test(test_through_blocks)};
	const struct dt_log log = {.f = stderr, .name = "test_served", .rank = -1};
	struct dt_layout l;
	struct dt_world *w;
	struct dt_mesh mesh;
	struct dt_err err;
	int rc;

	if (argc != 2 || dt_layout_parse(argv[1], &l, &err) < 0 || dt_world_init(&w, 30, &log, &err) < 0 ||
	    dt_mesh_init(&mesh, w, &l, &err) < 0 || dt_mesh_need(&mesh, DT_ON_TP, &err) < 0 ||
	    dt_mesh_need(&mesh, DT_ON_PP, &err) < 0 || dt_mesh_need(&mesh, DT_ON_CP, &err) < 0 ||
	    dt_dev_open(&dev, DT_DEV_CPU, 0, 1) < 0 || !mkdtemp(dir))
		return 1;
	dev->batch_invariant = true; /* as dt-serve has it: a router's product is of f32 */
	all = dt_mesh_comm(&mesh, DT_ON_ALL);
	first = dt_comm_rank(all) == 0;
	ranks = (struct dt_infer_ranks){.layout = l,
					.at = mesh.at,
					.tp = l.tp > 1 ? dt_mesh_comm(&mesh, DT_ON_TP) : NULL,
					.pp = l.pp > 1 ? dt_mesh_comm(&mesh, DT_ON_PP) : NULL,
					.cp = l.cp > 1 ? dt_mesh_comm(&mesh, DT_ON_CP) : NULL,
					.world = w};
	rc = cmocka_run_group_tests(tests, NULL, release);
	if (rc) /* the others would wait */
		dt_world_abort(w, 1);
	dt_mesh_release(&mesh);
	dt_world_finalize(w);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
