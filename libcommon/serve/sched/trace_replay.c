/* Reads and replays the scheduler's decisions. */
#include "serve/sched/trace.h"

#include "base/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 1 << 26, MOST_SEQS = 1 << 20, MOST_LEN = 1 << 26 };

struct replay {
	struct dt_kvpool pool;
	struct dt_sched sched;
	struct dt_sched_item *items;
	struct dt_seq **seq; /* [n] by number; NULL: removed */
	int64_t n, cap;
	struct dt_replay *ret;
};

static int bad(struct dt_err *err, const char *what)
{
	return dt_err_set(err, -EINVAL, "%s", what);
}

static int begin(struct replay *r, const json_t *v, struct dt_err *err)
{
	int64_t schema, blocks, size, seqs, tokens, priority, window = 0;
	const json_t *list = json_object_get(v, "tenants");
	int n = (int)json_array_size(list), rc;
	struct dt_share *share;
	bool sharing;

	if (dt_json_int(v, "schema", true, 1, 1, &schema, err) < 0 ||
	    dt_json_int(v, "blocks", true, 1, MOST_BLOCKS, &blocks, err) < 0 ||
	    dt_json_int(v, "block_size", true, 1, 1 << 16, &size, err) < 0 ||
	    dt_json_int(v, "max_seqs", true, 1, MOST_SEQS, &seqs, err) < 0 ||
	    dt_json_int(v, "max_tokens", true, 1, MOST_LEN, &tokens, err) < 0 ||
	    dt_json_int(v, "window", false, 0, MOST_LEN, &window, err) < 0 ||
	    dt_json_bool(v, "share", true, &sharing, err) < 0)
		return -EINVAL;
	if (n < 1 || blocks * size > INT32_MAX)
		return bad(err, "the number of cache blocks or tenants is out of range");
	share = calloc((size_t)n, sizeof(*share));
	r->items = calloc((size_t)seqs, sizeof(*r->items));
	rc = share && r->items ? 0 : -ENOMEM;
	for (int i = 0; i < n && rc == 0; i++) {
		const json_t *t = json_array_get(list, (size_t)i);

		rc = dt_json_real(t, "weight", true, &share[i].weight, err) < 0 ||
				     dt_json_int(t, "priority", true, INT32_MIN, INT32_MAX, &priority, err) <
					     0 ||
				     !(share[i].weight > 0)
			     ? bad(err, "the weight or priority of a tenant is invalid")
			     : 0;
		share[i].priority = rc == 0 ? (int)priority : 0;
	}
	if (rc == 0)
		rc = dt_kvpool_init(&r->pool, (int)blocks, (int)size, sharing);
	if (rc == -ENOMEM)
		dt_err_sys(err, rc, "cannot begin");
	if (rc == 0)
		rc = dt_sched_init(&r->sched, &r->pool, (int)seqs, (int)tokens, share, n, err);
	r->sched.window = (int)window;
	free(share);
	return rc;
}

/* The request whose number is v, if it still exists. */
static struct dt_seq *find(const struct replay *r, const json_t *v)
{
	json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;

	return i >= 0 && i < r->n ? r->seq[i] : NULL;
}

static void free_seq(struct dt_seq *q)
{
	if (q)
		free((void *)(uintptr_t)q->tokens);
	free(q);
}

/* Writes the ids of array a to q's tokens from position `at`; the tokens have room for q->max_rows + 1. */
static int take_ids(struct dt_seq *q, int at, const json_t *a)
{
	int32_t *to = (int32_t *)(uintptr_t)q->tokens;

	for (size_t i = 0; i < json_array_size(a); i++) {
		const json_t *id = json_array_get(a, i);

		if (!json_is_integer(id) || at + (int64_t)i > q->max_rows)
			return -EINVAL;
		to[at + (int)i] = (int32_t)json_integer_value(id);
	}
	return 0;
}

