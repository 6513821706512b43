/* The engine over a stand-in model, against the plain loop "append the next token". */
#include "openmp_count.h"
#include "serve/engine/speculate.h"
#include "serve_engine.h"

/* Request number i of the tests: its prompt, length and sampling are functions of i. */
static struct dt_call *make(int i, bool greedy)
{
	struct dt_call *c = dt_call_new(1);
	int32_t ids[64];
	int n = 1 + i * 7 % 50;

	for (int k = 0; k < n; k++)
		ids[k] = (i * 31 + k * 17) % 256;
	assert_int_equal(dt_serve_req_set_prompt(&c->req[0], ids, (size_t)n, 1 + i * 5 % 40), 0);
	c->ask.sampling.temperature = greedy ? 0 : 0.9;
	c->ask.sampling.top_p = i % 3 ? 1 : 0.8;
	c->ask.sampling.frequency_penalty = i % 4 ? 0 : 0.5;
	c->ask.sampling.seed = (uint64_t)i;
	return c;
}

static void assert_as_expected(const struct dt_serve_req *r)
{
	struct dt_sampling p = dt_serve_req_sampling(r);
	struct dt_serve_sampler s;
	int32_t ids[200];

	assert_int_equal(r->finish, DT_FINISH_LENGTH);
	assert_int_equal(r->nout, r->max_tokens);
	memcpy(ids, r->tokens, (size_t)r->nprompt * sizeof(*ids));
	dt_serve_sampler_init(&s, FAKE_VOCAB);
	for (int i = 0; i < r->nout; i++) {
		float logits[FAKE_VOCAB];

		expected_logits(ids, r->nprompt + i, logits);
		ids[r->nprompt + i] =
			dt_sample(&s, &p, logits, ids, (size_t)r->nprompt, ids + r->nprompt, (size_t)i);
		if (r->tokens[r->nprompt + i] != ids[r->nprompt + i])
			fail_msg("token %d of a prompt of %d is %d, not %d", i, r->nprompt,
				 r->tokens[r->nprompt + i], ids[r->nprompt + i]);
	}
	dt_serve_sampler_release(&s);
}

/* Together in a pool so small that requests are preempted, with chunked prompts. */
static void test_together(void **state)
{
	enum { N = 200 };
	struct dt_call *c[N];
	struct fake f;
	struct dt_engine *e = start(&f, 40, 8, 16, N);

	for (int i = 0; i < N; i++)
		submit(e, c[i] = make(i, i % 2));
	for (int i = 0; i < N; i++) {
		dt_call_wait_done(c[i]);
		assert_as_expected(&c[i]->req[0]);
		dt_call_drop(c[i]);
	}
	pthread_mutex_lock(&dt_engine_metrics(e)->mu);
	assert_true(dt_engine_metrics(e)->preemptions > 0);
	assert_int_equal(dt_engine_metrics(e)->finished[DT_FINISH_LENGTH], N);
	assert_true(draws ? dt_engine_metrics(e)->drawn_steps > 100 : dt_engine_metrics(e)->drawn_steps == 0);
	pthread_mutex_unlock(&dt_engine_metrics(e)->mu);
	assert_int_equal(f.most, overlaps ? FAKE_DEPTH : 0);
	finish(e, &f);
}

static void test_alone(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 40, 1, 7, 0);

	for (int i = 0; i < 40; i++) {
		struct dt_call *c = make(i, i % 2);

		submit(e, c);
		dt_call_wait_done(c);
		assert_as_expected(&c->req[0]);
		dt_call_drop(c);
	}
	finish(e, &f);
}

