/* dt-loadgen: puts a server under load and reports latencies. */
#include "base/json.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "bench/load/report.h"

#include <curl/curl.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct {
	const char *model, *key_file, *trace, *out;
	int64_t requests, warmup, users, burst, input, output, prefix, prefixes, turns, seed, clip;
	double rate, ramp, speed, scale, spread, think, cancel, cancel_within, storm, timeout, temperature;
	double min_goodput;
	bool json, histogram, dry_run, given_requests, given_shape[6], given_prompt, given_temperature,
		given_burst;
	int arrival, prompt;
	struct dt_strs images;
	struct dt_load_limits limits;
} opt;

static const struct dt_opt opts[] = {
	{"requests", 'n', DT_OPT_INT, &opt.requests, "N", "number of requests; with --trace, all of it",
	 .min = 1, .max = 1 << 26, .given = &opt.given_requests, .def = "100"},
	{"warmup", 0, DT_OPT_INT, &opt.warmup, "N", "exclude the first N requests from the report", .min = 0,
	 .max = 1 << 26, .def = "0"},
	{"seed", 0, DT_OPT_INT, &opt.seed, "N", "seed of arrival times, lengths and prompts", .def = "0"},
	DT_OPT_HEADING("Arrival of requests"),
	{"rate", 'r', DT_OPT_REAL, &opt.rate, "R",
	 "requests per second; with --turns, conversations; 0: all at once", .min = 0, .max = 1e6,
	 .given = &opt.given_shape[0], .def = "1"},
	{"ramp", 0, DT_OPT_REAL, &opt.ramp, "R", "change the rate linearly to this one, reached at the end",
	 .min = 1e-3, .max = 1e6, .given = &opt.given_shape[1]},
	{"arrival", 0, DT_OPT_CHOICE, &opt.arrival, "poisson|constant|burst", "distribution of arrival times",
	 .given = &opt.given_shape[2], .def = "poisson"},
	{"burst", 0, DT_OPT_INT, &opt.burst, "N", "number of requests in one burst", .min = 1, .max = 1 << 20,
	 .given = &opt.given_burst, .def = "8"},
	{"concurrency", 'c', DT_OPT_INT, &opt.users, "N",
	 "closed load of N users, each waiting for its answer, in place of a rate", .min = 1, .max = 65536},
	{"think", 0, DT_OPT_REAL, &opt.think, "SECONDS", "time from an answer to the next request", .min = 0,
	 .max = 1e6, .def = "0"},
	DT_OPT_HEADING("Content of requests"),
	{"input", 'i', DT_OPT_INT, &opt.input, "N", "mean number of prompt tokens", .min = 1, .max = 1 << 24,
	 .given = &opt.given_shape[3], .def = "128"},
	{"output", 'o', DT_OPT_INT, &opt.output, "N", "mean number of tokens of an answer", .min = 1,
	 .max = 1 << 24, .given = &opt.given_shape[4], .def = "64"},
	{"spread", 0, DT_OPT_SHARE, &opt.spread, "F",
	 "distribute lengths uniformly within this share of the mean", .min = 0, .max = 1, .def = "0"},
	{"prefix", 0, DT_OPT_INT, &opt.prefix, "N", "number of tokens of a prefix shared by many prompts",
	 .min = 0, .max = 1 << 24, .given = &opt.given_shape[5], .def = "0"},
	{"prefixes", 0, DT_OPT_INT, &opt.prefixes, "N", "number of different prefixes", .min = 1,
	 .max = 1 << 24, .def = "1", .with = "prefix"},
	{"turns", 0, DT_OPT_INT, &opt.turns, "N", "requests per conversation, each with all before it",
	 .min = 1, .max = 1 << 20, .def = "1", .without = "trace"},
	{"prompt", 0, DT_OPT_CHOICE, &opt.prompt, "tokens|text|chat",
	 "kind of prompts: token ids, words, or chat messages", .given = &opt.given_prompt, .def = "tokens"},
	{"image", 0, DT_OPT_STRS, &opt.images, "FILE",
	 "send this image to /v1/classify in place of prompts; several are sent in turn",
	 .complete = DT_COMPLETE_FILE},
	{"temperature", 0, DT_OPT_REAL, &opt.temperature, "T", "sampling temperature", .min = 0, .max = 100,
	 .given = &opt.given_temperature, .def = "0"},
	DT_OPT_HEADING("A trace"),
	{"trace", 't', DT_OPT_STR, &opt.trace, "FILE", "replay the times and lengths of this trace",
	 .complete = DT_COMPLETE_FILE},
	{"speed", 0, DT_OPT_REAL, &opt.speed, "X", "replay the trace this many times faster", .min = 1e-6,
	 .max = 1e9, .def = "1", .with = "trace"},
	{"scale", 0, DT_OPT_REAL, &opt.scale, "X", "multiply the lengths of the trace by this factor",
	 .min = 1e-6, .max = 1e6, .def = "1", .with = "trace"},
	{"clip", 0, DT_OPT_INT, &opt.clip, "N", "limit prompts and answers of the trace to N tokens each",
	 .min = 1, .max = 1 << 24, .with = "trace"},
	DT_OPT_HEADING("Disconnecting clients"),
	{"cancel", 0, DT_OPT_SHARE, &opt.cancel, "F",
	 "share of requests whose client disconnects before the end", .min = 0, .max = 1, .def = "0"},
	{"cancel-within", 0, DT_OPT_REAL, &opt.cancel_within, "SECONDS",
	 "disconnect at a random time this soon after sending", .min = 0, .max = 1e6, .def = "1",
	 .with = "cancel"},
	{"storm", 0, DT_OPT_REAL, &opt.storm, "SECONDS",
	 "instead, at this interval, disconnect the share of all running requests at once", .min = 1e-3,
	 .max = 1e6, .with = "cancel"},
	DT_OPT_HEADING("Server"),
	{"model", 0, DT_OPT_STR, &opt.model, "NAME", "name of the model", .def_text = "the server's first"},
	{"api-key-file", 0, DT_OPT_STR, &opt.key_file, "FILE",
	 "file with API keys, one per line, used in turn", .complete = DT_COMPLETE_FILE},
	{"timeout", 0, DT_OPT_REAL, &opt.timeout, "SECONDS", "maximum time for one request", .min = 0.01,
	 .max = 1e6, .def = "600"},
	DT_OPT_HEADING("Limits and output"),
	{"max-ttft", 0, DT_OPT_REAL, &opt.limits.ttft, "SECONDS",
	 "maximum time to first token of a good answer", .min = 1e-6, .max = 1e6},
	{"max-tpot", 0, DT_OPT_REAL, &opt.limits.tpot, "SECONDS",
	 "maximum time per output token of a good answer", .min = 1e-6, .max = 1e6},
	{"max-e2e", 0, DT_OPT_REAL, &opt.limits.e2e, "SECONDS", "maximum time of a good answer", .min = 1e-6,
	 .max = 1e6},
	{"min-goodput", 0, DT_OPT_SHARE, &opt.min_goodput, "F",
	 "exit with 3 if the share of good answers is smaller", .min = 0, .max = 1},
	{"json", 0, DT_OPT_FLAG, &opt.json, .help = "print the report as one JSON object"},
	{"histogram", 0, DT_OPT_FLAG, &opt.histogram, .help = "print histograms of the latencies"},
	{"requests-out", 0, DT_OPT_STR, &opt.out, "FILE", "file for one JSON line per request",
	 .complete = DT_COMPLETE_FILE, .without = "dry-run"},
	{"dry-run", 0, DT_OPT_FLAG, &opt.dry_run,
	 .help = "send nothing; print the requests as JSON Lines with the times at which they are due"},
	DT_OPT_END};

