/* config.json and our own form: what is accepted has a parameter table, and is the same when read back. */
#include "model/params.h"
#include "model/same.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void write_and_read(const struct dt_config *c)
{
	json_t *own = dt_config_to_json(c), *hf;
	struct dt_config back;

	if (dt_config_from_json(own, &back, NULL) < 0 || !dt_config_same(c, &back, NULL))
		abort();
	json_decref(own);
	if (dt_config_to_hf(c, "float32", &hf, NULL) == 0)
		json_decref(hf);
}

static void try_config(const struct dt_config *c)
{
	struct dt_params p;

	write_and_read(c);
	if (c->layers > 64)
		return; /* tables of thousands of layers are right and slow */
	if (dt_model_params(c, &p, NULL) < 0 || dt_params_total(&p) <= 0)
		abort();
	dt_params_release(&p);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	struct dt_config c;
	json_t *o;

	if (dt_json_parse((const char *)data, n, "fuzz", &o, NULL) < 0)
		return 0;
	if (dt_config_from_hf(o, &c, NULL) == 0)
		try_config(&c);
	if (dt_config_from_json(o, &c, NULL) == 0)
		try_config(&c);
	json_decref(o);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
