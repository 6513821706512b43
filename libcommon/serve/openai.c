#include "serve/openai.h"

#include "serve/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MAX_STOP_BYTES 1024
#define MAX_BIAS       1024
#define MAX_STOP_IDS   256

int dt_api_fail(struct dt_api_error *e, int status, const char *type, const char *code, const char *fmt, ...)
{
	va_list ap;

	*e = (struct dt_api_error){.status = status, .type = type, .code = code};
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
{
	va_list ap;

	dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", "");
	snprintf(e->param, sizeof(e->param), "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int no_memory(struct dt_api_error *e)
{
	return dt_api_fail(e, 500, "server_error", NULL, "out of memory");
}

json_t *dt_api_error_json(const struct dt_api_error *e)
{
	size_t n;
	char *msg = dt_utf8_clean(e->msg, strlen(e->msg), &n);
	char *param = dt_utf8_clean(e->param, strlen(e->param), &n);
	json_t *v = json_pack("{s:{s:s?, s:s, s:s?, s:s?}}", "error", "message", msg, "type", e->type,
			      "param", param && param[0] ? param : NULL, "code", e->code);

	free(msg);
	free(param);
	return v;
}

int dt_api_fail_submit(struct dt_api_error *e, int rc, const struct dt_err *err, double retry_after)
{
	if (rc == -EAGAIN || rc == -ESHUTDOWN) {
		dt_api_fail(e, 503, "server_error", rc == -EAGAIN ? "queue_full" : "draining", "%s",
			    err->msg);
		e->retry_after = rc == -EAGAIN ? 1 : 10;
		return -EINVAL;
	}
	if (rc == -EDQUOT) {
		dt_api_fail(e, 429, "rate_limit_error", "rate_limit_exceeded", "%s", err->msg);
		e->retry_after = retry_after > 0 ? (int)retry_after + 1 : 0;
		return -EINVAL;
	}
	if (rc == -E2BIG)
		return dt_api_fail(e, 400, "invalid_request_error", "context_length_exceeded", "%s",
				   err->msg);
	return dt_api_fail(e, rc == -EINVAL ? 400 : 500,
			   rc == -EINVAL ? "invalid_request_error" : "server_error", NULL, "%s", err->msg);
}

int dt_api_encode(const struct dt_tokenizer *tok, const char *s, size_t n, int32_t **ret, size_t *ret_n,
		  struct dt_err *err)
{
	int32_t bos = dt_tokenizer_bos(tok), *ids, *p;
	int rc = dt_tokenizer_encode(tok, s, n, true, &ids, ret_n, err);

	if (rc < 0)
		return rc;
	if (bos >= 0 && (*ret_n == 0 || ids[0] != bos)) {
		p = realloc(ids, (*ret_n + 1) * sizeof(*p));
		if (!p) {
			free(ids);
			return dt_err_sys(err, -ENOMEM, "cannot encode the text");
		}
		ids = p;
		memmove(ids + 1, ids, *ret_n * sizeof(*ids));
		ids[0] = bos;
		++*ret_n;
	}
	*ret = ids;
	return 0;
}

/* ---- what a body says, before it becomes requests ---- */

struct prompt {
	int32_t *ids;
	size_t n;
	struct dt_text text; /* as given, for echo */
};

struct body {
	const json_t *o;
	const struct dt_api_model *m;
	struct dt_api_error *e;
	struct prompt *prompt;
	size_t nprompts;
	struct dt_req r; /* a pattern: everything but the prompt */
	uint64_t salt;
	bool ignore_eos, has_max;
	int64_t max_tokens, n;
};

static const char *const known_keys[] = {
	"prompt",
	"max_tokens",
	"max_completion_tokens",
	"min_tokens",
	"temperature",
	"top_p",
	"top_k",
	"min_p",
	"repetition_penalty",
	"presence_penalty",
	"frequency_penalty",
	"logit_bias",
	"seed",
	"stop",
	"stop_token_ids",
	"ignore_eos",
	"logprobs",
	"skip_special_tokens",
	"include_stop_str_in_output",
	"cache_salt",
};
static const char *const http_keys[] = {"model", "n", "best_of", "stream", "stream_options", "echo", "user"};

static bool in_list(const char *key, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(key, list[i]))
			return true;
	return false;
}

static int check_keys(struct body *b)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)b->o, key, v)
	{
		if (in_list(key, known_keys, sizeof(known_keys) / sizeof(*known_keys)))
			continue;
		if (b->m->batch ? !strcmp(key, "id")
				: in_list(key, http_keys, sizeof(http_keys) / sizeof(*http_keys)))
			continue;
		return bad(b->e, key, "unknown key '%.60s'", key);
	}
	return 0;
}

