/*
 * Time to find the tokens that a grammar allows, as dt-serve does before each token of a constrained answer.
 * Standard input has one JSON schema a line. Each is walked three times, up to 80 tokens, by tokens drawn
 * uniformly from the mask. Prints for each schema and for all the number of masks, their mean and their
 * longest time, the number of those that were not remembered and their mean, and a hash of all masks, by
 * which two builds can be compared.
 *
 *   build/bench/masks TOKENIZER <schemas.jsonl
 */
#include "base/rng.h"
#include "data/tokenizer.h"
#include "grammar/grammar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WALKS = 3, TOKENS = 80 };

struct tally {
	int64_t n, cold;	    /* cold: not remembered */
	double sum, cold_sum, most; /* seconds */
	uint64_t hash;
};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *piece(const void *tok, int32_t id, size_t *ret_n)
{
	return dt_tokenizer_piece(tok, id, false, ret_n);
}

/* Adds the mask to the hash, and returns a token drawn from it; -1: it is empty. */
static int draw(const uint32_t *mask, int vocab, const struct dt_rng *rng, uint64_t *k, uint64_t *hash)
{
	uint64_t seen = 0;
	int id = -1;

	for (int i = 0; i < vocab; i++) {
		if (!(mask[i / 32] >> i % 32 & 1))
			continue;
		*hash = (*hash ^ (uint64_t)i) * 1099511628211u;
		if (dt_rng_below(rng, (*k)++, ++seen) == 0)
			id = i;
	}
	return id;
}

static void walk(struct dt_grammar *g, const struct dt_vocab_order *o, const struct dt_tokenizer *tok,
		 uint32_t seed, struct tally *t)
{
	const struct dt_rng rng = dt_rng_make(seed, DT_RNG_TEST, 0);
	struct dt_matcher *m = dt_matcher_new(g);
	uint32_t *known = calloc(((size_t)o->vocab + 31) / 32, sizeof(*known));
	uint64_t k = 0;

	for (int i = 0; m && known && i < TOKENS && !dt_matcher_done(m); i++) {
		const bool cold = dt_matcher_copy_mask_now(m, o, known) == -EAGAIN;
		const double begin = seconds();
		const uint32_t *mask = dt_matcher_mask(m, o);
		const double s = seconds() - begin;
		int id = mask ? draw(mask, o->vocab, &rng, &k, &t->hash) : -1;
		const char *text;
		size_t n;

		t->n++;
		t->sum += s;
		t->cold += cold;
		t->cold_sum += cold ? s : 0;
		t->most = s > t->most ? s : t->most;
		text = id < 0 ? NULL : piece(tok, id, &n);
		if (!text || !dt_matcher_push(m, text, n))
			break;
	}
	dt_matcher_free(m);
	free(known);
}

static void print(const char *what, const struct tally *t)
{
	printf("%-8s %6lld masks  %8.4f ms each  %8.3f ms at most  %6lld cold  %8.4f ms each  %016llx\n",
	       what, (long long)t->n, t->n ? t->sum / (double)t->n * 1e3 : 0., t->most * 1e3,
	       (long long)t->cold, t->cold ? t->cold_sum / (double)t->cold * 1e3 : 0.,
	       (unsigned long long)t->hash);
}

int main(int argc, char **argv)
{
	struct tally all = {0};
	struct dt_tokenizer *tok;
	struct dt_vocab_order o;
	struct dt_err err;
	char *line = NULL, name[24];
	size_t cap = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: masks TOKENIZER <schemas.jsonl\n");
		return 2;
	}
	if (dt_tokenizer_open(argv[1], &tok, &err) < 0 ||
	    dt_vocab_order_init(&o, dt_tokenizer_vocab(tok), piece, tok) < 0) {
		fprintf(stderr, "masks: cannot open '%s'\n", argv[1]);
		return 1;
	}
	for (uint32_t k = 1; getline(&line, &cap, stdin) > 0; k++) {
		json_t *schema = json_loads(line, JSON_DECODE_ANY, NULL);
		struct dt_grammar *g = NULL;
		struct tally t = {0};

		snprintf(name, sizeof(name), "line %u", k);
		if (!schema || dt_grammar_schema(schema, &g, &err) < 0)
			printf("%-8s refused: %s\n", name, schema ? err.msg : "not JSON");
		for (uint32_t i = 0; g && i < WALKS; i++)
			walk(g, &o, tok, WALKS * k + i, &t);
		if (g)
			print(name, &t);
		all.n += t.n;
		all.cold += t.cold;
		all.sum += t.sum;
		all.cold_sum += t.cold_sum;
		all.most = t.most > all.most ? t.most : all.most;
		all.hash = all.hash * 31 + t.hash;
		dt_grammar_drop(g);
		json_decref(schema);
	}
	print("all", &all);
	free(line);
	dt_vocab_order_release(&o);
	dt_tokenizer_close(tok);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
