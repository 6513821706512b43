/*
 * Inference against PyTorch's logits (tests/data/golden_models.py): every family, its prompt computed in
 * parts through scattered cache blocks, together with another sequence.
 */
#include "ckpt/export.h"
#include "infer_golden.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

/* The golden weights as a checkpoint. */
static struct dt_source *checkpoint(struct golden *g, const char *name)
{
	return golden_checkpoint(g, tests_dir(), name);
}

/* On an emulated card, which takes long, a test of many models takes part of them, and all with DT_SLOW=1. */
static bool every_one(void)
{
	const char *s = getenv("DT_SLOW");

	return !on_card() || (s && !strcmp(s, "1"));
}

struct how {
	enum dt_dtype dtype, cache;
	int weights;
	bool invariant;
	double tol;
	/* Of the rows that many may be farther off: where scores of experts are close, rounding sends a token
	 * to another one. */
	double stray;
};

/* Fails when too many rows of logits are farther from the golden ones than tol. */
static void rows_close(const char *name, const float *got, const float *want, int64_t n, int64_t vocab,
		       const struct how *h)
{
	const double largest = golden_largest(want, n);
	int64_t far = 0;

	for (int64_t at = 0; at < n; at += vocab)
		far += golden_err(got + at, want + at, vocab, largest) > h->tol;
	if ((double)far > h->stray * (double)(n / vocab))
		golden_assert_close(name, got, want, n, 1e-3, h->tol);
}

