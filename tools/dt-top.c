/* dt-top: shows a run live in the terminal. */
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "board/top.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static struct {
	bool once;
	double every;
} a;

static const char *const examples[] = {
	"dt-top run",
	"dt-top --once run/metrics.jsonl",
	NULL,
};

static const struct dt_opt opts[] = {
	{"once", 0, DT_OPT_FLAG, &a.once, NULL,
	 "print all runs once and exit, as when standard output is not a terminal"},
	{"every", 0, DT_OPT_REAL, &a.every, "SECONDS", "time between two updates", .min = 0.1, .max = 3600,
	 .def = "1"},
	DT_OPT_END,
};

static const struct dt_program prog = {
	.name = "dt-top",
	.summary = "show a run live in the terminal: loss, speed, step time breakdown, ranks, memory, events",
	.operands = "DIR|FILE ...",
	.examples = examples,
	.opts = opts,
};

static volatile sig_atomic_t stop, suspend;

static void on_signal(int sig)
{
	if (sig == SIGTSTP)
		suspend = 1;
	else if (sig != SIGWINCH) /* which only ends the wait for a key */
		stop = 1;
}

static bool terminal(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

static struct dt_board_screen screen(bool live)
{
	const char *color = getenv("NO_COLOR"), *columns = getenv("COLUMNS");
	struct dt_board_screen s = {.width = 80,
				    .utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8"),
				    .color = live && !(color && *color),
				    .now = (double)time(NULL)};
	struct winsize w;

	if (live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col) {
		s.width = w.ws_col;
		s.height = w.ws_row > 2 ? w.ws_row - 2 : 1;
	} else if (columns && atoi(columns) > 0) {
		s.width = atoi(columns);
	}
	s.width = s.width < 40 ? 40 : s.width > 400 ? 400 : s.width;
	return s;
}

/* Overwrites the screen line by line, to avoid flicker. */
static void put_live(const char *text, const struct dt_board *b, int run)
{
	fputs("\033[H", stdout);
	for (const char *p = text, *nl; (nl = strchr(p, '\n')); p = nl + 1)
		printf("%.*s\033[K\n", (int)(nl - p), p);
	printf("\033[K\nrun %d of %d; Tab: next run, q: quit\033[K\033[J", run + 1, b->n);
	fflush(stdout);
}

static int draw(const struct dt_board *b, int run, bool live, struct dt_err *err)
{
	struct dt_board_screen s = screen(live);
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		return dt_err_sys(err, -ENOMEM, "cannot draw");
	dt_board_top(b, run, &s, f);
	if (fclose(f) == EOF) {
		free(text);
		return dt_err_sys(err, -ENOMEM, "cannot draw");
	}
	if (live)
		put_live(text, b, run);
	else
		fputs(text, stdout);
	free(text);
	return 0;
}

/* Waits for a key for at most `seconds`; 0: none. */
static char key_within(double seconds)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char c = 0;

	if (poll(&in, 1, (int)(seconds * 1e3)) > 0 && read(STDIN_FILENO, &c, 1) == 0)
		poll(NULL, 0, (int)(seconds * 1e3)); /* stdin is not a terminal */
	return c;
}

/* The terminal, and its settings outside the live screen. */
struct shown {
	bool keys; /* stdin is a terminal */
	struct termios was;
};

static void enter(struct shown *t)
{
	struct termios raw;

	t->keys = tcgetattr(STDIN_FILENO, &t->was) == 0;
	raw = t->was;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	if (t->keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs("\033[?1049h\033[?25l", stdout);
}

static void leave(const struct shown *t)
{
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (t->keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &t->was);
}

/* Ctrl-Z: gives the terminal back to the shell, stops, and shows the screen again when continued. */
static void stop_here(struct shown *t)
{
	const struct sigaction stopped = {.sa_handler = SIG_DFL};
	struct sigaction own;

	suspend = 0;
	leave(t);
	sigaction(SIGTSTP, &stopped, &own);
	raise(SIGTSTP);
	sigaction(SIGTSTP, &own, NULL);
	enter(t);
}

static int live(struct dt_board *b, struct dt_err *err)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
	struct sigaction sa = {.sa_handler = on_signal};
	struct shown t;
	int rc = 0, run = 0;

	for (size_t i = 0; i < sizeof which / sizeof *which; i++)
		sigaction(which[i], &sa, NULL);
	enter(&t);
	while (!stop && rc == 0) {
		char c;

		rc = draw(b, run, true, err);
		c = key_within(a.every);
		if (c == 'q')
			break;
		if (c == '\t')
			run = (run + 1) % b->n;
		if (suspend)
			stop_here(&t);
		if (rc == 0 && !stop)
			rc = dt_board_refresh(b, err);
	}
	leave(&t);
	return rc;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	struct dt_board b;
	int status, n, rc;

	setlocale(LC_CTYPE, "");
	n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status);
	if (n < 0)
		return status;
	if (!n)
		return dt_opt_usage_error(&prog, stderr, "no run given: name folders or metrics files");
	rc = dt_board_open(&b, argv + 1, n, 0, &err);
	if (rc < 0)
		return dt_program_fail(&prog, &err);
	if (b.left_out)
		dt_program_say(&prog, "%d more runs are not shown", b.left_out);
	if (!a.once && terminal())
		rc = live(&b, &err);
	else
		for (int i = 0; i < b.n && rc == 0; i++) {
			if (i)
				putchar('\n');
			rc = draw(&b, i, false, &err);
		}
	dt_board_close(&b);
	if (rc == 0)
		rc = dt_close_stdout(&err);
	return rc < 0 ? dt_program_fail(&prog, &err) : DT_EXIT_OK;
}
/* SPDX-License-Identifier: Apache-2.0 */
