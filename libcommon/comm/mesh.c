/* From a layout to groups: two ranks are in one group of an axis when they differ in that axis alone. */
#include "comm/internal.h"

#include <errno.h>
#include <string.h>

enum { DP = 1, TP = 2, PP = 4, CP = 8 };

/* A group over the axes of the mask: its color is this rank's place on the other axes. */
static int group(struct dt_comm **ret, struct dt_mesh *m, struct dt_world *w, const char *name, int axes,
		 struct dt_err *err)
{
	struct dt_coords c = m->at;

	if (axes & DP)
		c.dp = 0;
	if (axes & TP)
		c.tp = 0;
	if (axes & PP)
		c.pp = 0;
	if (axes & CP)
		c.cp = 0;
	return dt_comm_create(ret, w, name, dt_layout_rank(&m->layout, c), w->info.rank, err);
}

int dt_mesh_init(struct dt_mesh *ret, struct dt_world *w, const struct dt_layout *l, struct dt_err *err)
{
	struct dt_mesh m = {.layout = *l};
	int rc, need = dt_layout_world(l);
	char name[64];

	if (need != w->info.size) {
		dt_err_set(err, -EINVAL, "layout '%s' is for %d rank%s, but there %s %d",
			   dt_layout_format(l, name, sizeof(name)), need, need == 1 ? "" : "s",
			   w->info.size == 1 ? "is" : "are", w->info.size);
		dt_err_hint(err, "start it with 'mpirun -np %d', or change the layout", need);
		return -EINVAL;
	}
	m.at = dt_layout_coords(l, w->info.rank);
	rc = group(&m.world, &m, w, "world", DP | TP | PP | CP, err);
	if (!rc)
		rc = group(&m.dp, &m, w, "dp", DP, err);
	if (!rc)
		rc = group(&m.tp, &m, w, "tp", TP, err);
	if (!rc)
		rc = group(&m.pp, &m, w, "pp", PP, err);
	if (!rc)
		rc = group(&m.cp, &m, w, "cp", CP, err);
	if (!rc)
		rc = group(&m.model, &m, w, "model", TP | PP, err);
	if (!rc)
		rc = group(&m.data, &m, w, "data", DP | CP, err);
	if (rc) {
		dt_mesh_release(&m);
		return rc;
	}
	*ret = m;
	return 0;
}

void dt_mesh_release(struct dt_mesh *m)
{
	dt_comm_free(m->data);
	dt_comm_free(m->model);
	dt_comm_free(m->cp);
	dt_comm_free(m->pp);
	dt_comm_free(m->tp);
	dt_comm_free(m->dp);
	dt_comm_free(m->world);
	memset(m, 0, sizeof(*m));
}
/* SPDX-License-Identifier: Apache-2.0 */
