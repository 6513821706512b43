/* HDF5 behind one-line errors. */
#include "ckpt/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void ck_h5_quiet(void)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static herr_t take_reason(unsigned n, const H5E_error2_t *e, void *arg)
{
	char *buf = arg;

	if (n == 0 && e->desc)
		snprintf(buf, 192, "%s", e->desc);
	return 0;
}

int ck_h5_err(struct dt_err *err, const char *fmt, ...)
{
	char what[320], reason[192] = "";
	const char *at;
	int code = -EIO;
	va_list ap;

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, reason);
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	at = strstr(reason, "errno = ");
	if (at && atoi(at + 8) > 0) {
		code = -atoi(at + 8);
		return dt_err_sys(err, code, "%s", what);
	}
	for (char *c = reason; *c; c++)
		if (*c == '\n' || *c == '\t')
			*c = ' ';
	return dt_err_set(err, code, "%s: HDF5: %s", what, *reason ? reason : "no reason given");
}

hid_t ck_h5_type(enum dt_dtype t)
{
	hid_t id;

	switch (t) {
	case DT_F32:
		return H5Tcopy(H5T_IEEE_F32LE);
	case DT_F64:
		return H5Tcopy(H5T_IEEE_F64LE);
	case DT_I32:
		return H5Tcopy(H5T_STD_I32LE);
	case DT_I64:
		return H5Tcopy(H5T_STD_I64LE);
	case DT_U8:
		return H5Tcopy(H5T_STD_U8LE);
	case DT_U16:
		return H5Tcopy(H5T_STD_U16LE);
	case DT_I8:
		return H5Tcopy(H5T_STD_I8LE);
	default:
		break;
	}
	/* sign bit 15, then exponent, then mantissa */
	id = H5Tcopy(H5T_IEEE_F32LE);
	if (t == DT_BF16)
		H5Tset_fields(id, 15, 7, 8, 0, 7);
	else
		H5Tset_fields(id, 15, 10, 5, 0, 10);
	H5Tset_size(id, 2);
	H5Tset_ebias(id, t == DT_BF16 ? 127 : 15);
	return id;
}

/*
 * No file locks: a file is only ever read after the rename that made it final, and network file systems often
 * refuse them. Large pieces start on a page; small ones are packed.
 */
static hid_t access_list(void)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
	H5Pset_fclose_degree(fapl, H5F_CLOSE_SEMI);
	H5Pset_file_locking(fapl, false, true);
	H5Pset_alignment(fapl, 65536, 4096);
	return fapl;
}

hid_t ck_h5_create(const char *path, int ndatasets)
{
	hid_t fapl = access_list(), f;
	hsize_t meta = (hsize_t)ndatasets * 512;

	H5Pset_meta_block_size(fapl, meta < 4096 ? 4096 : meta > (4 << 20) ? 4 << 20 : meta);
	f = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, fapl);
	H5Pclose(fapl);
	return f;
}

hid_t ck_h5_open(const char *path)
{
	hid_t fapl = access_list(), f = H5Fopen(path, H5F_ACC_RDONLY, fapl);

	H5Pclose(fapl);
	return f;
}

static bool hard_link(hid_t file, const char *name)
{
	H5L_info_t info;

	return H5Lget_info(file, name, &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD;
}

static const char *wrong_with(hid_t set, const struct ck_tensor *t, const struct ck_piece *p)
{
	hid_t type = H5Dget_type(set), want = ck_h5_type(t->dtype), space = H5Dget_space(set);
	hid_t dcpl = H5Dget_create_plist(set);
	hsize_t dims[H5S_MAX_RANK] = {0};
	const char *wrong = NULL;

	if (type < 0 || space < 0 || dcpl < 0)
		wrong = "cannot be read";
	else if (H5Tequal(type, want) <= 0)
		wrong = "has another type than the manifest says";
	else if (H5Sget_simple_extent_ndims(space) != t->ndim ||
		 H5Sget_simple_extent_dims(space, dims, NULL) < 0)
		wrong = "has another shape than the manifest says";
	else if (H5Pget_layout(dcpl) != (p->packed ? H5D_CHUNKED : H5D_CONTIGUOUS) ||
		 H5Pget_external_count(dcpl) != 0)
		wrong = "is stored in another way than the manifest says";
	else if (!p->packed && (uint64_t)H5Dget_offset(set) != p->at)
		wrong = "lies elsewhere in the file than the manifest says";
	for (int d = 0; d < t->ndim && !wrong; d++)
		if (dims[d] != (hsize_t)p->shape[d])
			wrong = "has another shape than the manifest says";
	H5Tclose(type);
	H5Tclose(want);
	H5Sclose(space);
	H5Pclose(dcpl);
	return wrong;
}

int ck_h5_piece(hid_t file, const struct ck_tensor *t, const struct ck_piece *p, hid_t *ret,
		struct dt_err *err)
{
	char name[CK_DATASET_NAME], kind[80];
	const char *wrong;
	hid_t set;

	ck_dataset_name(name, sizeof(name), t->name, t->ndim, p->off);
	snprintf(kind, sizeof(kind), "%.*s", (int)strcspn(t->name, "/"), t->name);
	if (!hard_link(file, kind) || !hard_link(file, name))
		return dt_err_set(err, -EBADMSG, "dataset '%s' is missing", name);
	set = H5Dopen2(file, name, H5P_DEFAULT);
	if (set < 0) {
		ck_h5_err(err, "dataset '%s' cannot be opened", name);
		return -EBADMSG;
	}
	wrong = wrong_with(set, t, p);
	if (wrong) {
		H5Dclose(set);
		return dt_err_set(err, -EBADMSG, "dataset '%s' %s", name, wrong);
	}
	*ret = set;
	return 0;
}
