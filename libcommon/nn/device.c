#include "nn/device.h"

#include <errno.h>
#include <string.h>

/* The number of CUDA devices that ranks are assigned in turn; 1: the name has an index. */
static int turns(enum dt_dev_kind kind, const char *name)
{
	const int n = kind == DT_DEV_CUDA && !strchr(name, ':') ? dt_dev_count(kind) : 1;

	return n > 0 ? n : 1;
}

bool dt_nn_device_is_card(const char *name)
{
	enum dt_dev_kind kind = DT_DEV_CPU;
	int index;

	return name && dt_dev_parse(name, &kind, &index) == 0 && kind == DT_DEV_CUDA;
}

int dt_nn_device_ranks(const struct dt_dev *dev, const char *name, int local_size)
{
	const int n = turns(dev->kind, name);

	return (local_size + n - 1) / n;
}

/* Parses a name; "auto" tries to open a CUDA device, which takes time. */
static int parse(const char *name, enum dt_dev_kind *kind, int *index, struct dt_err *err)
{
	int rc = dt_dev_parse(name, kind, index);

	return rc < 0 ? dt_err_set(err, rc, "no such device: '%s' (auto, cpu, cuda or cuda:N)", name) : 0;
}

int dt_nn_device_open(struct dt_dev **ret, const char *name, int local_rank, int nthreads, struct dt_err *err)
{
	enum dt_dev_kind kind = DT_DEV_CPU;
	int index = 0, rc = name ? parse(name, &kind, &index, err) : 0;

	if (rc < 0)
		return rc;
	if (kind == DT_DEV_CUDA && !strchr(name, ':'))
		index = local_rank % turns(kind, name);
	rc = dt_dev_open(ret, kind, index, nthreads);
	return rc < 0 ? dt_err_set(err, rc, "cannot open device '%s': %s", name ? name : "cpu",
				   dt_dev_why(rc))
		      : 0;
}

int dt_nn_device_check(const char *name, uint64_t memory, const char *folder, struct dt_err *err)
{
	enum dt_dev_kind kind;
	int index, rc = parse(name, &kind, &index, err);

	if (rc == 0 && memory && !folder && kind == DT_DEV_CPU)
		rc = dt_err_set(err, -EINVAL, "--weights-memory needs --weights-disk or a GPU");
	return rc;
}

int dt_nn_device_convolves(const struct dt_dev *dev, const struct dt_config *c, struct dt_err *err)
{
	if (!dt_config_is_image(c) || dt_dev_convolves(dev))
		return 0;
	return dt_err_set(
		err, -ENOTSUP,
		"'%s' classifies images, for which a GPU needs cuDNN: this program was built without it or "
		"does not find it",
		c->name);
}
/* SPDX-License-Identifier: Apache-2.0 */