static int get_int(struct body *b, const char *key, int64_t min, int64_t max, int64_t *ret)
{
	struct dt_err err;
	int rc = dt_json_int(b->o, key, false, min, max, ret, &err);

	return rc < 0 ? bad(b->e, key, "%s", err.msg) : rc;
}

static int get_bool(struct body *b, const char *key, bool *ret)
{
	struct dt_err err;
	int rc = dt_json_bool(b->o, key, false, ret, &err);

	return rc < 0 ? bad(b->e, key, "%s", err.msg) : rc;
}

static int get_real(struct body *b, const char *key, double min, double max, double *ret)
{
	struct dt_err err;
	double v = 0;
	int rc = dt_json_real(b->o, key, false, &v, &err);

	if (rc < 0)
		return bad(b->e, key, "%s", err.msg);
	if (rc > 0 && !(v >= min && v <= max))
		return bad(b->e, key, "'%s' is %g, not within %g and %g", key, v, min, max);
	if (rc > 0)
		*ret = v;
	return rc;
}

static int read_ids(struct body *b, const char *key, const json_t *a, int32_t *ret)
{
	size_t i;
	json_t *v;

	json_array_foreach(a, i, v)
	{
		json_int_t id = json_integer_value(v);

		if (!json_is_integer(v) || id < 0 || id >= b->m->engine->model.vocab)
			return bad(b->e, key, "'%s' has an element that is not a token id below %d", key,
				   b->m->engine->model.vocab);
		ret[i] = (int32_t)id;
	}
	return 0;
}

static int add_text(struct body *b, const json_t *v)
{
	struct prompt *p = &b->prompt[b->nprompts];
	const struct dt_engine_params *m = b->m->engine;
	struct dt_err err;

	p->text.n = json_string_length(v);
	p->text.s = malloc(p->text.n + 1);
	if (!p->text.s)
		return no_memory(b->e);
	memcpy(p->text.s, json_string_value(v), p->text.n + 1);
	b->nprompts++;
	if (dt_api_encode(m->tok, p->text.s, p->text.n, &p->ids, &p->n, &err) < 0)
		return bad(b->e, "prompt", "%s", err.msg);
	if (p->n == 0 && m->model.neos > 0) { /* as OpenAI: nothing means the start of a new document */
		p->ids = realloc(p->ids, sizeof(*p->ids));
		if (!p->ids)
			return no_memory(b->e);
		p->ids[0] = m->model.eos[0];
		p->n = 1;
	}
	return 0;
}

static int add_ids(struct body *b, const json_t *a)
{
	struct prompt *p = &b->prompt[b->nprompts++];
	struct dt_err err;

	p->n = json_array_size(a);
	p->ids = malloc((p->n + 1) * sizeof(*p->ids));
	if (!p->ids)
		return no_memory(b->e);
	if (read_ids(b, "prompt", a, p->ids) < 0)
		return -EINVAL;
	if (dt_tokenizer_decode(b->m->engine->tok, p->ids, p->n, true, &p->text.s, &p->text.n, &err) < 0)
		return bad(b->e, "prompt", "%s", err.msg);
	return 0;
}

