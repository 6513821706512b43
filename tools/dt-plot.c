/*
 * dt-plot: curves and bars from JSON Lines, in the terminal or as SVG.
 *
 * Every line is one JSON object; a line without the key is passed over. On a terminal the picture follows a
 * pipe that is still being written.
 */
#include "base/jsonl.h"
#include "base/opt.h"
#include "base/plot.h"
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
enum { MAX_CURVES = 64, MAX_NAMES = 24, MAX_SMOOTH = 10000 };

static struct {
	struct dt_strs keys;
	const char *x, *by, *bars, *svg, *title;
	bool log_x, log_y, ascii, skip_bad, live;
	int64_t smooth, width, height;
	int color;
} opt;

/* clang-format off: a line or two an option */
static const struct dt_opt opts[] = {
	{.name = "key",
	 .short_name = 'k',
	 .type = DT_OPT_STRS,
	 .dest = &opt.keys,
	 .arg = "KEY",
	 .help = "draw this key, even where a file has its name; a.b looks inside an object"},
	{.name = "x",
	 .type = DT_OPT_STR,
	 .dest = &opt.x,
	 .arg = "KEY",
	 .help = "key of the horizontal axis",
	 .def_text = "step where the lines have it, else the number of the point"},
	{.name = "by",
	 .type = DT_OPT_STR,
	 .dest = &opt.by,
	 .arg = "KEY",
	 .help = "one curve, or one bar, for each value of this key"},
	{.name = "bars",
	 .type = DT_OPT_STR,
	 .dest = &opt.bars,
	 .arg = "KEY",
	 .help = "a bar chart of this key; the last value counts where a bar comes again"},
	{.name = "log-x", .type = DT_OPT_FLAG, .dest = &opt.log_x, .help = "logarithmic horizontal axis"},
	{.name = "log-y", .type = DT_OPT_FLAG, .dest = &opt.log_y, .help = "logarithmic vertical axis"},
	{.name = "smooth",
	 .type = DT_OPT_INT,
	 .dest = &opt.smooth,
	 .arg = "N",
	 .min = 1,
	 .max = MAX_SMOOTH,
	 .help = "mean of the last N values of a curve",
	 .def = "1"},
	DT_OPT_HEADING("Picture"),
	{.name = "width",
	 .type = DT_OPT_INT,
	 .dest = &opt.width,
	 .arg = "N",
	 .min = 30,
	 .max = 10000,
	 .help = "columns, or pixels of an SVG",
	 .def_text = "those of the terminal, or 80; 800"},
	{.name = "height",
	 .type = DT_OPT_INT,
	 .dest = &opt.height,
	 .arg = "N",
	 .min = 6,
	 .max = 10000,
	 .help = "lines, or pixels of an SVG",
	 .def_text = "20; 400"},
	{.name = "title", .type = DT_OPT_STR, .dest = &opt.title, .arg = "TEXT", .help = "a title above"},
	{.name = "svg",
	 .type = DT_OPT_STR,
	 .dest = &opt.svg,
	 .arg = "FILE",
	 .help = "write an SVG document instead ('-': to standard output)"},
	{.name = "color",
	 .type = DT_OPT_CHOICE,
	 .dest = &opt.color,
	 .arg = "auto|always|never",
	 .help = "colours; auto: on a terminal, unless NO_COLOR is set",
	 .def = "auto"},
	{.name = "ascii", .type = DT_OPT_FLAG, .dest = &opt.ascii, .help = "plain characters only"},
	{.name = "live",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.live,
	 .negatable = true,
	 .help = "redraw while a pipe is being written, on a terminal",
	 .def = "on"},
	DT_OPT_HEADING("Input"),
	{.name = "skip-bad",
	 .type = DT_OPT_FLAG,
	 .dest = &opt.skip_bad,
	 .help = "pass over lines that are no JSON object"},
	DT_OPT_END,
};
/* clang-format on */
static const char *const examples[] = {
	"mpirun -np 4 dt-train --model gpt2-mini --data c.h5 --layout dp4 --metrics - | dt-plot loss",
	"dt-plot --smooth 20 --svg loss.svg loss run1.jsonl run2.jsonl",
	"mpirun -np 2 dt-allreduce-bench --json | jq -c '.results[]' | dt-plot --log-x --x size_bytes "
	"busbw_gbs",
	NULL};
