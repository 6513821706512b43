#include "ckpt/look.h"

#include "ckpt/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define RUN_BYTES (64 << 20)

json_t *dt_ckpt_list_json(const struct dt_ckpt *c)
{
	json_t *list = json_array();

	for (int i = 0; list && i < dt_ckpt_ntensors(c); i++) {
		int64_t grid[DT_CKPT_MAX_DIM];
		bool regular = dt_ckpt_grid(c, i, grid);
		struct dt_ckpt_tensor t;
		json_t *o;

		dt_ckpt_tensor(c, i, &t);
		o = json_pack("{s:s, s:s, s:o, s:o, s:i, s:I}", "name", t.name, "dtype",
			      dt_dtype_name(t.dtype), "shape", ck_dims_json(t.ndim, t.shape), "cut",
			      regular ? ck_dims_json(t.ndim, grid) : json_null(), "pieces", t.npieces,
			      "bytes", (json_int_t)t.bytes);
		if (json_array_append_new(list, o) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static void print_numbers(enum dt_dtype t, const void *data, int64_t n, int64_t width, int64_t first, FILE *f)
{
	for (int64_t i = 0; i < n; i++) {
		char end = (first + i + 1) % width == 0 ? '\n' : ' ';
		double x;

		if (t == DT_I64) {
			fprintf(f, "%" PRId64 "%c", ((const int64_t *)data)[i], end);
			continue;
		}
		dt_ckpt_to_f64(t, (const char *)data + i * dt_dtype_size(t), 1, &x);
		fprintf(f, t == DT_F64 ? "%.17g%c" : "%.9g%c", x, end);
	}
}

int dt_ckpt_print(struct dt_ckpt *c, int i, bool raw, FILE *f, struct dt_err *err)
{
	struct dt_ckpt_tensor t;
	int64_t numel = 1, run, width;
	void *buf;
	int rc = 0;

	dt_ckpt_tensor(c, i, &t);
	for (int d = 0; d < t.ndim; d++)
		numel *= t.shape[d];
	width = t.ndim > 1 ? t.shape[t.ndim - 1] : 1;
	run = RUN_BYTES / dt_dtype_size(t.dtype);
	buf = malloc((size_t)(numel < run ? numel + 1 : run) * (size_t)dt_dtype_size(t.dtype));
	if (!buf)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", t.name);
	for (int64_t first = 0; first < numel && rc == 0; first += run) {
		int64_t n = numel - first < run ? numel - first : run;

		rc = dt_ckpt_read_run(c, i, first, n, buf, err);
		if (rc == 0 && raw)
			fwrite(buf, (size_t)dt_dtype_size(t.dtype), (size_t)n, f);
		else if (rc == 0)
			print_numbers(t.dtype, buf, n, width, first, f);
	}
	free(buf);
	return rc;
}
