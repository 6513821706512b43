/* index.h5: a virtual dataset for every tensor, so that users and h5py see whole tensors by name. */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void to_hsize(int n, const int64_t *v, hsize_t *ret)
{
	for (int d = 0; d < n; d++)
		ret[d] = (hsize_t)v[d];
}

/* Sources are named without a folder: HDF5 looks beside the index, so a checkpoint can be moved. */
static int map_piece(hid_t dcpl, hid_t whole, const struct ck_manifest *m, const struct ck_tensor *t,
		     const struct ck_piece *p)
{
	hsize_t off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM];
	char name[CK_DATASET_NAME];
	hid_t source;
	herr_t bad;

	to_hsize(t->ndim, p->off, off);
	to_hsize(t->ndim, p->shape, shape);
	ck_dataset_name(name, sizeof(name), t->name, t->ndim, p->off);
	source = H5Screate_simple(t->ndim, shape, NULL);
	bad = H5Sselect_hyperslab(whole, H5S_SELECT_SET, off, NULL, shape, NULL) < 0 ||
	      H5Pset_virtual(dcpl, whole, m->file[p->file].name, name, source) < 0;
	H5Sclose(source);
	return bad ? -1 : 0;
}

static int add_tensor(hid_t file, const char *path, const struct ck_manifest *m, const struct ck_tensor *t,
		      struct dt_err *err)
{
	hid_t type = ck_h5_type(t->dtype), dcpl = H5Pcreate(H5P_DATASET_CREATE), whole, set = -1;
	hsize_t dims[DT_CKPT_MAX_DIM];
	int bad = 0, rc = 0;

	to_hsize(t->ndim, t->shape, dims);
	whole = H5Screate_simple(t->ndim, dims, NULL);
	H5Pset_obj_track_times(dcpl, false);
	for (int i = 0; i < t->npieces && !bad; i++)
		bad = map_piece(dcpl, whole, m, t, &m->piece[t->first + i]);
	H5Sselect_all(whole);
	if (!bad && ck_h5_group(file, t->name) == 0)
		set = H5Dcreate2(file, t->name, type, whole, H5P_DEFAULT, dcpl, H5P_DEFAULT);
	if (set < 0 || H5Dclose(set) < 0)
		rc = dt_h5_error(err, "cannot add '%s' to '%s'", t->name, path);
	H5Tclose(type);
	H5Pclose(dcpl);
	H5Sclose(whole);
	return rc;
}

int ck_index_write(const char *dir, const struct ck_manifest *m, struct dt_err *err)
{
	char path[CK_PATH];
	struct ck_h5_out out = {0};
	hid_t file;
	int rc = 0;

	ck_join(path, dir, "index.h5");
	out.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out.fd < 0)
		return dt_err_sys(err, -errno, "cannot create '%s'", path);
	file = ck_h5_create(&out, m->ntensor);
	if (file < 0)
		rc = dt_h5_error(err, "cannot create '%s'", path);
	for (int i = 0; i < m->ntensor && rc == 0; i++)
		rc = add_tensor(file, path, m, &m->tensor[i], err);
	if (file >= 0 && H5Fclose(file) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", path);
	if (rc == 0 && out.error)
		rc = dt_err_sys(err, out.error, "cannot write '%s'", path);
	if (rc == 0 && fsync(out.fd) < 0)
		rc = dt_err_sys(err, -errno, "cannot flush '%s' to disk", path);
	if (close(out.fd) < 0 && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", path);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
