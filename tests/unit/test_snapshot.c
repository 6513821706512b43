/*
 * A writer and a trainer of one snapshot, each at its own pace: whatever the trainer changes, the writer gets
 * the elements as they were.
 */
#include "base/rng.h"
#include "train/snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PIECES 40
#define MAX    5000 /* elements of a piece */

struct scene {
	struct snapshot *s;
	struct dt_piece p[PIECES];
	int32_t *live;
	struct dt_rng rng;
	int wrong, slow;
};

/* In parts, in order, looking at each only after a while. */
static void *writer(void *arg)
{
	struct scene *c = arg;
	uint64_t drawn = 1000000;

	for (int i = 0; i < PIECES; i++)
		for (int64_t at = 0, n; at < c->p[i].shape[0]; at += n) {
			struct dt_piece part = c->p[i];
			const int32_t *got;
			const void *data;
			struct dt_err err;

			n = 1 + (int64_t)dt_rng_below(&c->rng, drawn++, (uint64_t)(part.shape[0] - at));
			part.shape[0] = n;
			part.data = (const int32_t *)part.data + at;
			if (snapshot_fill(c->s, &part, &data, &err) < 0) {
				c->wrong++;
				continue;
			}
			if (c->slow && dt_rng_below(&c->rng, drawn++, (uint64_t)c->slow) == 0)
				usleep(200);
			got = data;
			for (int64_t k = 0; k < n; k++)
				c->wrong += got[k] != (const int32_t *)part.data - c->live + k;
		}
	snapshot_end(c->s);
	return NULL;
}

static void elements_as_they_were(void **state)
{
	int32_t *live = malloc(sizeof(*live) * PIECES * MAX), *room = malloc(sizeof(*room) * PIECES * MAX);
	struct dt_rng rng = dt_rng_make(11, DT_RNG_TEST, 6);
	size_t most = 0, all = 0;
	int none = 0;

	for (int trial = 0; trial < 300; trial++) {
		struct scene c = {.live = live, .rng = rng, .slow = trial % 3 ? 3 << trial % 5 : 0};
		uint64_t drawn = (uint64_t)trial * 100;
		struct dt_err err;
		size_t at = 0, copied;
		pthread_t id;

		for (int i = 0; i < PIECES; i++) {
			int64_t n = (int64_t)dt_rng_below(&rng, drawn++, MAX);

			c.p[i] = (struct dt_piece){
				.dtype = DT_I32, .ndim = 1, .global = {n}, .shape = {n}, .data = live + at};
			at += (size_t)n;
		}
		for (size_t i = 0; i < at; i++)
			live[i] = (int32_t)i;
		assert_int_equal(snapshot_new(c.p, PIECES, (char *)room, at * 4, &c.s, &err), 0);
		snapshot_now(c.s, trial % PIECES);
		assert_int_equal(pthread_create(&id, NULL, writer, &c), 0);
		if (trial % 4)
			usleep((useconds_t)dt_rng_below(&rng, drawn++, 3000));
		copied = snapshot_take(c.s);
		memset(live, 0xff, sizeof(*live) * PIECES * MAX); /* the update */
		copied += snapshot_take(c.s);			  /* the next one has nothing to save */
		pthread_join(id, NULL);
		assert_int_equal(snapshot_take(c.s), 0);
		assert_int_equal(c.wrong, 0);
		assert_true(copied <= at * 4);
		none += copied == 0;
		most = copied > most ? copied : most;
		all = at * 4 > all ? at * 4 : all;
		snapshot_free(c.s);
	}
	print_message("%d of 300 copied nothing, the most was %zu of at most %zu bytes\n", none, most, all);
	assert_true(most > 0);
	free(live);
	free(room);
}

static void too_small(void **state)
{
	struct dt_piece p = {.dtype = DT_F32, .ndim = 1, .global = {8}, .shape = {8}, .data = &p};
	struct snapshot *s;
	struct dt_err err;

	assert_int_equal(snapshot_new(&p, 1, NULL, 31, &s, &err), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_as_they_were),
		cmocka_unit_test(too_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