static const char *const examples[] = {
	"dt-loadgen --rate 4 --requests 200 http://127.0.0.1:8000",
	"dt-loadgen --concurrency 32 --input 128 --output 64 --json | jq .output_tokens_per_s", NULL};
static const struct dt_program prog = {.name = "dt-loadgen",
				       .summary = "load-test an inference server and measure its latency",
				       .operands = "[URL|HOST:PORT]",
				       .examples = examples,
				       .opts = opts};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = 1;
}

static int make_load(struct dt_load *l, struct dt_err *err)
{
	const struct dt_load_shape shape = {.seed = (uint64_t)opt.seed,
					    .requests = (int)opt.requests,
					    .arrival = (enum dt_arrival)opt.arrival,
					    .rate = opt.users ? 0 : opt.rate,
					    .ramp = opt.ramp,
					    .burst = (int)opt.burst,
					    .input = (int)opt.input,
					    .output = (int)opt.output,
					    .spread = opt.spread,
					    .prefix = (int)opt.prefix,
					    .prefixes = (int)opt.prefixes,
					    .turns = (int)opt.turns,
					    .cut = opt.storm > 0 ? 0 : opt.cancel,
					    .cut_span = opt.cancel_within};
	const struct dt_trace_params trace = {.most = opt.given_requests ? (int)opt.requests : 0,
					      .speed = opt.speed,
					      .scale = opt.scale,
					      .clip = (int)opt.clip,
					      .cut = shape.cut,
					      .cut_span = opt.cancel_within,
					      .seed = (uint64_t)opt.seed};

	return opt.trace ? dt_load_read_trace(l, opt.trace, &trace, err) : dt_load_make(l, &shape, err);
}

