/* --reference: log-probabilities of the training set's answers under the model that the run starts from. */
#include "train/trainer.h"

#include "base/h5.h"
#include "base/tmpfile.h"
#include "plan/objective.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each rank runs its part of one epoch's samples; an all-reduce then gives all results to all ranks. */
static int run_all(struct trainer *t, struct dt_err *err)
{
	struct objective *o = &t->objective;
	int64_t samples = source_samples(t), mb = t->run.microbatch, each = mb * t->run.layout.dp;
	double loss = 0;
	int rc = 0;

	dt_log_msg(&t->root_log,
		   "computing the reference model's log-probabilities of the answers of %lld samples",
		   (long long)samples);
	o->asking = o->keeping = true;
	for (int64_t n = 0; n < samples && rc == 0; n += each)
		rc = pipeline_forward(t, false, n + t->mesh.at.dp * mb, samples, &loss, err);
	o->asking = o->keeping = false;
	if (rc == 0 && t->mesh.at.tp != 0)
		memset(o->kept, 0, (size_t)o->documents * sizeof(*o->kept));
	return rc < 0 ? rc
		      : dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), o->kept, NULL, (size_t)o->documents,
				      DT_F64, DT_SUM, "reference log-probabilities", err);
}

static int put(const struct trainer *t, hid_t f)
{
	const struct objective *o = &t->objective;

	if (dt_h5_put_text(f, "format", "dt-reference") < 0 ||
	    dt_h5_put_text(f, "tokenizer_hash", t->source.info.tokenizer_hash) < 0 ||
	    dt_h5_put_int(f, "tokens", t->source.info.tokens) < 0)
		return -EIO;
	return dt_h5_put_list(f, "logprobs", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, o->documents, o->kept, false);
}

static int keep(struct trainer *t, const char *path, struct dt_err *err)
{
	char *to = NULL, *tmp = NULL;
	int rc = dt_out_path(path, &to, err);
	hid_t f;

	if (rc < 0)
		return rc;
	if (asprintf(&tmp, "%s.tmp.%d", to, (int)getpid()) < 0) {
		free(to);
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	}
	dt_h5_quiet();
	f = H5Fcreate(tmp, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	rc = f < 0 ? -EIO : put(t, f);
	if (f >= 0 && H5Fclose(f) < 0)
		rc = -EIO;
	if (rc < 0)
		rc = dt_h5_error(err, "cannot write '%s'", path);
	if (rc == 0)
		rc = dt_fsync_path(tmp, err);
	if (rc == 0 && rename(tmp, to) < 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", path);
	if (rc < 0)
		unlink(tmp);
	free(tmp);
	free(to);
	return rc;
}

static int read_back(struct trainer *t, const char *path, struct dt_err *err)
{
	struct objective *o = &t->objective;
	char *hash = NULL;
	int64_t tokens = 0, n = 0;
	size_t bytes;
	hid_t f, list;
	int rc = dt_h5_open(path, &f, err);

	if (rc < 0)
		return rc;
	rc = dt_h5_get_text(f, path, "tokenizer_hash", &hash, err);
	if (rc == 0)
		rc = dt_h5_get_int(f, path, "tokens", 0, INT64_MAX, &tokens, err);
	if (rc == 0)
		rc = dt_h5_open_list(f, path, "logprobs", H5T_FLOAT, &list, &n, &bytes, err);
	if (rc == 0) {
		if (n != o->documents || bytes != 8 || tokens != t->source.info.tokens ||
		    strcmp(hash, t->source.info.tokenizer_hash))
			rc = dt_err_set(err, -EBADMSG, "'%s' was not made from data set '%s'", path,
					t->run.data.train);
		else if (H5Dread(list, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, o->kept) < 0)
			rc = dt_h5_error(err, "cannot read '%s'", path);
		H5Dclose(list);
	}
	free(hash);
	H5Fclose(f);
	return rc;
}

int objective_start(struct trainer *t, bool fresh, struct dt_err *err)
{
	const char *path = t->run.objective.reference;
	struct objective *o = &t->objective;
	int rc = 0;

	if (!dt_objective_rule(t->run.objective.kind)->reference || !path)
		return 0;
	o->documents = dt_dataset_documents(source_sampler(t, false, 0, &(int64_t){0})->data);
	o->kept = calloc((size_t)o->documents, sizeof(*o->kept));
	if (!o->kept)
		rc = dt_err_sys(err, -ENOMEM, "cannot hold the reference's log-probabilities");
	rc = trainer_agree(t, rc, err);
	if (rc < 0 || !fresh)
		return rc < 0 ? rc : trainer_agree(t, read_back(t, path, err), err);
	rc = run_all(t, err);
	return rc < 0 ? rc : trainer_agree(t, t->info.rank ? 0 : keep(t, path, err), err);
}
/* SPDX-License-Identifier: Apache-2.0 */
