/* Bodies of llama.cpp's routes and their answers, over the stand-in model: shared by their tests. */
#ifndef SERVE_NATIVE_H
#define SERVE_NATIVE_H

#include "serve/api/native.h"
#include "serve_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct fake fake;
static struct dt_tokenizer *tok;
static struct dt_engine *engine;

static int setup(void **state)
{
	return fake_open(&fake, &tok, &engine, 10) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	free(fake.cache);
	return 0;
}

static int parse(const char *body, struct dt_completion *c, struct dt_api_error *e)
{
	struct dt_api_model m = {.engine = dt_engine_params(engine), .name = "tiny", .seed = 9};
	json_t *v = json_loads(body, 0, NULL);
	int rc;

	assert_non_null(v);
	rc = (json_object_get(v, "input_prefix") ? dt_infill_parse : dt_native_parse)(v, &m, c, e);
	json_decref(v);
	return rc;
}

#include "serve_parse.h"

static struct dt_completion run(const char *body)
{
	struct dt_completion c = good(body);
	struct dt_err err;

	if (dt_engine_submit(engine, c.call, &err) < 0)
		fail_msg("%s", err.msg);
	dt_call_wait_done(c.call);
	return c;
}

static json_t *answer(const char *body)
{
	struct dt_completion c = run(body);
	struct dt_api_error e;
	json_t *v = dt_native_json(&c, &e);
	char *s;

	if (!v)
		fail_msg("%s", e.msg);
	s = json_dumps(v, 0);
	assert_true(strlen(s) < dt_completion_cost(&c, 0));
	free(s);
	dt_completion_release(&c);
	return v;
}

static const char *text_of(const json_t *v, const char *key)
{
	return json_string_value(json_object_get(v, key));
}

static int int_of(const json_t *v, const char *key)
{
	assert_true(json_is_integer(json_object_get(v, key)));
	return (int)json_integer_value(json_object_get(v, key));
}

static bool is_true(const json_t *v, const char *key)
{
	assert_true(json_is_boolean(json_object_get(v, key)));
	return json_is_true(json_object_get(v, key));
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
