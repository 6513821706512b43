/* Serves a checkpoint: an OpenAI-compatible HTTP server, or prompts in and completions out on a pipe. */
#include "base/log.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "ckpt/source.h"
#include "kernels/attention.h"
#include "nn/infer.h"
#include "plan/inferplan.h"
#include "serve/api/batch.h"
#include "serve/http/tenants.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BODY     (8 << 20) /* bytes */
#define READ_TIMEOUT 60	       /* seconds to send a request, or between two */
#define STUCK_AFTER  120       /* seconds a step may take before /health says 503 */

#define WEIGHTS "auto|f32|bf16|q8_0|q4_0|q4_1|q4_k|q6_k"

struct options {
	bool batch, share, unordered, invariant;
	const char *device, *ckpt, *draft_model, *skip_done, *tokenizer, *name, *key_file, *host, *trace,
		*replay;
	enum dt_dev_kind kind; /* of the device, and which */
	int index;
	int chat; /* 0: as the model says; else enum dt_chat_kind + 1 */
	int64_t seqs, tokens, len, block, threads, port, queue, draft;
	uint64_t cache;
	bool given_tokens, given_timeout;
	int precision, weights, kv_type;
	double timeout;
};

struct server { /* what loading makes, in order */
	struct dt_dev *dev;
	struct dt_source *src;
	struct dt_tokenizer *tok;
	struct dt_infer *model, *drafter;
	struct dt_engine *engine;
	struct dt_tenants tenants;
	struct dt_schedtrace trace;
	struct dt_chat chat;
	bool has_chat;
};

static int copy_block(void *m, int32_t from, int32_t to)
{
	return dt_infer_copy_block(m, from, to);
}

static int forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	return dt_infer_forward(m, b, logits, err);
}

