#include "train/trainer.h"

#include <errno.h>

int trainer_agree(struct trainer *t, int rc, struct dt_err *err)
{
	int32_t guilty = rc < 0 ? t->info.rank : t->info.size;
	int mine = rc;

	rc = dt_all_reduce(t->everyone.world, &guilty, NULL, 1, DT_I32, DT_MIN, "agreement on success", err);
	if (rc < 0 || guilty == t->info.size)
		return rc;
	t->agreed = true;
	if (guilty == t->info.rank)
		return mine;
	return dt_err_set(err, -ECANCELED, "%s", "");
}