/* Zeros in place of all weights, and the weights again: the bits of the first pass, in the same memory. */
static void reload(const char *name, struct dt_infer *m, struct dt_source *src, const int32_t *ids, int seq,
		   const float *want, int64_t n)
{
	const struct dt_params *t = dt_source_params(src);
	const uint64_t bytes = dt_infer_bytes(m).weights;
	const void **data = calloc((size_t)t->n, sizeof(*data));
	float *got = malloc((size_t)n * sizeof(*got)), *zeros;
	struct dt_source *empty;
	struct dt_err err;
	int64_t most = 0;

	for (int i = 0; i < t->n; i++)
		most = dt_param_numel(&t->p[i]) > most ? dt_param_numel(&t->p[i]) : most;
	zeros = calloc((size_t)most, sizeof(*zeros));
	for (int i = 0; i < t->n; i++)
		data[i] = zeros;
	assert_int_equal(dt_source_memory(dt_source_config(src), data, DT_F32, &empty, &err), 0);
	if (dt_infer_reload(m, empty, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	pass(m, ids, seq, 0, seq, got);
	for (int64_t i = 0; i < n; i++)
		if (got[i] != 0)
			fail_msg("%s[%lld]: %g of zeros", name, (long long)i, (double)got[i]);
	if (dt_infer_reload(m, src, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	pass(m, ids, seq, 0, seq, got);
	assert_memory_equal(got, want, (size_t)n * sizeof(*got));
	assert_int_equal(dt_infer_bytes(m).weights, bytes);
	dt_source_close(empty);
	free(data);
	free(zeros);
	free(got);
}

static void compare(const char *name, struct dt_source *src, struct golden *g, struct how h)
{
	struct dt_infer_params p = {.dtype = h.dtype,
				    .cache = h.cache,
				    .weights = h.weights,
				    .max_tokens = ROWS,
				    .max_seqs = ROWS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	int64_t n, seq = golden_int(g, "/", "seq");
	int32_t *ids = golden_i32(g, "ids", NULL);
	float *want = golden_f32(g, "logits", &n), *got = malloc((size_t)n * sizeof(*got)), *first = NULL;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
	dev->batch_invariant = h.invariant;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	for (int step = 5; step <= seq; step += (int)seq - 5) { /* in parts of 5, and all at once */
		memset(got, 0xff, (size_t)n * sizeof(*got));
		for (int at = 0; at < seq; at += step)
			pass(m, ids, (int)seq, at, at + step < seq ? at + step : (int)seq, got);
		rows_close(name, got, want, n, dt_infer_config(m)->vocab, &h);
		if (!first) {
			first = malloc((size_t)n * sizeof(*got));
			memcpy(first, got, (size_t)n * sizeof(*got));
		} else if (h.invariant) { /* whatever was computed beside a row, its bits are the same */
			for (int64_t i = 0; i < n; i++)
				if (memcmp(&got[i], &first[i], 4))
					fail_msg("%s[%lld]: %.9g at once, %.9g in parts", name, (long long)i,
						 (double)got[i], (double)first[i]);
		}
	}
	if (h.invariant && !on_card())
		reload(name, m, src, ids, (int)seq, first, n);
	free(first);
	dt_infer_close(m);
	dt_dev_close(dev);
	free(ids);
	free(want);
	free(got);
}

static void test_families(void **state)
{
	/* Beside f32, in every_one() all; else of each kind of attention and of experts one or two. */
	enum { I8 = 1, BF16 = 2, Q8 = 4 };
	static const struct {
		const char *name;
		int how;
	} models[] = {{"gpt2", I8},	  {"llama", BF16},	   {"qwen2", 0},
		      {"qwen3", 0},	  {"mistral", 0},	   {"llama31", 0},
		      {"gemma3", I8},	  {"mixtral", BF16 | Q8},  {"qwen3moe", I8},
		      {"olmo2", 0},	  {"granite", I8},	   {"gemma2", BF16},
		      {"olmoe", 0},	  {"deepseek2", BF16},	   {"deepseek3", I8},
		      {"glm4moe", 0},	  {"glm4", BF16},	   {"phi3", 0},
		      {"neox", I8},	  {"neoxseq", 0},	   {"phi4", BF16},
		      {"granitemoe", Q8}, {"granitemoeshared", 0}, {"cohere", Q8},
		      {"cohere2", BF16},  {"starcoder2", I8}};

	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i += every_one() ? 1 : 2) {
		const char *name = models[i].name;
		const int how = every_one() ? I8 | BF16 | Q8 : models[i].how;
		struct dt_source *src;
		struct golden g;
		bool experts;

		golden_open(&g, name);
		src = checkpoint(&g, name);
		experts = dt_source_config(src)->experts > 0;
		if (!on_card()) /* emulated it takes long, and says no more than the next */
			compare(name, src, &g, (struct how){DT_F32, DT_F32, -1, false, 1e-4, 0});
		compare(name, src, &g, (struct how){DT_F32, DT_F32, -1, true, 1e-4, 0});
		if (how & I8)
			compare(name, src, &g,
				(struct how){DT_F32, DT_I8, -1, true, 0.06, experts ? 0.3 : 0});
		if (how & BF16) /* no gross error */
			compare(name, src, &g,
				(struct how){DT_BF16, DT_BF16, -1, true, 0.1, experts ? 0.3 : 0});
		if (how & Q8 && experts &&
		    !dt_source_config(src)->kv_rank) /* whose rows are not whole blocks here */
			compare(name, src, &g, (struct how){DT_F32, DT_F32, DT_FMT_Q8_0, true, 0.03, 0.3});
		dt_source_close(src);
		golden_close(&g);
	}
}

/*
 * The same models from files of other formats: names, rotary order, norms of 1 + w, experts in one tensor or
 * in many. What a format cannot say of a model is refused when it is written.
 */
static void test_from_other_formats(void **state)
{
	static const struct {
		const char *model;
		enum dt_source_kind to;
		int format; /* of the file */
		double tol, stray;
	} v[] = {
		{"gpt2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"llama", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"mistral", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"llama31", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"qwen2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"qwen3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"gemma3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"olmo2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"olmo2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"olmo3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"olmo3", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"smollm3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"smollm3", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"glm4", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"glm4", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"glm4moe", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"glm4moe", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"minimaxm2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"minimaxm2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"granite", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"granite", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"neox", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"neox", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"neoxseq", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"neoxseq", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"granitemoe", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"granitemoe", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"granitemoe", DT_SOURCE_GGUF, DT_FMT_Q8_0, 0.03, 0.3},
		{"granitemoeshared", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"granitemoeshared", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"cohere", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"cohere", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"cohere2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"cohere2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"starcoder2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"starcoder2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"gptoss", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"gptoss", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"phi3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"phi3", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"phi4", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"phi4", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"gemma2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"mixtral", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"mixtral", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"mixtral", DT_SOURCE_GGUF, DT_FMT_Q8_0, 0.03, 0.3},
		{"olmoe", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"olmoe", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"qwen3moe", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"qwen3moe", DT_SOURCE_SAFETENSORS, DT_FMT_BF16, 0.05, 0.3},
		{"deepseek2", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"deepseek3", DT_SOURCE_SAFETENSORS, DT_FMT_F32, 1e-4, 0},
		{"deepseek2", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
		{"deepseek3", DT_SOURCE_GGUF, DT_FMT_F32, 1e-4, 0},
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++) {
		struct dt_export x = {.to = v[i].to, .format = v[i].format};
		struct dt_source *src, *file = NULL;
		struct dt_err err = {0};
		char name[64], path[128];
		struct golden g;

		golden_open(&g, v[i].model);
		snprintf(name, sizeof(name), "from-%zu", i);
		src = checkpoint(&g, name);
		snprintf(path, sizeof(path), "%s/%s-file", tests_dir(), name);
		if (dt_export(src, path, &x, &err) < 0 ||
		    dt_source_open(path, DT_SOURCE_AUTO, "none", &file, &err) < 0)
			fail_msg("%s: %s", v[i].model, err.msg);
		compare(v[i].model, file, &g, (struct how){DT_F32, DT_F32, -1, true, v[i].tol, v[i].stray});
		dt_source_close(file);
		dt_source_close(src);
		golden_close(&g);
	}
}

/* GGUF's readers take for granted that the weights of Qwen3's experts add up to 1. */
static void test_cannot_be_said(void **state)
{
	struct dt_export x = {.to = DT_SOURCE_GGUF, .format = DT_FMT_F32};
	struct dt_source *src;
	struct dt_err err;
	char path[128];
	struct golden g;

	golden_open(&g, "qwen3moe");
	src = checkpoint(&g, "unsaid");
	snprintf(path, sizeof(path), "%s/unsaid.gguf", tests_dir());
	assert_int_equal(dt_export(src, path, &x, &err), -ENOTSUP);
	assert_int_not_equal(access(path, F_OK), 0);
	dt_source_close(src);
	golden_close(&g);
}

static void test_refused(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = DT_FMT_Q8_0, /* rows of 56 are not blocks of 32 */
				    .max_tokens = 4,
				    .max_seqs = 4,
				    .blocks = 4,
				    .block_size = 4};
	struct dt_source *src;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct golden g;
	struct dt_err err;

	golden_open(&g, "qwen3");
	src = checkpoint(&g, "again");
	golden_close(&g);
	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 1), 0);
	assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "mlp.down.weight"));
	p.weights = DT_FMT_F32;
	p.dtype = DT_BF16;
	assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), -ENOTSUP);
	p.dtype = DT_F32;
	p.cache = DT_BF16;
	assert_int_equal(dt_infer_open(&m, dev, src, &p, &err), -ENOTSUP);
	dt_dev_close(dev);
	dt_source_close(src);
}

