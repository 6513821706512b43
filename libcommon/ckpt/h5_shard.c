/* Shards in HDF5: element types, a new file over h5_out.c's driver, the check of a piece's dataset. */
#include "ckpt/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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
	/* offset and size of sign, exponent, mantissa */
	id = H5Tcopy(H5T_IEEE_F32LE);
	if (t == DT_BF16)
		H5Tset_fields(id, 15, 7, 8, 0, 7);
	else
		H5Tset_fields(id, 15, 10, 5, 0, 10);
	H5Tset_size(id, 2);
	H5Tset_ebias(id, t == DT_BF16 ? 127 : 15);
	return id;
}

/* Large pieces are aligned to pages; small ones are packed. */
static hid_t access_list(void)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
	H5Pset_fclose_degree(fapl, H5F_CLOSE_SEMI);
	H5Pset_alignment(fapl, 65536, 4096);
	return fapl;
}

hid_t ck_h5_create(struct ck_h5_out *out, int ndatasets)
{
	hid_t fapl = access_list(), fcpl = H5Pcreate(H5P_FILE_CREATE), f;
	hsize_t meta = (hsize_t)ndatasets * 512;

	H5Pset_meta_block_size(fapl, meta < 4096 ? 4096 : meta > (4 << 20) ? 4 << 20 : meta);
	H5Pset_obj_track_times(fcpl, false); /* so that equal checkpoints have equal bytes */
	f = ck_h5_set_out(fapl, out) < 0 ? -1 : H5Fcreate("out", H5F_ACC_TRUNC, fcpl, fapl);
	H5Pclose(fapl);
	H5Pclose(fcpl);
	return f;
}

int ck_h5_group(hid_t file, const char *tensor)
{
	char kind[80];
	hid_t gcpl, group;

	snprintf(kind, sizeof(kind), "%.*s", (int)strcspn(tensor, "/"), tensor);
	if (H5Lexists(file, kind, H5P_DEFAULT) > 0)
		return 0;
	gcpl = H5Pcreate(H5P_GROUP_CREATE);
	H5Pset_obj_track_times(gcpl, false);
	group = H5Gcreate2(file, kind, H5P_DEFAULT, gcpl, H5P_DEFAULT);
	H5Pclose(gcpl);
	return group < 0 || H5Gclose(group) < 0 ? -1 : 0;
}

static bool hard_link(hid_t file, const char *name)
{
	H5L_info_t info;

	return H5Lget_info(file, name, &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD;
}

static bool filter_is(hid_t dcpl, unsigned i, H5Z_filter_t want)
{
	unsigned flags, config;
	size_t n = 0;

	return H5Pget_filter2(dcpl, i, &flags, &n, NULL, 0, NULL, &config) == want;
}

/* Whether the dataset's bytes are where the manifest says, and compressed as it says. */
static bool same_place(hid_t set, hid_t dcpl, const struct ck_tensor *t, const struct ck_piece *p)
{
	static const hsize_t first[DT_CKPT_MAX_DIM];
	hsize_t chunk[H5S_MAX_RANK], size;
	unsigned mask;
	haddr_t at;

	if (H5Pget_external_count(dcpl) != 0)
		return false;
	if (!p->packed)
		return H5Pget_layout(dcpl) == H5D_CONTIGUOUS && (uint64_t)H5Dget_offset(set) == p->at;
	if (H5Pget_layout(dcpl) != H5D_CHUNKED || H5Pget_chunk(dcpl, H5S_MAX_RANK, chunk) != t->ndim)
		return false;
	for (int d = 0; d < t->ndim; d++)
		if (chunk[d] != (hsize_t)p->shape[d])
			return false;
	return H5Dget_chunk_info_by_coord(set, first, &mask, &at, &size) >= 0 && mask == 0 && at == p->at &&
	       size == p->stored && H5Pget_nfilters(dcpl) == 2 && filter_is(dcpl, 0, H5Z_FILTER_SHUFFLE) &&
	       filter_is(dcpl, 1, H5Z_FILTER_DEFLATE);
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
	for (int d = 0; d < t->ndim && !wrong; d++)
		if (dims[d] != (hsize_t)p->shape[d])
			wrong = "has another shape than the manifest says";
	if (!wrong && !same_place(set, dcpl, t, p))
		wrong = "is not stored where and how the manifest says";
	H5Tclose(type);
	H5Tclose(want);
	H5Sclose(space);
	H5Pclose(dcpl);
	return wrong;
}

int ck_h5_check(hid_t file, const struct ck_tensor *t, const struct ck_piece *p, struct dt_err *err)
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
		dt_h5_error(err, "dataset '%s' cannot be opened", name);
		return -EBADMSG;
	}
	wrong = wrong_with(set, t, p);
	H5Dclose(set);
	return wrong ? dt_err_set(err, -EBADMSG, "dataset '%s' %s", name, wrong) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
