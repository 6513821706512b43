/*
 * Models that read images, against transformers (tests/data/golden_vlm.py): prompts, tiles to the bit,
 * positions of patches, states and rows of the tower, logits of prompts with images in whole and in parts.
 */
#include "golden.h"

#include "ckpt/source.h"
#include "data/chat.h"
#include "nn/see.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 336, TILES = 17, BLOCK = 16 };

static const char *const models[] = {"smolvlm", "idefics3"};
static const char *const cases[] = {"one", "two", "turns", "whole"};

static struct golden g;

static int setup(void **state)
{
	golden_open(&g, "vlm");
	return 0;
}

static int teardown(void **state)
{
	golden_close(&g);
	return 0;
}

static const char *key(const char *model, const char *name, const char *what)
{
	static char s[4][96];
	static int i;

	i = (i + 1) % 4;
	snprintf(s[i], sizeof(s[i]), "%s/%s/%s", model, name, what);
	return s[i];
}

static const char *folder(const char *model)
{
	char name[64];

	snprintf(name, sizeof(name), "vlm/%s", model);
	return golden_path(name);
}

static struct dt_source *open_model(const char *model, bool tower)
{
	struct dt_source *src = NULL;
	struct dt_err err;

	if ((tower ? dt_source_open_tower(folder(model), &src, &err)
		   : dt_source_open(folder(model), DT_SOURCE_AUTO, NULL, &src, &err)) < 0)
		fail_msg("%s: %s", model, err.msg);
	return src;
}

/*
 * The tiles of a conversation's images, one behind another, and what a template is told; returns their
 * number.
 */
static int tiles_of(const struct dt_vision *v, const char *model, const char *name, uint8_t *ret,
		    struct dt_chat_image *image)
{
	const size_t bytes = 3 * (size_t)(v->tile * v->tile);
	int n = 0;

	for (int i = 0;; i++) {
		struct dt_image x = {0};
		struct dt_vision_grid grid;
		struct dt_err err;
		char file[16];
		int64_t size;
		int32_t *wide;
		uint8_t *b;

		snprintf(file, sizeof(file), "file%d", i);
		if (!golden_has(&g, key(model, name, file)))
			return n;
		wide = golden_i32(&g, key(model, name, file), &size);
		b = malloc((size_t)size);
		for (int64_t k = 0; k < size; k++)
			b[k] = (uint8_t)wide[k];
		if (dt_image_decode(b, (size_t)size, 3, true, &x, NULL, &err) < 0 ||
		    dt_vision_grid(v, x.height, x.width, &grid, &err) < 0)
			fail_msg("%s: %s", name, err.msg);
		assert_true(n + grid.tiles <= TILES);
		if (dt_vision_cut(v, &grid, &x, ret + (size_t)n * bytes, &err) < 0)
			fail_msg("%s: %s", name, err.msg);
		n += grid.tiles;
		if (image)
			image[i] = (struct dt_chat_image){grid.rows, grid.cols};
		dt_image_release(&x);
		free(wide);
		free(b);
	}
}

/* The settings of a model, of which the case "whole" changes one. */
static struct dt_vision vision_of(const struct dt_source *src, const char *name)
{
	struct dt_vision v = *dt_source_vision(src);

	v.split &= strcmp(name, "whole") != 0;
	return v;
}

static void cuts_tiles(void **state)
{
	for (int m = 0; m < 2; m++)
		for (int c = 0; c < 4; c++) {
			struct dt_source *src = open_model(models[m], false);
			const struct dt_vision v = vision_of(src, cases[c]);
			const int64_t plane = v.tile * v.tile;
			uint8_t *got = malloc((size_t)(TILES * 3 * plane));
			float *want = golden_f32(&g, key(models[m], cases[c], "tiles"), NULL);
			int64_t shape[4], wrong = 0;

			assert_int_equal(golden_shape(&g, key(models[m], cases[c], "tiles"), shape), 4);
			assert_int_equal(tiles_of(&v, models[m], cases[c], got, NULL), shape[0]);
			assert_int_equal(shape[2], v.tile);
			for (int64_t i = 0; i < shape[0] * 3 * plane; i++) {
				const int ch = (int)(i / plane % 3);

				wrong += lrintf((want[i] * v.deviation[ch] + v.mean[ch]) / v.scale) != got[i];
			}
			if (wrong)
				fail_msg("%s, %s: %lld of %lld pixels differ", models[m], cases[c],
					 (long long)wrong, (long long)(shape[0] * 3 * plane));
			free(got);
			free(want);
			dt_source_close(src);
		}
}

