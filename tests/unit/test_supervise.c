/* The supervisor's parts without a job: books, lists of hosts, commands, who is slow, who has died. */
#include "supervise/mirror.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void books_count_a_step_once(void **state)
{
	struct sup_books b = {.began = 100};
	json_t *o;

	for (int64_t step = 11; step <= 20; step++) /* a run that goes on at step 10 */
		sup_books_step(&b, step, 1);
	sup_books_back(&b, 15); /* five are lost */
	assert_int_equal(sup_books_count(&b), 5);
	for (int64_t step = 16; step <= 18; step++)
		sup_books_step(&b, step, 2);
	sup_books_step(&b, 18, 3); /* again, without a word */
	assert_int_equal(sup_books_count(&b), 8);
	b.s[SUP_START] = 4;
	o = sup_books_json(&b, 130);
	assert_float_equal(json_number_value(json_object_get(o, "steps_s")), 5 + 2 + 2 + 3, 1e-9);
	assert_float_equal(json_number_value(json_object_get(o, "redone_s")), 5 + 2, 1e-9);
	assert_float_equal(json_number_value(json_object_get(o, "other_s")), 30 - 12 - 7 - 4, 1e-9);
	assert_int_equal(json_integer_value(json_object_get(o, "steps_redone")), 6);
	json_decref(o);
	free(b.step);
}

static void lists_of_hosts(void **state)
{
	static const char *const bad[] = {"a:x", "a:", ":3", "a:-1", "a b", "a slots=", "a;reboot:1"};
	struct sup_hosts h = {0};
	struct dt_err err;
	char *text;

	assert_int_equal(sup_hosts_parse(&h, "a:2 # one\n\n b slots=3\r\nc\nd:0\n", &err), 0);
	assert_int_equal(h.n, 3);
	assert_int_equal(sup_hosts_slots(&h, 0), 6);
	text = sup_hosts_list(&h, 0, 4);
	assert_string_equal(text, "a:2,b:2");
	free(text);
	h.v[0].out_until = 10; /* left out */
	text = sup_hosts_list(&h, 5, 4);
	assert_string_equal(text, "b:3,c:1");
	free(text);
	assert_int_equal(sup_hosts_per(&h, 5, 4), 3);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (sup_hosts_parse(&h, bad[i], &err) == 0)
			fail_msg("'%s' is taken", bad[i]);
	assert_int_equal(sup_hosts_parse(&h, "c:1\na:1\n", &err), 0);
	assert_int_equal(sup_hosts_slots(&h, 5), 1); /* a is left out still */
	free(h.v);
}

static void a_long_list_of_hosts_is_whole(void **state)
{
	enum { HOSTS = 500, LINE = 64 };
	char *lines = calloc(HOSTS, LINE), *want = calloc(HOSTS, LINE), *got;
	struct sup_hosts h = {0};
	struct dt_err err;

	for (int i = 0; i < HOSTS; i++) {
		char name[LINE];

		snprintf(name, sizeof(name), "node-%04d.rack.cluster.example.internal:8", i);
		strcat(strcat(lines, name), "\n");
		strcat(strcat(want, i ? "," : ""), name);
	}
	assert_int_equal(sup_hosts_parse(&h, lines, &err), 0);
	got = sup_hosts_list(&h, 0, HOSTS * 8);
	assert_string_equal(got, want);
	assert_int_equal(sup_hosts_per(&h, 0, HOSTS * 8), 8);
	free(got);
	free(want);
	free(lines);
	free(h.v);
}