/* A string, an array of strings, an array of ids, or an array of arrays of ids. */
static int read_prompts(struct body *b)
{
	const json_t *v = json_object_get(b->o, "prompt");
	size_t n = json_is_array(v) && !json_is_integer(json_array_get(v, 0)) ? json_array_size(v) : 1;
	size_t room = (size_t)(b->m->batch ? 1 : b->m->engine->max_seqs + b->m->engine->queue);

	if (!v)
		return bad(b->e, "prompt", "key 'prompt' is missing");
	if (n == 0)
		return bad(b->e, "prompt", "'prompt' is empty");
	if (n * (size_t)b->n > room)
		return bad(b->e, "prompt", "%zu prompts with %lld choices are more than the %zu allowed", n,
			   (long long)b->n, room);
	b->prompt = calloc(n, sizeof(*b->prompt));
	if (!b->prompt)
		return no_memory(b->e);
	if (json_is_string(v))
		return add_text(b, v);
	if (json_is_array(v) && n == 1 && json_is_integer(json_array_get(v, 0)))
		return add_ids(b, v);
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(v, i);
		int rc;

		if (!json_is_string(x) && !json_is_array(x))
			return bad(b->e, "prompt", "'prompt' must be text, token ids, or an array of these");
		rc = json_is_string(x) ? add_text(b, x) : add_ids(b, x);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_stops(struct body *b)
{
	const json_t *v = json_object_get(b->o, "stop"), *ids = json_object_get(b->o, "stop_token_ids");
	size_t n = json_is_array(v) ? json_array_size(v) : json_is_string(v);
	size_t nids = json_array_size(ids);
	const struct dt_engine_params *m = b->m->engine;

	if (v && !json_is_null(v) && !json_is_array(v) && !json_is_string(v))
		return bad(b->e, "stop", "'stop' is neither text nor an array of texts");
	if (n > DT_STOP_MAX)
		return bad(b->e, "stop", "'stop' has %zu strings, more than %d", n, DT_STOP_MAX);
	if (ids && !json_is_null(ids) && (!json_is_array(ids) || nids > MAX_STOP_IDS))
		return bad(b->e, "stop_token_ids", "'stop_token_ids' is not an array of at most %d ids",
			   MAX_STOP_IDS);
	b->r.stop = calloc(n + 1, sizeof(*b->r.stop));
	b->r.stop_ids = calloc(nids + 2, sizeof(*b->r.stop_ids));
	if (!b->r.stop || !b->r.stop_ids)
		return no_memory(b->e);
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
		struct dt_stop *d = &b->r.stop[i];

		d->n = json_string_length(s);
		if (d->n == 0 || d->n > MAX_STOP_BYTES)
			return bad(b->e, "stop", "'stop' has an element that is not text of 1 to %d bytes",
				   MAX_STOP_BYTES);
		d->s = malloc(d->n);
		if (!d->s)
			return no_memory(b->e);
		memcpy(d->s, json_string_value(s), d->n);
		b->r.nstop++;
	}
	if (nids > 0 && read_ids(b, "stop_token_ids", ids, b->r.stop_ids) < 0)
		return -EINVAL;
	b->r.nstop_ids = (int)nids;
	for (int i = 0; i < m->model.neos && !b->ignore_eos; i++)
		b->r.stop_ids[b->r.nstop_ids++] = m->model.eos[i];
	return 0;
}

static int read_bias(struct body *b)
{
	json_t *o = json_object_get(b->o, "logit_bias"), *v;
	size_t n = json_object_size(o);
	const char *key;

	if (!o || json_is_null(o))
		return 0;
	if (!json_is_object(o) || n > MAX_BIAS)
		return bad(b->e, "logit_bias", "'logit_bias' is not an object of at most %d ids", MAX_BIAS);
	b->r.bias = calloc(n + 1, sizeof(*b->r.bias));
	if (!b->r.bias)
		return no_memory(b->e);
	json_object_foreach(o, key, v)
	{
		char *end;
		long id = strtol(key, &end, 10);

		if (!*key || *end || id < 0 || id >= b->m->engine->model.vocab)
			return bad(b->e, "logit_bias", "'logit_bias': '%.20s' is not a token id below %d",
				   key, b->m->engine->model.vocab);
		if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 100))
			return bad(b->e, "logit_bias", "'logit_bias' of %ld is not within -100 and 100", id);
		b->r.bias[b->r.sampling.nbias++] = (struct dt_bias){(int32_t)id, (float)json_number_value(v)};
	}
	return 0;
}

/* A word of 64 bits; prefixes are never shared between tenants, whatever it is. */
static int read_salt(struct body *b)
{
	const char *s = NULL;
	struct dt_err err;

	if (dt_json_str(b->o, "cache_salt", false, &s, &err) < 0)
		return bad(b->e, "cache_salt", "%s", err.msg);
	for (b->salt = s ? 14695981039346656037u : 0; s && *s; s++)
		b->salt = (b->salt ^ (unsigned char)*s) * 1099511628211u;
	return 0;
}

