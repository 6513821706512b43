/*
 * A model by what its files say: as dt_config_load, and from the heads of GGUF and safetensors files, whose
 * tensors give the bytes of the weights exactly. Only heads are read.
 */
#ifndef DT_MODEL_FILE_H
#define DT_MODEL_FILE_H

#include "model/config.h"

struct dt_model_file {
	uint64_t weight_bytes; /* of all tensors; 0: the source has none */
	int64_t params;	       /* elements of all tensors; 0 likewise */
	int tensors;
	char kind[16]; /* "gguf", "safetensors", "description" */
};

/*
 * name: as dt_config_load; a .gguf or .safetensors file; a Hugging Face folder with weights or their index. A
 * safetensors file takes its description from config.json beside it; without one the sizes are read off the
 * tensors of a Llama-like model, heads being 128 wide where no tensor tells.
 */
int dt_model_describe(const char *name, struct dt_config *ret, struct dt_model_file *ret_file,
		      struct dt_err *err);

#endif