/* The same with guessing: the tokens are those without it. */
static void test_guesses_change_nothing(void **state)
{
	struct dt_call *c[2][8];
	struct fake f;

	guesses = 4;
	test_together(state);
	for (guesses = 0; guesses <= 4; guesses += 4) {
		struct dt_engine *e = start(&f, 100, 8, 40, 8);

		f.cycle = 1;
		for (int i = 0; i < 8; i++) {
			int32_t ids[20];

			for (int k = 0; k < 20; k++)
				ids[k] = (i + k) % 7;
			c[guesses > 0][i] = dt_call_new(1);
			dt_serve_req_set_prompt(&c[guesses > 0][i]->req[0], ids, 20, 90 + i);
			c[guesses > 0][i]->ask.sampling.temperature = i % 2 ? 0 : 0.2;
			submit(e, c[guesses > 0][i]);
		}
		for (int i = 0; i < 8; i++)
			dt_call_wait_done(c[guesses > 0][i]);
		if (guesses) {
			struct dt_metrics *m = dt_engine_metrics(e);

			pthread_mutex_lock(&m->mu);
			/* how many depends on what guessing was measured to take */
			assert_true(m->accepted_tokens > 0);
			assert_true(m->draft_tokens >= m->accepted_tokens);
			pthread_mutex_unlock(&m->mu);
		}
		finish(e, &f);
	}
	guesses = 0;
	for (int i = 0; i < 8; i++) {
		const struct dt_serve_req *a = &c[0][i]->req[0], *b = &c[1][i]->req[0];

		assert_int_equal(a->nout, 90 + i);
		assert_int_equal(b->nout, 90 + i);
		assert_memory_equal(a->tokens, b->tokens, (size_t)(110 + i) * sizeof(*a->tokens));
		dt_call_drop(c[0][i]);
		dt_call_drop(c[1][i]);
	}
}

/* A model that guesses as the model itself would is always right, sampled or not; another one changes nothing
 * but speed. */
static void test_a_smaller_model_guesses(void **state)
{
	struct fake f, d;

	guesses = 3;
	drafter = &d;
	for (int cycle = 0; cycle < 2; cycle++) {
		struct dt_engine *e = start(&f, 100, 8, 64, 8);
		struct dt_call *c[8];
		struct dt_metrics *m = dt_engine_metrics(e);

		d.cycle = cycle; /* then it knows only the last token */
		for (int i = 0; i < 8; i++)
			submit(e, c[i] = make(i + 10, i % 2));
		for (int i = 0; i < 8; i++) {
			dt_call_wait_done(c[i]);
			assert_as_expected(&c[i]->req[0]);
			dt_call_drop(c[i]);
		}
		assert_int_equal(dt_engine_wait_idle(e, 60), 0); /* the last step has been counted */
		pthread_mutex_lock(&m->mu);
		assert_true(m->draft_tokens > 0);
		if (!cycle) /* all, but where guessing was off for a while since it was measured to be slow */
			assert_true(2 * m->accepted_tokens >= m->draft_tokens);
		pthread_mutex_unlock(&m->mu);
		assert_int_equal(d.bad, 0);
		finish(e, &f);
		free(d.cache);
	}
	test_together(state); /* preempted, in a small pool */
	free(d.cache);
	drafter = NULL;
	guesses = 0;
}

/* n choices: the prompt is computed once, its last block is copied, the tokens are those of n requests. */
/* Mirostat's state follows the tokens of the answer, not those that a draft model guesses. */
static void test_guesses_by_mirostat(void **state)
{
	struct fake f, d;
	int32_t out[2][40];

	for (int with = 0; with < 2; with++) {
		struct dt_call *c = one(7, 40);
		struct dt_engine *e;

		guesses = with ? 3 : 0;
		drafter = with ? &d : NULL;
		e = start(&f, 100, 2, 64, 2);
		c->ask.sampling.temperature = 1;
		c->ask.sampling.mirostat = 2;
		c->ask.ignore_eos = true;
		submit(e, c);
		dt_call_wait_done(c);
		assert_int_equal(c->req[0].finish, DT_FINISH_LENGTH);
		memcpy(out[with], c->req[0].tokens + 1, sizeof(out[with]));
		dt_call_drop(c);
		finish(e, &f);
	}
	assert_memory_equal(out[0], out[1], sizeof(out[0]));
	free(d.cache);
	drafter = NULL;
	guesses = 0;
}

/* The slower alternative is tried now and then, also after very many steps. */
static void test_slower_is_rare(void **state)
{
	struct dt_spec s = {.max = 4};
	int slower = 0;

	dt_spec_measured(&s, 1, false, 1, 1);
	dt_spec_measured(&s, 1, true, 3, 1);
	for (int i = 0; i < 6400; i++) {
		const bool on = dt_spec_on(&s, 1);

		slower += !on;
		dt_spec_measured(&s, 1, on, on ? 3 : 1, 1);
	}
	assert_true(slower > 300 && slower < 500);
}

