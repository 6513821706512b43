/*
 * Describes a model from its files: as dt_config_load, and from the headers of GGUF and safetensors files,
 * which give the exact size of the weights. Only headers are read; of a GGUF in several files all of them.
 */
#ifndef DT_MODEL_FILE_H
#define DT_MODEL_FILE_H

#include "model/config.h"

struct dt_model_file {
	uint64_t weight_bytes; /* of all tensors; 0: the source has none */
	int64_t params;	       /* elements of all tensors; 0 likewise */
	int tensors;
	char kind[16]; /* "gguf", "safetensors", "description" */
	/*
	 * GGUF: enum dt_format of every parameter of model/params.h as the file has it; owned. NULL: no such
	 * file, or one that lacks a parameter or has it in a type we do not read.
	 */
	int8_t *format;
};

/*
 * name: as dt_config_load; a .gguf or .safetensors file; a Hugging Face folder with weights or their index. A
 * safetensors file takes its description from config.json beside it; without one the sizes are read off the
 * tensors of a Llama-like model, heads being 128 wide where no tensor tells.
 */
int dt_model_describe(const char *name, struct dt_config *ret, struct dt_model_file *ret_file,
		      struct dt_err *err);
void dt_model_file_release(struct dt_model_file *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
