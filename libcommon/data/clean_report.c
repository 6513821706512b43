#include "data/clean.h"

#define BEGINNING 120 /* bytes of a document quoted in a note */

static const char *reason_name(enum dt_clean_reason r)
{
	static const char *const names[DT_CLEAN_N] = {
		"kept",		  "too short",	       "too long", "symbols",	"repeated",
		"repeated words", "in another script", "excluded", "duplicate", "near duplicate"};

	return names[r];
}

json_t *dt_clean_json(const struct dt_clean *c)
{
	struct dt_clean_counts n;
	json_t *o = json_object();

	dt_clean_counts(c, &n);
	for (int r = 0; r < DT_CLEAN_N; r++)
		json_object_set_new(o, reason_name((enum dt_clean_reason)r),
				    json_pack("{s:I, s:I}", "documents", (json_int_t)n.documents[r], "bytes",
					      (json_int_t)n.bytes[r]));
	return o;
}

void dt_clean_summary(const struct dt_clean *c, char *buf, size_t size)
{
	struct dt_clean_counts n;
	size_t at = 0;

	dt_clean_counts(c, &n);
	*buf = '\0';
	for (int r = DT_CLEAN_KEPT + 1; r < DT_CLEAN_N && at < size; r++)
		if (n.documents[r])
			at += (size_t)snprintf(buf + at, size - at, "%s%lld %s", at ? ", " : "",
					       (long long)n.documents[r],
					       reason_name((enum dt_clean_reason)r));
}

int dt_clean_note(const struct dt_clean *c, FILE *f, enum dt_clean_reason why, int64_t like, const char *text,
		  size_t n, struct dt_err *err)
{
	json_t *o = json_pack("{s:I, s:s, s:I}", "document", (json_int_t)dt_clean_seen(c) - 1, "reason",
			      reason_name(why), "bytes", (json_int_t)n);
	json_t *start = NULL;
	int rc;

	if (like >= 0)
		json_object_set_new(o, "like", json_integer((json_int_t)like));
	for (int cut = 0; cut < 4 && !start; cut++) /* json_stringn fails on a cut character */
		start = json_stringn(text, n < BEGINNING ? n : (size_t)(BEGINNING - cut));
	if (start)
		json_object_set_new(o, "start", start);
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