static void test_choices_share_their_prompt(void **state)
{
	enum { N = 6, PROMPT = 42 };
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 64, 8);
	struct dt_call *c = dt_call_new(N);
	int32_t ids[PROMPT];

	for (int i = 0; i < PROMPT; i++)
		ids[i] = i * 3;
	for (int i = 0; i < N; i++) {
		dt_serve_req_set_prompt(&c->req[i], ids, PROMPT, 1 + 9 * i);
		c->ask.sampling.seed = 5;
		c->req[i].choice = (uint32_t)i;
	}
	submit(e, c);
	dt_call_wait_done(c);
	for (int i = 0; i < N; i++)
		assert_as_expected(&c->req[i]);
	assert_int_equal(f.tokens, PROMPT + (0 + 9 + 18 + 27 + 36 + 45));
	assert_int_equal(f.copies, N - 2); /* the first ends at once, the last needs none */
	assert_int_equal(c->req[3].cached, PROMPT);
	dt_call_drop(c);

	/* In a pool and a batch too small for all of them. */
	finish(e, &f);
	e = start(&f, 24, 3, 8, 8);
	c = dt_call_new(N);
	for (int i = 0; i < N; i++) {
		dt_serve_req_set_prompt(&c->req[i], ids, PROMPT, 10 + 8 * i);
		c->req[i].choice = (uint32_t)i;
	}
	submit(e, c);
	dt_call_wait_done(c);
	for (int i = 0; i < N; i++)
		assert_as_expected(&c->req[i]);
	dt_call_drop(c);
	finish(e, &f);
}

/* A prompt seen before is not computed again, by the same tenant under the same salt. */
static void test_prefixes_are_found(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 64, 4);
	static const uint64_t salt[] = {0, 0, 9, 9, 0};
	static const int cached[] = {0, 56, 0, 56, 56};
	int32_t ids[60] = {1, 2, 3};

	for (int i = 0; i < 5; i++) {
		struct dt_call *c = dt_call_new(1);

		c->salt = salt[i];
		dt_serve_req_set_prompt(&c->req[0], ids, 60, 5);
		c->ask.sampling.seed = (uint64_t)i;
		submit(e, c);
		dt_call_wait_done(c);
		assert_as_expected(&c->req[0]);
		assert_int_equal(c->req[0].cached, cached[i]);
		dt_call_drop(c);
	}
	finish(e, &f);
}

/* Hidden states are summed over the prompt, in however many parts it is computed. */
static void test_embeds(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 8, 4);
	struct dt_call *c = dt_call_new(2);

	for (int i = 0; i < 2; i++) {
		int32_t ids[30];

		for (int k = 0; k < 30; k++)
			ids[k] = k + i;
		dt_serve_req_set_prompt(&c->req[i], ids, 30, 0);
		c->ask.embed = true;
	}
	submit(e, c);
	dt_call_wait_done(c);
	for (int i = 0; i < 2; i++) {
		assert_true(c->req[i].pooled[0] == (float)(435 + 30 * i));
		assert_true(c->req[i].pooled[1] == 435);
		assert_true(c->req[i].pooled[2] == 30);
	}
	dt_call_drop(c);
	finish(e, &f);
}

static void test_cancel_frees_within_a_step(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 32, 8);
	struct dt_call *c[4];
	int steps;

	f.sleep_us = 2000;
	for (int i = 0; i < 4; i++) {
		int32_t ids[10] = {i};

		c[i] = dt_call_new(1);
		dt_serve_req_set_prompt(&c[i]->req[0], ids, 10, 100);
		submit(e, c[i]);
	}
	pthread_mutex_lock(&c[0]->mu);
	while (c[0]->req[0].nout < 3)
		pthread_cond_wait(&c[0]->cond, &c[0]->mu);
	pthread_mutex_unlock(&c[0]->mu);
	f.sleep_us = 500000; /* longer than it takes to cancel four */
	steps = f.steps;
	for (int i = 0; i < 4; i++)
		dt_engine_cancel(e, c[i]);
	for (int i = 0; i < 4; i++) {
		dt_call_wait_done(c[i]);
		assert_int_equal(c[i]->req[0].finish, DT_FINISH_ABORT);
		assert_true(c[i]->req[0].nout < 100);
	}
	/* Those under way when the cancels began, and at most as many that began while they were set. */
	assert_in_range(f.steps - steps, 0, overlaps ? 2 * FAKE_DEPTH : 2);
	for (int i = 0; i < 4; i++)
		dt_call_drop(c[i]);
	finish(e, &f);
}