static const struct dt_program prog = {
	.name = "dt-plot",
	.summary = "draw curves and bars from JSON Lines in the terminal or as SVG",
	.operands = "[KEY ...] [FILE ...]",
	.examples = examples,
	.opts = opts,
};

struct curve {
	struct dt_series s;
	int key, file;
	char *by;
	double *ring; /* the last opt.smooth values */
	size_t seen;
};

static struct plotter {
	const char *key[DT_STRS_MAX], *file[DT_STRS_MAX];
	int nkey, nfile;
	struct curve curve[MAX_CURVES];
	int ncurve;
	struct dt_bar *bar;
	int nbar, capbar;
	const char *x; /* decided at the first point: opt.x, "step" or NULL */
	bool x_known;
	char *names[MAX_NAMES]; /* numeric keys met, for the message when there is nothing to draw */
	int nnames;
	size_t bad, nonpositive, objects;
	int drawn; /* lines of the picture on the terminal */
} P;

/* "a.b" is the member of that name or member b of object a. */
static json_t *member(json_t *o, const char *path)
{
	json_t *v = json_object_get(o, path);
	const char *dot = strchr(path, '.');
	char head[256];

	if (v || !dot || (size_t)(dot - path) >= sizeof(head))
		return v;
	snprintf(head, sizeof(head), "%.*s", (int)(dot - path), path);
	v = json_object_get(o, head);
	return json_is_object(v) ? member(v, dot + 1) : NULL;
}

static void remember_names(json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v)
	{
		int i = 0;

		while (i < P.nnames && strcmp(P.names[i], key))
			i++;
		if (json_is_number(v) && i == P.nnames && P.nnames < MAX_NAMES && (P.names[i] = strdup(key)))
			P.nnames++;
	}
}