static void commands(void **state)
{
	char *const argv[] = {"mpirun",
			      "-np",
			      "4",
			      "/usr/bin/dt-train",
			      "--model=gpt2-tiny",
			      "--seq=64",
			      "-b",
			      "3",
			      "--save",
			      "run",
			      "--comm-timeout",
			      "9",
			      "--no-master",
			      NULL};
	struct sup_command c;
	struct sup_choice k;
	struct dt_err err;

	assert_int_equal(sup_command_read(&c, argv, &err), 0);
	assert_int_equal(c.program, 3);
	assert_true(c.o.run.microbatch == 3 && !c.o.master && !strcmp(c.o.run.save.dir, "run") && !c.resumes);
	assert_int_equal(sup_choose(&c, NULL, 4, 4, &k, &err), 0);
	assert_true(k.layout.dp == 4 && k.global_batch == 12 && k.microbatch == 3);
	c.o.run.global_batch = 12; /* as the first start had it: fewer ranks train the same batch */
	if (sup_choose(&c, NULL, 3, 3, &k, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(dt_layout_world(&k.layout), 3);
	assert_true(k.global_batch == 12 && 12 % (k.layout.dp * k.microbatch) == 0);
	c.o.run.watch.elastic = DT_RUN_ELASTIC_DP; /* data parallel, with the ZeRO stage that was asked for */
	c.o.layout = "dp4.z2";
	if (sup_choose(&c, NULL, 3, 3, &k, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(k.layout.dp == 3 && k.layout.zero == 2);
	sup_command_release(&c);
}

/* The layout is one that the whole command allows, also by options that are no part of it. */
static void layouts_of_the_whole_command(void **state)
{
	static const struct {
		const char *option, *value;
		int ranks, dp; /* 0: none is possible */
	} cases[] = {{"--shares", "auto", 2, 2}, {"--capacity-factor", "1.5", 2, 0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *argv[] = {"dt-train",
				"--model",
				"gpt2-tiny",
				"--layout",
				"dp8.z1",
				"--global-batch",
				"8",
				"--seq",
				"16",
				"--save",
				"run",
				(char *)cases[i].option,
				(char *)cases[i].value,
				NULL};
		struct sup_command c;
		struct sup_choice k;
		struct dt_err err;
		int rc;

		assert_int_equal(sup_command_read(&c, argv, &err), 0);
		rc = sup_choose(&c, NULL, cases[i].ranks, cases[i].ranks, &k, &err);
		if (cases[i].dp && rc < 0)
			fail_msg("%s", err.msg);
		if (cases[i].dp)
			assert_int_equal(k.layout.dp, cases[i].dp);
		else
			assert_int_equal(rc, -EINVAL);
		sup_command_release(&c);
	}
}

static void mirror_commands(void **state)
{
	char text[64];

	assert_int_equal(sup_mirror_words(text, sizeof(text), "put %s to:%n/", "/a b/c", "step-1"), 0);
	assert_string_equal(text, "put '/a b/c' to:'step-1'/");
	assert_int_equal(sup_mirror_words(text, sizeof(text), "100% of %d %s", "it's", "n"), 0);
	assert_string_equal(text, "100% of %d 'it'\\''s'");
	assert_int_equal(sup_mirror_words(text, 8, "put %s", "/a/b", "n"), -ENAMETOOLONG);
	assert_int_equal(sup_mirror_words(text, 9, "put %s", "/a/", "n"), -ENAMETOOLONG);
	assert_int_equal(sup_mirror_words(text, 10, "put %s", "/a/", "n"), 0);
	assert_string_equal(text, "put '/a/'");
}

static void mirror_prunes(void **state)
{
	struct sup_mirror_list l = {0}, again = {0};
	char dir[] = "/tmp/dt-test-XXXXXX", path[64];
	struct dt_err err;
	FILE *f;

	for (int64_t step = 10; step <= 60; step += 10)
		assert_int_equal(sup_mirror_list_set(&l, step, step != 20 && step != 50), 0);
	/* whole: 10 30 40 60. Two stay, 60 and 40; 20 and 50 are of no use to anyone */
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 0, -1), 10);
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 0, 10), 20);
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 0, 20), 30);
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 0, 30), 50);
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 0, 50), -1);
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 30, 20), 50); /* 30 is a multiple */
	assert_int_equal(sup_mirror_list_old(&l, 60, 2, 10, 10), 20); /* so would 20 be, were it whole */
	/* a run that went back to 40: 50 and 60 are of what was left, and do not count */
	assert_int_equal(sup_mirror_list_old(&l, 40, 2, 0, 10), 20);
	assert_int_equal(sup_mirror_list_old(&l, 40, 2, 0, 20), -1);
	sup_mirror_list_drop(&l, 20);
	assert_int_equal(sup_mirror_list_old(&l, 40, 1, 0, 10), 30);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(sup_mirror_list_read(&again, dir, &err), 0); /* a mirror with nothing in it */
	assert_int_equal(again.n, 0);
	assert_int_equal(sup_mirror_list_write(&l, dir), 0);
	assert_int_equal(sup_mirror_list_read(&again, dir, &err), 0);
	assert_int_equal(again.n, 5);
	for (int64_t after = -1, at = 0; at >= 0; after = at) {
		at = sup_mirror_list_old(&l, 60, 1, 0, after);
		assert_int_equal(at, sup_mirror_list_old(&again, 60, 1, 0, after));
	}
	snprintf(path, sizeof(path), "%s/mirrored.json", dir);
	f = fopen(path, "w");
	fputs("{\"whole\": [10, -1], \"torn\": []}", f);
	fclose(f);
	assert_int_equal(sup_mirror_list_read(&again, dir, &err), -EINVAL);
	assert_int_equal(again.n, 0);
	remove(path);
	remove(dir);
	free(l.v);
	free(again.v);
}