static int submit(struct replay *r, const json_t *v, struct dt_err *err)
{
	const json_t *tokens = json_object_get(v, "tokens"), *leader = json_object_get(v, "leader");
	int64_t number, known, rows, score, score_first = 0, owner, word, tenant, adapter = 0, urgency = 0;
	struct dt_seq *q;
	int rc = 0;

	if (dt_json_int(v, "submit", true, r->n, r->n, &number, err) < 0 ||
	    dt_json_int(v, "max_rows", true, 1, MOST_LEN, &rows, err) < 0 ||
	    dt_json_int(v, "known", true, 1, rows, &known, err) < 0 ||
	    dt_json_int(v, "score_end", true, 0, known, &score, err) < 0 ||
	    dt_json_int(v, "score_first", false, 0, score, &score_first, err) < 0 ||
	    dt_json_int(v, "owner", true, INT64_MIN, INT64_MAX, &owner, err) < 0 ||
	    dt_json_int(v, "word", true, INT64_MIN, INT64_MAX, &word, err) < 0 ||
	    dt_json_int(v, "adapter", false, 0, INT64_MAX, &adapter, err) < 0 ||
	    dt_json_int(v, "tenant", true, 0, r->sched.ntenants - 1, &tenant, err) < 0 ||
	    dt_json_int(v, "urgency", false, INT32_MIN, INT32_MAX, &urgency, err) < 0)
		return -EINVAL;
	if (r->n == r->cap) {
		int64_t cap = r->cap ? 2 * r->cap : 64;
		struct dt_seq **p = realloc(r->seq, (size_t)cap * sizeof(struct dt_seq *));

		if (!p)
			return dt_err_sys(err, -ENOMEM, "cannot go on");
		r->seq = p;
		r->cap = cap;
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		return dt_err_sys(err, -ENOMEM, "cannot go on");
	r->seq[r->n++] = q;
	*q = (struct dt_seq){.number = number,
			     .known = (int)known,
			     .max_rows = (int)rows,
			     .score_first = (int)score_first,
			     .score_end = (int)score,
			     .salt = {(uint64_t)owner, (uint64_t)word, (uint64_t)adapter},
			     .tenant = (int)tenant,
			     .urgency = (int)urgency,
			     .leader = find(r, leader)};
	if (leader && !q->leader)
		return bad(err, "the request's leader does not exist");
	if (tokens) {
		q->tokens = calloc((size_t)rows + 1, sizeof(int32_t));
		if (!q->tokens)
			return dt_err_sys(err, -ENOMEM, "cannot go on");
		rc = (int)json_array_size(tokens) == known ? take_ids(q, 0, tokens) : -EINVAL;
	}
	return rc < 0 ? bad(err, "the number of tokens differs from 'known'")
		      : dt_sched_submit(&r->sched, q, err);
}

/* Applies the progress of the running requests since the previous step. */
static int take_state(struct replay *r, const json_t *a, struct dt_err *err)
{
	for (size_t i = 0; i < json_array_size(a); i++) {
		json_int_t id, known, computed, draft;
		struct dt_seq *q;
		json_t *tokens;

		if (json_unpack(json_array_get(a, i), "[I,I,I,I,o]", &id, &known, &computed, &draft,
				&tokens) < 0)
			return bad(err, "a state is not an array of five numbers");
		q = id >= 0 && id < r->n ? r->seq[id] : NULL;
		if (!q || q->state != DT_SEQ_RUNNING)
			return bad(err, "a request that should be running is not");
		if (known < q->known || known > q->max_rows || computed < 0 || computed >= known ||
		    draft < 0 || known + draft > q->max_rows ||
		    computed > (int64_t)q->blocks.n * r->pool.block_size ||
		    (q->tokens && ((json_int_t)json_array_size(tokens) != known - q->known ||
				   take_ids(q, q->known, tokens) < 0)))
			return bad(err, "a request's progress is out of range");
		q->known = (int)known;
		q->computed = (int)computed;
		q->draft = (int)draft;
		q->held = json_is_true(json_array_get(json_array_get(a, i), 5)); /* old files omit it */
	}
	return 0;
}

static int step(struct replay *r, const json_t *v, struct dt_err *err)
{
	int n = dt_sched_step(&r->sched, r->items);
	json_t *plan;

	if (n < 0)
		return dt_err_sys(err, n, "cannot plan");
	plan = dt_schedtrace_plan_json(r->items, n);
	if (!json_equal(plan, json_object_get(v, "plan")) ||
	    r->sched.waiting != json_integer_value(json_object_get(v, "waiting")) ||
	    r->sched.preemptions != json_integer_value(json_object_get(v, "preemptions"))) {
		if (r->ret->different++ == 0)
			r->ret->first_different = r->ret->steps;
	}
	json_decref(plan);
	for (int i = 0; i < n; i++)
		r->ret->tokens += r->items[i].n;
	r->ret->steps++;
	return 0;
}

static int computed(struct replay *r, struct dt_seq *q, const json_t *v, struct dt_err *err)
{
	int64_t to, n;

	if (q->state != DT_SEQ_RUNNING)
		return bad(err, "a request that should be running is not");
	if (dt_json_int(v, "to", true, 0, q->known, &to, err) < 0 ||
	    dt_json_int(v, "n", true, 1, MOST_LEN, &n, err) < 0)
		return -EINVAL;
	if (to > (int64_t)q->blocks.n * r->pool.block_size)
		return bad(err, "a request has computed more than its blocks hold");
	q->computed = (int)to;
	dt_sched_computed(&r->sched, q, (int)n);
	return 0;
}

static int fork_seq(struct replay *r, struct dt_seq *q, const json_t *v, struct dt_err *err)
{
	const struct dt_seq *l = q->leader;

	if (!l || (int64_t)l->blocks.n * r->pool.block_size < q->known)
		return bad(err, "a request has no leader to share blocks with");
	if (dt_sched_fork(&r->sched, q) != json_is_true(json_object_get(v, "ok")) && r->ret->different++ == 0)
		r->ret->first_different = r->ret->steps;
	return 0;
}

static void drop(struct replay *r, struct dt_seq *q)
{
	for (int64_t i = 0; i < r->n; i++)
		if (r->seq[i] && r->seq[i]->leader == q)
			r->seq[i]->leader = NULL;
	dt_sched_remove(&r->sched, q);
	r->seq[q->number] = NULL;
	free_seq(q);
}

static int event(struct replay *r, const json_t *v, struct dt_err *err)
{
	const json_t *key;
	struct dt_seq *q;

	if (!r->items)
		return begin(r, v, err);
	if (json_object_get(v, "submit"))
		return submit(r, v, err);
	if ((key = json_object_get(v, "state")))
		return take_state(r, key, err);
	if (json_object_get(v, "step"))
		return step(r, v, err);
	key = json_object_get(v, "computed");
	key = key ? key : json_object_get(v, "fork");
	key = key ? key : json_object_get(v, "remove");
	q = find(r, key);
	if (!q)
		return bad(err, key ? "no such request" : "unknown event");
	if (json_object_get(v, "computed"))
		return computed(r, q, v, err);
	if (json_object_get(v, "fork"))
		return fork_seq(r, q, v, err);
	drop(r, q);
	return 0;
}

int dt_schedtrace_replay(const char *path, struct dt_replay *ret, struct dt_err *err)
{
	struct replay r = {.ret = ret};
	struct dt_jsonl in;
	json_t *v;
	int rc = dt_jsonl_open(&in, path, err);

	if (rc < 0)
		return rc;
	*ret = (struct dt_replay){.first_different = -1};
	while ((rc = dt_jsonl_next(&in, &v, err)) > 0) {
		rc = event(&r, v, err);
		json_decref(v);
		if (rc < 0) {
			dt_err_prefix(err, "%s:%zu", in.name, in.line);
			if (ret->different > 0)
				dt_err_hint(err, "step %lld was planned differently than in the file",
					    (long long)ret->first_different);
			break;
		}
	}
	if (rc == 0 && !r.items)
		rc = dt_err_set(err, -ENODATA, "'%s' contains no trace", path);
	ret->requests = r.n;
	ret->preemptions = r.sched.preemptions;
	ret->prefix_hits = r.sched.prefix_hits;
	for (int64_t i = 0; i < r.n; i++)
		if (r.seq[i])
			drop(&r, r.seq[i]);
	free(r.seq);
	free(r.items);
	if (r.sched.tenant)
		dt_sched_release(&r.sched);
	dt_kvpool_release(&r.pool);
	dt_jsonl_close(&in);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
