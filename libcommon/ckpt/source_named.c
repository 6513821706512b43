/* Names of the tokens that begin and end texts, from the files of a model. */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <string.h>

const char *const dt_source_named_keys[2] = {"bos_token", "eos_token"};

const char *dt_source_named(const struct dt_source *s, int which)
{
	return s->named[which];
}

int src_name(struct dt_source *s, int which, const char *text, size_t n, struct dt_err *err)
{
	if (s->named[which])
		return 0;
	s->named[which] = strndup(text, n);
	return s->named[which] ? 0 : dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
}

int src_name_all(struct dt_source *s, const json_t *o, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		const json_t *v = json_object_get(o, dt_source_named_keys[i]);
		const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

		if (text)
			rc = src_name(s, i, text, strlen(text), err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