/* Messages as the API takes them become the ids that transformers' processor makes of them. */
static void writes_prompts(void **state)
{
	for (int m = 0; m < 2; m++)
		for (int c = 0; c < 5; c++) {
			const char *name = c < 4 ? cases[c] : "text";
			struct dt_source *src = open_model(models[m], false);
			const struct dt_vision v = vision_of(src, name);
			uint8_t *tiles = malloc((size_t)(TILES * 3 * v.tile * v.tile));
			struct dt_chat_image image[4] = {{0}};
			struct dt_tokenizer *tok = NULL;
			json_t *all = NULL, *messages;
			int32_t *want = golden_i32(&g, key(models[m], name, "ids"), NULL), *got;
			struct dt_chat chat;
			const char *text;
			char file[64];
			struct dt_err err;
			int64_t shape[4];
			size_t n;

			snprintf(file, sizeof(file), "vlm/%s.json", models[m]);
			assert_int_equal(dt_json_load(golden_path(file), 1 << 24, &all, &err), 0);
			messages = json_object_get(json_object_get(all, name), "messages");
			text = dt_source_tokenizer(src, &n);
			assert_int_equal(dt_tokenizer_from_text(text, n, &tok, &err), 0);
			assert_int_equal(dt_chat_recognise(dt_source_chat_template(src), tok),
					 DT_CHAT_IDEFICS);
			dt_chat_init(&chat, DT_CHAT_IDEFICS, dt_source_chat_template(src), tok);
			tiles_of(&v, models[m], name, tiles, image);
			chat.image = image;
			chat.nimages = c == 1 ? 2 : c == 4 ? 0 : 1;
			chat.tile_rows = (int)v.rows;
			if (dt_chat_encode(&chat, messages, NULL, &got, &n, &err) < 0)
				fail_msg("%s, %s: %s", models[m], name, err.msg);
			golden_shape(&g, key(models[m], name, "ids"), shape);
			assert_int_equal(n, shape[0]);
			assert_memory_equal(got, want, n * sizeof(*want));
			free(got);
			free(want);
			free(tiles);
			json_decref(all);
			dt_tokenizer_close(tok);
			dt_source_close(src);
		}
}

static void finds_positions(void **state)
{
	static const int sides[] = {1, 2, 5, 7, 14, 16, 24, 26, 27, 32};
	int seen = 0;

	for (size_t i = 0; i < sizeof(sides) / sizeof(*sides); i++)
		for (int p = 1; p < 100; p++) {
			const struct dt_vision v = {.patches = p, .join = 1};
			char name[48];
			int32_t *want, *got;

			snprintf(name, sizeof(name), "positions/%d-%d", sides[i], p);
			if (!golden_has(&g, name))
				continue;
			want = golden_i32(&g, name, NULL);
			got = malloc((size_t)(p * p) * sizeof(*got));
			dt_vision_positions(&v, sides[i], got);
			for (int k = 0; k < p * p; k++)
				if (got[k] != want[k])
					fail_msg("%s: patch %d has position %d, not %d", name, k, got[k],
						 want[k]);
			seen++;
			free(want);
			free(got);
		}
	assert_true(seen > 40);
}

