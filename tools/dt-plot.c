/*
 * dt-plot: curves and bars from JSON Lines, in the terminal or as SVG.
 *
 * Every line is a JSON object; lines without the key are skipped. On a terminal the plot is redrawn while its
 * pipe is being written.
 */
#include "base/curves.h"
#include "base/jsonl.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };
enum { THEME_LIGHT, THEME_DARK };
enum { MAX_SMOOTH = 10000 };

static struct {
	struct dt_strs keys;
	const char *x, *by, *bars, *svg, *title;
	bool log_x, log_y, stack, ascii, skip_bad, live;
	int64_t smooth, width, height;
	int color, theme;
} opt;

/* clang-format off: one or two lines per option */
static const struct dt_opt opts[] = {
	{.name = "key",
	 .short_name = 'k',
	 .type = DT_OPT_STRS,
	 .dest = &opt.keys,
	 .arg = "KEY",
	 .help = "key to draw, even if a file has the same name; a.b looks inside an object"},
	{.name = "x",
	 .type = DT_OPT_STR,
	 .dest = &opt.x,
	 .arg = "KEY",
	 .help = "key of the horizontal axis",
	 .def_text = "step if the lines have it, else the number of the point",
	 .without = "bars"},
	{"by", 0, DT_OPT_STR, &opt.by, "KEY", "draw one curve, or one bar, for each value of this key"},
	{.name = "bars",
	 .type = DT_OPT_STR,
	 .dest = &opt.bars,
	 .arg = "KEY",
	 .help = "draw a bar chart of this key; if a bar occurs several times, its last value counts"},
	{.name = "log-x",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.log_x,
	 .help = "logarithmic horizontal axis",
	 .without = "bars"},
	{.name = "log-y",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.log_y,
	 .help = "logarithmic vertical axis",
	 .without = "bars,stack"},
	{.name = "stack",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.stack,
	 .help = "draw stacked areas: parts of a whole, such as the times of a step",
	 .without = "bars"},
	{.name = "smooth",
	 .type = DT_OPT_INT,
	 .dest = &opt.smooth,
	 .arg = "N",
	 .min = 1,
	 .max = MAX_SMOOTH,
	 .help = "window of the running mean, as N points of the densest curve; the same width for all "
		 "curves",
	 .def = "1",
	 .without = "bars"},
	DT_OPT_HEADING("Chart"),
	{.name = "width",
	 .type = DT_OPT_INT,
	 .dest = &opt.width,
	 .arg = "N",
	 .min = 30,
	 .max = 10000,
	 .help = "width in columns, or in pixels of an SVG",
	 .def_text = "the terminal's, or 80; SVG: 800"},
	{.name = "height",
	 .type = DT_OPT_INT,
	 .dest = &opt.height,
	 .arg = "N",
	 .min = 6,
	 .max = 10000,
	 .help = "height in lines, or in pixels of an SVG",
	 .def_text = "20; SVG: 400",
	 .without = "bars"},
	{"title", 0, DT_OPT_STR, &opt.title, "TEXT", "title above the chart"},
	{"svg", 0, DT_OPT_STR, &opt.svg, "FILE",
	 "write an SVG document to FILE instead; - is standard output"},
	{.name = "theme",
	 .type = DT_OPT_CHOICE,
	 .dest = &opt.theme,
	 .arg = "light|dark",
	 .def = "light",
	 .help = "background of an SVG",
	 .with = "svg"},
	{.name = "color",
	 .type = DT_OPT_CHOICE,
	 .dest = &opt.color,
	 .arg = "auto|always|never",
	 .help = "when to use colours; auto: on a terminal, unless NO_COLOR is set",
	 .def = "auto",
	 .without = "svg"},
	{.name = "ascii",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.ascii,
	 .help = "use ASCII characters only",
	 .without = "svg"},
	{.name = "live",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.live,
	 .negatable = true,
	 .help = "redraw on a terminal while a pipe is being written",
	 .def = "on",
	 .without = "svg"},
	DT_OPT_HEADING("Input"),
	{.name = "skip-bad",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.skip_bad,
	 .help = "skip lines that are not JSON objects"},
	DT_OPT_END,
};
/* clang-format on */
static const char *const examples[] = {
	"mpirun -np 4 dt-train --model gpt2-mini --data c.h5 --layout dp4 --metrics - | dt-plot loss",
	"dt-plot --smooth 20 --svg loss.svg loss run1.jsonl run2.jsonl",
	"mpirun -np 2 dt-allreduce-bench --json | jq -c '.results[] | select(.in_place | not)' | "
	"dt-plot --log-x --x size_bytes busbw_gbs",
	NULL};