/* The expected greedy text of a prompt of one byte. */
static void greedy(int first, int n, int32_t *ids)
{
	ids[0] = first;
	for (int i = 1; i <= n; i++) {
		float x[FAKE_VOCAB];
		int best = 0;

		expected_logits(ids, i, x);
		for (int k = 0; k < FAKE_VOCAB; k++)
			if (x[k] > x[best])
				best = k;
		ids[i] = best;
	}
}

static void test_stops(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 16, 4);
	struct dt_call *c;
	struct dt_serve_req *r;
	int32_t want[40];

	/* A stop string of the two bytes that come fifth and sixth. */
	greedy(65, 30, want);
	c = one(65, 30);
	r = &c->req[0];
	c->ask.stop = calloc(1, sizeof(*c->ask.stop));
	c->ask.stop[0].s = malloc(2);
	c->ask.stop[0].s[0] = (char)want[5];
	c->ask.stop[0].s[1] = (char)want[6];
	c->ask.stop[0].n = 2;
	c->ask.nstop = 1;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(r->finish, DT_FINISH_STOP);
	assert_int_equal(r->nout, 6);
	assert_int_equal(r->detok.stopped, 0);
	assert_int_equal(r->detok.ready, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal((unsigned char)r->detok.text[i], want[i + 1]);
	dt_call_drop(c);

	/* A stop id: the third token; with min_tokens it may not come before the fifth. */
	for (int min = 0; min <= 4; min += 4) {
		c = one(65, 30);
		r = &c->req[0];
		c->ask.stop_ids = malloc(sizeof(*c->ask.stop_ids));
		c->ask.stop_ids[0] = want[3];
		c->ask.nstop_ids = c->ask.nasked = 1;
		c->ask.min_tokens = min;
		submit(e, c);
		dt_call_wait_done(c);
		if (min == 0) {
			assert_int_equal(r->finish, DT_FINISH_STOP);
			assert_int_equal(r->nout, 3);
			assert_int_equal(r->stop_id, want[3]);
			assert_int_equal(r->detok.ready, 2);
		} else {
			assert_true(r->nout > 4);
			for (int i = 0; i < 4; i++)
				assert_int_not_equal(dt_serve_req_out(r)[i], want[3]);
		}
		dt_call_drop(c);
	}

	/* A stop string within the first min_tokens is text; one that ends behind them counts. */
	for (int min = 5; min <= 7; min++) {
		c = one(65, 30);
		r = &c->req[0];
		c->ask.stop = calloc(1, sizeof(*c->ask.stop));
		c->ask.stop[0].s = malloc(2);
		c->ask.stop[0].s[0] = (char)want[6];
		c->ask.stop[0].s[1] = (char)want[7];
		c->ask.stop[0].n = 2;
		c->ask.nstop = 1;
		c->ask.min_tokens = min;
		submit(e, c);
		dt_call_wait_done(c);
		if (min < 7) {
			assert_int_equal(r->finish, DT_FINISH_STOP);
			assert_int_equal(r->nout, 7);
			assert_int_equal(r->detok.ready, 5);
		} else {
			assert_true(r->nout > 7);
			assert_int_equal((unsigned char)r->detok.text[6], want[7]);
		}
		dt_call_drop(c);
	}
	finish(e, &f);
}