/* Three ranks of which one is lost, as their heartbeats have it. */
static void replacements(void **state)
{
	struct sup_rank v[3] = {{0}};
	struct sup_ranks r = {.n = 3, .v = v};

	assert_int_equal(sup_replace_missing(&r, 3, 0), 0);
	v[1] = (struct sup_rank){.known = true, .beat = {.phase = DT_BEAT_TRAIN, .epoch = 1, .ranks = 3}};
	assert_int_equal(sup_replace_missing(&r, 3, 0), 0); /* those that are not heard yet are not lost */
	v[2] = (struct sup_rank){.known = true, .beat = {.phase = DT_BEAT_TRAIN, .epoch = 2, .ranks = 2}};
	assert_int_equal(sup_replace_missing(&r, 3, 0), 1);
	assert_int_equal(sup_replace_missing(&r, 3, 1), 0);
	v[0] = (struct sup_rank){.known = true, .beat = {.phase = DT_BEAT_START}}; /* it joins */
	assert_int_equal(sup_replace_missing(&r, 3, 0), 1);
	v[2].beat.phase = DT_BEAT_END;
	v[2].beat.status = 1; /* by an error of its own */
	assert_int_equal(sup_replace_missing(&r, 3, 0), 1);
	v[2].beat.status = 0;
	assert_int_equal(sup_replace_missing(&r, 3, 0), 0);
}

/* The last epoch's ranks say how the run has ended. */
static void exit_statuses(void **state)
{
	struct sup_rank v[3] = {{0}};
	struct sup_ranks r = {.n = 3, .v = v};

	assert_int_equal(sup_ranks_status(&r), -1);
	v[0] = (struct sup_rank){.known = true, .beat = {.phase = DT_BEAT_END, .status = 1, .epoch = 1}};
	assert_int_equal(sup_ranks_status(&r), 1);
	v[2] = (struct sup_rank){.known = true, .beat = {.phase = DT_BEAT_END, .status = 0, .epoch = 2}};
	assert_int_equal(sup_ranks_status(&r), 0);
}

/* Beats of four ranks, 20 steps later each time; the last takes `slow` times as long. */
static int looks(double slow, int stages, int times)
{
	struct sup_ranks r = {.n = 4, .v = calloc(4, sizeof(struct sup_rank))};
	struct sup_slow s = {0};
	int named = -1;

	for (int t = 1; t <= times; t++) {
		for (int i = 0; i < 4; i++) {
			struct dt_beat *b = &r.v[i].beat;

			r.v[i].known = true;
			b->phase = DT_BEAT_TRAIN;
			b->stage = stages > 1 ? i / (4 / stages) : 0;
			b->step = SUP_SLOW_STEPS * t;
			b->compute_s += i == 3 ? slow : 1 + 0.05 * i;
		}
		if (named < 0)
			named = sup_slow_look(&s, &r, 0.6);
	}
	sup_slow_reset(&s);
	free(r.v);
	return named;
}

/* A rank that is lost is not waited for; a process in its place begins anew. */
static void slow_after_a_loss(void **state)
{
	struct sup_rank v[4] = {{0}};
	struct sup_ranks r = {.n = 4, .v = v};
	struct sup_slow s = {0};
	int named = -1;

	for (int t = 1; t <= 4 * SUP_SLOW_TIMES && named < 0; t++) {
		for (int i = 0; i < 4; i++) {
			v[i].known = i != 1 || t > 2;
			v[i].beat.pid = i == 1 ? 9 : i + 1;
			v[i].beat.phase = DT_BEAT_TRAIN;
			v[i].beat.from = i == 1 ? 2 * SUP_SLOW_STEPS : 0;
			v[i].beat.step = SUP_SLOW_STEPS * t;
			v[i].beat.compute_s += i == 3 ? 4 : 1;
		}
		named = sup_slow_look(&s, &r, 0.6);
	}
	assert_int_equal(named, 3);
	sup_slow_reset(&s);
	v[1].known = false;
	for (int t = 1; t <= 2 * SUP_SLOW_TIMES; t++) {
		for (int i = 0; i < 4; i++) {
			v[i].beat.step += SUP_SLOW_STEPS;
			v[i].beat.compute_s += i == 3 ? 4 : 1;
		}
		named = sup_slow_look(&s, &r, 0.6);
		if (named >= 0)
			break;
	}
	assert_int_equal(named, 3);
	sup_slow_reset(&s);
}