static int read_sampling(struct body *b)
{
	struct dt_sampling *s = &b->r.sampling;
	int64_t seed = 0, top_k = 0, logprobs = -1, min_tokens = 0;
	bool skip_special = true;
	int rc;

	*s = DT_SAMPLING_DEFAULT;
	s->seed = b->m->seed;
	rc = read_salt(b);
	if (rc < 0)
		return rc;
	rc = get_int(b, "seed", INT64_MIN, INT64_MAX, &seed);
	if (rc > 0)
		s->seed = (uint64_t)seed;
	if (rc < 0 || get_real(b, "temperature", 0, 100, &s->temperature) < 0 ||
	    get_real(b, "top_p", 0, 1, &s->top_p) < 0 || get_real(b, "min_p", 0, 1, &s->min_p) < 0 ||
	    get_real(b, "repetition_penalty", 0.01, 100, &s->repetition_penalty) < 0 ||
	    get_real(b, "presence_penalty", -2, 2, &s->presence_penalty) < 0 ||
	    get_real(b, "frequency_penalty", -2, 2, &s->frequency_penalty) < 0 ||
	    get_int(b, "top_k", -1, INT32_MAX, &top_k) < 0 ||
	    get_int(b, "min_tokens", 0, INT32_MAX, &min_tokens) < 0 ||
	    get_int(b, "logprobs", 0, DT_LOGPROBS_MAX, &logprobs) < 0 ||
	    get_bool(b, "ignore_eos", &b->ignore_eos) < 0 ||
	    get_bool(b, "skip_special_tokens", &skip_special) < 0 ||
	    get_bool(b, "include_stop_str_in_output", &b->r.include_stop) < 0)
		return -EINVAL;
	if (logprobs > b->m->engine->model.vocab)
		return bad(b->e, "logprobs", "'logprobs' is more than the vocabulary");
	s->top_k = top_k > 0 ? (int)top_k : 0;
	b->r.logprobs = (int)logprobs;
	b->r.min_tokens = (int)min_tokens;
	b->r.show_special = !skip_special;
	return read_bias(b);
}

static int read_http_keys(struct body *b, struct dt_completion *c)
{
	const json_t *so = json_object_get(b->o, "stream_options");
	const char *model = NULL;
	int64_t best_of = 0;
	struct dt_err err;

	b->n = 1;
	if (b->m->batch)
		return 0;
	if (dt_json_str(b->o, "model", false, &model, &err) < 0)
		return bad(b->e, "model", "%s", err.msg);
	if (model && strcmp(model, b->m->name)) {
		dt_api_fail(b->e, 404, "invalid_request_error", "model_not_found",
			    "the model '%.100s' does not exist; this server has '%.100s'", model, b->m->name);
		snprintf(b->e->param, sizeof(b->e->param), "model");
		return -EINVAL;
	}
	if (get_int(b, "n", 1, 128, &b->n) < 0 || get_bool(b, "stream", &c->stream) < 0 ||
	    get_bool(b, "echo", &c->echo) < 0)
		return -EINVAL;
	best_of = b->n;
	if (get_int(b, "best_of", 1, 128, &best_of) < 0)
		return -EINVAL;
	if (best_of != b->n)
		return bad(b->e, "best_of", "'best_of' other than 'n' is not supported");
	if (!so || json_is_null(so))
		return 0;
	if (!json_is_object(so) || !c->stream)
		return bad(b->e, "stream_options", "'stream_options' is an object that goes with 'stream'");
	if (dt_json_bool(so, "include_usage", false, &c->include_usage, &err) < 0)
		return bad(b->e, "stream_options", "%s", err.msg);
	return 0;
}

/* max_tokens for a prompt of n ids: what was asked for if it fits, else the default cut to what fits. */
static int room_for(struct body *b, size_t n, int *ret)
{
	int64_t left = b->m->engine->max_len - (int64_t)n;

	if (n == 0)
		return bad(b->e, "prompt", "'prompt' is empty");
	if (left < (b->has_max ? b->max_tokens : 1)) {
		dt_api_fail(b->e, 400, "invalid_request_error", "context_length_exceeded",
			    "%zu prompt tokens and %lld to generate are more than the context of %d tokens",
			    n, (long long)(b->has_max ? b->max_tokens : 1), b->m->engine->max_len);
		snprintf(b->e->param, sizeof(b->e->param), "prompt");
		return -EINVAL;
	}
	*ret = (int)(b->max_tokens < left ? b->max_tokens : left);
	return 0;
}

static void *copy_of(const void *p, size_t n)
{
	void *d = malloc(n + 1);

	if (d && n)
		memcpy(d, p, n);
	return d;
}