/* A grammar that allows nothing more ends a text whatever min_tokens says; one that allows more goes on. */
static void test_min_tokens_and_grammar(void **state)
{
	static const char *const schema[] = {"{\"const\": 1234}", "{\"type\": \"string\"}"};

	for (int i = 0; i < 2; i++) {
		struct fake f;
		struct dt_engine *e = start(&f, 100, 4, 16, 4);
		struct dt_call *c = one(65, 20);
		json_t *v = json_loads(schema[i], 0, NULL);
		struct dt_err err;

		if (dt_grammar_schema(v, &c->ask.grammar, &err) < 0)
			fail_msg("%s", err.msg);
		json_decref(v);
		c->req[0].matcher = dt_matcher_new(c->ask.grammar);
		c->ask.min_tokens = 15;
		submit(e, c);
		dt_call_wait_done(c);
		if (i == 0) {
			assert_int_equal(c->req[0].finish, DT_FINISH_STOP);
			assert_int_equal(c->req[0].nout, 4);
			assert_memory_equal(c->req[0].detok.text, "1234", 4);
		} else {
			assert_true(c->req[0].nout > 0);
			assert_int_equal(c->req[0].detok.text[0], '"');
		}
		dt_call_drop(c);
		finish(e, &f);
	}
}

/* Four prompts, scored with alternatives, and what is sampled after them; scores of request i. */
static void score_four(int with, struct dt_scores prompt[4], struct dt_scores out[4])
{
	struct dt_call *c = dt_call_new(4);
	struct dt_engine *e;
	struct fake f;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, with), 0);
	dev->steps = true;
	e = start(&f, 100, 8, 64, 4);
	for (int i = 0; i < 4; i++) {
		int32_t ids[30];

		for (int k = 0; k < 30; k++)
			ids[k] = (i * 7 + k * 3) % 256;
		dt_serve_req_set_prompt(&c->req[i], ids, (size_t)(20 + 3 * i), 5);
	}
	c->ask.logprobs = 7;
	c->ask.score_prompt = true;
	c->ask.prompt_temperature = 1.25;
	c->ask.sampling.temperature = 0;
	submit(e, c);
	dt_call_wait_done(c);
	for (int i = 0; i < 4; i++) {
		prompt[i] = c->req[i].prompt_scores;
		out[i] = c->req[i].scores;
		c->req[i].prompt_scores = c->req[i].scores = (struct dt_scores){0};
	}
	dt_call_drop(c);
	finish(e, &f);
	dt_dev_close(dev);
	dev = NULL;
}

static void assert_same_scores(const struct dt_scores *a, const struct dt_scores *b)
{
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->ntop, 7);
	assert_memory_equal(a->chosen, b->chosen, (size_t)a->n * sizeof(*a->chosen));
	assert_memory_equal(a->top, b->top, 7 * (size_t)a->n * sizeof(*a->top));
}

/* Any number of threads gives the same bits, and where the device infers they are the team, not OpenMP's. */
static void test_scores_of_threads(void **state)
{
	struct dt_scores prompt[2][4], out[2][4];
	const long before = regions;

	score_four(1, prompt[0], out[0]);
	for (int with = 2; with < 6; with += 3) {
		score_four(with, prompt[1], out[1]);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(prompt[1][i].n, 19 + 3 * i);
			assert_int_equal(out[1][i].n, 5);
			assert_same_scores(&prompt[0][i], &prompt[1][i]);
			assert_same_scores(&out[0][i], &out[1][i]);
			free(prompt[1][i].chosen);
			free(prompt[1][i].top);
			free(out[1][i].chosen);
			free(out[1][i].top);
		}
	}
	assert_int_equal(regions, before);
	for (int i = 0; i < 4; i++) {
		free(prompt[0][i].chosen);
		free(prompt[0][i].top);
		free(out[0][i].chosen);
		free(out[0][i].top);
	}
}

/* max_tokens 0 with scores: the log-probability of every prompt token but the first. More rows are wanted
 * than one pass allows. */
