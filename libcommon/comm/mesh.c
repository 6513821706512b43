/* Groups of a layout: two ranks are in the same group of a set of axes if they differ in these axes alone. */
#include "comm/internal.h"

#include <errno.h>
#include <string.h>

int dt_mesh_init(struct dt_mesh *ret, struct dt_world *w, const struct dt_layout *l, struct dt_err *err)
{
	struct dt_mesh m = {.layout = *l, .w = w};
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
	rc = dt_mesh_need(&m, DT_ON_ALL, err);
	if (rc == 0)
		*ret = m;
	return rc;
}

int dt_mesh_need(struct dt_mesh *m, unsigned axes, struct dt_err *err)
{
	int color = dt_layout_group(&m->layout, m->at, axes);
	char name[32];

	if (color < 0)
		return dt_err_set(err, color, "ranks along %s are not a group",
				  dt_axes_name(axes, name, sizeof(name)));
	if (m->made[axes])
		return 0;
	return dt_comm_create(&m->made[axes], m->w, dt_axes_name(axes, name, sizeof(name)), color,
			      m->w->info.rank, err);
}

struct dt_comm *dt_mesh_comm(const struct dt_mesh *m, unsigned axes)
{
	return m->made[axes];
}

void dt_mesh_release(struct dt_mesh *m)
{
	for (int i = (1 << DT_AXES) - 1; i >= 0; i--)
		dt_comm_free(m->made[i]);
	memset(m, 0, sizeof(*m));
}
/* SPDX-License-Identifier: Apache-2.0 */