/*
 * One token a step of both sequences, as a server decodes: from the second step on a card gives what it
 * recorded, with other ids, places and lengths each time, over two sizes of recorded steps.
 */
static void test_decode(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = ROWS,
				    .max_seqs = ROWS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	static const char *const models[] = {"gpt2",	 "qwen3", "gemma3", "mixtral",
					     "qwen3moe", "olmo2", "gemma2"};

	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i += every_one() ? 1 : 2) {
		struct how h = {DT_F32, DT_F32, -1, false, 1e-4, 0};
		struct dt_source *src;
		struct dt_infer *m;
		struct dt_dev *dev;
		struct golden g;
		struct dt_err err;
		int32_t *ids;
		float *want, *got;
		int64_t n, seq;
		char name[32];

		golden_open(&g, models[i]);
		snprintf(name, sizeof(name), "decode-%zu", i);
		src = checkpoint(&g, name);
		seq = golden_int(&g, "/", "seq");
		ids = golden_i32(&g, "ids", NULL);
		want = golden_f32(&g, "logits", &n);
		got = malloc((size_t)n * sizeof(*got));
		assert_int_equal(dt_dev_open(&dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
		if (dt_infer_open(&m, dev, src, &p, &err) < 0)
			fail_msg("%s: %s", models[i], err.msg);
		pass(m, ids, (int)seq, 0, 4, got);
		for (int at = 4; at < seq; at++)
			pass(m, ids, (int)seq, at, at + 1, got);
		rows_close(models[i], got, want, n, dt_infer_config(m)->vocab, &h);
		assert_int_equal(dt_infer_replayed(m), on_card() ? seq - 5 : 0);
		dt_infer_close(m);
		dt_dev_close(dev);
		dt_source_close(src);
		golden_close(&g);
		free(ids);
		free(want);
		free(got);
	}
}

/* A greedy step at `at`: logits and the largest are those of transformers. Returns the token. */
static int32_t greedy_step(const char *model, const json_t *of, int at, const float *row)
{
	const json_t *want = json_array_get(json_object_get(of, "logits"), (size_t)at);
	const int vocab = (int)json_array_size(want);
	double largest = 0;
	int best = 0;

	assert_true(vocab > 0);
	for (int i = 0; i < vocab; i++)
		largest = fmax(largest, fabs(json_real_value(json_array_get(want, (size_t)i))));
	for (int i = 0; i < vocab; i++) {
		const double x = json_real_value(json_array_get(want, (size_t)i));

		if (!(fabs((double)row[i] - x) <= 1e-5 * largest))
			fail_msg("%s, token %d: logit %d is %.9g, not %.9g", model, at, i, (double)row[i], x);
		best = row[i] > row[best] ? i : best;
	}
	assert_int_equal(best, json_integer_value(json_array_get(json_object_get(of, "greedy"), (size_t)at)));
	return best;
}

/* The prompt at once, then token after token over a cache of latents. */
static void greedy_like(const char *model, const json_t *of, struct dt_infer *m)
{
	const json_t *prompt = json_object_get(of, "prompt");
	const int n = (int)json_array_size(prompt),
		  more = (int)json_array_size(json_object_get(of, "greedy")), seq = n + more;
	const int64_t vocab = dt_infer_config(m)->vocab;
	float *got = malloc(2 * (size_t)(seq * vocab) * sizeof(*got));
	int32_t *ids = calloc(2 * (size_t)seq, sizeof(*ids));

	assert_in_range(more, 10, 100);
	for (int i = 0; i < n; i++)
		ids[i] = ids[seq + i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
	for (int i = 0; i < (every_one() ? more : 4); i++) {
		pass(m, ids, seq, i ? n + i - 1 : 0, n + i, got);
		ids[n + i] = ids[seq + n + i] = greedy_step(model, of, i, got + (n + i - 1) * vocab);
	}
	free(ids);
	free(got);
}

/* tests/data/golden_latent.py */
static void test_latent(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = ROWS,
				    .max_seqs = ROWS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	static const char *const models[] = {"deepseek2", "deepseek3"};
	json_t *all = json_load_file(GOLDEN_DIR "/golden-latent.json", 0, NULL);

	assert_non_null(all);
	for (int k = 0; k < 2; k++) {
		struct dt_source *src;
		struct dt_infer *m;
		struct dt_dev *dev;
		struct golden g;
		struct dt_err err;
		char name[32];

		golden_open(&g, models[k]);
		snprintf(name, sizeof(name), "latent-%d", k);
		src = checkpoint(&g, name);
		assert_int_equal(dt_dev_open(&dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
		if (dt_infer_open(&m, dev, src, &p, &err) < 0)
			fail_msg("%s: %s", models[k], err.msg);
		greedy_like(models[k], json_object_get(all, models[k]), m);
		dt_infer_close(m);
		dt_dev_close(dev);
		dt_source_close(src);
		golden_close(&g);
	}
	json_decref(all);
}

/* Number at of the draws of a row: first argmaxes, then of all kinds, at last with log-probabilities. */
static struct dt_draw draw_at(int at, int row)
{
	const int kind = at < 5 ? 0 : at < 9 ? 1 : 2;

	return (struct dt_draw){.cold = kind ? 1 / (0.5 + row) : 0,
				.top_p = kind && at % 2 ? 0.8 : 1,
				.top_k = kind && at % 3 == 0 ? 5 : 0,
				.repetition = 1.3,
				.presence = 0.2,
				.score = kind == 2 && row,
				.stream = {{(uint32_t)at, 7}, {0, 0}},
				.index = (uint64_t)(at + row)};
}

/*
 * Tokens drawn where the model is computed, on a card in steps that are recorded with their draws, are those
 * drawn from its logits. At the end there are more edits than there was room for.
 */
static void test_draws(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = 8,
				    .max_seqs = 8,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	enum { FROM = 2, EDITS = 700 };
	struct dt_edit *edit = calloc(EDITS, sizeof(*edit));
	struct dt_source *src;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct golden g;
	struct dt_err err;
	uint64_t replayed;
	float *logits;
	int32_t *ids;
	void *room;
	int64_t n, seq, vocab;

	golden_open(&g, "gpt2");
	src = checkpoint(&g, "draws");
	seq = golden_int(&g, "/", "seq");
	ids = golden_i32(&g, "ids", NULL);
	logits = golden_f32(&g, "logits", &n);
	assert_int_equal(dt_dev_open(&dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s", err.msg);
	vocab = dt_infer_config(m)->vocab;
	room = aligned_alloc(64, (dt_sample_room(vocab) + 63) / 64 * 64);
	pass(m, ids, (int)seq, 0, FROM, logits);
	for (int at = FROM; at < seq; at++) /* twice, so that the cache is the same */
		pass(m, ids, (int)seq, at, at + 1, logits);
	replayed = dt_infer_replayed(m);
	assert_true(seq >= 12);
	for (int at = FROM; at < seq; at++) {
		const int nedits = at < 5 ? 0 : at + 1 < seq ? 3 : EDITS;
		struct dt_draw d[2] = {draw_at(at, 0), draw_at(at, 1)};
		struct dt_drawn got[2], want;

		for (int i = 0; i < nedits; i++)
			edit[i] = (struct dt_edit){
				.id = (int32_t)((at + 5 * i) % vocab), .count = i % 2, .bias = 1};
		d[1].edits = nedits < 3 ? nedits : 3;
		d[1].first = nedits - d[1].edits;
		draws = (struct dt_infer_batch){.draw = d, .edit = edit, .nedits = nedits, .drawn = got};
		for (int s = 0; s < 2; s++) /* the bytes of drawn are to be written */
			memset(&got[s], 0xee, sizeof(got[s]));
		float *none = malloc((size_t)n * sizeof(*none));

		pass(m, ids, (int)seq, at, at + 1, none);
		free(none);
		for (int s = 0; s < 2; s++) {
			dt_sample_row(room, &want, logits + (s * seq + at) * vocab, vocab, &d[s], edit);
			assert_int_equal(got[s].id, want.id);
			assert_true(got[s].sum == want.sum && got[s].logit == want.logit &&
				    got[s].max == want.max);
		}
	}
	draws = (struct dt_infer_batch){0};
	/* The first step of each of the three kinds is not, nor is the one whose edits needed room. */
	assert_int_equal(dt_infer_replayed(m) - replayed, on_card() ? seq - FROM - 4 : 0);
	dt_infer_close(m);
	dt_dev_close(dev);
	dt_source_close(src);
	golden_close(&g);
	free(room);
	free(edit);
	free(ids);
	free(logits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_latent),
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_draws),
		cmocka_unit_test(test_from_other_formats),
		cmocka_unit_test(test_cannot_be_said),
		cmocka_unit_test(test_refused),
	};

	const struct CMUnitTest card[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_latent),
					  cmocka_unit_test(test_decode), cmocka_unit_test(test_draws)};

	if (on_card())
		return cmocka_run_group_tests(card, make_dir, remove_dir);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
