/* board/: what of a long run reaches the page, and reading a long run a piece at a time. */
#include "board/board.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 100000, SPIKE = 54321 };

static double loss_of(int step)
{
	if (step == SPIKE)
		return 500;
	return step % 7 == 3 ? NAN : 2 + (step * 2654435761u % 1000) * 1e-3;
}

/* A metrics file; its name is the caller's to unlink. */
static void write_run(char *path, int steps)
{
	int fd;
	FILE *f;

	strcpy(path, "/tmp/dt-board-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	for (int i = 1; i <= steps; i++) {
		double v = loss_of(i);

		fprintf(f, "{\"run_id\":\"a\",\"step\":%d,\"lr\":0.5", i);
		if (!isnan(v))
			fprintf(f, ",\"loss\":%.17g", v);
		fputs("}\n", f);
	}
	assert_int_equal(fclose(f), 0);
}

static json_t *series(const struct dt_board *b, const struct dt_board_ask *q)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	json_t *o;

	dt_board_put_series(b, q, f);
	fclose(f);
	o = json_loadb(text, n, 0, NULL);
	assert_non_null(o);
	free(text);
	return o;
}

static double item(const json_t *run, const char *what, const char *key, size_t i)
{
	const json_t *o = json_object_get(run, what);
	const json_t *v = json_array_get(key ? json_object_get(o, key) : o, i);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Every bucket against a loop over its own steps: no step is left out, none counts twice. */
static void a_spike_of_one_step_is_not_lost(void **state)
{
	const struct dt_board_ask q = {
		.keys = "loss,lr", .spread = "loss", .from = NAN, .to = NAN, .points = 500, .run = -1};
	char path[32], *operands[] = {path};
	struct dt_board b;
	struct dt_err err;
	json_t *o, *run;
	size_t buckets;
	int step = 1, spikes = 0;

	write_run(path, STEPS);
	assert_int_equal(dt_board_open(&b, operands, 1, 0, &err), 0);
	o = series(&b, &q);
	run = json_array_get(json_object_get(o, "runs"), 0);
	buckets = json_array_size(json_object_get(run, "x"));
	assert_true(buckets >= 499 && buckets <= 500);
	assert_int_equal(json_array_size(json_object_get(json_object_get(run, "most"), "loss")), buckets);
	assert_null(json_object_get(json_object_get(run, "most"), "lr"));
	for (size_t i = 0; i < buckets; i++) {
		double least = INFINITY, most = -INFINITY, sum = 0;
		int n = 0;

		for (; step <= (int)item(run, "x", NULL, i); step++) {
			double v = loss_of(step);

			if (isnan(v))
				continue;
			least = fmin(least, v);
			most = fmax(most, v);
			sum += v;
			n++;
		}
		assert_float_equal(item(run, "series", "loss", i), sum / n, 1e-5 * sum / n);
		assert_float_equal(item(run, "least", "loss", i), least, 1e-5 * least);
		assert_float_equal(item(run, "most", "loss", i), most, 1e-5 * most);
		assert_float_equal(item(run, "series", "lr", i), 0.5, 0);
		spikes += most == 500;
	}
	assert_int_equal(step, STEPS + 1);
	assert_int_equal(spikes, 1);
	json_decref(o);
	dt_board_close(&b);
	unlink(path);
}

/* Several refreshes come to what one reading of everything does, and each run gets its turn. */
static void long_runs_are_read_in_turn(void **state)
{
	const struct dt_board_ask q = {.keys = "loss", .from = NAN, .to = NAN, .points = 50, .run = -1};
	char path[2][32], *operands[] = {path[0], path[1]};
	struct dt_board all, b;
	struct dt_err err;
	json_t *want, *got;
	int pieces = 0;

	write_run(path[0], STEPS);
	write_run(path[1], STEPS / 2);
	assert_int_equal(dt_board_open(&all, operands, 2, 0, &err), 0);
	assert_false(all.behind);
	assert_int_equal(dt_board_open(&b, operands, 2, 1 << 20, &err), 0);
	assert_true(b.behind);
	assert_true(b.run[0].rows > 0 && b.run[0].rows < STEPS && b.run[1].rows == 0);
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_true(b.run[1].rows > 0);
	for (; b.behind && pieces < 100; pieces++)
		assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_false(b.behind);
	assert_true(pieces > 2);
	assert_int_equal(b.run[0].rows, STEPS);
	assert_int_equal(b.run[1].rows, STEPS / 2);
	want = series(&all, &q);
	got = series(&b, &q);
	assert_true(json_equal(json_object_get(want, "runs"), json_object_get(got, "runs")));
	json_decref(want);
	json_decref(got);
	dt_board_close(&all);
	dt_board_close(&b);
	unlink(path[0]);
	unlink(path[1]);
}

static void put(const char *path, const char *mode, int from, int to, double loss)
{
	FILE *f = fopen(path, mode);

	assert_non_null(f);
	for (int i = from; i <= to; i++)
		fprintf(f, "{\"run_id\":\"a\",\"step\":%d,\"loss\":%g}\n", i, loss);
	assert_int_equal(fclose(f), 0);
}

/* A run whose name is given to another file, and an operand that is removed, do not stop what is shown. */
static void files_are_followed_by_name(void **state)
{
	char dir[2][40] = {"/tmp/dt-board-XXXXXX", "/tmp/dt-board-XXXXXX"}, *operands[] = {dir[0], dir[1]};
	char path[2][64], old[64];
	struct dt_board b;
	struct dt_err err;
	uint64_t version;

	for (int i = 0; i < 2; i++) {
		assert_non_null(mkdtemp(dir[i]));
		snprintf(path[i], sizeof(path[i]), "%s/m.jsonl", dir[i]);
		put(path[i], "w", 1, 5, 1);
	}
	snprintf(old, sizeof(old), "%s/m.1.jsonl", dir[0]);
	assert_int_equal(dt_board_open(&b, operands, 2, 0, &err), 0);
	assert_int_equal(b.n, 2);
	/* rotated: the file continues under another name, the name has a new file, at first without a line */
	assert_int_equal(rename(path[0], old), 0);
	put(old, "a", 6, 8, 2);
	put(path[0], "w", 1, 0, 0);
	version = b.version;
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_true(b.version > version);
	assert_int_equal(b.n, 3);
	assert_int_equal(b.run[0].rows, 0);
	assert_int_equal(b.run[1].rows, 5);
	assert_int_equal(b.run[2].rows, 8);
	put(path[0], "w", 1, 3, 4);
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_int_equal(b.run[0].rows, 3);
	assert_float_equal(dt_board_run_newest(&b.run[0], "loss"), 4, 0);
	version = b.version;
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_true(b.version == version);
	/* the first operand is removed: its runs stay as read, the second one goes on */
	unlink(path[0]);
	unlink(old);
	rmdir(dir[0]);
	put(path[1], "a", 6, 9, 3);
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_int_equal(b.run[0].rows, 3);
	assert_int_equal(b.run[1].rows, 9);
	/* a file of the same size in place of the removed one */
	unlink(path[1]);
	put(path[1], "w", 1, 9, 5);
	assert_int_equal(dt_board_refresh(&b, &err), 0);
	assert_int_equal(b.run[1].rows, 9);
	assert_float_equal(dt_board_run_newest(&b.run[1], "loss"), 5, 0);
	dt_board_close(&b);
	unlink(path[1]);
	rmdir(dir[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_spike_of_one_step_is_not_lost),
		cmocka_unit_test(long_runs_are_read_in_turn),
		cmocka_unit_test(files_are_followed_by_name),
	};

	return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
