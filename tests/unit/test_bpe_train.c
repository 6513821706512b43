/* Training against the plain algorithm, which counts every pair anew before each merge. */
#include "data/bpe_train.h"

#include "base/json.h"
#include "base/rng.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORDS 60
#define LEN   12

/* Words of small letters; the text is the words, each after a space. */
struct corpus {
	int n;
	char text[WORDS * (LEN + 1) + 1];
};

static void make_corpus(struct corpus *c, uint64_t seed)
{
	struct dt_rng r = dt_rng_make(seed, DT_RNG_TEST, 2);
	uint64_t at = 0;
	size_t n = 0;

	for (int w = 0; w < WORDS; w++) {
		int len = 1 + (int)dt_rng_below(&r, at++, LEN);

		c->text[n++] = ' ';
		for (int i = 0; i < len; i++)
			c->text[n++] = (char)('a' + dt_rng_below(&r, at++, 3));
	}
	c->text[n] = '\0';
	c->n = (int)n;
}

struct token {
	char s[WORDS * LEN];
};

static void join(char *out, const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);

	assert_true(n + m < sizeof(struct token));
	memcpy(out, a, n);
	memcpy(out + n, b, m + 1);
}

/* Number of the letter in GPT-2's order, which for these bytes is '!' = 0, ... and space = 220. */
static int letter(char c)
{
	return c == ' ' ? 220 : c - '!';
}

/* Merges of the plain algorithm as "left right" texts. */
static int naive(const struct corpus *c, int want, char out[][64])
{
	static struct token tok[2000];
	int sym[sizeof(c->text)], word[sizeof(c->text)], n = 0, ntok = 256, merges = 0, w = -1;

	for (int i = 0; i < 256; i++)
		tok[i].s[0] = '\0';
	for (int i = 0; i < c->n; i++) {
		w += c->text[i] == ' ';
		sym[n] = letter(c->text[i]);
		tok[sym[n]].s[0] = c->text[i] == ' ' ? '_' : c->text[i];
		tok[sym[n]].s[1] = '\0';
		word[n++] = w;
	}
	while (merges < want) {
		static int count[400][400];
		int best = 1, l = -1, r = -1, k = 0;

		memset(count, 0, sizeof(count));
		for (int i = 0; i + 1 < n; i++)
			if (word[i] == word[i + 1])
				count[sym[i]][sym[i + 1]]++;
		for (int a = 0; a < ntok; a++)
			for (int b = 0; b < ntok; b++)
				if (count[a][b] > best) {
					best = count[a][b];
					l = a;
					r = b;
				}
		if (l < 0)
			break;
		snprintf(out[merges++], 64, "%.30s %.30s", tok[l].s, tok[r].s);
		join(tok[ntok].s, tok[l].s, tok[r].s);
		for (int i = 0; i < n; k++) {
			bool hit = i + 1 < n && word[i] == word[i + 1] && sym[i] == l && sym[i + 1] == r;

			word[k] = word[i];
			sym[k] = hit ? ntok : sym[i];
			i += hit ? 2 : 1;
		}
		n = k;
		ntok++;
	}
	return merges;
}

static json_t *train(const char *const *texts, int n, const struct dt_bpe_train_options *o)
{
	struct dt_bpe_trainer *t;
	struct dt_err err = {0};
	char *text;
	size_t len;
	json_t *v;

	if (dt_bpe_trainer_new(o, &t, &err) < 0)
		fail_msg("%s", err.msg);
	for (int i = 0; i < n; i++)
		assert_int_equal(dt_bpe_trainer_add(t, texts[i], strlen(texts[i]), &err), 0);
	if (dt_bpe_trainer_run(t, NULL, NULL, &text, &len, &err) < 0)
		fail_msg("%s", err.msg);
	v = json_loadb(text, len, 0, NULL);
	assert_non_null(v);
	free(text);
	dt_bpe_trainer_free(t);
	return v;
}

