#include "train/outputs.h"

#include "base/json.h"
#include "base/tmpfile.h"
#include "train/trainer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *outputs_overwrite(const struct dt_run *r, const char *path)
{
	const char *const in[] = {r->data.eval, r->teacher.file, r->rl.rollouts, r->model};

	if (r->data.train && dt_mixture_has(r->data.train, path))
		return path;
	for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++)
		if (in[i] && access(in[i], F_OK) == 0 && dt_out_is(path, in[i]))
			return in[i];
	return NULL;
}

/* Files, not folders. A device may be named more than once. */
static int check_apart(const struct dt_run *r, struct dt_err *err)
{
	const struct {
		const char *option, *path;
	} out[] = {{"metrics", r->metrics && strcmp(r->metrics, "-") ? r->metrics : NULL},
		   {"trace", r->trace},
		   {"prometheus", r->prometheus},
		   {"error-file", r->error_file},
		   {"reference", r->objective.reference}};
	const char *in;

	for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++) {
		if (!out[i].path)
			continue;
		if ((in = outputs_overwrite(r, out[i].path)))
			return dt_err_set(err, -EINVAL, "--%s would overwrite the input '%s'", out[i].option,
					  in);
		for (size_t k = 0; k < i; k++)
			if (out[k].path && dt_out_is(out[i].path, out[k].path))
				return dt_err_set(err, -EINVAL, "--%s and --%s are the same file, '%s'",
						  out[k].option, out[i].option, out[i].path);
	}
	return 0;
}

int outputs_check(const struct trainer *t, struct dt_err *err)
{
	const struct dt_run *r = &t->run;
	const char *const path[] = {r->metrics, r->trace, r->prometheus, r->error_file}, *in = r->save.dir;
	const char *const folder[] = {in, r->tensorboard};
	int rc = t->info.rank == 0 ? check_apart(r, err) : 0;

	for (size_t i = 0; i < sizeof(folder) / sizeof(*folder) && rc == 0 && t->info.rank == 0; i++)
		if (folder[i])
			rc = dt_out_check_dir(folder[i], err);
	for (size_t i = 0; i < sizeof(path) / sizeof(*path) && rc == 0 && t->info.rank == 0; i++)
		if (path[i] && in && dt_out_is(path[i], in))
			rc = dt_err_set(err, -EISDIR, "cannot write '%s': it is the folder of --save",
					path[i]);
		else if (path[i] && strcmp(path[i], "-") &&
			 (!in || access(in, F_OK) == 0 || !dt_out_in(path[i], in)))
			rc = dt_out_check(path[i], err);
	return rc;
}

void dt_train_write_error(const struct dt_run *r, const struct dt_err *err)
{
	json_t *o = r->error_file && err->msg[0] && !outputs_overwrite(r, r->error_file)
			    ? json_pack("{s:i, s:s, s:s}", "code", err->code, "message", err->msg, "hint",
					err->hint)
			    : NULL;

	if (o)
		json_dump_file(o, r->error_file, JSON_COMPACT);
	json_decref(o);
}
/* SPDX-License-Identifier: Apache-2.0 */
