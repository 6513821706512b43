#include "serve/api/priv.h"

#include "base/utf8.h"

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

int dt_body_bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
{
	va_list ap;

	dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", "");
	snprintf(e->param, sizeof(e->param), "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

int dt_body_no_memory(struct dt_api_error *e)
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
	"skip_special_tokens",
	"include_stop_str_in_output",
	"cache_salt",
	"priority",
	"response_format",
	NULL,
};

/*
 * Keys of OpenAI's that clients send by themselves, with the values that ask for nothing: JSON texts apart by
 * bars,
 * "*" any. null always does. Everything else of these is refused.
 */
static const struct {
	const char *key, *idle;
} idle_keys[] = {
	{"suffix", "\"\""},
	{"tools", "[]"},
	{"functions", "[]"},
	{"tool_choice", "\"none\"|\"auto\""},
	{"function_call", "\"none\"|\"auto\""},
	{"parallel_tool_calls", "*"},
	{"modalities", "[\"text\"]"},
	{"audio", ""},
	{"prediction", ""},
	{"reasoning_effort", ""},
	{"verbosity", ""},
	{"web_search_options", ""},
	{"service_tier", "\"auto\"|\"default\""},
	{"store", "false"},
	{"metadata", "*"},
	{"safety_identifier", "*"},
	{"prompt_cache_key", "*"},
};

/* 1: such a key with such a value; 0: another key; -EINVAL: a value that asks for what is not done. */
static int is_idle(struct dt_body *b, const char *key, const json_t *v)
{
	size_t n = sizeof(idle_keys) / sizeof(*idle_keys), i = 0, len;
	const char *at;
	char *text;

	while (i < n && strcmp(key, idle_keys[i].key))
		i++;
	if (i == n)
		return 0;
	if (json_is_null(v) || idle_keys[i].idle[0] == '*')
		return 1;
	text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	if (!text)
		return dt_body_no_memory(b->e);
	len = strlen(text);
	at = strstr(idle_keys[i].idle, text);
	while (at && ((at > idle_keys[i].idle && at[-1] != '|') || (at[len] && at[len] != '|')))
		at = strstr(at + 1, text);
	free(text);
	return at && len ? 1 : dt_body_bad(b->e, key, "'%s' is not supported", key);
}

static bool in_list(const char *key, const char *const *list)
{
	while (*list && strcmp(key, *list))
		list++;
	return *list != NULL;
}

int dt_body_check_keys(struct dt_body *b, const char *const *more)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)b->o, key, v)
	{
		int rc = in_list(key, known_keys) || in_list(key, more) ? 1 : is_idle(b, key, v);

		if (rc <= 0)
			return rc < 0 ? rc : dt_body_bad(b->e, key, "unknown key '%.60s'", key);
	}
	return 0;
}

int dt_body_int(struct dt_body *b, const char *key, int64_t min, int64_t max, int64_t *ret)
{
	struct dt_err err;
	int rc = dt_json_int(b->o, key, false, min, max, ret, &err);

	return rc < 0 ? dt_body_bad(b->e, key, "%s", err.msg) : rc;
}

int dt_body_bool(struct dt_body *b, const char *key, bool *ret)
{
	struct dt_err err;
	int rc = dt_json_bool(b->o, key, false, ret, &err);

	return rc < 0 ? dt_body_bad(b->e, key, "%s", err.msg) : rc;
}

static int get_real(struct dt_body *b, const char *key, double min, double max, double *ret)
{
	struct dt_err err;
	double v = 0;
	int rc = dt_json_real(b->o, key, false, &v, &err);

	if (rc < 0)
		return dt_body_bad(b->e, key, "%s", err.msg);
	if (rc > 0 && !(v >= min && v <= max))
		return dt_body_bad(b->e, key, "'%s' is %g, not within %g and %g", key, v, min, max);
	if (rc > 0)
		*ret = v;
	return rc;
}

int dt_body_ids(struct dt_body *b, const char *key, const json_t *a, int32_t *ret)
{
	size_t i;
	json_t *v;

	json_array_foreach(a, i, v)
	{
		json_int_t id = json_integer_value(v);

		if (!json_is_integer(v) || id < 0 || id >= b->m->engine->model.vocab)
			return dt_body_bad(b->e, key, "'%s' has an element that is not a token id below %d",
					   key, b->m->engine->model.vocab);
		ret[i] = (int32_t)id;
	}
	return 0;
}

