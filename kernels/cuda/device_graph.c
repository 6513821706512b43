/* CUDA graphs: records a step once and runs it again. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct dt_graph {
	void *record;
	const char *scratch, *padded; /* the device's scratch when it was recorded */
};

int dt_cuda_graph_begin(struct dt_dev *dev)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = c ? dt_gpu_record_begin(c->stream) : -ENODEV;

	if (rc == 0)
		c->recording = true;
	return rc;
}

int dt_cuda_graph_end(struct dt_dev *dev, struct dt_graph **ret)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	struct dt_graph *g = calloc(1, sizeof *g);
	void *record = NULL;
	int rc = c ? dt_gpu_record_end(c->stream, &record) : -ENODEV;

	if (c)
		c->recording = false;
	if (rc == 0 && g && ret) {
		*g = (struct dt_graph){record, c->scratch, c->padded};
		*ret = g;
		return 0;
	}
	if (record)
		dt_gpu_record_close(record);
	rc = rc < 0 || g ? rc : -ENOMEM;
	free(g);
	return rc;
}

int dt_cuda_graph_run(struct dt_dev *dev, const struct dt_graph *g)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return g->scratch == c->scratch && g->padded == c->padded ? dt_gpu_record_run(g->record, c->stream)
								  : -ESTALE;
}

void dt_cuda_graph_close(struct dt_dev *dev, struct dt_graph *g)
{
	if (dt_cuda_enter(dev))
		dt_gpu_record_close(g->record);
	free(g);
}
/* SPDX-License-Identifier: Apache-2.0 */
