/*
 * dt-calibrate: times the operations of training on this machine, for dt-plan --ops.
 */
#include "base/log.h"
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "bench/ops/measure.h"
#include "kernels/device.h"

#include <errno.h>
#include <string.h>

static struct {
	double seconds, window_mib, weights_mib;
	int64_t cores;
	const char *out;
} a;

static const char *const examples[] = {
	"dt-calibrate --seconds 60 --out ops.json",
	"dt-calibrate | dt-plan --gpu cpu --gpus 2 --ops - gpt2-124m",
	NULL,
};

static const struct dt_opt opts[] = {
	{"seconds", 0, DT_OPT_REAL, &a.seconds, "S", "approximate duration", .min = 0.1, .max = 3600,
	 .def = "45"},
	{"cores", 0, DT_OPT_INT, &a.cores, "N", "number of cores to use", .min = 1, .max = DT_BENCH_MAX_CORES,
	 .def_text = "all that this process may run on"},
	{"window", 0, DT_OPT_REAL, &a.window_mib, "MIB",
	 "size of the memory window that activations move through; small ones stay in the cache", .min = 0.1,
	 .max = 4096, .def = "4"},
	{"weights-window", 0, DT_OPT_REAL, &a.weights_mib, "MIB", "the same for weights and their gradients",
	 .min = 0.1, .max = 4096, .def = "24"},
	{"out", 'o', DT_OPT_STR, &a.out, "FILE", "output file; - is standard output",
	 .complete = DT_COMPLETE_FILE, .def = "-"},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-calibrate",
	.summary = "time the operations of training on this machine, for dt-plan",
	.operands = "",
	.examples = examples,
	.opts = opts,
	.isa = dt_cpu_isa,
};

static int write_out(const struct dt_op_times *t, struct dt_err *err)
{
	json_t *o = dt_op_times_to_json(t);
	struct dt_tmpfile f;
	int rc;

	if (!strcmp(a.out, "-")) {
		rc = dt_json_write_line(stdout, o, err);
	} else {
		rc = dt_tmpfile_open(&f, a.out, err);
		if (rc == 0 && (rc = dt_json_write_line(f.f, o, err)) < 0)
			dt_tmpfile_abort(&f);
		else if (rc == 0)
			rc = dt_tmpfile_commit(&f, err);
	}
	json_decref(o);
	return rc;
}

static int run(struct dt_err *err)
{
	struct dt_bench_ops_ask ask = {a.seconds, (int)a.cores, a.window_mib, a.weights_mib, stderr};
	struct dt_op_times t;
	int rc = strcmp(a.out, "-") ? dt_out_check(a.out, err) : 0;

	if (rc < 0)
		return dt_program_fail(&program, err);
	rc = dt_bench_ops(&ask, &t, err);
	if (rc == -EINVAL)
		return dt_opt_usage_of(&program, stderr, NULL, err);
	if (rc == 0)
		rc = write_out(&t, err);
	dt_op_times_release(&t);
	return rc < 0 ? dt_program_fail(&program, err) : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, nargs;

	dt_dev_spin_less(argv);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (nargs > 0)
		status = dt_opt_usage_error(&program, stderr, "'%s': no operands are taken", argv[1]);
	else if (nargs == 0)
		status = run(&err);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = dt_program_fail(&program, &err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