static void test_scores(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 64, 4);
	struct dt_call *c = dt_call_new(1);
	struct dt_serve_req *r = &c->req[0];
	int32_t ids[30];

	for (int i = 0; i < 30; i++)
		ids[i] = i * 3 % 256;
	dt_serve_req_set_prompt(r, ids, 30, 2);
	c->ask.logprobs = 3;
	c->ask.score_prompt = true;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(r->prompt_scores.n, 29);
	assert_int_equal(r->scores.n, 2);
	for (int i = 1; i < 32; i++) {
		const struct dt_scores *s = i < 30 ? &r->prompt_scores : &r->scores;
		int at = i < 30 ? i - 1 : i - 30;
		float x[FAKE_VOCAB];
		double z = 0;
		int best = 0;

		expected_logits(r->tokens, i, x);
		for (int k = 0; k < FAKE_VOCAB; k++) {
			z += exp(x[k]);
			best = x[k] > x[best] ? k : best;
		}
		assert_int_equal(s->chosen[at].id, r->tokens[i]);
		assert_true(fabs(s->chosen[at].logprob - (x[r->tokens[i]] - log(z))) < 1e-4);
		assert_int_equal(s->top[at * 3].id, best);
	}
	dt_call_drop(c);

	c = dt_call_new(1);
	dt_serve_req_set_prompt(&c->req[0], ids, 30, 0);
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_LENGTH);
	assert_int_equal(c->req[0].nout, 0);
	dt_call_drop(c);
	finish(e, &f);
}

/* Scores of the end of a prompt alone: the tokens before it may come from the cache. */
static void test_scores_of_the_end(void **state)
{
	static const int from[] = {28, 20, 20, 7, 1, 28};
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 64, 4);
	int32_t ids[30];

	for (int i = 0; i < 30; i++)
		ids[i] = i * 3 % 256;
	for (size_t k = 0; k < sizeof(from) / sizeof(*from); k++) {
		struct dt_call *c = dt_call_new(1);
		struct dt_serve_req *r = &c->req[0];

		dt_serve_req_set_prompt(r, ids, 30, k % 2);
		c->ask.score_prompt = true;
		c->ask.score_from = from[k];
		submit(e, c);
		dt_call_wait_done(c);
		assert_int_equal(r->cached, k > 0 ? from[k] / 4 * 4 : 0);
		assert_int_equal(r->prompt_scores.n, 29 - from[k]);
		for (int i = from[k] + 1; i < 30; i++) {
			float x[FAKE_VOCAB];
			double z = 0;

			expected_logits(ids, i, x);
			for (int v = 0; v < FAKE_VOCAB; v++)
				z += exp(x[v]);
			assert_true(fabs(r->prompt_scores.chosen[i - from[k] - 1].logprob -
					 (x[ids[i]] - log(z))) < 1e-4);
		}
		dt_call_drop(c);
	}
	finish(e, &f);
}

/* What can only be told from all logits brings them back; the log-probability of the token alone does not. */
static void test_who_draws(void **state)
{
	const int want[] = {9, 9, 0, overlaps ? 16 : 8}; /* choices of a prompt begin with the same logits */

	for (int how = 0; how < 4 && draws; how++) {
		struct fake f;
		struct dt_engine *e = start(&f, 100, 4, 64, 4);
		struct dt_call *c = dt_call_new(how == 3 ? 2 : 1);
		struct dt_serve_req *r = &c->req[0];
		int32_t ids[3] = {7, 8, 9};

		for (int i = 0; i < c->n; i++) {
			dt_serve_req_set_prompt(&c->req[i], ids, 3, 9);
			c->ask.sampling.presence_penalty = 0.7;
			c->ask.logprobs = how - 1 < 2 ? how - 1 : -1;
		}
		submit(e, c);
		dt_call_wait_done(c);
		for (int i = 0; i < c->n; i++)
			assert_as_expected(&c->req[i]);
		assert_int_equal(dt_engine_wait_idle(e, 60), 0);
		assert_int_equal(f.drawn, want[how]);
		for (int i = 0; i < r->scores.n; i++) {
			float x[FAKE_VOCAB];
			double z = 0;

			expected_logits(r->tokens, 3 + i, x);
			for (int k = 0; k < FAKE_VOCAB; k++)
				z += exp(x[k]);
			assert_int_equal(r->scores.chosen[i].id, dt_serve_req_out(r)[i]);
			assert_true(fabs(r->scores.chosen[i].logprob - (x[dt_serve_req_out(r)[i]] - log(z))) <
				    1e-5);
		}
		assert_int_equal(r->scores.n, how == 1 || how == 2 ? 9 : 0);
		dt_call_drop(c);
		finish(e, &f);
	}
}

