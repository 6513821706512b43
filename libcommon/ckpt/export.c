#include "ckpt/export_internal.h"

#include "kernels/rope.h"
#include "model/family.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n > k && !strcmp(s + n - k, with);
}

int dt_export_check(const struct dt_source *s, const char *dst, struct dt_export *x, char *ret_made,
		    size_t made_n, struct dt_err *err)
{
	char root[PATH_MAX];

	if (x->to == DT_SOURCE_AUTO && ends(dst, ".gguf"))
		x->to = DT_SOURCE_GGUF;
	else if (x->to == DT_SOURCE_AUTO && dt_source_kind(s) != DT_SOURCE_DT)
		x->to = DT_SOURCE_DT;
	if (x->to == DT_SOURCE_AUTO)
		return dt_err_set(err, -EINVAL, "the format to write '%s' in is unknown: use --to", dst);
	if (x->packing && exp_packed_check(s, x, err) < 0)
		return -EINVAL;
	if (x->format >= 0 && !x->packing && x->to != DT_SOURCE_GGUF &&
	    dt_format_info((enum dt_format)x->format)->dtype < 0)
		return dt_err_set(err, -EINVAL, "weights of type %s can only be written to GGUF",
				  dt_format_info((enum dt_format)x->format)->name);
	if (x->to == DT_SOURCE_DT)
		return dt_ckpt_split_path(dst, x->step, root, ret_made, made_n, err);
	if ((size_t)snprintf(ret_made, made_n, "%s", dst) >= made_n)
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", dst);
	return 0;
}

int dt_export(struct dt_source *s, const char *dst, const struct dt_export *x, struct dt_err *err)
{
	struct exporter e = {
		.s = s, .x = x, .scheme = x->to == DT_SOURCE_SAFETENSORS ? DT_NAMES_HF : DT_NAMES_GGUF};
	const struct dt_family *f = dt_family_find(dt_source_config(s)->family);
	char root[PATH_MAX], made[PATH_MAX];
	struct stat st;
	int rc;

	e.pairing = x->to == DT_SOURCE_LLAMA2C ? DT_ROPE_ADJACENT
					       : dt_names_pairing(e.scheme, dt_source_config(s));
	e.plus_one = x->to == DT_SOURCE_SAFETENSORS && f && f->hf_plus_one;
	if (dt_source_config(s)->tower.hidden)
		return dt_err_set(
			err, -ENOTSUP,
			"'%s' reads images with a tower of vision, which is served but not converted",
			dt_source_path(s));
	if (x->to != DT_SOURCE_DT && lstat(dst, &st) == 0) /* also a dangling link */
		return dt_err_sys(err, -EEXIST, "cannot write '%s'", dst);
	switch (x->to) {
	case DT_SOURCE_SAFETENSORS:
		rc = exp_safetensors(&e, dst, err);
		break;
	case DT_SOURCE_GGUF:
		rc = exp_gguf(&e, dst, err);
		break;
	case DT_SOURCE_LLMC:
		rc = exp_llmc(&e, dst, err);
		break;
	case DT_SOURCE_LLAMA2C:
		rc = exp_llama2c(&e, dst, err);
		break;
	default:
		rc = dt_ckpt_split_path(dst, x->step, root, made, sizeof(made), err);
		if (rc == 0)
			rc = exp_dt(&e, root, err);
	}
	if (x->ret_unpacked)
		*x->ret_unpacked = e.unpacked;
	if (x->ret_smaller)
		*x->ret_smaller = e.smaller;
	exp_release(&e);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