/* Makes request r from the pattern. */
static int fill_request(struct body *b, struct dt_req *r, const struct prompt *p, uint32_t choice)
{
	const struct dt_req *o = &b->r;
	int max_tokens = 0;

	if (room_for(b, p->n, &max_tokens) < 0)
		return -EINVAL;
	if (o->min_tokens > max_tokens)
		return bad(b->e, "min_tokens", "'min_tokens' is more than 'max_tokens'");
	r->sampling = o->sampling;
	r->sampling.stream = choice;
	r->min_tokens = o->min_tokens;
	r->logprobs = o->logprobs;
	r->score_prompt = o->score_prompt;
	r->include_stop = o->include_stop;
	r->show_special = o->show_special;
	r->bias = copy_of(o->bias, (size_t)o->sampling.nbias * sizeof(*o->bias));
	r->stop_ids = copy_of(o->stop_ids, (size_t)o->nstop_ids * sizeof(*o->stop_ids));
	r->nstop_ids = o->nstop_ids;
	r->stop = calloc((size_t)o->nstop + 1, sizeof(*r->stop));
	if (!r->bias || !r->stop_ids || !r->stop || dt_req_set_prompt(r, p->ids, p->n, max_tokens) < 0)
		return no_memory(b->e);
	for (; r->nstop < o->nstop; r->nstop++) {
		struct dt_stop *d = &r->stop[r->nstop];

		d->n = o->stop[r->nstop].n;
		d->s = copy_of(o->stop[r->nstop].s, d->n);
		if (!d->s)
			return no_memory(b->e);
	}
	return 0;
}

static int make_call(struct body *b, struct dt_completion *c)
{
	c->nprompts = (int)b->nprompts;
	c->n = (int)b->n;
	c->call = dt_call_new(c->nprompts * c->n);
	c->prompt = calloc(b->nprompts, sizeof(*c->prompt));
	if (!c->call || !c->prompt)
		return no_memory(b->e);
	c->call->salt = b->salt;
	for (int i = 0; i < c->nprompts; i++) {
		for (int k = 0; k < c->n; k++)
			if (fill_request(b, &c->call->req[i * c->n + k], &b->prompt[i], (uint32_t)k) < 0)
				return -EINVAL;
		if (!c->echo)
			continue;
		c->prompt[i].s = dt_utf8_clean(b->prompt[i].text.s, b->prompt[i].text.n, &c->prompt[i].n);
		if (!c->prompt[i].s)
			return no_memory(b->e);
	}
	return 0;
}

static void make_id(char id[40])
{
	unsigned char r[12];

	while (getrandom(r, sizeof(r), 0) != sizeof(r))
		continue;
	strcpy(id, "cmpl-");
	for (size_t i = 0; i < sizeof(r); i++)
		sprintf(id + 5 + 2 * i, "%02x", r[i]);
}

static void body_release(struct body *b)
{
	for (size_t i = 0; i < b->nprompts; i++) {
		free(b->prompt[i].ids);
		free(b->prompt[i].text.s);
	}
	free(b->prompt);
	for (int i = 0; i < b->r.nstop; i++)
		free(b->r.stop[i].s);
	free(b->r.stop);
	free(b->r.stop_ids);
	free(b->r.bias);
}

int dt_completion_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
			struct dt_api_error *e)
{
	struct dt_completion c = {.model = m->name, .tok = m->engine->tok, .created = time(NULL)};
	struct body b = {.o = o, .m = m, .e = e, .max_tokens = 16};
	int rc = -EINVAL, given = 0;

	if (!json_is_object(o)) {
		bad(e, "", "the request is not a JSON object");
		goto out;
	}
	if (check_keys(&b) < 0 || read_http_keys(&b, &c) < 0 || read_sampling(&b) < 0 || read_stops(&b) < 0)
		goto out;
	given = get_int(&b, "max_tokens", 0, INT32_MAX, &b.max_tokens);
	if (given == 0)
		given = get_int(&b, "max_completion_tokens", 0, INT32_MAX, &b.max_tokens);
	if (given < 0)
		goto out;
	b.has_max = given > 0;
	b.r.score_prompt = c.echo && b.r.logprobs >= 0;
	if (read_prompts(&b) < 0 || make_call(&b, &c) < 0)
		goto out;
	make_id(c.id);
	*ret = c;
	rc = 0;
out:
	body_release(&b);
	if (rc < 0)
		dt_completion_release(&c);
	return rc;
}

void dt_completion_release(struct dt_completion *c)
{
	for (int i = 0; c->prompt && i < c->nprompts; i++)
		free(c->prompt[i].s);
	free(c->prompt);
	dt_call_drop(c->call);
	*c = (struct dt_completion){0};
}