static void test_failures_end_requests(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 40, 2, 16, 4);
	struct dt_call *c = one(1, 5);

	f.fail = 1;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_ERROR);
	assert_string_equal(c->req[0].err.msg, "the fake model was told to fail");
	dt_call_drop(c);
	f.fail = 0;
	f.poison = 1;
	for (int grammar = 0; grammar < 2; grammar++) {
		c = one(1, 5);
		if (grammar) {
			c->ask.grammar = dt_grammar_json();
			c->req[0].matcher = dt_matcher_new(c->ask.grammar);
		}
		submit(e, c);
		dt_call_wait_done(c);
		assert_int_equal(c->req[0].finish, DT_FINISH_ERROR);
		assert_string_equal(c->req[0].err.msg, "the model's output at token 1 is not a number");
		dt_call_drop(c);
	}
	f.poison = 0;
	submit(e, c = one(1, 5)); /* and the engine goes on */
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_LENGTH);
	dt_call_drop(c);
	finish(e, &f);
}

/* Many threads submit, read, cancel and leave; run it under ThreadSanitizer. */
static void *client(void *arg)
{
	struct dt_engine *e = arg;

	for (int i = 0; i < 60; i++) {
		struct dt_call *c = make(i, true);

		int rc = dt_engine_submit(e, c, NULL);

		if (rc == 0 && i % 3 == 0) {
			pthread_mutex_lock(&c->mu);
			while (c->open > 0 && c->req[0].detok.ready == 0)
				dt_call_wait_locked(c, 1);
			pthread_mutex_unlock(&c->mu);
			dt_engine_cancel(e, c); /* and leave without waiting */
		} else if (rc == 0 && i % 3 == 1) {
			dt_call_wait_done(c);
		}
		dt_call_drop(c);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 60, 6, 16, 1000);
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, client, e);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	finish(e, &f);
	/* Closing with work in flight ends it. */
	e = start(&f, 60, 6, 16, 1000);
	f.sleep_us = 1000;
	for (int i = 0; i < 20; i++) {
		struct dt_call *c = make(i, true);

		submit(e, c);
		dt_call_drop(c);
	}
	dt_engine_close(e);
	fake_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_guesses_change_nothing),
		cmocka_unit_test(test_a_smaller_model_guesses),
		cmocka_unit_test(test_guesses_by_mirostat),
		cmocka_unit_test(test_slower_is_rare),
		cmocka_unit_test(test_choices_share_their_prompt),
		cmocka_unit_test(test_prefixes_are_found),
		cmocka_unit_test(test_embeds),
		cmocka_unit_test(test_cancel_frees_within_a_step),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_min_tokens_and_grammar),
		cmocka_unit_test(test_scores),
		cmocka_unit_test(test_scores_of_threads),
		cmocka_unit_test(test_scores_of_the_end),
		cmocka_unit_test(test_who_draws),
		cmocka_unit_test(test_failures_end_requests),
		cmocka_unit_test(test_threads),
	};

	const struct CMUnitTest under_way[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_choices_share_their_prompt),
		cmocka_unit_test(test_prefixes_are_found),
		cmocka_unit_test(test_embeds),
		cmocka_unit_test(test_cancel_frees_within_a_step),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_min_tokens_and_grammar),
		cmocka_unit_test(test_scores),
		cmocka_unit_test(test_scores_of_threads),
		cmocka_unit_test(test_scores_of_the_end),
		cmocka_unit_test(test_who_draws),
		cmocka_unit_test(test_failures_end_requests),
		cmocka_unit_test(test_threads),
	};
	int failed = cmocka_run_group_tests_name("drawn by the engine", tests, setup, teardown);

	draws = true;
	failed += cmocka_run_group_tests_name("drawn by the model", tests, setup, teardown);
	overlaps = true;
	failed += cmocka_run_group_tests_name("several steps under way", under_way, setup, teardown);
	draws = false;
	return failed +
	       cmocka_run_group_tests_name("the same, drawn by the engine", under_way, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
