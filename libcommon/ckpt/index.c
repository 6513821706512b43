/* index.h5: a virtual dataset for every tensor, so that people and h5py see whole tensors by name. */
#include "ckpt/internal.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

static void to_hsize(int n, const int64_t *v, hsize_t *ret)
{
	for (int d = 0; d < n; d++)
		ret[d] = (hsize_t)v[d];
}

/* Sources are named without a folder: HDF5 then looks beside the index, so a checkpoint can be moved. */
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

static int add_tensor(hid_t file, hid_t lcpl, const struct ck_manifest *m, const struct ck_tensor *t)
{
	hid_t type = ck_h5_type(t->dtype), dcpl = H5Pcreate(H5P_DATASET_CREATE), whole, set = -1;
	hsize_t dims[DT_CKPT_MAX_DIM];
	int bad = 0;

	to_hsize(t->ndim, t->shape, dims);
	whole = H5Screate_simple(t->ndim, dims, NULL);
	H5Pset_obj_track_times(dcpl, false);
	for (int i = 0; i < t->npieces && !bad; i++)
		bad = map_piece(dcpl, whole, m, t, &m->piece[t->first + i]);
	H5Sselect_all(whole);
	if (!bad)
		set = H5Dcreate2(file, t->name, type, whole, lcpl, dcpl, H5P_DEFAULT);
	H5Tclose(type);
	H5Pclose(dcpl);
	H5Sclose(whole);
	return set < 0 || H5Dclose(set) < 0 ? -1 : 0;
}

int ck_index_write(const char *dir, const struct ck_manifest *m, struct dt_err *err)
{
	char path[CK_PATH];
	hid_t file, lcpl;
	int rc = 0;

	ck_join(path, dir, "index.h5");
	file = ck_h5_create(path, m->ntensor);
	if (file < 0)
		return ck_h5_err(err, "cannot create '%s'", path);
	lcpl = H5Pcreate(H5P_LINK_CREATE);
	H5Pset_create_intermediate_group(lcpl, 1);
	for (int i = 0; i < m->ntensor && rc == 0; i++)
		if (add_tensor(file, lcpl, m, &m->tensor[i]) < 0)
			rc = ck_h5_err(err, "cannot add '%s' to '%s'", m->tensor[i].name, path);
	H5Pclose(lcpl);
	if (H5Fclose(file) < 0 && rc == 0)
		rc = ck_h5_err(err, "cannot write '%s'", path);
	return rc < 0 ? rc : dt_fsync_path(path, err);
}