static void slow_ranks(void **state)
{
	assert_int_equal(looks(1, 1, 20), -1);
	assert_int_equal(looks(3, 1, 20), 3);
	assert_int_equal(looks(3, 1, SUP_SLOW_TIMES), -1); /* the first look is not counted */
	assert_int_equal(looks(3, 1, SUP_SLOW_TIMES + 1), 3);
	assert_int_equal(looks(1.5, 1, 20), -1); /* at 0.67 */
	assert_int_equal(looks(3, 2, 20), 3);
	assert_int_equal(looks(3, 4, 20), -1); /* stages are not compared with one another */
}

static void nothing(void *arg, const struct dt_beat *b)
{
}

/* A datagram of a rank, sent as the rank would. */
static void beat(const struct sup_ranks *r, uint64_t no, int rank, int pid, int phase)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(r->port)};
	struct dt_beat b = {.magic = DT_BEAT_MAGIC, .start = r->start, .no = no, .rank = rank, .pid = pid};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	b.phase = phase;
	memcpy(b.cookie, r->cookie, sizeof(b.cookie));
	gethostname(b.host, sizeof(b.host) - 1);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(sendto(fd, &b, sizeof(b), 0, (struct sockaddr *)&to, sizeof(to)), sizeof(b));
	close(fd);
}

static pid_t process(void)
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_NAME, "dt-train");
		(void)!write(ready[1], "", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end_process(pid_t pid)
{
	siginfo_t info;

	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
}

/* Whose death was first is known however late one looks: the launcher kills the others at once. */
static void the_first_to_die_is_named(void **state)
{
	static const int order[][4] = {{2, 0, 1, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {0, 1, 2, 3}};
	struct sup_ranks r;
	struct dt_err err;
	char why[256], expected[64];

	if (sup_ranks_open(&r, &err) < 0)
		fail_msg("%s", err.msg);
	for (int t = 0; t < 8; t++) {
		bool leaves = t >= 4; /* the first to end has said so: the second is lost */
		const int *o = order[t % 4];
		pid_t pid[4];

		sup_ranks_reset(&r, (uint32_t)t);
		for (int i = 0; i < 4; i++)
			beat(&r, 1, i, pid[i] = process(), DT_BEAT_TRAIN);
		sup_ranks_receive(&r, 0, nothing, NULL);
		assert_int_equal(sup_ranks_lost(&r, 0, 0, why, sizeof(why)), -1);
		if (leaves)
			beat(&r, 2, o[0], pid[o[0]], DT_BEAT_END);
		for (int i = 0; i < 4; i++)
			end_process(pid[o[i]]);
		for (int look = 0; look < 2; look++) { /* it is not forgotten */
			sup_ranks_receive(&r, 0, nothing, NULL);
			assert_int_equal(sup_ranks_lost(&r, 0, 0, why, sizeof(why)), o[leaves]);
			snprintf(expected, sizeof(expected), "rank %d (process %d) has died", o[leaves],
				 (int)pid[o[leaves]]);
			assert_string_equal(why, expected);
		}
	}
	sup_ranks_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(books_count_a_step_once),
		cmocka_unit_test(lists_of_hosts),
		cmocka_unit_test(a_long_list_of_hosts_is_whole),
		cmocka_unit_test(commands),
		cmocka_unit_test(layouts_of_the_whole_command),
		cmocka_unit_test(mirror_commands),
		cmocka_unit_test(mirror_prunes),
		cmocka_unit_test(replacements),
		cmocka_unit_test(exit_statuses),
		cmocka_unit_test(slow_ranks),
		cmocka_unit_test(slow_after_a_loss),
		cmocka_unit_test(the_first_to_die_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