static const struct dt_program prog = {
	.name = "dt-plot",
	.summary = "draw curves and bars from JSON Lines in the terminal or as SVG",
	.operands = "[KEY ...] [FILE ...]",
	.examples = examples,
	.opts = opts,
};

static struct {
	const char *key[DT_STRS_MAX], *file[DT_STRS_MAX];
	int nkey, nfile;
	struct dt_curves curves;
	size_t bad;
	int drawn; /* lines of the plot on the terminal */
} P;

static bool is_set(const char *name)
{
	const char *s = getenv(name);

	return s && *s;
}

static struct dt_plot_style choose_style(void)
{
	const char *term = getenv("TERM"), *cols = getenv("COLUMNS");
	bool tty = isatty(STDOUT_FILENO), dumb = term && !strcmp(term, "dumb");
	struct dt_plot_style st = {.width = 80, .height = 20};
	struct winsize ws = {0};

	if (cols && atoi(cols) >= DT_PLOT_MIN_WIDTH && atoi(cols) <= 10000)
		st.width = atoi(cols);
	if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= DT_PLOT_MIN_WIDTH) {
		st.width = ws.ws_col;
		if (ws.ws_row > DT_PLOT_MIN_HEIGHT + 1 && ws.ws_row - 1 < st.height)
			st.height = ws.ws_row - 1; /* one line is left for the prompt */
	}
	st.utf8 = !opt.ascii && !dumb && !strcmp(nl_langinfo(CODESET), "UTF-8");
	st.color =
		opt.color == COLOR_ALWAYS || (opt.color == COLOR_AUTO && tty && !dumb && !is_set("NO_COLOR"));
	if (opt.width)
		st.width = (int)opt.width;
	if (opt.height)
		st.height = (int)opt.height;
	return st;
}

/* Draws the plot to f, as SVG if svg is set. Returns the number of lines or the code of err. */
static int draw(FILE *f, bool svg, struct dt_err *err)
{
	struct dt_plot_style st = choose_style();
	int width = opt.width ? (int)opt.width : 800, height = opt.height ? (int)opt.height : 400, rc;
	bool dark = opt.theme == THEME_DARK;
	struct dt_curves_picture p;
	struct dt_bars bars;

	if (opt.bars) {
		dt_curves_bars(&P.curves, &bars);
		bars.title = opt.title;
		if (!svg)
			return dt_bars_term(&bars, &st, f);
		dt_bars_svg(&bars, width, dark, f);
		return 0;
	}
	rc = dt_curves_plot(&P.curves, &p, err);
	p.plot.title = opt.title;
	if (rc == 0 && svg)
		dt_plot_svg(&p.plot, width, height, dark, f);
	else if (rc == 0 && (rc = dt_plot_term(&p.plot, &st, f)) < 0)
		dt_err_sys(err, rc, "cannot draw the chart");
	dt_curves_picture_release(&p);
	return rc;
}

/* Redraws over the last plot, with a single write so that the terminal does not flicker. */
static void redraw(void)
{
	char *text = NULL, *line, *nl;
	struct dt_err err;
	size_t n = 0;
	FILE *f;

	if (dt_curves_empty(&P.curves))
		return;
	f = open_memstream(&text, &n);
	if (!f)
		return;
	if (draw(f, false, &err) < 0 || fclose(f) == EOF) {
		free(text);
		return;
	}
	if (P.drawn)
		printf("\033[%dA\r", P.drawn);
	P.drawn = 0;
	for (line = text; (nl = strchr(line, '\n')); line = nl + 1) {
		*nl = '\0';
		printf("%s\033[K\n", line);
		P.drawn++;
	}
	printf("\033[J");
	fflush(stdout);
	free(text);
}

static int read_input(int file, bool live, struct dt_err *err)
{
	struct dt_jsonl j;
	bool dirty = false;
	double last = 0;
	int rc = dt_jsonl_open(&j, P.file[file], err);

	if (rc < 0)
		return rc;
	j.skip_bad = opt.skip_bad;
	j.skip_cut = true;
	for (;;) {
		json_t *o = NULL;

		/* At most five times a second, and always before waiting for input. */
		if (live && dirty && (dt_now() > last + 0.2 || !dt_jsonl_ready(&j, last + 0.2 - dt_now()))) {
			redraw();
			last = dt_now();
			dirty = false;
		}
		rc = dt_jsonl_next(&j, &o, err);
		if (rc <= 0)
			break;
		rc = dt_curves_take(&P.curves, o, file, j.line, err);
		json_decref(o);
		if (rc < 0)
			break;
		dirty = true;
	}
	if (rc < 0) {
		/* A failure to draw must not kill the writer of the pipe, perhaps a training run. */
		dt_program_fail(&prog, err);
		err->msg[0] = '\0';
		dt_jsonl_drain(&j);
	}
	if (rc == 0 && j.cut)
		dt_program_say(&prog, "%s:%zu: the line is cut, and was skipped", j.name, j.line);
	P.bad += j.bad;
	dt_jsonl_close(&j);
	return rc;
}

