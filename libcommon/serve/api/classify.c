#include "serve/api/classify.h"

#include "base/base64.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- request body ---- */

static int make_room(struct dt_classification *r, const struct dt_classify *c, int n, struct dt_api_error *e)
{
	const struct dt_classify_info i = dt_classify_info(c);

	r->pixels = malloc((size_t)n * i.row * sizeof(float));
	r->logits = calloc((size_t)n * (size_t)i.classes, sizeof(float));
	r->job = (struct dt_classify_job){.n = n, .pixels = r->pixels, .logits = r->logits};
	if (!r->pixels || !r->logits)
		return dt_api_fail(e, 500, "server_error", NULL, "out of memory");
	return 0;
}

static int decode(struct dt_classification *r, struct dt_classify *c, int at, const void *bytes, size_t n,
		  struct dt_api_error *e)
{
	const size_t row = dt_classify_info(c).row;
	struct dt_err err = {0};

	if (dt_classify_decode(c, bytes, n, r->pixels + (size_t)at * row, &err) == 0)
		return 0;
	dt_classify_refused(c);
	dt_api_fail(e, err.code == -ENOMEM ? 500 : 400, "invalid_request_error", "bad_image", "image %d: %s",
		    at, err.msg);
	return -EINVAL;
}

static int decode_text(struct dt_classification *r, struct dt_classify *c, int at, const json_t *v,
		       struct dt_api_error *e)
{
	const char *s = json_string_value(v), *comma;
	size_t n = json_string_length(v), bytes_n = 0;
	unsigned char *bytes;
	int rc;

	if (!s)
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "image %d is not a base64 string",
				   at);
	comma = n > 5 && !strncmp(s, "data:", 5) ? memchr(s, ',', n) : NULL;
	if (comma) {
		n -= (size_t)(comma + 1 - s);
		s = comma + 1;
	}
	bytes = dt_base64_bytes(s, n, &bytes_n);
	if (!bytes) {
		dt_classify_refused(c);
		return dt_api_fail(e, 400, "invalid_request_error", "bad_image", "image %d is not base64",
				   at);
	}
	rc = decode(r, c, at, bytes, bytes_n, e);
	free(bytes);
	return rc;
}

int dt_classification_read_top(const json_t *v, int *ret, struct dt_api_error *e)
{
	const json_int_t k = json_integer_value(v);

	if (v && (!json_is_integer(v) || k < 1 || k > 100000))
		return dt_api_fail(e, 400, "invalid_request_error", NULL,
				   "'top_k' is not a number from 1 to 100000");
	*ret = v ? (int)k : DT_CLASSIFY_TOP;
	return 0;
}

int dt_classification_parse(struct dt_classification *r, struct dt_classify *c, const json_t *body,
			    struct dt_api_error *e)
{
	static const char *const known[] = {"image", "images", "top_k", "model", NULL};
	json_t *one = json_object_get(body, "image"), *many = json_object_get(body, "images");
	const size_t n = one ? 1 : json_array_size(many);
	const char *key;
	int rc;

	if (!json_is_object(body))
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "the body is not an object");
	key = dt_api_unknown(body, known, false);
	if (key)
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "unknown key '%.100s'", key);
	if (!one == !many)
		return dt_api_fail(e, 400, "invalid_request_error", NULL,
				   "either 'image' or 'images' is required");
	if (n < 1 || n > DT_CLASSIFY_IMAGES)
		return dt_api_fail(e, 400, "invalid_request_error", NULL,
				   "'images' is not an array of 1 to %d images", DT_CLASSIFY_IMAGES);
	rc = dt_classification_read_top(json_object_get(body, "top_k"), &r->top, e);
	if (rc == 0)
		rc = make_room(r, c, (int)n, e);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = decode_text(r, c, (int)i, one ? one : json_array_get(many, i), e);
	return rc;
}

int dt_classification_raw(struct dt_classification *r, struct dt_classify *c, const void *bytes, size_t n,
			  int top, struct dt_api_error *e)
{
	r->top = top;
	return make_room(r, c, 1, e) < 0 ? -EINVAL : decode(r, c, 0, bytes, n, e);
}

void dt_classification_release(struct dt_classification *r)
{
	dt_classify_job_release(&r->job);
	free(r->pixels);
	free(r->logits);
	memset(r, 0, sizeof(*r));
}

int dt_classification_run(struct dt_classification *r, struct dt_classify *c, struct dt_api_error *e)
{
	struct dt_err err = {0};
	int rc = dt_classify_submit(c, &r->job, &err);

	if (rc == 0 && (rc = dt_classify_wait(c, &r->job, &err)) < 0)
		return dt_api_fail(e, 500, "server_error", NULL, "%s", err.msg);
	return rc < 0 ? dt_api_fail_submit(e, rc, &err, 0) : 0;
}

/* ---- reply ---- */

json_t *dt_classification_top(const struct dt_classification *r, const struct dt_classify *c, int i)
{
	const struct dt_classify_info info = dt_classify_info(c);
	const int classes = info.classes, k = r->top < classes ? r->top : classes;
	const float *l = r->logits + (size_t)i * (size_t)classes;
	json_t *list = json_array();
	double sum = 0, most = (double)l[0];
	int last = -1;

	for (int j = 1; j < classes; j++)
		most = fmax(most, (double)l[j]);
	for (int j = 0; j < classes; j++)
		sum += exp((double)l[j] - most);
	for (int n = 0; n < k; n++) { /* the next most probable class; of equal ones, the lowest number */
		int best = -1;

		for (int j = 0; j < classes; j++) {
			const bool behind = last < 0 || l[j] < l[last] || (l[j] == l[last] && j > last);

			if (behind && (best < 0 || l[j] > l[best]))
				best = j;
		}
		if (best < 0)
			break; /* NaN */
		json_array_append_new(list,
				      json_pack("{s:s, s:i, s:f}", "class", info.name[best], "index", best,
						"probability", exp((double)l[best] - most) / sum));
		last = best;
	}
	return list;
}

json_t *dt_classification_json(const struct dt_classification *r, const struct dt_classify *c,
			       const char *model)
{
	json_t *data = json_array();

	for (int i = 0; i < r->job.n; i++)
		json_array_append_new(data, json_pack("{s:i, s:o}", "index", i, "predictions",
						      dt_classification_top(r, c, i)));
	return json_pack("{s:s, s:s, s:o}", "object", "classification", "model", model, "data", data);
}
/* SPDX-License-Identifier: Apache-2.0 */