static int read_stops(struct dt_body *b)
{
	const json_t *v = json_object_get(b->o, "stop"), *ids = json_object_get(b->o, "stop_token_ids");
	size_t n = json_is_array(v) ? json_array_size(v) : json_is_string(v);
	size_t nids = json_array_size(ids);
	const struct dt_engine_params *m = b->m->engine;

	if (v && !json_is_null(v) && !json_is_array(v) && !json_is_string(v))
		return dt_body_bad(b->e, "stop", "'stop' is neither text nor an array of texts");
	if (n > DT_STOP_MAX)
		return dt_body_bad(b->e, "stop", "'stop' has %zu strings, more than %d", n, DT_STOP_MAX);
	if (ids && !json_is_null(ids) && (!json_is_array(ids) || nids > MAX_STOP_IDS))
		return dt_body_bad(b->e, "stop_token_ids",
				   "'stop_token_ids' is not an array of at most %d ids", MAX_STOP_IDS);
	b->r.stop = calloc(n + 1, sizeof(*b->r.stop));
	b->r.stop_ids = calloc(nids + 3, sizeof(*b->r.stop_ids));
	if (!b->r.stop || !b->r.stop_ids)
		return dt_body_no_memory(b->e);
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
		struct dt_stop *d = &b->r.stop[i];

		d->n = json_string_length(s);
		if (d->n == 0 || d->n > MAX_STOP_BYTES)
			return dt_body_bad(b->e, "stop",
					   "'stop' has an element that is not text of 1 to %d bytes",
					   MAX_STOP_BYTES);
		d->s = malloc(d->n);
		if (!d->s)
			return dt_body_no_memory(b->e);
		memcpy(d->s, json_string_value(s), d->n);
		b->r.nstop++;
	}
	if (nids > 0 && dt_body_ids(b, "stop_token_ids", ids, b->r.stop_ids) < 0)
		return -EINVAL;
	b->r.nstop_ids = b->r.nasked = (int)nids;
	for (int i = 0; i < m->model.neos && !b->ignore_eos; i++)
		b->r.stop_ids[b->r.nstop_ids++] = m->model.eos[i];
	return 0;
}

static int read_bias(struct dt_body *b)
{
	json_t *o = json_object_get(b->o, "logit_bias"), *v;
	size_t n = json_object_size(o);
	const char *key;

	if (!o || json_is_null(o))
		return 0;
	if (!json_is_object(o) || n > MAX_BIAS)
		return dt_body_bad(b->e, "logit_bias", "'logit_bias' is not an object of at most %d ids",
				   MAX_BIAS);
	b->r.bias = calloc(n + 1, sizeof(*b->r.bias));
	if (!b->r.bias)
		return dt_body_no_memory(b->e);
	json_object_foreach(o, key, v)
	{
		char *end;
		long id = strtol(key, &end, 10);

		if (!*key || *end || id < 0 || id >= b->m->engine->model.vocab)
			return dt_body_bad(b->e, "logit_bias",
					   "'logit_bias': '%.20s' is not a token id below %d", key,
					   b->m->engine->model.vocab);
		if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 100))
			return dt_body_bad(b->e, "logit_bias",
					   "'logit_bias' of %ld is not within -100 and 100", id);
		b->r.bias[b->r.sampling.nbias++] = (struct dt_bias){(int32_t)id, (float)json_number_value(v)};
	}
	return 0;
}

/* A word of 64 bits; prefixes are never shared between tenants, whatever it is. */
static int read_salt(struct dt_body *b)
{
	const char *s = NULL;
	struct dt_err err;

	if (dt_json_str(b->o, "cache_salt", false, &s, &err) < 0)
		return dt_body_bad(b->e, "cache_salt", "%s", err.msg);
	for (b->salt = s ? 14695981039346656037u : 0; s && *s; s++)
		b->salt = (b->salt ^ (unsigned char)*s) * 1099511628211u;
	return 0;
}