static int print_load(const struct dt_load *l, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < l->n && rc == 0; i++) {
		const struct dt_load_item *it = &l->item[i];
		json_t *v = json_pack("{s:i,s:i,s:i}", "index", i, "input_tokens", it->input, "output_tokens",
				      it->output);

		if (it->at_s >= 0)
			json_object_set_new(v, "at_s", json_real(it->at_s));
		else
			json_object_set_new(v, "turn", json_integer(it->turn));
		if (it->prefix >= 0)
			json_object_set_new(v, "prefix", json_integer(it->prefix));
		if (it->nblock > 0)
			json_object_set_new(v, "blocks", json_integer(it->nblock));
		if (it->cut_s >= 0)
			json_object_set_new(v, "cancel_s", json_real(it->cut_s));
		rc = dt_json_write_line(stdout, v, err);
		json_decref(v);
	}
	return rc;
}

static int write_requests(const struct dt_load_result *r, int n, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc = dt_tmpfile_open(&t, opt.out, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < n && rc == 0; i++) {
		double tpot = dt_load_tpot(&r[i]);
		json_t *v =
			json_pack("{s:i,s:s,s:i,s:f,s:f,s:f,s:i,s:i,s:i}", "index", i, "outcome",
				  dt_load_outcome_name(r[i].outcome), "status", r[i].status, "due_s",
				  r[i].due, "sent_s", r[i].sent, "e2e_s", r[i].end - r[i].due, "input_tokens",
				  r[i].input, "output_tokens", r[i].output, "cached_tokens", r[i].cached);

		if (r[i].outcome != DT_LOAD_UNSENT && r[i].first >= 0)
			json_object_set_new(v, "ttft_s", json_real(r[i].first - r[i].due));
		if (tpot >= 0)
			json_object_set_new(v, "tpot_s", json_real(tpot));
		rc = dt_json_write_line(t.f, v, err);
		json_decref(v);
	}
	if (rc < 0)
		dt_tmpfile_abort(&t);
	return rc < 0 ? rc : dt_tmpfile_commit(&t, err);
}

/* Reads API keys in the format of dt-serve's --api-key-file: the first word of each line. */
static int read_keys(struct dt_load_target *t, char **ret_text, const char ***ret_keys, struct dt_err *err)
{
	const char **key = NULL;
	char *text, *at, *line;
	size_t n;
	int rc = dt_read_file(opt.key_file, 1 << 20, &text, &n, err);

	if (rc < 0)
		return rc;
	*ret_text = at = text;
	*ret_keys = key = calloc(n / 2 + 1, sizeof(char *));
	if (!key)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", opt.key_file);
	while ((line = strsep(&at, "\n"))) {
		line += strspn(line, " \t");
		line[strcspn(line, " \t\r")] = '\0';
		if (*line && *line != '#')
			key[t->nkey++] = line;
		if (strlen(line) > 500)
			return dt_err_set(err, -EINVAL, "'%s' has a key longer than 500 characters",
					  opt.key_file);
	}
	t->key = key;
	return t->nkey ? 0 : dt_err_set(err, -EINVAL, "'%s' contains no key", opt.key_file);
}