/* The tokenizer the model was trained with travels with it. */
static int open_tokenizer(struct server *s, const struct dt_config *c, struct dt_err *err)
{
	const char *path = dt_source_path(s->src);
	size_t n = 0;
	const char *text = dt_source_tokenizer(s->src, &n);
	int rc;

	if (!text) {
		dt_err_set(err, -ENOENT, "'%s' carries no tokenizer%s%s", path,
			   dt_source_note(s->src) ? ": " : "",
			   dt_source_note(s->src) ? dt_source_note(s->src) : "");
		dt_err_hint(
			err,
			"give --tokenizer, or train on a dataset that dt-dataset built, which carries one");
		return -ENOENT;
	}
	rc = dt_tokenizer_from_text(text, n, &s->tok, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s': tokenizer", path);
	if (dt_tokenizer_vocab(s->tok) > c->vocab)
		return dt_err_set(err, -EINVAL, "'%s': the tokenizer has %d ids and the model only %lld",
				  path, dt_tokenizer_vocab(s->tok), (long long)c->vocab);
	return 0;
}

static enum dt_dtype cache_type(const struct options *o)
{
	static const enum dt_dtype known[] = {DT_BF16, DT_BF16, DT_F32, DT_I8};

	return o->kv_type || !o->precision ? known[o->kv_type] : DT_F32;
}

/* Of a card half of what is free; of the machine a quarter, which others use too. */
static uint64_t cache_share(struct dt_dev *dev)
{
	size_t room, all;

	if (dt_dev_memory(dev, &room, &all) == 0)
		return room / 2;
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
}

/* Blocks of KV cache: what was asked for, else what every sequence at full length needs, within reason. */
static int64_t cache_blocks(const struct options *o, struct dt_dev *dev, const struct dt_config *c,
			    struct dt_err *err)
{
	enum dt_dtype dtype = cache_type(o);
	const struct dt_attn a = {.kv_heads = c->kv_heads, .head_dim = c->head_dim};
	uint64_t bytes =
		2 * (uint64_t)(c->layers * dt_kv_row(&a, dtype) * o->block) * (uint64_t)dt_dtype_size(dtype);
	uint64_t one = (uint64_t)((o->len + o->block - 1) / o->block), all = one * (uint64_t)o->seqs;
	uint64_t share = cache_share(dev);
	uint64_t n = (o->cache ? o->cache : share) / bytes;
	char have[32], need[32];

	if (n > all)
		n = all;
	if (n >= one && n <= INT32_MAX / (uint64_t)o->block)
		return (int64_t)n;
	dt_err_set(err, -ENOSPC, "a KV cache of %s does not hold one sequence of %lld tokens, which takes %s",
		   dt_format_size(o->cache ? o->cache : share, have, sizeof(have)), (long long)o->len,
		   dt_format_size(one * bytes, need, sizeof(need)));
	dt_err_hint(err, "lower --max-model-len, or give --kv-cache-mem");
	return -ENOSPC;
}

/* The model that guesses: with the same words, and a cache of the same blocks. */
static int open_drafter(struct server *s, const struct options *o, const struct dt_infer_params *like,
			struct dt_err *err)
{
	struct dt_infer_params p = *like;
	struct dt_source *src;
	int64_t vocab = dt_source_config(s->src)->vocab;
	int rc = dt_source_open(o->draft_model, DT_SOURCE_AUTO, NULL, &src, err);

	if (rc < 0)
		return rc;
	p.weights = -1;
	if (dt_source_config(src)->vocab != vocab)
		rc = dt_err_set(err, -EINVAL, "'%s' has a vocabulary of %lld and '%s' one of %lld",
				o->draft_model, (long long)dt_source_config(src)->vocab, o->ckpt,
				(long long)vocab);
	else
		rc = dt_infer_open(&s->drafter, s->dev, src, &p, err);
	dt_source_close(src);
	return rc;
}

/* The template asked for, or the model's own, or what its tokens tell. */
static void set_chat(struct server *s, const struct options *o, const char *text)
{
	int kind = o->chat - 1;

	if (kind < 0 && text)
		kind = dt_chat_recognise(text, s->tok);
	if (kind < 0)
		kind = dt_chat_recognise(NULL, s->tok);
	s->has_chat = kind >= 0;
	if (s->has_chat)
		dt_chat_init(&s->chat, (enum dt_chat_kind)kind, text, s->tok);
}

static void set_eos(struct dt_engine_model *m, const struct dt_tokenizer *tok, const struct dt_config *c)
{
	int32_t eot = dt_tokenizer_eot(tok);

	if (eot >= 0)
		m->eos[m->neos++] = eot;
	if (c->eos >= 0 && c->eos < c->vocab && c->eos != eot)
		m->eos[m->neos++] = (int32_t)c->eos;
}

static int open_device(struct server *s, const struct options *o, struct dt_err *err)
{
	int rc = dt_dev_open(&s->dev, o->kind, o->index, (int)o->threads);

	if (rc < 0)
		return dt_err_set(err, rc, "cannot open device '%s': %s", o->device, dt_dev_why(rc));
	s->dev->batch_invariant = o->kind == DT_DEV_CPU || o->invariant; /* on a card it costs more */
	return 0;
}

static int load(struct server *s, struct options *o, const struct dt_log *log, struct dt_err *err)
{
	char word[16];
	struct dt_engine_params ep = {.queue = (int)o->queue, .stuck_after = STUCK_AFTER};
	struct dt_infer_params ip = {.dtype = o->precision ? DT_F32 : DT_BF16,
				     .cache = cache_type(o),
				     .weights = o->weights ? dt_format_parse(dt_opt_choice_name(
								     WEIGHTS, o->weights, word, sizeof(word)))
							   : -1};
	struct dt_infer_memory memory;
	uint64_t logits = DT_INFER_LOGITS_ROWS((uint64_t)o->seqs);
	struct dt_config c;
	char text[3][32];
	double t0 = dt_now();
	int64_t blocks;
	int rc = dt_source_open(o->ckpt, DT_SOURCE_AUTO, o->tokenizer, &s->src, err);

	if (rc < 0)
		return rc;
	c = *dt_source_config(s->src);
	rc = open_tokenizer(s, &c, err);
	if (rc < 0)
		return rc;
	if (o->len == 0)
		o->len = c.max_seq;
	if (o->len > c.max_seq)
		return dt_err_set(err, -EINVAL,
				  "--max-model-len %lld is more than the model's %lld positions",
				  (long long)o->len, (long long)c.max_seq);
	rc = open_device(s, o, err);
	if (rc < 0)
		return rc;
	blocks = cache_blocks(o, s->dev, &c, err);
	if (blocks < 0)
		return (int)blocks;
	ip.max_tokens = ep.max_tokens = (int)o->tokens;
	ip.max_len = (int)o->len;
	ip.max_seqs = ep.max_seqs = (int)o->seqs;
	ip.blocks = ep.blocks = (int)blocks;
	ip.block_size = ep.block_size = (int)o->block;
	rc = dt_infer_open(&s->model, s->dev, s->src, &ip, err);
	if (rc < 0)
		return rc;
	if (o->draft_model) {
		rc = open_drafter(s, o, &ip, err);
		if (rc < 0)
			return rc;
	}
	dt_dev_rest(s->dev); /* from here on it is the engine thread's */
	set_chat(s, o, dt_source_chat_template(s->src));
	dt_source_close(s->src);
	s->src = NULL;
	ep.max_len = (int)o->len;
	ep.tok = s->tok;
	ep.model = (struct dt_engine_model){.m = s->model,
					    .forward = forward,
					    .copy_block = copy_block,
					    .draws = true,
					    .vocab = (int)c.vocab,
					    .hidden = (int)c.hidden};
	ep.window = (int)dt_config_span(&c);
	if (s->drafter) {
		int64_t span = dt_config_span(dt_infer_config(s->drafter));

		ep.drafter = ep.model;
		ep.drafter.m = s->drafter;
		ep.window = ep.window && span ? (int)(span > ep.window ? span : ep.window) : 0;
	}
	if (o->trace) {
		rc = dt_out_stream(o->trace, false, &s->trace.f, err);
		if (rc < 0)
			return rc;
		ep.trace = &s->trace;
	}
	ep.share_prefixes = o->share;
	ep.draft = (int)o->draft;
	ep.tenant = s->tenants.tenant;
	ep.ntenants = s->tenants.ntenants;
	set_eos(&ep.model, s->tok, &c);
	rc = dt_engine_open(&s->engine, &ep, err);
	if (rc < 0)
		return rc;
	memory = dt_infer_bytes(s->model);
	logits *= (uint64_t)c.vocab * 4;
	dt_metrics_memory(dt_engine_metrics(s->engine), memory.weights, memory.cache, memory.work, logits);
	dt_log_msg(log,
		   "loaded '%s' in %.1f s: %s of weights, %s of KV cache for %lld tokens, %s of workspace",
		   o->ckpt, dt_now() - t0, dt_format_size(memory.weights, text[0], sizeof(text[0])),
		   dt_format_size(memory.cache, text[1], sizeof(text[1])), (long long)(blocks * o->block),
		   dt_format_size(memory.work + logits, text[2], sizeof(text[2])));
	return 0;
}

/* Whether the trace of decisions, where one was wanted, is whole. */
static int unload(struct server *s)
{
	int rc = 0;

	dt_engine_close(s->engine);
	if (s->trace.f && ((fclose(s->trace.f) == EOF) | s->trace.failed))
		rc = -EIO;
	dt_infer_close(s->model);
	dt_infer_close(s->drafter);
	dt_tokenizer_close(s->tok);
	dt_source_close(s->src);
	dt_dev_close(s->dev);
	dt_tenants_release(&s->tenants);
	return rc;
}

static int run_batch(struct options *o, const struct dt_log *log)
{
	struct dt_batch_params p = {.fd = STDIN_FILENO,
				    .out = stdout,
				    .window = (int)(o->seqs + (o->queue < o->seqs ? o->queue : o->seqs)),
				    .unordered = o->unordered,
				    .skip_done = o->skip_done,
				    .model_name = o->name ? o->name : o->ckpt,
				    .request_timeout = o->given_timeout ? o->timeout : 0,
				    .log = log};
	struct server s = {0};
	struct dt_err err;
	int64_t failed = load(&s, o, log, &err);
	int status = DT_EXIT_OK;

	if (failed == 0) {
		p.chat = s.has_chat ? &s.chat : NULL;
		failed = dt_batch_run(s.engine, &p, &err);
	}
	if (failed == -EPIPE) {
		status = DT_EXIT_FAILED; /* the reader has seen enough: nothing to say */
	} else if (failed < 0) {
		dt_log_err(log, &err);
		status = DT_EXIT_FAILED;
	} else if (failed > 0) {
		dt_log_msg(log, "%lld line%s failed", (long long)failed, failed == 1 ? "" : "s");
		status = DT_EXIT_FAILED;
	}
	if (unload(&s) < 0) {
		dt_log_msg(log, "'%s' could not be written in full", o->trace);
		status = DT_EXIT_FAILED;
	}
	return status;
}

/* Until SIGTERM or SIGINT; then no new work, and out once what runs is done. A second signal ends at once. */
static void serve_until_signal(const sigset_t *set, struct dt_http *http, struct dt_engine *e,
			       const struct dt_log *log)
{
	const struct timespec tick = {.tv_nsec = 50000000};
	int sig;

	sigwait(set, &sig);
	dt_engine_drain(e);
	dt_log_msg(log, "%s: no new requests; waiting for %d to finish", strsignal(sig),
		   dt_http_active(http));
	while (dt_http_active(http) > 0 || dt_engine_wait_idle(e, 0) > 0) {
		if (sigtimedwait(set, NULL, &tick) > 0) {
			dt_log_msg(log, "a second signal: ending with requests unfinished");
			_exit(DT_EXIT_FAILED);
		}
	}
}

static bool is_loopback(const char *url)
{
	return !strncmp(url, "http://127.", 11) || !strncmp(url, "http://[::1]", 12);
}

static int run_http(struct options *o, const struct dt_log *log)
{
	struct dt_http_params p = {.host = o->host,
				   .port = (int)o->port,
				   .model_name = o->name ? o->name : o->ckpt,
				   .max_body = MAX_BODY,
				   .max_connections = (int)(o->seqs + o->queue) + 256,
				   .read_timeout = READ_TIMEOUT,
				   .request_timeout = o->timeout};
	struct dt_http *http = NULL;
	struct server s = {0};
	struct dt_err err;
	sigset_t set;
	int rc = 0;

	/* Every thread started from here on inherits the mask, so signals come to sigwait alone. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (o->key_file) {
		rc = dt_tenants_read(o->key_file, &s.tenants, &err);
		p.keys = s.tenants.key;
		p.nkeys = s.tenants.nkeys;
	}
	if (rc >= 0)
		rc = dt_http_open(&http, &p, &err);
	if (rc >= 0)
		rc = load(&s, o, log, &err);
	if (rc >= 0) {
		dt_http_serve(http, s.engine, s.has_chat ? &s.chat : NULL);
		if (p.nkeys == 0 && !is_loopback(dt_http_url(http)))
			dt_log_msg(log, "anyone who reaches %s may use it: consider --api-key-file",
				   dt_http_url(http));
		dt_log_msg(log, "serving '%s' on %s", p.model_name, dt_http_url(http));
		printf("%s\n", dt_http_url(http));
		if (fflush(stdout) == EOF)
			rc = dt_err_sys(&err, -errno, "cannot write to standard output");
	}
	if (rc >= 0)
		serve_until_signal(&set, http, s.engine, log);
	if (rc < 0)
		dt_log_err(log, &err);
	dt_http_close(http);
	if (unload(&s) < 0) {
		dt_log_msg(log, "'%s' could not be written in full", o->trace);
		rc = -EIO;
	}
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* Makes the decisions of a trace again; the answer is no when they differ. */
static int run_replay(const char *path, const struct dt_log *log)
{
	struct dt_replay r;
	struct dt_err err;
	json_t *v;
	int rc = dt_schedtrace_replay(path, &r, &err);

	if (rc == 0) {
		v = json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:I}", "schema", 1, "requests",
			      (json_int_t)r.requests, "steps", (json_int_t)r.steps, "tokens",
			      (json_int_t)r.tokens, "preemptions", (json_int_t)r.preemptions, "cached_tokens",
			      (json_int_t)r.prefix_hits, "different_steps", (json_int_t)r.different);
		rc = dt_json_write_line(stdout, v, &err);
		json_decref(v);
	}
	if (rc < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	if (r.different > 0)
		dt_log_msg(log, "step %lld is the first that is planned otherwise",
			   (long long)r.first_different);
	return r.different > 0 ? DT_EXIT_NO : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	const struct dt_opt opts[] = {
		{"batch", 0, DT_OPT_FLAG, &o.batch, .help = "read prompts as JSON Lines, write completions"},
		{"unordered", 0, DT_OPT_FLAG, &o.unordered,
		 .help = "with --batch, write each answer as soon as it is there"},
		{"skip-done", 0, DT_OPT_STR, &o.skip_done, "FILE",
		 "with --batch, leave out lines that FILE has an answer to", .complete = DT_COMPLETE_FILE},
		{"model-dir", 0, DT_OPT_STR, &o.ckpt, "CKPT", "the checkpoint, as an option",
		 .complete = DT_COMPLETE_DIR},
		{"precision", 0, DT_OPT_CHOICE, &o.precision, "bf16|fp32",
		 "type of activations and cache, and of weights that have no other", .def = "bf16"},
		{"weights", 0, DT_OPT_CHOICE, &o.weights, WEIGHTS,
		 "what matrices are kept as; auto: blocks as they are stored, others as --precision",
		 .def = "auto"},
		{"kv-cache-dtype", 0, DT_OPT_CHOICE, &o.kv_type, "auto|bf16|fp32|int8",
		 "type of the KV cache; auto: as --precision", .def = "auto"},
		{"tokenizer", 0, DT_OPT_STR, &o.tokenizer, "FILE", "a tokenizer in place of the model's own",
		 .complete = DT_COMPLETE_TOKENIZER},
		{"device", 0, DT_OPT_STR, &o.device, "auto|cpu|cuda[:N]",
		 "where the model is computed; auto: a card where there is one", .def = "cpu"},
		{"batch-invariant", 0, DT_OPT_FLAG, &o.invariant,
		 .help = "on a card too, answers do not depend on what else is served (slower)"},
		{"threads", 0, DT_OPT_INT, &o.threads, "N", "threads of the model", .min = 0, .max = 4096,
		 .def_text = "all processors"},
		DT_OPT_HEADING("Batching and memory"),
		{"max-num-seqs", 0, DT_OPT_INT, &o.seqs, "N", "sequences that run together", .min = 1,
		 .max = 4096, .def = "64"},
		{"max-num-batched-tokens", 0, DT_OPT_INT, &o.tokens, "N", "tokens of one step", .min = 1,
		 .max = 1 << 20, .given = &o.given_tokens, .def = "512"},
		{"max-model-len", 0, DT_OPT_INT, &o.len, "N", "tokens of a sequence, prompt and output",
		 .min = 1, .max = 1 << 24, .def_text = "the model's"},
		{"block-size", 0, DT_OPT_INT, &o.block, "N", "tokens of a KV cache block", .min = 1,
		 .max = 1024, .def = "16"},
		{"kv-cache-mem", 0, DT_OPT_SIZE, &o.cache, "SIZE", "memory of the KV cache",
		 .def_text = "what all sequences need, at most a quarter of the machine's, half of what is "
			     "free on a card"},
		{"prefix-caching", 0, DT_OPT_FLAG, &o.share,
		 .help = "keep the cache of prompts for others that begin alike", .negatable = true,
		 .def = "on"},
		{"speculate", 0, DT_OPT_INT, &o.draft, "N",
		 "tokens a step guessed from the text so far, as long as it is faster", .min = 0, .max = 32,
		 .def = "0"},
		{"draft-model", 0, DT_OPT_STR, &o.draft_model, "CKPT",
		 "a smaller model with the same vocabulary that guesses (4 tokens a step unless --speculate "
		 "says)",
		 .complete = DT_COMPLETE_FILE},
		{"queue", 0, DT_OPT_INT, &o.queue, "N", "requests that may wait; more get 503", .min = 0,
		 .max = 65536, .def = "256"},
		{"request-timeout", 0, DT_OPT_REAL, &o.timeout, "SECONDS",
		 "longest time for one request; with --batch there is none", .min = 1, .max = 1e6,
		 .given = &o.given_timeout, .def = "600"},
		{"trace", 0, DT_OPT_STR, &o.trace, "FILE", "write the scheduler's decisions as JSON Lines",
		 .complete = DT_COMPLETE_FILE},
		{"replay", 0, DT_OPT_STR, &o.replay, "FILE",
		 "make the decisions of such a file again and compare; needs no checkpoint",
		 .complete = DT_COMPLETE_FILE},
		DT_OPT_HEADING("Server"),
		{"host", 0, DT_OPT_STR, &o.host, "ADDRESS", "address to listen on", .def = "127.0.0.1"},
		{"port", 0, DT_OPT_INT, &o.port, "N", "port to listen on, 0 for any free one", .min = 0,
		 .max = 65535, .def = "8000"},
		{"served-model-name", 0, DT_OPT_STR, &o.name, "NAME", "the model's name in the API",
		 .def_text = "CKPT as given"},
		{"chat-template", 0, DT_OPT_CHOICE, &o.chat, "auto|" DT_CHAT_NAMES,
		 "how messages become a prompt", .def_text = "as the model says"},
		{"api-key-file", 0, DT_OPT_STR, &o.key_file, "FILE",
		 "keys, one a line, with their tenants; every route but /health then asks for one",
		 .complete = DT_COMPLETE_FILE},
		DT_OPT_END};
	static const char *const examples[] = {
		"dt-serve run/latest --port 8000",
		"jq -c '{prompt: .question}' q.jsonl | dt-serve --batch run/latest | jq -r .text", NULL};
	const struct dt_program prog = {.name = "dt-serve",
					.summary = "serve a checkpoint over HTTP or on a pipe",
					.operands = "[CKPT]",
					.examples = examples,
					.opts = opts};
	const struct dt_log log = {.f = stderr, .name = "dt-serve", .rank = -1};
	struct dt_err err;
	int status, n;

	dt_dev_spin_less(argv);
	n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status);
	if (n < 0)
		goto out;
	if (o.replay) {
		status = n > 0 || o.ckpt || o.trace || o.batch
				 ? dt_opt_usage_error(&prog, stderr, "--replay stands alone")
				 : run_replay(o.replay, &log);
		goto out;
	}
	if (n > 1 || (n == 1) == (o.ckpt != NULL)) {
		status = dt_opt_usage_error(&prog, stderr, "give one checkpoint");
		goto out;
	}
	if (n == 1)
		o.ckpt = argv[1];
	if (dt_dev_parse(o.device, &o.kind, &o.index) < 0) { /* auto tries a card, which takes its time */
		status = dt_opt_usage_error(&prog, stderr, "no such device: '%s' (auto, cpu, cuda or cuda:N)",
					    o.device);
		goto out;
	}
	if (o.draft_model && o.draft == 0)
		o.draft = 4;
	if (!o.given_tokens && o.tokens < o.seqs)
		o.tokens = o.seqs;
	if (o.tokens < o.seqs) {
		status = dt_opt_usage_error(&prog, stderr,
					    "--max-num-batched-tokens must be at least --max-num-seqs");
		goto out;
	}
	if (!o.batch && (o.unordered || o.skip_done)) {
		status = dt_opt_usage_error(&prog, stderr, "--%s goes with --batch",
					    o.unordered ? "unordered" : "skip-done");
		goto out;
	}
	if (o.batch && o.key_file) {
		status = dt_opt_usage_error(&prog, stderr, "--api-key-file does not go with --batch");
		goto out;
	}
	status = o.batch ? run_batch(&o, &log) : run_http(&o, &log);
out:
	if (dt_close_stdout(&err) < 0) {
		if (err.code != -EPIPE && status == DT_EXIT_OK) /* else it has been said */
			dt_log_err(&log, &err);
		status = DT_EXIT_FAILED;
	}
	return status;
}