int dt_body_sampling(struct dt_body *b)
{
	struct dt_sampling *s = &b->r.sampling;
	int64_t seed = 0, top_k = 0, min_tokens = 0, priority = 0;
	bool skip_special = true;
	int rc;

	*s = DT_SAMPLING_DEFAULT;
	s->seed = b->m->seed;
	rc = read_salt(b);
	if (rc < 0)
		return rc;
	rc = dt_body_int(b, "seed", INT64_MIN, INT64_MAX, &seed);
	if (rc > 0)
		s->seed = (uint64_t)seed;
	if (rc < 0 || get_real(b, "temperature", 0, 100, &s->temperature) < 0 ||
	    get_real(b, "top_p", 0, 1, &s->top_p) < 0 || get_real(b, "min_p", 0, 1, &s->min_p) < 0 ||
	    get_real(b, "repetition_penalty", 0.01, 100, &s->repetition_penalty) < 0 ||
	    get_real(b, "presence_penalty", -2, 2, &s->presence_penalty) < 0 ||
	    get_real(b, "frequency_penalty", -2, 2, &s->frequency_penalty) < 0 ||
	    dt_body_int(b, "top_k", -1, INT32_MAX, &top_k) < 0 ||
	    dt_body_int(b, "min_tokens", 0, INT32_MAX, &min_tokens) < 0 ||
	    dt_body_int(b, "priority", -1000, 1000, &priority) < 0 ||
	    dt_body_bool(b, "ignore_eos", &b->ignore_eos) < 0 ||
	    dt_body_bool(b, "skip_special_tokens", &skip_special) < 0 ||
	    dt_body_bool(b, "include_stop_str_in_output", &b->r.include_stop) < 0)
		return -EINVAL;
	s->top_k = top_k > 0 ? (int)top_k : 0;
	b->r.logprobs = -1;
	b->r.min_tokens = (int)min_tokens;
	b->r.seq.urgency = -(int)priority; /* 0 goes before 1, as in vLLM */
	b->r.show_special = !skip_special;
	rc = read_bias(b);
	return rc < 0 ? rc : read_stops(b);
}

int dt_body_envelope(struct dt_body *b, struct dt_completion *c)
{
	const json_t *so = json_object_get(b->o, "stream_options");
	const char *model = NULL;
	struct dt_err err;

	b->n = 1;
	if (dt_json_str(b->o, "model", false, &model, &err) < 0)
		return dt_body_bad(b->e, "model", "%s", err.msg);
	if (model && strcmp(model, b->m->name)) {
		dt_api_fail(b->e, 404, "invalid_request_error", "model_not_found",
			    "the model '%.100s' does not exist; this server has '%.100s'", model, b->m->name);
		snprintf(b->e->param, sizeof(b->e->param), "model");
		return -EINVAL;
	}
	if (dt_body_int(b, "n", 1, 128, &b->n) < 0 || dt_body_bool(b, "stream", &c->stream) < 0)
		return -EINVAL;
	if (c->stream && b->m->batch)
		return dt_body_bad(b->e, "stream", "a line of a batch cannot be a stream");
	if (!so || json_is_null(so))
		return 0;
	if (!json_is_object(so) || !c->stream)
		return dt_body_bad(b->e, "stream_options",
				   "'stream_options' is an object that goes with 'stream'");
	if (dt_json_bool(so, "include_usage", false, &c->include_usage, &err) < 0)
		return dt_body_bad(b->e, "stream_options", "%s", err.msg);
	return 0;
}

int dt_body_max_tokens(struct dt_body *b, int64_t otherwise)
{
	int given = dt_body_int(b, "max_tokens", 0, INT32_MAX, &b->max_tokens);

	if (given == 0)
		given = dt_body_int(b, "max_completion_tokens", 0, INT32_MAX, &b->max_tokens);
	if (given == 0)
		b->max_tokens = otherwise;
	b->has_max = given > 0;
	return given < 0 ? given : 0;
}

int dt_body_format(struct dt_body *b)
{
	const json_t *f = json_object_get(b->o, "response_format"), *s;
	const char *type = json_string_value(json_object_get(f, "type"));
	struct dt_err err;

	if (!f || json_is_null(f) || (type && !strcmp(type, "text")))
		return 0;
	if (type && !strcmp(type, "json_object")) {
		b->grammar = dt_grammar_json();
		return b->grammar ? 0 : dt_body_no_memory(b->e);
	}
	if (!type || strcmp(type, "json_schema"))
		return dt_body_bad(
			b->e, "response_format",
			"'response_format' has no type that is one of text, json_object, json_schema");
	s = json_object_get(json_object_get(f, "json_schema"), "schema");
	if (!s)
		return dt_body_bad(b->e, "response_format", "'response_format' has no json_schema.schema");
	return dt_grammar_schema(s, &b->grammar, &err) < 0
		       ? dt_body_bad(b->e, "response_format", "%s", err.msg)
		       : 0;
}