static int print_report(const struct dt_load_report *rep, const struct dt_load_errors *errors,
			const struct dt_load_target *t, struct dt_err *err)
{
	const char *term = getenv("TERM");
	bool tty = isatty(STDOUT_FILENO), dumb = term && !strcmp(term, "dumb");
	struct winsize ws;
	json_t *v;
	int rc;

	if (opt.json) {
		v = dt_load_report_json(rep, errors, &opt.limits);
		json_object_set_new(v, "url", json_string(t->url));
		json_object_set_new(v, "model", json_string(t->name));
		rc = v ? dt_json_write_line(stdout, v, err) : dt_err_sys(err, -ENOMEM, "cannot report");
		json_decref(v);
		return rc;
	}
	dt_load_report_print(rep, errors, &opt.limits, stdout);
	if (!opt.histogram)
		return 0;
	rc = dt_load_report_draw(
		rep, tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0 ? ws.ws_col : 80,
		!dumb && !strcmp(nl_langinfo(CODESET), "UTF-8"), tty && !dumb && !getenv("NO_COLOR"), stdout);
	return rc < 0 ? dt_err_sys(err, rc, "cannot draw") : 0;
}

static void on_progress(void *arg, int done)
{
	dt_progress_set(arg, (uint64_t)done);
}

/* Sends all requests and reports. Returns an exit status or a negative errno. */
static int run(struct dt_load_target *t, const struct dt_load *l, struct dt_err *err)
{
	struct dt_load_result *res;
	struct dt_err unwritten;
	int rc, wrote = 0;
	struct dt_load_errors errors;
	struct dt_load_report rep;
	struct dt_progress bar;
	double seconds;
	const struct dt_load_run_params p = {.users = (int)opt.users,
					     .think = opt.think,
					     .timeout = opt.timeout,
					     .storm = opt.storm,
					     .storm_share = opt.cancel,
					     .stop = &stop,
					     .progress = on_progress,
					     .arg = &bar};

	if (opt.warmup >= l->n)
		return dt_opt_usage_error(&prog, stderr, "--warmup %lld excludes all of the %d requests",
					  (long long)opt.warmup, l->n);
	res = calloc((size_t)l->n, sizeof(*res));
	if (!res)
		return dt_err_sys(err, -ENOMEM, "cannot start the run");
	rc = opt.out ? dt_out_check(opt.out, err) : 0;
	if (rc == 0) {
		signal(SIGINT, on_signal); /* before, there is nothing to report: a signal ends the program */
		signal(SIGTERM, on_signal);
		dt_progress_start(&bar, stderr, "requests", (uint64_t)l->n, false);
		rc = dt_load_run(t, l, &p, res, &errors, &seconds, err);
		dt_progress_end(&bar);
	}
	if (rc == 0 && opt.out)
		wrote = write_requests(res, l->n, &unwritten);
	if (rc == 0 && (rc = dt_load_report_make(&rep, res, (int)opt.warmup, l->n, opt.users > 0, &opt.limits,
						 err)) == 0) {
		rc = print_report(&rep, &errors, t, err);
		if (rc == 0 && wrote < 0)
			rc = (*err = unwritten).code;
		else if (rc == 0 && stop)
			rc = dt_err_set(err, -EINTR, "interrupted before all requests were answered");
		else if (rc == 0 && rep.ok == 0)
			rc = DT_EXIT_FAILED;
		else if (rc == 0 && rep.good_share < opt.min_goodput)
			rc = DT_EXIT_NO;
		dt_load_report_release(&rep);
	}
	for (int i = 0; i < l->n; i++)
		free(res[i].gap);
	free(res);
	return rc;
}

