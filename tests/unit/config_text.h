/* Hugging Face's config.json as text, read or refused. */
#ifndef DT_TEST_CONFIG_TEXT_H
#define DT_TEST_CONFIG_TEXT_H

#include "model/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline int from_text(const char *text, struct dt_config *c, struct dt_err *err)
{
	json_t *o = NULL;
	int rc = dt_json_parse(text, strlen(text), "test", &o, err);

	if (rc == 0)
		rc = dt_config_from_hf(o, c, err);
	json_decref(o);
	return rc;
}

static inline void accept(const char *text, struct dt_config *c)
{
	struct dt_err err = {0};
	int rc = from_text(text, c, &err);

	if (rc < 0)
		fail_msg("refused: %s\n%s", err.msg, text);
}

/* Refused, in one line that says what. */
static inline void refuse(const char *text, const char *what)
{
	struct dt_config c;
	struct dt_err err = {0};

	memset(&c, 0x5a, sizeof(c));
	if (from_text(text, &c, &err) == 0)
		fail_msg("accepted: %s", text);
	if (!strstr(err.msg, what) || strchr(err.msg, '\n'))
		fail_msg("'%s' is not in: %s", what, err.msg);
	for (size_t i = 0; i < sizeof(c); i++)
		assert_int_equal(((unsigned char *)&c)[i], 0x5a);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