/* Operands that name files are files, the others are keys. */
/* Whether an operand is a file. One that looks like a file name counts even if it is missing: its open
 * fails. */
static bool means_file(const char *s)
{
	const char *ending = strrchr(s, '.');

	return !strcmp(s, "-") || access(s, F_OK) == 0 || strchr(s, '/') ||
	       (ending &&
		(!strcmp(ending, ".jsonl") || !strcmp(ending, ".json") || !strcmp(ending, ".ndjson")));
}

static int sort_operands(int nargs, char **argv)
{
	for (int i = 0; i < opt.keys.n; i++)
		P.key[P.nkey++] = opt.keys.v[i];
	for (int i = 1; i <= nargs; i++) {
		if (P.nkey == DT_STRS_MAX || P.nfile == DT_STRS_MAX)
			return dt_opt_usage_error(&prog, stderr, "more than %d keys or files", DT_STRS_MAX);
		if (means_file(argv[i]))
			P.file[P.nfile++] = argv[i];
		else
			P.key[P.nkey++] = argv[i];
	}
	for (int i = 0; opt.svg && i < P.nfile; i++)
		if (strcmp(P.file[i], "-") && dt_out_is(opt.svg, P.file[i]))
			return dt_opt_usage_error(&prog, stderr, "--svg would overwrite the input '%s'",
						  P.file[i]);
	if (opt.bars && P.nkey)
		return dt_opt_usage_error(&prog, stderr,
					  "'%s' is not a file, and --bars draws only its own key", P.key[0]);
	if (!opt.bars && !P.nkey)
		P.key[P.nkey++] = "loss";
	if (!P.nfile) {
		if (isatty(STDIN_FILENO))
			return dt_opt_usage_error(&prog, stderr,
						  "nothing to read: give a FILE, or pipe data in");
		P.file[P.nfile++] = "-";
	}
	P.curves.o = (struct dt_curves_opts){.key = P.key,
					     .nkey = P.nkey,
					     .file = P.file,
					     .nfile = P.nfile,
					     .x = opt.x,
					     .by = opt.by,
					     .bars = opt.bars,
					     .log_x = opt.log_x,
					     .log_y = opt.log_y,
					     .stack = opt.stack,
					     .smooth = (double)opt.smooth};
	return 0;
}

static int write_picture(bool live, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc;

	if (!opt.svg && live) {
		redraw();
		return 0;
	}
	if (!opt.svg || !strcmp(opt.svg, "-")) {
		rc = draw(stdout, opt.svg != NULL, err);
		return rc < 0 ? rc : 0;
	}
	rc = dt_tmpfile_open(&t, opt.svg, err);
	if (rc < 0)
		return rc;
	rc = draw(t.f, true, err);
	if (rc < 0) {
		dt_tmpfile_abort(&t);
		return rc;
	}
	return dt_tmpfile_commit(&t, err);
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, nargs, rc;
	bool live;

	setlocale(LC_CTYPE, "");
	nargs = dt_opt_main(&prog, argc, argv, stdout, stderr, &status);
	if (nargs < 0)
		return status;
	status = sort_operands(nargs, argv);
	if (status)
		return status;
	live = opt.live && !opt.svg && isatty(STDOUT_FILENO) && P.nfile == 1 && !strcmp(P.file[0], "-") &&
	       !(getenv("TERM") && !strcmp(getenv("TERM"), "dumb"));
	rc = 0;
	for (int i = 0; i < P.nfile && rc == 0; i++)
		rc = read_input(i, live, &err);
	if (rc == 0 && dt_curves_empty(&P.curves))
		rc = dt_curves_nothing(&P.curves, &err);
	if (rc == 0)
		rc = write_picture(live, &err);
	if (rc == 0 && P.bad)
		dt_program_say(&prog, "skipped lines that are not JSON objects: %zu", P.bad);
	if (rc == 0 && P.curves.nonpositive)
		dt_program_say(&prog, "skipped points that are zero or less: %zu", P.curves.nonpositive);
	if (rc == 0)
		rc = dt_close_stdout(&err);
	dt_curves_release(&P.curves);
	return rc < 0 ? dt_program_fail(&prog, &err) : DT_EXIT_OK;
}
/* SPDX-License-Identifier: Apache-2.0 */
