/* Serves a checkpoint: an OpenAI-compatible HTTP server, or prompts in and completions out on a pipe. */
#include "base/log.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "plan/listing.h"
#include "serve/api/batch.h"
#include "serve/api/batches.h"
#include "serve/api/classify.h"
#include "serve/api/served.h"
#include "serve/http/tenants.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BODY       (8 << 20) /* bytes */
#define READ_TIMEOUT   60	 /* seconds to send a request, or between two */
#define ANSWER_TIMEOUT 30	 /* seconds without reading after which a client is cut off */
#define STUCK_AFTER    120	 /* seconds a step may take before /health says 503 */
#define LINGER	       5	 /* seconds for which a server that has lost a rank says so */

#define WEIGHTS "auto|f32|bf16|q8_0|q4_0|q4_1|q4_k|q6_k"

struct options {
	struct dt_served_params serve;
	bool batch, unordered, print_program, given_tokens, given_timeout;
	const char *skip_done, *name, *key_file, *host, *replay, *allow_origin, *defaults_text, *tls_cert,
		*tls_key, *files_dir, *layout, *kv_disk;
	struct dt_strs api_keys, lora, prefill;
	json_t *defaults;
	int64_t port, max_tokens, lora_rank;
	uint64_t http_mem, files_size;
	int precision, weights, kv_type, kv_read, chat, role; /* choices, as the option table stores them */
	bool given_role;
	struct dt_kvpeers_params peers;
	int64_t prefill_least;
	double prefill_timeout;
	uint64_t prefill_mem;
	double timeout, comm_timeout;
	struct dt_world_info info; /* of the ranks */
	bool images;		   /* CKPT classifies them */
	int split;
	int64_t image_batch, image_size;
	const char *normalize;
};

/* What is served: the one or the other. */
struct serving {
	struct dt_served text;
	struct dt_classify *images;
};

static int load(struct dt_served *s, const struct options *o, const struct dt_log *log, struct dt_err *err)
{
	char text[3][32];
	int rc = dt_served_open(s, &o->serve, err);

	if (rc < 0 || o->info.rank > 0)
		return rc;
	dt_log_msg(log,
		   "loaded '%s' in %.1f s: %s of weights, %s of KV cache for %lld tokens, %s of workspace",
		   o->serve.ckpt, s->seconds, dt_format_size(s->memory.weights, text[0], sizeof(text[0])),
		   dt_format_size(s->memory.cache, text[1], sizeof(text[1])), (long long)s->cache_tokens,
		   dt_format_size(s->memory.work + s->logits_bytes, text[2], sizeof(text[2])));
	return 0;
}

static int load_images(struct dt_classify **c, const struct options *o, const struct dt_log *log,
		       struct dt_err *err)
{
	const struct dt_classify_params p = {.model = o->serve.ckpt,
					     .normalize = o->normalize,
					     .fp32 = o->precision == 1,
					     .threads = o->serve.threads,
					     .image_size = o->image_size,
					     .batch = o->image_batch,
					     .queue = o->serve.queue,
					     .decoders = 4,
					     .split = (enum dt_image_split)o->split,
					     .world = o->serve.world,
					     .beat_s = o->serve.beat_s,
					     .patience_s = o->comm_timeout / 2};
	struct dt_classify_info i;
	char text[2][32];
	int rc = dt_classify_open(c, &p, err);

	if (rc < 0 || o->info.rank > 0)
		return rc;
	i = dt_classify_info(*c);
	dt_log_msg(log, "loaded '%s' in %.1f s: %d classes, %s of weights, %s of workspace", p.model,
		   i.seconds, i.classes, dt_format_size(i.weight_bytes, text[0], sizeof(text[0])),
		   dt_format_size(i.work_bytes, text[1], sizeof(text[1])));
	return 0;
}