/* max_tokens for a prompt of n ids: what was asked for if it fits, else the default cut to what fits. */
static int room_for(struct dt_body *b, size_t n, int *ret)
{
	int64_t left = b->m->engine->max_len - (int64_t)n;

	if (n == 0)
		return dt_body_bad(b->e, "prompt", "'prompt' is empty");
	if (left < (b->has_max ? b->max_tokens : b->r.embed ? 0 : 1)) {
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
static int fill_request(struct dt_body *b, struct dt_serve_req *r, const struct dt_prompt *p, uint32_t choice)
{
	const struct dt_serve_req *o = &b->r;
	int max_tokens = 0;

	if (room_for(b, p->n, &max_tokens) < 0)
		return -EINVAL;
	if (o->min_tokens > max_tokens)
		return dt_body_bad(b->e, "min_tokens", "'min_tokens' is more than 'max_tokens'");
	r->sampling = o->sampling;
	r->sampling.stream = choice;
	r->min_tokens = o->min_tokens;
	r->seq.urgency = o->seq.urgency;
	r->logprobs = o->logprobs;
	r->score_prompt = o->score_prompt;
	r->include_stop = o->include_stop;
	r->show_special = o->show_special;
	r->embed = o->embed;
	r->matcher = b->grammar ? dt_matcher_new(b->grammar) : NULL;
	r->bias = copy_of(o->bias, (size_t)o->sampling.nbias * sizeof(*o->bias));
	r->stop_ids = copy_of(o->stop_ids, (size_t)o->nstop_ids * sizeof(*o->stop_ids));
	r->nstop_ids = o->nstop_ids;
	r->nasked = o->nasked;
	r->stop = calloc((size_t)o->nstop + 1, sizeof(*r->stop));
	if ((b->grammar && !r->matcher) || !r->bias || !r->stop_ids || !r->stop ||
	    dt_serve_req_set_prompt(r, p->ids, p->n, max_tokens) < 0)
		return dt_body_no_memory(b->e);
	for (; r->nstop < o->nstop; r->nstop++) {
		struct dt_stop *d = &r->stop[r->nstop];

		d->n = o->stop[r->nstop].n;
		d->s = copy_of(o->stop[r->nstop].s, d->n);
		if (!d->s)
			return dt_body_no_memory(b->e);
	}
	return 0;
}

static void make_id(const char *prefix, char id[40])
{
	size_t n = strlen(prefix);
	unsigned char r[12];

	while (getrandom(r, sizeof(r), 0) != sizeof(r))
		continue;
	strcpy(id, prefix);
	for (size_t i = 0; i < sizeof(r); i++)
		sprintf(id + n + 2 * i, "%02x", r[i]);
}

int dt_body_call(struct dt_body *b, struct dt_completion *c)
{
	size_t room = (size_t)(b->m->engine->max_seqs + b->m->engine->queue);

	if (b->nprompts * (size_t)b->n > room)
		return dt_body_bad(b->e, "prompt",
				   "%zu prompts with %lld choices are more than the %zu allowed", b->nprompts,
				   (long long)b->n, room);
	c->nprompts = (int)b->nprompts;
	c->n = (int)b->n;
	c->call = dt_call_new(c->nprompts * c->n);
	c->prompt = calloc(b->nprompts, sizeof(*c->prompt));
	if (!c->call || !c->prompt)
		return dt_body_no_memory(b->e);
	c->call->salt = b->salt;
	c->call->tenant = b->m->tenant;
	make_id(c->chat ? "chatcmpl-" : "cmpl-", c->id);
	c->model = b->m->name;
	c->tok = b->m->engine->tok;
	c->created = time(NULL);
	for (int i = 0; i < c->nprompts; i++) {
		for (int k = 0; k < c->n; k++)
			if (fill_request(b, &c->call->req[i * c->n + k], &b->prompt[i], (uint32_t)k) < 0)
				return -EINVAL;
		if (!c->echo)
			continue;
		c->prompt[i].s = dt_utf8_clean(b->prompt[i].text.s, b->prompt[i].text.n, &c->prompt[i].n);
		if (!c->prompt[i].s)
			return dt_body_no_memory(b->e);
	}
	return 0;
}

void dt_body_release(struct dt_body *b)
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
	dt_grammar_drop(b->grammar);
}
