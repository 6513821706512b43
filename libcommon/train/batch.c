#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>

int trainer_load(struct trainer *t, const struct dt_flight *f, struct dt_sampler *s, int64_t n, int64_t end,
		 struct dt_err *err)
{
	int64_t seq = t->run.seq;
	int32_t *row = malloc((size_t)(seq + 1) * sizeof(*row));
	int rc = 0;

	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot load a sample");
	for (int64_t b = 0; b < t->run.microbatch && rc == 0; b++) {
		bool real = n + b < end;

		if (real)
			rc = dt_sampler_get(s, n + b, row, err);
		for (int64_t i = 0; i < seq; i++) {
			f->host_ids[b * seq + i] = real ? row[i] : 0;
			f->host_targets[b * seq + i] = real ? row[i + 1] : -1;
		}
	}
	free(row);
	return rc == 0 ? dt_flight_upload(f, &t->exec, err) : rc;
}