/* "\u0120" (a space in the alphabet) as '_'. */
static void plain(const char *s, char *out)
{
	for (; *s; s++) {
		if ((unsigned char)*s == 0xc4 && (unsigned char)s[1] == 0xa0) {
			*out++ = '_';
			s++;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

static void test_against_plain_algorithm(void **state)
{
	static char want[100][64];
	struct dt_bpe_train_options o = {.vocab = 356, .min_count = 2};

	for (uint64_t seed = 0; seed < 10; seed++) {
		struct corpus c;
		const char *text = c.text;
		json_t *v, *merges;
		int n;

		make_corpus(&c, seed);
		n = naive(&c, 100, want);
		assert_true(n > 20);
		v = train(&text, 1, &o);
		merges = json_object_get(json_object_get(v, "model"), "merges");
		for (int i = 0; i < n && i < (int)json_array_size(merges); i++) {
			char got[256];

			plain(json_string_value(json_array_get(merges, (size_t)i)), got);
			if (strcmp(got, want[i]))
				fail_msg("seed %d, merge %d of %d: '%s', not '%s'", (int)seed, i, n, got,
					 want[i]);
		}
		assert_int_equal(json_array_size(merges), n);
		json_decref(v);
	}
}

static void test_order_of_texts_does_not_count(void **state)
{
	static const char *const ab[] = {"low lower lowest newest widest ", "new wide low newer wider"};
	static const char *const ba[] = {"new wide low newer wider", "low lower lowest newest widest "};
	struct dt_bpe_train_options o = {.vocab = 300, .min_count = 2};
	json_t *x = train(ab, 2, &o), *y = train(ba, 2, &o);

	assert_true(json_equal(x, y));
	json_decref(x);
	json_decref(y);
}

static void test_special_tokens_are_left_out(void **state)
{
	static const char *const special[] = {"<eos>", NULL};
	static const char *const texts[] = {"<eos><eos><eos><eos>aa bb<eos>aa bb"};
	struct dt_bpe_train_options o = {.vocab = 300, .min_count = 2, .special = special};
	json_t *v = train(texts, 1, &o), *model = json_object_get(v, "model");

	assert_int_equal(json_array_size(json_object_get(v, "added_tokens")), 1);
	for (size_t i = 0; i < json_array_size(json_object_get(model, "merges")); i++) {
		const char *m = json_string_value(json_array_get(json_object_get(model, "merges"), i));

		if (strpbrk(m, "<>eos"))
			fail_msg("merge '%s' comes from a special token", m);
	}
	json_decref(v);
}

static void test_chars(void **state)
{
	static const char *const texts[] = {"banana \xe2\x82\xac\xe2\x82\xad z\xc3\xa9"};
	static const char *const order[] = {" ",	   "a", "b", "n", "z", "\xc3\xa9", "\xe2\x82\xac",
					    "\xe2\x82\xad"};
	struct dt_bpe_train_options o = {.chars = true};
	json_t *v = train(texts, 1, &o);
	char *text = json_dumps(v, 0);
	struct dt_tokenizer *t;
	struct dt_err err = {0};

	assert_int_equal(dt_tokenizer_from_text(text, strlen(text), &t, &err), 0);
	for (int i = 0; i < 8; i++) {
		int32_t *ids;
		size_t n;

		assert_int_equal(dt_tokenizer_encode(t, order[i], strlen(order[i]), false, &ids, &n, &err),
				 0);
		assert_int_equal(n, 1);
		assert_int_equal(ids[0], i);
		free(ids);
	}
	dt_tokenizer_close(t);
	free(text);
	json_decref(v);
}

static void test_refusals(void **state)
{
	struct dt_bpe_train_options o = {.vocab = 100};
	struct dt_bpe_trainer *t = NULL;
	struct dt_err err = {0};
	char *text;
	size_t n;

	assert_int_equal(dt_bpe_trainer_new(&o, &t, &err), -EINVAL);
	assert_null(t);
	o.vocab = 300;
	assert_int_equal(dt_bpe_trainer_new(&o, &t, &err), 0);
	assert_int_equal(dt_bpe_trainer_run(t, NULL, NULL, &text, &n, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "no text"));
	dt_bpe_trainer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_plain_algorithm),
		cmocka_unit_test(test_order_of_texts_does_not_count),
		cmocka_unit_test(test_special_tokens_are_left_out),
		cmocka_unit_test(test_chars),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
