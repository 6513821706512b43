/* Resuming from a checkpoint: what the command line may change. */
#include "plan/run_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool among(const struct dt_strs *list, const char *name)
{
	for (int i = 0; list && i < list->n; i++)
		if (!strcmp(list->v[i], name))
			return true;
	return false;
}

/* Sets a row's value from dt_run_to_json's text. */
static int take(struct dt_run_options *o, int i, const char *was, struct dt_err *err)
{
	struct dt_opt opt = dt_run_row_bound(o, i);

	o->given[i] = true;
	if (opt.type != DT_OPT_FLAG)
		return dt_opt_set(&opt, was, err);
	*(bool *)opt.dest = !strcmp(was, "on");
	return 0;
}

/* Sets options that the command line does not give to their saved values. */
static int inherit(struct dt_run_options *o, const json_t *saved, struct dt_err *err)
{
	for (int i = 0; i < dt_run_row_count(); i++) {
		const char *name = dt_run_row_bound(o, i).name;
		const char *was = json_string_value(json_object_get(saved, name));

		if (!was || o->given[i] || dt_run_row_change(i) == LOCAL)
			continue;
		if (take(o, i, was, err) < 0)
			return dt_err_prefix(err, "option '%s' in the checkpoint", name);
		o->inherited[i] = true;
	}
	return 0;
}

int dt_run_from_settings(struct dt_run_options *o, const json_t *settings, struct dt_run *ret,
			 struct dt_err *err)
{
	int rc;

	*o = (struct dt_run_options){0};
	for (int i = 0; i < dt_run_row_count(); i++) {
		struct dt_opt opt = dt_run_row_bound(o, i);
		const char *value = json_string_value(json_object_get(settings, opt.name));

		if (opt.def && (rc = dt_opt_set(&opt, opt.def, err)) < 0)
			return rc;
		if (value && take(o, i, value, err) < 0)
			return dt_err_prefix(err, "option '%s' of the run", opt.name);
	}
	if ((rc = dt_run_options_finish(o, err)) < 0)
		return rc;
	*ret = o->run;
	return 0;
}

int dt_run_options_resume(struct dt_run_options *o, const json_t *saved,
			  void (*tell)(void *arg, const char *text), void *arg, struct dt_err *err)
{
	const struct dt_strs *accept = o->run.save.accept;
	struct dt_run_options now;
	char refused[256] = "", first[80] = "";
	int rc;

	for (int i = 0; accept && i < accept->n; i++)
		if (dt_run_row_find(accept->v[i]) < 0 ||
		    dt_run_row_change(dt_run_row_find(accept->v[i])) == LOCAL)
			return dt_err_set(err, -EINVAL, "--accept-change '%s': no such option in checkpoints",
					  accept->v[i]);
	if ((rc = inherit(o, saved, err)) < 0)
		return rc;
	now = *o;
	if (dt_run_options_finish(&now, NULL) < 0)
		return 0; /* the caller, who does the same, reports it as a usage error */
	for (int i = 0; i < dt_run_row_count(); i++) {
		const char *name = dt_run_row_bound(&now, i).name, *is;
		const char *was = json_string_value(json_object_get(saved, name));
		enum dt_run_change change = dt_run_row_change(i);
		char value[128], text[400];

		is = dt_run_row_value(i, &now.run, value, sizeof(value));
		if (change < TOLD || !was || !is || dt_run_same_value(was, is) ||
		    !dt_run_reads(&now.run, name))
			continue;
		snprintf(text, sizeof(text), "--%s is %s, in the checkpoint it was %s", name, is, was);
		if (change == MEANING && !among(accept, name)) {
			if (!first[0])
				snprintf(first, sizeof(first), "%s", name);
			snprintf(refused + strlen(refused), sizeof(refused) - strlen(refused), "%s%s",
				 refused[0] ? "; " : "", text);
		} else {
			tell(arg, text);
		}
	}
	if (!refused[0])
		return 0;
	dt_err_set(err, -EINVAL, "cannot resume with changed settings: %s", refused);
	dt_err_hint(err, "--accept-change %s accepts the new value", first);
	return -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