/* The value of --by as text; NULL when the line has none. The caller frees it. */
static char *by_text(json_t *o)
{
	json_t *v = member(o, opt.by);

	if (!v || json_is_null(v))
		return NULL;
	return json_is_string(v) ? strdup(json_string_value(v))
				 : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

static int add_bar(json_t *o, const struct dt_jsonl *j, struct dt_err *err)
{
	json_t *v = member(o, opt.bars);
	char *name = NULL;
	int i = 0;

	if (!json_is_number(v))
		return 0;
	if (opt.by)
		name = by_text(o);
	else if (asprintf(&name, P.nfile > 1 ? "%s:%zu" : "%.0s%zu", j->name, j->line) < 0)
		name = NULL;
	if (!name)
		return opt.by ? 0 : dt_err_set(err, -ENOMEM, "out of memory");
	while (i < P.nbar && strcmp(P.bar[i].name, name))
		i++;
	if (i < P.nbar) {
		free(name);
	} else {
		if (P.nbar == P.capbar) {
			int cap = P.capbar ? 2 * P.capbar : 32;
			struct dt_bar *b = realloc(P.bar, (size_t)cap * sizeof(*b));

			if (!b) {
				free(name);
				return dt_err_set(err, -ENOMEM, "out of memory");
			}
			P.bar = b;
			P.capbar = cap;
		}
		P.bar[P.nbar++].name = name;
	}
	P.bar[i].value = json_number_value(v);
	return 0;
}

/* The curve of (key, file, by), made when it is new. Takes by. */
static struct curve *find_curve(int key, int file, char *by, struct dt_err *err)
{
	const char *name = P.key[key], *parts[3];
	struct curve *c;
	int n = 0;

	for (int i = 0; i < P.ncurve; i++) {
		c = &P.curve[i];
		if (c->key == key && c->file == file && (!by || !strcmp(c->by, by))) {
			free(by);
			return c;
		}
	}
	if (P.ncurve == MAX_CURVES) {
		free(by);
		dt_err_set(err, -E2BIG, "more than %d curves", MAX_CURVES);
		return NULL;
	}
	c = &P.curve[P.ncurve];
	*c = (struct curve){.key = key, .file = file, .by = by};
	if (P.nfile > 1)
		parts[n++] = P.file[file];
	if (P.nkey > 1 || (!by && P.nfile <= 1))
		parts[n++] = name;
	if (by)
		parts[n++] = by;
	c->ring = calloc((size_t)opt.smooth, sizeof(*c->ring));
	if (!c->ring || asprintf(&c->s.name, "%s%s%s%s%s", parts[0], n > 1 ? " " : "", n > 1 ? parts[1] : "",
				 n > 2 ? " " : "", n > 2 ? parts[2] : "") < 0) {
		free(by);
		free(c->ring);
		dt_err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	P.ncurve++;
	return c;
}

static int add_point(json_t *o, int key, int file, struct dt_err *err)
{
	json_t *v = member(o, P.key[key]), *vx;
	struct curve *c;
	size_t n, have;
	double x, y, mean = 0;
	char *by = NULL;

	if (!json_is_number(v))
		return 0;
	if (!P.x_known) {
		P.x = opt.x ? opt.x : json_is_number(member(o, "step")) ? "step" : NULL;
		P.x_known = true;
	}
	vx = P.x ? member(o, P.x) : NULL;
	if (P.x && !json_is_number(vx))
		return 0;
	if (opt.by && !(by = by_text(o)))
		return 0;
	c = find_curve(key, file, by, err);
	if (!c)
		return err->code;
	y = json_number_value(v);
	x = vx ? json_number_value(vx) : (double)c->seen + 1;
	if ((opt.log_y && y <= 0) || (opt.log_x && x <= 0)) {
		P.nonpositive++;
		return 0;
	}
	n = (size_t)opt.smooth;
	c->ring[c->seen++ % n] = y;
	have = c->seen < n ? c->seen : n;
	for (size_t i = 0; i < have; i++)
		mean += c->ring[i] / (double)have;
	if (dt_series_add(&c->s, x, n > 1 ? mean : y) < 0)
		return dt_err_set(err, -ENOMEM, "out of memory");
	return 0;
}

static int take_object(json_t *o, const struct dt_jsonl *j, int file, struct dt_err *err)
{
	int rc = 0;

	P.objects++;
	remember_names(o);
	if (opt.bars)
		rc = add_bar(o, j, err);
	for (int k = 0; k < P.nkey && rc == 0; k++)
		rc = add_point(o, k, file, err);
	return rc;
}

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
			st.height = ws.ws_row - 1; /* the prompt keeps a line */
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

static const char *bars_unit(void)
{
	size_t n = strlen(opt.bars);

	if (n > 6 && !strcmp(opt.bars + n - 6, "_bytes"))
		return "bytes";
	return n > 2 && !strcmp(opt.bars + n - 2, "_s") && !strstr(opt.bars, "_per_") ? "s" : NULL;
}

/* The whole picture to f: SVG when svg is set. Returns the lines printed or a negative errno. */
static int draw(FILE *f, bool svg)
{
	struct dt_series all[MAX_CURVES];
	struct dt_plot_style st = choose_style();
	struct dt_bars bars = {.title = opt.title, .bar = P.bar, .n = P.nbar};
	struct dt_plot plot = {.title = opt.title,
			       .x_label = P.x,
			       .log_x = opt.log_x,
			       .log_y = opt.log_y,
			       .series = all,
			       .n = P.ncurve};

	for (int i = 0; i < P.ncurve; i++)
		all[i] = P.curve[i].s;
	if (opt.bars) {
		bars.unit = bars_unit();
		if (!svg)
			return dt_bars_term(&bars, &st, f);
		dt_bars_svg(&bars, opt.width ? (int)opt.width : 800, f);
		return 0;
	}
	if (!svg)
		return dt_plot_term(&plot, &st, f);
	dt_plot_svg(&plot, opt.width ? (int)opt.width : 800, opt.height ? (int)opt.height : 400, f);
	return 0;
}

/* Draws over the last picture. One write, so that the terminal does not flicker. */
static void redraw(void)
{
	char *text = NULL, *line, *nl;
	size_t n = 0;
	FILE *f;

	if (!P.ncurve && !P.nbar)
		return;
	f = open_memstream(&text, &n);
	if (!f)
		return;
	if (draw(f, false) < 0 || fclose(f) == EOF) {
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
	for (;;) {
		json_t *o = NULL;

		/* At most five times a second, and before waiting for more. */
		if (live && dirty && (dt_now() > last + 0.2 || !dt_jsonl_ready(&j, last + 0.2 - dt_now()))) {
			redraw();
			last = dt_now();
			dirty = false;
		}
		rc = dt_jsonl_next(&j, &o, err);
		if (rc <= 0)
			break;
		rc = take_object(o, &j, file, err);
		json_decref(o);
		if (rc < 0)
			break;
		dirty = true;
	}
	if (rc < 0) {
		/* Whoever writes the pipe, a training run perhaps, must not die of a picture. */
		fprintf(stderr, "%s: %s\n", prog.name, err->msg);
		err->msg[0] = '\0';
		dt_jsonl_drain(&j);
	}
	P.bad += j.bad;
	dt_jsonl_close(&j);
	return rc;
}

/* An operand that names a file is a file, the others are keys. */
static int sort_operands(int nargs, char **argv)
{
	for (int i = 0; i < opt.keys.n; i++)
		P.key[P.nkey++] = opt.keys.v[i];
	for (int i = 1; i <= nargs; i++) {
		bool file = !strcmp(argv[i], "-") || access(argv[i], F_OK) == 0 || strchr(argv[i], '/');

		if (P.nkey == DT_STRS_MAX || P.nfile == DT_STRS_MAX)
			return dt_opt_usage_error(&prog, stderr, "more than %d keys or files", DT_STRS_MAX);
		if (file)
			P.file[P.nfile++] = argv[i];
		else
			P.key[P.nkey++] = argv[i];
	}
	for (int i = 0; opt.svg && i < P.nfile; i++)
		if (strcmp(P.file[i], "-") && dt_out_is(opt.svg, P.file[i]))
			return dt_opt_usage_error(&prog, stderr, "--svg would overwrite the input '%s'",
						  P.file[i]);
	if (opt.bars && P.nkey)
		return dt_opt_usage_error(&prog, stderr, "'%s' is no file, and --bars draws one key",
					  P.key[0]);
	if (opt.bars && (opt.log_x || opt.log_y || opt.x || opt.smooth > 1))
		return dt_opt_usage_error(&prog, stderr,
					  "--x, --log-x, --log-y and --smooth do not go with --bars");
	if (!opt.bars && !P.nkey)
		P.key[P.nkey++] = "loss";
	if (!P.nfile) {
		if (isatty(STDIN_FILENO))
			return dt_opt_usage_error(&prog, stderr, "nothing to read: give a FILE or a pipe");
		P.file[P.nfile++] = "-";
	}
	return 0;
}

static int nothing_to_draw(struct dt_err *err)
{
	char names[sizeof(err->hint)] = "";
	size_t n = 0;

	if (!P.objects)
		return dt_err_set(err, -ENODATA, "the input has no JSON object");
	dt_err_set(err, -ENODATA, "no line has a number under '%s'%s%s", opt.bars ? opt.bars : P.key[0],
		   P.nonpositive ? " above zero" : "",
		   P.x || opt.by ? ", with the other keys asked for," : "");
	for (int i = 0; i < P.nnames && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", P.names[i]);
	if (P.nnames)
		dt_err_hint(err, "the lines have: %.200s", names);
	return err->code;
}

static int write_picture(bool live, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc;

	if (!opt.svg) {
		if (live)
			redraw();
		else
			draw(stdout, false);
		return 0;
	}
	if (!strcmp(opt.svg, "-")) {
		draw(stdout, true);
		return 0;
	}
	rc = dt_tmpfile_open(&t, opt.svg, err);
	if (rc < 0)
		return rc;
	draw(t.f, true);
	return dt_tmpfile_commit(&t, err);
}

static void release(void)
{
	for (int i = 0; i < P.ncurve; i++) {
		dt_series_release(&P.curve[i].s);
		free(P.curve[i].by);
		free(P.curve[i].ring);
	}
	for (int i = 0; i < P.nbar; i++)
		free(P.bar[i].name);
	free(P.bar);
	for (int i = 0; i < P.nnames; i++)
		free(P.names[i]);
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
	if (rc == 0 && !(opt.bars ? P.nbar : P.ncurve ? (int)(P.curve[0].s.n > 0) || P.ncurve > 1 : 0))
		rc = nothing_to_draw(&err);
	if (rc == 0)
		rc = write_picture(live, &err);
	if (rc == 0 && P.bad)
		fprintf(stderr, "%s: lines passed over, being no JSON object: %zu\n", prog.name, P.bad);
	if (rc == 0 && P.nonpositive)
		fprintf(stderr, "%s: points left out, being zero or less: %zu\n", prog.name, P.nonpositive);
	if (rc == 0)
		rc = dt_close_stdout(&err);
	if (rc < 0 && rc != -EPIPE && err.msg[0])
		fprintf(stderr, "%s: %s\n%s%s", prog.name, err.msg, err.hint, err.hint[0] ? "\n" : "");
	release();
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}