/* Pixels of the golden tile, in the order of patches. */
static float *ordered(const struct dt_vision *v, int64_t patch, const char *model)
{
	char name[48];
	float *tile, *ret = malloc((size_t)(3 * v->tile * v->tile) * sizeof(*ret)), *to = ret;
	const int64_t across = v->patches / v->join;

	snprintf(name, sizeof(name), "%s/tile", model);
	tile = golden_f32(&g, name, NULL);
	for (int64_t i = 0; i < across; i++)
		for (int64_t j = 0; j < across; j++)
			for (int64_t r = 0; r < v->join; r++)
				for (int64_t s = 0; s < v->join; s++)
					for (int c = 0; c < 3; c++)
						for (int64_t y = 0; y < patch; y++)
							for (int64_t x = 0; x < patch; x++)
								*to++ = tile[(c * v->tile +
									      (i * v->join + r) * patch + y) *
										     v->tile +
									     (j * v->join + s) * patch + x];
	free(tile);
	return ret;
}

static struct dt_see *open_see(struct dt_dev *dev, struct dt_source *tower, const struct dt_vision *v,
			       enum dt_dtype type)
{
	struct dt_see *s = NULL;
	struct dt_err err;

	if (dt_see_open(&s, dev, tower, v, type, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

static void sees_rows(void **state)
{
	for (int m = 0; m < 2; m++)
		for (int bf16 = 0; bf16 < 2; bf16++) {
			struct dt_source *src = open_model(models[m], false),
					 *tower = open_model(models[m], true);
			const struct dt_vision v = *dt_source_vision(src);
			const struct dt_config *c = dt_source_config(tower);
			const int64_t n = v.rows * c->tower.out;
			float *pixels = ordered(&v, c->tower.patch, models[m]), *want,
			      *got = malloc((size_t)n * 4);
			struct dt_dev *dev;
			struct dt_see *s;
			struct dt_err err;
			char name[48];

			assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
			s = open_see(dev, tower, &v, bf16 ? DT_BF16 : DT_F32);
			snprintf(name, sizeof(name), "%s/rows", models[m]);
			want = golden_f32(&g, name, NULL);
			assert_int_equal(dt_see_bytes(s), n * (bf16 ? 2 : 4));
			if (dt_see_pixels(s, pixels, got, &err) < 0)
				fail_msg("%s", err.msg);
			for (int64_t i = n - 1; bf16 && i >= 0; i--)
				got[i] = dt_bf16_to_f32(((uint16_t *)got)[i]);
			golden_assert_close(name, got, want, n, 1e-3, bf16 ? 3e-2 : 2e-6);
			dt_see_close(s);
			dt_dev_close(dev);
			dt_source_close(src);
			dt_source_close(tower);
			free(pixels);
			free(want);
			free(got);
		}
}

/* A tower whose connector is the identity, so that its rows are the states that are joined. */
static struct dt_source *without_connector(struct dt_source *tower, void **data)
{
	const struct dt_params *t = dt_source_params(tower);
	struct dt_config c = *dt_source_config(tower);
	struct dt_source *ret = NULL;
	struct dt_err err;
	const int64_t off[2] = {0}, wide = dt_tower_joined(&c.tower) * c.hidden;

	c.tower.out = wide;
	for (int i = 0; i < t->n; i++) {
		const struct dt_param *p = &t->p[i];

		data[i] = p->role == DT_W_CONNECTOR ? calloc((size_t)(wide * wide), 4)
						    : malloc((size_t)dt_param_numel(p) * 4);
		if (p->role == DT_W_CONNECTOR)
			for (int64_t k = 0; k < wide; k++)
				((float *)data[i])[k * wide + k] = 1;
		else if (dt_source_read(tower, i, off, p->shape, DT_F32, data[i], &err) < 0)
			fail_msg("%s: %s", p->name, err.msg);
	}
	if (dt_source_memory(&c, (const void *const *)data, DT_F32, &ret, &err) < 0)
		fail_msg("%s", err.msg);
	return ret;
}

static void computes_states(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct dt_source *src = open_model(models[m], false), *tower = open_model(models[m], true),
				 *bare;
		const struct dt_vision v = *dt_source_vision(src);
		const struct dt_config *c = dt_source_config(tower);
		const int64_t n = v.patches * v.patches * c->hidden, across = v.patches / v.join;
		float *pixels = ordered(&v, c->tower.patch, models[m]), *want, *got = malloc((size_t)n * 4),
		      *turned = malloc((size_t)n * 4);
		void *data[128] = {0};
		struct dt_dev *dev;
		struct dt_see *s;
		struct dt_err err;
		char name[48];

		assert_true(dt_source_params(tower)->n < 128);
		bare = without_connector(tower, data);
		assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
		s = open_see(dev, bare, &v, DT_F32);
		if (dt_see_pixels(s, pixels, got, &err) < 0)
			fail_msg("%s", err.msg);
		for (int64_t i = 0; i < v.patches * v.patches; i++) { /* back to rows of patches */
			const int64_t group = i / (v.join * v.join), in = i % (v.join * v.join),
				      row = group / across * v.join + in / v.join,
				      col = group % across * v.join + in % v.join;

			memcpy(turned + (row * v.patches + col) * c->hidden, got + i * c->hidden,
			       (size_t)c->hidden * 4);
		}
		snprintf(name, sizeof(name), "%s/states", models[m]);
		want = golden_f32(&g, name, NULL);
		golden_assert_close(name, turned, want, n, 1e-3, 2e-6);
		dt_see_close(s);
		dt_dev_close(dev);
		dt_source_close(bare);
		dt_source_close(src);
		dt_source_close(tower);
		for (int i = 0; i < 128; i++)
			free(data[i]);
		free(pixels);
		free(want);
		free(got);
		free(turned);
	}
}

struct text {
	struct dt_infer *m;
	int32_t *ids;
	int64_t n, vocab;
	const char *rows; /* of all tiles, one behind another */
	int32_t token;	  /* the image token */
	size_t row;
};

/* Computes tokens [from, to); logits of the last one. Each run of image tokens is one batch entry. */
static void part(struct text *t, int from, int to, float *logits)
{
	int32_t pos[TOKENS], q_start[2] = {0, to - from}, kv_len[1] = {to}, table[TOKENS / BLOCK],
			     want[1] = {to - from - 1};
	struct dt_infer_seen seen[TOKENS];
	int64_t slot[TOKENS], before = 0;
	struct dt_infer_batch b = {.nseq = 1,
				   .ntokens = to - from,
				   .ids = t->ids + from,
				   .pos = pos,
				   .slot = slot,
				   .q_start = q_start,
				   .kv_len = kv_len,
				   .block_table = table,
				   .max_blocks = TOKENS / BLOCK,
				   .want = want,
				   .nwant = 1,
				   .seen = seen};
	struct dt_err err;

	for (int i = 0; i < TOKENS / BLOCK; i++)
		table[i] = (5 * i + 3) % (TOKENS / BLOCK);
	for (int i = 0; i < to; i++) {
		const bool image = t->ids[i] == t->token;

		if (i >= from) {
			pos[i - from] = i;
			slot[i - from] = (int64_t)table[i / BLOCK] * BLOCK + i % BLOCK;
		}
		if (i >= from && image) {
			if (i > from && t->ids[i - 1] == t->token)
				seen[b.nseen - 1].n++;
			else
				seen[b.nseen++] = (struct dt_infer_seen){
					.first = i - from, .n = 1, .rows = t->rows + (size_t)before * t->row};
		}
		before += image;
	}
	if (dt_infer_forward(t->m, &b, logits, &err) < 0)
		fail_msg("%s", err.msg);
}

static void answers(const char *model, const char *name, int step)
{
	struct dt_source *src = open_model(model, false), *tower = open_model(model, true);
	const struct dt_vision v = vision_of(src, name);
	const struct dt_config *c = dt_source_config(src);
	const struct dt_infer_params p = {.dtype = DT_F32,
					  .cache = DT_F32,
					  .weights = -1,
					  .max_tokens = TOKENS,
					  .max_seqs = 2,
					  .max_len = TOKENS,
					  .blocks = TOKENS / BLOCK,
					  .block_size = BLOCK};
	const size_t tile = 3 * (size_t)(v.tile * v.tile);
	uint8_t *tiles = malloc(TILES * tile);
	struct text t = {.token = (int32_t)c->tower.token, .vocab = c->vocab, .row = (size_t)c->hidden * 4};
	char *rows = malloc(TILES * (size_t)v.rows * t.row);
	float *want = golden_f32(&g, key(model, name, "logits"), NULL), *got = malloc((size_t)c->vocab * 4);
	int32_t *greedy;
	int64_t ngreedy;
	int n = tiles_of(&v, model, name, tiles, NULL), images = 0;
	struct dt_dev *dev;
	struct dt_see *s;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	s = open_see(dev, tower, &v, DT_F32);
	for (int i = 0; i < n; i++)
		if (dt_see_tile(s, tiles + (size_t)i * tile, rows + (size_t)i * dt_see_bytes(s), &err) < 0)
			fail_msg("%s", err.msg);
	t.rows = rows;
	greedy = golden_i32(&g, key(model, name, "greedy"), &ngreedy);
	t.ids = golden_i32(&g, key(model, name, "ids"), &t.n);
	t.ids = realloc(t.ids, (size_t)(t.n + ngreedy) * sizeof(*t.ids));
	assert_true(t.n + ngreedy <= TOKENS);
	for (int64_t i = 0; i < t.n; i++)
		images += t.ids[i] == t.token;
	assert_int_equal(images, n * v.rows);
	if (dt_infer_open(&t.m, dev, src, &p, &err) < 0)
		fail_msg("%s", err.msg);
	for (int from = 0; from < t.n; from += step)
		part(&t, from, from + step < t.n ? from + step : (int)t.n, got);
	golden_assert_close(name, got, want, t.vocab, 1e-3, 5e-6);
	for (int64_t i = 0; i < ngreedy; i++) {
		int best = 0;

		for (int k = 1; k < t.vocab; k++)
			best = got[k] > got[best] ? k : best;
		assert_int_equal(best, greedy[i]);
		t.ids[t.n] = best;
		if (i + 1 < ngreedy)
			part(&t, (int)t.n, (int)t.n + 1, got);
		t.n++;
	}
	dt_infer_close(t.m);
	dt_see_close(s);
	dt_dev_close(dev);
	dt_source_close(src);
	dt_source_close(tower);
	free(tiles);
	free(rows);
	free(want);
	free(got);
	free(greedy);
	free(t.ids);
}

static void answers_about_images(void **state)
{
	for (int m = 0; m < 2; m++)
		for (int c = 0; c < 4; c++)
			answers(models[m], cases[c], TOKENS);
}

/* Parts begin and end within images. */
static void answers_in_parts(void **state)
{
	answers("smolvlm", "two", 7);
	answers("idefics3", "one", 13);
}

static void refuses(void **state)
{
	struct dt_source *src = open_model("smolvlm", false);
	const struct dt_vision v = *dt_source_vision(src);
	struct dt_vision_grid grid;
	struct dt_config c;
	struct dt_err err;

	assert_int_equal(dt_vision_grid(&v, 1, 60000, &grid, &err),
			 0); /* a side of 0 becomes a multiple of 1 */
	assert_true(grid.rows >= 1);
	assert_int_equal(dt_config_computable(dt_source_config(src), &err), -ENOTSUP);
	c = *dt_source_config(src);
	c.tower.hidden = 0;
	assert_int_equal(dt_config_tower(&c, &c, &err), -EINVAL);
	dt_source_close(src);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_prompts),   cmocka_unit_test(cuts_tiles),
		cmocka_unit_test(finds_positions),  cmocka_unit_test(computes_states),
		cmocka_unit_test(sees_rows),	    cmocka_unit_test(answers_about_images),
		cmocka_unit_test(answers_in_parts), cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