static int run_images_batch(const struct options *o, const struct dt_log *log)
{
	const struct dt_classify_batch p = {
		.in = stdin, .out = stdout, .window = (int)o->serve.queue, .log = log};
	struct dt_classify *c = NULL;
	struct dt_err err = {0};
	int64_t failed = load_images(&c, o, log, &err);
	const double t0 = dt_now();

	if (failed == 0 && (failed = dt_classify_batch_run(c, &p, &err)) >= 0)
		dt_classify_tell(c, dt_now() - t0, log);
	if (failed < 0 && failed != -EPIPE)
		dt_log_err(log, &err);
	if (failed > 0)
		dt_log_msg(log, "%lld line%s failed", (long long)failed, failed == 1 ? "" : "s");
	dt_classify_close(c);
	return failed ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* Whether the trace of decisions, where one was wanted, is whole. */
static bool unload(struct dt_served *s, const struct options *o, const struct dt_log *log)
{
	if (dt_served_close(s) == 0)
		return true;
	dt_log_msg(log, "'%s' could not be written in full", o->serve.trace);
	return false;
}

static int run_batch(const struct options *o, const struct dt_log *log)
{
	const struct dt_served_params *sp = &o->serve;
	struct dt_batch_params p = {.fd = STDIN_FILENO,
				    .out = stdout,
				    .window = (int)(sp->seqs + (sp->queue < sp->seqs ? sp->queue : sp->seqs)),
				    .unordered = o->unordered,
				    .skip_done = o->skip_done,
				    .model_name = o->name ? o->name : o->serve.ckpt,
				    .defaults = o->defaults,
				    .request_timeout = o->given_timeout ? o->timeout : 0,
				    .log = log};
	struct dt_served s = {0};
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
	return unload(&s, o, log) ? status : DT_EXIT_FAILED;
}

/*
 * What ends a server. Every thread started behind this inherits the mask, so signals come to sigwait alone.
 * mpirun passes SIGUSR1 on to the ranks, and ends them where it gets another itself.
 */
static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static enum dt_engine_state state_of(const struct serving *s)
{
	return s->images ? dt_classify_state(s->images) : dt_engine_state(s->text.engine);
}

/* The next signal; 0: a rank of several was lost meanwhile. */
static int wait_for_signal(const struct options *o, const sigset_t *set, const struct serving *s)
{
	const struct timespec tick = {.tv_nsec = 50000000};
	int sig = -1;

	if (!o->serve.world)
		return sigwait(set, &sig) == 0 ? sig : 0;
	while (sig < 0 && state_of(s) != DT_ENGINE_FAILED)
		sig = sigtimedwait(set, NULL, &tick);
	return sig < 0 ? 0 : sig;
}

/* For a while /health says which rank was lost; a signal shortens that. */
static void linger(const sigset_t *set)
{
	(void)sigtimedwait(set, NULL, &(struct timespec){.tv_sec = LINGER - 1});
}

/*
 * Until a signal; then no new work, and out once what runs is done. A second one ends at once. Whether the
 * engine is well.
 */
static bool serve_until_signal(const struct options *o, const sigset_t *set, struct dt_http *http,
			       const struct serving *s, struct dt_batches *batches, const struct dt_log *log)
{
	const struct timespec tick = {.tv_nsec = 50000000};
	int sig = wait_for_signal(o, set, s);

	dt_batches_stop(batches);
	if (sig) {
		if (s->images)
			dt_classify_drain(s->images);
		else
			dt_engine_drain(s->text.engine);
		dt_log_msg(log, "%s: no new requests; waiting for %d to finish", strsignal(sig),
			   dt_http_active(http));
	} else {
		linger(set);
	}
	while (dt_http_active(http) > 0 || (!s->images && dt_engine_wait_idle(s->text.engine, 0) > 0)) {
		if (sigtimedwait(set, NULL, &tick) > 0) {
			dt_log_msg(log, "a second signal: ending with requests unfinished");
			_exit(DT_EXIT_FAILED);
		}
	}
	return state_of(s) != DT_ENGINE_FAILED;
}

static bool is_loopback(const char *url)
{
	url = strstr(url, "://") + 3;
	return !strncmp(url, "127.", 4) || !strncmp(url, "[::1]", 5);
}

/* Answers the batches of the store from here on. */
static int go_on(struct dt_batches **ret, struct dt_http *http, struct dt_store *store, struct dt_served *s,
		 const struct dt_http_params *p, const struct dt_log *log, struct dt_err *err)
{
	const struct dt_batches_params bp = {.engine = s->engine,
					     .model_name = p->model_name,
					     .chat = s->has_chat ? &s->chat : NULL,
					     .defaults = p->defaults,
					     .request_timeout = p->request_timeout,
					     .log = log};
	int rc = dt_batches_open(ret, store, &bp, err);

	if (rc >= 0)
		dt_http_keep(http, store, *ret);
	return rc;
}

/* Each tenant's first key, which servers that compute prompts are asked with. */
static int share_keys(struct options *o, const struct dt_tenants *t, struct dt_err *err)
{
	const int n = t->file.ntenants;
	const char **key = calloc((size_t)n + 1, sizeof(*key));

	if (!key)
		return dt_err_sys(err, -ENOMEM, "cannot read keys");
	for (int i = t->file.nkeys - 1; i >= 0; i--)
		key[t->key[i].tenant] = t->key[i].key;
	o->peers.key = key;
	o->peers.nkeys = n;
	return 0;
}

static int run_http(struct options *o, const struct dt_log *log)
{
	struct dt_http_params p = {.host = o->host,
				   .port = (int)o->port,
				   .tls_cert = o->tls_cert,
				   .tls_key = o->tls_key,
				   .model_name = o->name ? o->name : o->serve.ckpt,
				   .max_body = MAX_BODY,
				   .role = o->given_role ? DT_ROLE_BOTH + o->role : DT_ROLE_NONE,
				   .max_memory = o->http_mem,
				   .allow_origin = o->allow_origin,
				   .defaults = o->defaults,
				   .answer_timeout = ANSWER_TIMEOUT,
				   .max_connections = (int)(o->serve.seqs + o->serve.queue) + 256,
				   .read_timeout = READ_TIMEOUT,
				   .request_timeout = o->timeout};
	struct dt_http *http = NULL;
	struct dt_tenants t = {0};
	struct serving s = {0};
	struct dt_err err;
	struct dt_store *store = NULL;
	struct dt_batches *batches = NULL;
	sigset_t set;
	int rc = 0;

	block_signals(&set);
	if (o->key_file || o->api_keys.n > 0)
		rc = dt_tenants_open(&t, o->key_file, o->api_keys.v, o->api_keys.n, &err);
	if (rc >= 0 && o->serve.peers)
		rc = share_keys(o, &t, &err);
	p.keys = t.key;
	p.nkeys = t.file.nkeys;
	o->serve.tenant = t.tenant;
	o->serve.ntenants = t.file.ntenants;
	if (rc >= 0 && o->files_dir)
		rc = dt_store_open(&store, o->files_dir, o->files_size, &err);
	if (rc >= 0)
		rc = dt_http_open(&http, &p, &err);
	if (rc >= 0)
		rc = o->images ? load_images(&s.images, o, log, &err) : load(&s.text, o, log, &err);
	if (rc >= 0 && store)
		rc = go_on(&batches, http, store, &s.text, &p, log, &err);
	if (rc >= 0) {
		if (s.images)
			dt_http_serve_images(http, s.images);
		else
			dt_http_serve(http, s.text.engine, s.text.has_chat ? &s.text.chat : NULL);
		if (p.nkeys == 0 && !is_loopback(dt_http_url(http)))
			dt_log_msg(log, "anyone who reaches %s may use it: consider --api-key",
				   dt_http_url(http));
		dt_log_msg(log, "serving '%s' on %s", p.model_name, dt_http_url(http));
		printf("%s\n", dt_http_url(http));
		if (fflush(stdout) == EOF)
			rc = dt_err_sys(&err, -errno, "cannot write to standard output");
	}
	if (rc < 0)
		dt_log_err(log, &err);
	else if (!serve_until_signal(o, &set, http, &s, batches, log))
		rc = -EIO;
	dt_http_close(http);
	dt_batches_close(batches);
	dt_store_close(store);
	dt_classify_close(s.images);
	if (!unload(&s.text, o, log))
		rc = -EIO;
	free((void *)o->peers.key);
	dt_tenants_release(&t);
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* Of several ranks one that is not the first. */
static int run_follower(struct options *o, const struct dt_log *log)
{
	struct serving s = {0};
	struct dt_err err = {0};
	sigset_t set;
	int rc;

	block_signals(&set);
	rc = o->images ? load_images(&s.images, o, log, &err) : load(&s.text, o, log, &err);
	if (rc == 0 &&
	    (rc = s.images ? dt_classify_follow(s.images, &err) : dt_served_follow(&s.text, &err)) < 0) {
		dt_log_err(log, &err);
		dt_world_abort(o->serve.world, DT_EXIT_FAILED);
	}
	if (rc < 0 && err.msg[0])
		dt_log_err(log, &err);
	dt_classify_close(s.images);
	dt_served_close(&s.text);
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* As one process, or as one of the ranks that a launcher has started. */
static int serve(struct options *o, struct dt_log *log)
{
	const struct dt_world_opts wo = {.timeout_s = o->comm_timeout, .linger_s = LINGER};
	struct dt_world *world;
	struct dt_err err;
	sigset_t set;
	int status;

	if (!o->batch)
		block_signals(&set); /* for the threads of MPI too */
	if (dt_world_open(&world, &wo, log, &err) < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	dt_world_info(world, &o->info);
	o->serve.log = o->peers.log = log;
	if (o->info.size > 1 || (o->layout && dt_layout_world(&o->serve.layout) > 1)) {
		log->rank = o->info.size > 1 ? o->info.rank : -1;
		o->serve.world = world;
		o->serve.beat_s = o->comm_timeout < 4 ? o->comm_timeout / 4 : 1;
	}
	if (o->info.rank > 0)
		status = run_follower(o, log);
	else
		status = !o->batch   ? run_http(o, log)
			 : o->images ? run_images_batch(o, log)
				     : run_batch(o, log);
	if (dt_world_broken(world)) /* its report has been written */
		dt_world_abort(world, status ? status : DT_EXIT_FAILED);
	dt_world_finalize(world);
	return status;
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

/* --print-program: needs the configuration alone. */
static int print_program(const struct options *o, const struct dt_log *log)
{
	const struct dt_served_params *p = &o->serve;
	const struct dt_format_info *f = dt_format_info(p->weights >= 0 ? (enum dt_format)p->weights
							: p->fp32	? DT_FMT_F32
									: DT_FMT_BF16);
	const struct dt_layout layout =
		p->layout.dp ? p->layout : (struct dt_layout){.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_memory_plan plan = {0};
	struct dt_config c;
	struct dt_work_serving prompt = {.config = &c,
					 .compute = p->fp32 ? DT_F32 : DT_BF16,
					 .tp = layout.tp,
					 .rows = p->tokens,
					 .outputs = p->seqs,
					 .weight_bits = 8.0 * f->bytes / f->block,
					 .cache_bits = 8.0 * dt_dtype_size(p->cache)};
	const struct dt_serving serving = {.config = &c,
					   .compute = prompt.compute,
					   .rows = p->tokens,
					   .outputs = p->seqs,
					   .layout = layout};
	struct dt_work_serving decoding;
	struct dt_err err = {0};
	int rc = dt_config_load(p->ckpt, &c, &err);

	if (rc == 0)
		rc = dt_config_servable(&c, &err);
	if (rc == 0)
		rc = dt_serving_check(&c, &layout, &err);
	decoding = prompt;
	decoding.rows = p->seqs;
	decoding.context = p->len ? p->len : c.max_seq;
	if (rc == 0)
		rc = dt_memory_plan_serving(&serving, decoding.context, &plan, &err);
	if (rc == 0) {
		rc = dt_listing_print_serving(&plan, &prompt, &decoding, stdout, &err);
		dt_memory_plan_release(&plan);
	}
	if (rc < 0)
		dt_log_err(log, &err);
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* --kv-host and --kv-disk. */
static int settle_kv(struct options *o, struct dt_err *err)
{
	struct dt_served_params *p = &o->serve;
	char *colon = o->kv_disk ? strrchr(o->kv_disk, ':') : NULL;

	p->kv_always = o->kv_read == 1;
	if (!o->kv_disk && !p->kv_host)
		return p->kv_always ? dt_err_set(err, -EINVAL, "--kv-read goes with --kv-host or --kv-disk")
				    : 0;
	if (!p->share || p->trace)
		return dt_err_set(err, -EINVAL, "--kv-%s does not go with --%s", o->kv_disk ? "disk" : "host",
				  p->share ? "trace" : "no-prefix-caching");
	if (!o->kv_disk)
		return 0;
	if (!colon || colon == o->kv_disk)
		return dt_err_set(err, -EINVAL,
				  "--kv-disk is a folder, a colon and a size, as /var/kv:20GiB");
	if (dt_parse_size(colon + 1, &p->kv_dir_size, err) < 0)
		return dt_err_prefix(err, "--kv-disk");
	*colon = '\0';
	p->kv_dir = o->kv_disk;
	return 0;
}

/* --role and --prefill. */
static int settle_role(struct options *o, struct dt_err *err)
{
	struct dt_served_params *p = &o->serve;

	p->named = o->given_role;
	if (o->given_role && o->batch)
		return dt_err_set(err, -EINVAL, "--role does not go with --batch");
	if (o->given_role && !p->share)
		return dt_err_set(err, -EINVAL, "--role does not go with --no-prefix-caching");
	if (o->prefill.n == 0)
		return 0;
	if (!o->given_role || o->role == 1)
		return dt_err_set(err, -EINVAL, "--prefill goes with --role decode or both");
	if (p->trace)
		return dt_err_set(err, -EINVAL, "--prefill does not go with --trace");
	o->peers = (struct dt_kvpeers_params){.url = (const char *const *)o->prefill.v,
					      .n = o->prefill.n,
					      .least = (int)o->prefill_least,
					      .timeout = o->prefill_timeout,
					      .memory = o->prefill_mem};
	p->peers = &o->peers;
	return 0;
}

/* From the options as given to what they mean together. -EINVAL: they do not. */
static int settle(struct options *o, struct dt_err *err)
{
	static const enum dt_dtype cache[] = {DT_BF16, DT_BF16, DT_F32, DT_I8};
	struct dt_served_params *p = &o->serve;
	char word[16];

	p->fp32 = o->precision == 1;
	p->cache = o->kv_type || !p->fp32 ? cache[o->kv_type] : DT_F32;
	p->weights = o->weights ? dt_format_parse(dt_opt_choice_name(WEIGHTS, o->weights, word, sizeof(word)))
				: -1;
	p->chat = o->chat - 1;
	p->stuck_after = STUCK_AFTER;
	if (p->draft_model && p->draft == 0)
		p->draft = 4;
	if (!o->given_tokens && p->tokens < p->seqs)
		p->tokens = p->seqs;
	if (p->tokens < p->seqs)
		return dt_err_set(err, -EINVAL, "--max-num-batched-tokens must be at least --max-num-seqs");
	if (!o->batch && (o->unordered || o->skip_done))
		return dt_err_set(err, -EINVAL, "--%s goes with --batch",
				  o->unordered ? "unordered" : "skip-done");
	if (!o->tls_cert != !o->tls_key)
		return dt_err_set(err, -EINVAL, "--tls-cert and --tls-key go together");
	if (o->batch && o->tls_cert)
		return dt_err_set(err, -EINVAL, "--tls-cert does not go with --batch");
	if (o->batch && o->files_dir)
		return dt_err_set(err, -EINVAL, "--files-dir does not go with --batch");
	if (o->batch && (o->key_file || o->api_keys.n > 0))
		return dt_err_set(err, -EINVAL, "--%s does not go with --batch",
				  o->key_file ? "api-key-file" : "api-key");
	if (o->lora.n > 0 || p->lora_dir) {
		p->lora = &o->lora;
		p->lora_rank = o->lora_rank;
	}
	p->name = o->name;
	if (settle_kv(o, err) < 0 || settle_role(o, err) < 0)
		return -EINVAL;
	if (o->layout && dt_layout_parse(o->layout, &p->layout, err) < 0)
		return -EINVAL;
	if (o->defaults_text &&
	    dt_json_parse(o->defaults_text, strlen(o->defaults_text), "--defaults", &o->defaults, err) < 0)
		return -EINVAL;
	if (o->max_tokens > 0) {
		o->defaults = o->defaults ? o->defaults : json_object();
		json_object_set_new(o->defaults, "max_tokens", json_integer(o->max_tokens));
	}
	if (o->defaults && dt_api_check_defaults(o->defaults, err) < 0)
		return dt_err_prefix(err, "--defaults");
	if (dt_dev_parse(p->device, &p->kind, &p->index) < 0) /* auto tries a card, which takes its time */
		return dt_err_set(err, -EINVAL, "no such device: '%s' (auto, cpu, cuda or cuda:N)",
				  p->device);
	return 0;
}

static struct options options;

static const struct dt_opt opts[] = {
	{"batch", 0, DT_OPT_FLAG, &options.batch,
	 .help = "read prompts as JSON Lines, or images, and write answers"},
	{"unordered", 0, DT_OPT_FLAG, &options.unordered,
	 .help = "with --batch, write each answer as soon as it is there"},
	{"skip-done", 0, DT_OPT_STR, &options.skip_done, "FILE",
	 "with --batch, leave out lines that FILE has an answer to", .complete = DT_COMPLETE_FILE},
	{"model-dir", 0, DT_OPT_STR, &options.serve.ckpt, "CKPT", "the checkpoint, as an option",
	 .complete = DT_COMPLETE_DIR},
	{"precision", 0, DT_OPT_CHOICE, &options.precision, "bf16|fp32",
	 "type of activations and cache, and of weights that have no other", .def = "bf16"},
	{"weights", 0, DT_OPT_CHOICE, &options.weights, WEIGHTS,
	 "what matrices are kept as; auto: blocks as they are stored, others as --precision", .def = "auto"},
	{"kv-cache-dtype", 0, DT_OPT_CHOICE, &options.kv_type, "auto|bf16|fp32|int8",
	 "type of the KV cache; auto: as --precision", .def = "auto"},
	{"tokenizer", 0, DT_OPT_STR, &options.serve.tokenizer, "FILE",
	 "a tokenizer in place of the model's own", .complete = DT_COMPLETE_TOKENIZER},
	{"device", 0, DT_OPT_STR, &options.serve.device, "auto|cpu|cuda[:N]",
	 "where the model is computed; auto: a card where there is one", .def = "cpu"},
	{"batch-invariant", 0, DT_OPT_FLAG, &options.serve.invariant,
	 .help = "on a card too, answers do not depend on what else is served (slower)"},
	{"threads", 0, DT_OPT_INT, &options.serve.threads, "N", "threads of the model", .min = 0, .max = 4096,
	 .def_text = "all processors"},
	{"max-tokens", 0, DT_OPT_INT, &options.max_tokens, "N",
	 "tokens to generate where a request does not say", .min = 1, .max = 1 << 24,
	 .def_text = "16 after a prompt, what fits after messages"},
	{"defaults", 0, DT_OPT_STR, &options.defaults_text, "JSON",
	 "an object of sampling keys for requests that do not have them"},
	DT_OPT_HEADING("Several ranks"),
	{"layout", 0, DT_OPT_STR, &options.layout, "LAYOUT",
	 "how mpirun's ranks cut the model, as tp2.pp2; see dt-layout(7)", .def_text = "tp over all ranks"},
	{"comm-timeout", 0, DT_OPT_REAL, &options.comm_timeout, "SECONDS",
	 "a rank that does not come to a step for so long ends the server", .min = 0.1, .max = 1e6,
	 .def = "60"},
	DT_OPT_HEADING("Batching and memory"),
	{"max-num-seqs", 0, DT_OPT_INT, &options.serve.seqs, "N", "sequences that run together", .min = 1,
	 .max = 4096, .def = "64"},
	{"max-num-batched-tokens", 0, DT_OPT_INT, &options.serve.tokens, "N", "tokens of one step", .min = 1,
	 .max = 1 << 20, .given = &options.given_tokens, .def = "512"},
	{"max-model-len", 0, DT_OPT_INT, &options.serve.len, "N", "tokens of a sequence, prompt and output",
	 .min = 1, .max = 1 << 24, .def_text = "the model's"},
	{"block-size", 0, DT_OPT_INT, &options.serve.block, "N", "tokens of a KV cache block", .min = 1,
	 .max = 1024, .def = "16"},
	{"kv-cache-mem", 0, DT_OPT_SIZE, &options.serve.cache_mem, "SIZE", "memory of the KV cache",
	 .def_text = "what all sequences need, at most a quarter of the machine's, half of what is "
		     "free on a card"},
	{"kv-host", 0, DT_OPT_SIZE, &options.serve.kv_host, "SIZE",
	 "host memory for blocks of prompts that the cache has no place for any more"},
	{"kv-disk", 0, DT_OPT_STR, &options.kv_disk, "DIR:SIZE",
	 "folder for blocks of prompts, which other servers and later ones find there",
	 .complete = DT_COMPLETE_DIR},
	{"kv-read", 0, DT_OPT_CHOICE, &options.kv_read, "auto|always",
	 "when such blocks are read; auto: where that is faster than to compute them", .def = "auto"},
	{"prefix-caching", 0, DT_OPT_FLAG, &options.serve.share,
	 .help = "keep the cache of prompts for others that begin alike", .negatable = true, .def = "on"},
	{"speculate", 0, DT_OPT_INT, &options.serve.draft, "N",
	 "tokens a step guessed from the text so far, as long as it is faster", .min = 0, .max = 32,
	 .def = "0"},
	{"draft-model", 0, DT_OPT_STR, &options.serve.draft_model, "CKPT",
	 "a smaller model with the same vocabulary that guesses (4 tokens a step unless --speculate "
	 "says)",
	 .complete = DT_COMPLETE_FILE},
	{"queue", 0, DT_OPT_INT, &options.serve.queue, "N", "requests that may wait; more get 503", .min = 0,
	 .max = 65536, .def = "256"},
	{"request-timeout", 0, DT_OPT_REAL, &options.timeout, "SECONDS",
	 "longest time for one request; with --batch there is none", .min = 1, .max = 1e6,
	 .given = &options.given_timeout, .def = "600"},
	{"trace", 0, DT_OPT_STR, &options.serve.trace, "FILE",
	 "write the scheduler's decisions as JSON Lines", .complete = DT_COMPLETE_FILE},
	{"replay", 0, DT_OPT_STR, &options.replay, "FILE",
	 "make the decisions of such a file again and compare; needs no checkpoint",
	 .complete = DT_COMPLETE_FILE},
	{"print-program", 0, DT_OPT_FLAG, &options.print_program,
	 .help = "print what a step computes and costs, do nothing else"},
	DT_OPT_HEADING("Images"),
	{"split", 0, DT_OPT_CHOICE, &options.split, DT_IMAGE_SPLITS,
	 "how ranks share images: whole requests, to the rank with the fewest, or a part of every batch",
	 .def = "requests"},
	{"image-batch", 0, DT_OPT_INT, &options.image_batch, "N", "images of a pass at most", .min = 1,
	 .max = 65536, .def = "32"},
	{"image-size", 0, DT_OPT_INT, &options.image_size, "PIXELS", "side of what the net sees", .min = 1,
	 .max = 4096, .def_text = "the model's"},
	{"normalize", 0, DT_OPT_STR, &options.normalize, "model|NAME",
	 "mean and deviation of pixels: those that the model came with, or published ones (cifar10, imagenet "
	 "...)",
	 .def = "model"},
	DT_OPT_HEADING("Prefill apart from decode"),
	{"role", 0, DT_OPT_CHOICE, &options.role, "both|prefill|decode",
	 "compute prompts for other servers, answer with prompts that they compute, or both",
	 .given = &options.given_role, .def_text = "neither"},
	{"prefill", 0, DT_OPT_STRS, &options.prefill, "URL",
	 "a server that computes prompts for this one; may be given several times"},
	{"prefill-min", 0, DT_OPT_INT, &options.prefill_least, "TOKENS",
	 "fewer tokens that are not in the cache are computed here", .min = 1, .max = 1 << 24, .def = "512"},
	{"prefill-timeout", 0, DT_OPT_REAL, &options.prefill_timeout, "SECONDS",
	 "without a block for so long the rest is computed here", .min = 0.1, .max = 1e6, .def = "30"},
	{"prefill-mem", 0, DT_OPT_SIZE, &options.prefill_mem, "SIZE",
	 "memory of blocks on their way; what does not fit is computed here", .def = "1GiB"},
	DT_OPT_HEADING("Adapters"),
	{"lora", 0, DT_OPT_STRS, &options.lora, "NAME=PATH",
	 "serve this adapter too, as model NAME; may be given several times"},
	{"lora-dir", 0, DT_OPT_STR, &options.serve.lora_dir, "DIR",
	 "clients may load and unload adapters that lie in DIR", .complete = DT_COMPLETE_DIR},
	{"max-loras", 0, DT_OPT_INT, &options.serve.lora_resident, "N",
	 "adapters in memory at a time; others are read again when they are asked for", .min = 1,
	 .max = 65536, .def = "64"},
	{"max-lora-rank", 0, DT_OPT_INT, &options.lora_rank, "N", "largest rank of an adapter", .min = 1,
	 .max = 4096, .def = "64"},
	{"lora-quota", 0, DT_OPT_REAL, &options.serve.lora_quota, "TOKENS",
	 "tokens a minute of each adapter, prompts and outputs", .min = 1, .max = 1e12,
	 .def_text = "no limit"},
	{"any-base", 0, DT_OPT_FLAG, &options.serve.any_base,
	 .help = "also serve adapters that were trained on other weights"},
	DT_OPT_HEADING("Server"),
	{"host", 0, DT_OPT_STR, &options.host, "ADDRESS", "address to listen on", .def = "127.0.0.1"},
	{"port", 0, DT_OPT_INT, &options.port, "N", "port to listen on, 0 for any free one", .min = 0,
	 .max = 65535, .def = "8000"},
	{"tls-cert", 0, DT_OPT_STR, &options.tls_cert, "FILE",
	 "serve HTTPS with this certificate and those that vouch for it, in PEM",
	 .complete = DT_COMPLETE_FILE},
	{"tls-key", 0, DT_OPT_STR, &options.tls_key, "FILE", "the certificate's key, in PEM",
	 .complete = DT_COMPLETE_FILE},
	{"http-mem", 0, DT_OPT_SIZE, &options.http_mem, "SIZE",
	 "memory of bodies, values parsed from them and answers, together; past it 503", .def = "512MiB"},
	{"allow-origin", 0, DT_OPT_STR, &options.allow_origin, "ORIGIN[,...]",
	 "pages that may use the server from a browser, as https://chat.example.org; *: all"},
	{"files-dir", 0, DT_OPT_STR, &options.files_dir, "DIR",
	 "keep files and batches there, and answer batches (/v1/files, /v1/batches)",
	 .complete = DT_COMPLETE_DIR},
	{"files-size", 0, DT_OPT_SIZE, &options.files_size, "SIZE",
	 "bytes of all files there; more are refused", .def = "4GiB"},
	{"served-model-name", 0, DT_OPT_STR, &options.name, "NAME", "the model's name in the API",
	 .def_text = "CKPT as given"},
	{"chat-template", 0, DT_OPT_CHOICE, &options.chat, "auto|" DT_CHAT_NAMES,
	 "how messages become a prompt", .def_text = "as the model says"},
	{"api-key", 0, DT_OPT_STRS, &options.api_keys, "KEY",
	 "a key that every route but /health then asks for; may be given several times"},
	{"api-key-file", 0, DT_OPT_STR, &options.key_file, "FILE",
	 "keys, one a line, with their tenants; every route but /health then asks for one",
	 .complete = DT_COMPLETE_FILE},
	DT_OPT_END,
};

static const char *const examples[] = {
	"dt-serve run/latest --port 8000",
	"jq -c '{prompt: .question}' q.jsonl | dt-serve --batch run/latest | jq -r .text",
	"ls *.jpg | dt-serve --batch resnet | jq -r '[.path, .predictions[0].class] | @tsv'",
	NULL,
};

static const struct dt_program program = {
	.name = "dt-serve",
	.summary = "serve a checkpoint over HTTP or on a pipe",
	.operands = "[CKPT]",
	.examples = examples,
	.opts = opts,
};

/* An option that is set and of the other kind of model; NULL: there is none. */
static const char *misplaced(bool images)
{
	static const char *const of_images[] = {"split", "image-batch", "image-size", "normalize", NULL};
	static const char *const fits[] = {
		"split",	"image-batch", "image-size",	    "normalize",    "batch",
		"model-dir",	"precision",   "threads",	    "comm-timeout", "queue",
		"host",		"port",	       "tls-cert",	    "tls-key",	    "http-mem",
		"allow-origin", "api-key",     "served-model-name", "api-key-file", "request-timeout",
		"device",	NULL};

	return images ? dt_opt_first_set(opts, fits, false) : dt_opt_first_set(opts, of_images, true);
}

/* What CKPT is, and that the options fit; what is not found is left to who loads it. */
static int settle_kind(struct options *o, struct dt_err *err)
{
	struct dt_config c;
	const char *name;

	o->images = dt_config_load(o->serve.ckpt, &c, NULL) == 0 && dt_config_is_image(&c);
	name = misplaced(o->images);
	if (name)
		return dt_err_set(err, -EINVAL, "--%s goes with models of %s", name,
				  o->images ? "text" : "images");
	if (o->images && strcmp(o->serve.device, "cpu"))
		return dt_err_set(err, -EINVAL, "a card has no convolutions yet");
	return 0;
}

/* Operands are n, the first in argv[1]. */
static int run(int n, char **argv, struct dt_log *log)
{
	struct options *o = &options;
	struct dt_err err;

	if (o->replay && (n > 0 || o->serve.ckpt || o->serve.trace || o->batch))
		return dt_opt_usage_error(&program, stderr, "--replay stands alone");
	if (o->replay)
		return run_replay(o->replay, log);
	if (n > 1 || (n == 1) == (o->serve.ckpt != NULL))
		return dt_opt_usage_error(&program, stderr, "give one checkpoint");
	if (n == 1)
		o->serve.ckpt = argv[1];
	if (settle_kind(o, &err) < 0 || settle(o, &err) < 0)
		return dt_opt_usage_error(&program, stderr, "%s", err.msg);
	return o->print_program ? print_program(o, log) : serve(o, log);
}

int main(int argc, char **argv)
{
	struct dt_log log = {.f = stderr, .name = "dt-serve", .rank = -1};
	struct dt_err err;
	int status, n;

	dt_dev_spin_less(argv);
	n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (n >= 0)
		status = run(n, argv, &log);
	json_decref(options.defaults);
	if (dt_close_stdout(&err) < 0) {
		if (err.code != -EPIPE && status == DT_EXIT_OK) /* else it has been said */
			dt_log_err(&log, &err);
		status = DT_EXIT_FAILED;
	}
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