static int check_options(void)
{
	bool shape = false;

	for (int i = 0; i < 6; i++)
		shape |= opt.given_shape[i];
	if (opt.trace && shape)
		return dt_opt_usage_error(&prog, stderr, "--trace has arrival times and lengths of its own");
	if (opt.trace && opt.out && dt_out_is(opt.out, opt.trace))
		return dt_opt_usage_error(&prog, stderr, "--requests-out would overwrite the trace");
	if (opt.users && (opt.given_shape[0] || opt.given_shape[1] || opt.given_shape[2]))
		return dt_opt_usage_error(&prog, stderr, "--concurrency excludes --rate, --ramp, --arrival");
	if (opt.given_burst && opt.arrival != DT_ARRIVE_BURST)
		return dt_opt_usage_error(&prog, stderr, "--burst needs --arrival burst");
	if (opt.think > 0 && !opt.users && opt.turns <= 1)
		return dt_opt_usage_error(&prog, stderr, "--think needs --concurrency or --turns");
	if (opt.ramp > 0 && opt.rate <= 0)
		return dt_opt_usage_error(&prog, stderr, "--ramp needs a --rate above 0");
	if (opt.images.n &&
	    (opt.given_shape[3] || opt.given_shape[4] || opt.given_shape[5] || opt.turns > 1 ||
	     opt.given_prompt || opt.given_temperature || opt.limits.tpot > 0))
		return dt_opt_usage_error(&prog, stderr,
					  "--image excludes --input, --output, --prefix, --turns, --prompt, "
					  "--temperature and --max-tpot");
	if (opt.turns > 1 && opt.prompt == DT_LOAD_TOKENS)
		return dt_opt_usage_error(&prog, stderr, "--turns needs --prompt text or chat");
	return 0;
}

int main(int argc, char **argv)
{
	const struct dt_log log = {.f = stderr, .name = prog.name, .rank = -1};
	struct dt_load_target t = {.url = "http://127.0.0.1:8000"};
	struct dt_load load = {0};
	const char **keys = NULL;
	struct dt_err err = {0};
	char *key_text = NULL, *url = NULL;
	int status, rc = 0, n;

	setlocale(LC_CTYPE, "");
	n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status);
	if (n > 1)
		return dt_opt_usage_error(&prog, stderr, "at most one server may be given");
	if (n < 0 || (status = check_options()) != 0)
		return status;
	if (n == 1 && dt_load_url(argv[1], &url, &err) == -EINVAL)
		return dt_opt_usage_of(&prog, stderr, NULL, &err);
	if (n == 1)
		t.url = url;
	if (!t.url || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
		rc = dt_err_sys(&err, -ENOMEM, "cannot start");
	signal(SIGPIPE, SIG_IGN);
	t.model = opt.model;
	t.prompt = opt.images.n ? DT_LOAD_IMAGES : (enum dt_load_prompt)opt.prompt;
	t.seed = (uint64_t)opt.seed;
	t.temperature = opt.temperature;
	t.patience = opt.timeout;
	if (rc == 0)
		rc = make_load(&load, &err);
	if (rc == 0 && opt.key_file)
		rc = read_keys(&t, &key_text, &keys, &err);
	if (rc == 0 && opt.images.n)
		rc = dt_load_read_images(&t, &opt.images, &err);
	if (rc == 0 && opt.dry_run)
		rc = print_load(&load, &err);
	else if (rc == 0 && (rc = dt_load_probe(&t, &err)) == 0)
		rc = run(&t, &load, &err);
	if (rc < 0 && rc != -EPIPE)
		dt_log_err(&log, &err);
	if (dt_close_stdout(&err) < 0 && rc >= 0) {
		if (err.code != -EPIPE)
			dt_log_err(&log, &err);
		rc = -EIO;
	}
	dt_load_target_release(&t);
	dt_load_release(&load);
	free(keys);
	free(key_text);
	free(url);
	return rc < 0 ? DT_EXIT_FAILED : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
