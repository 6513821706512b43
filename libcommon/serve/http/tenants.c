#include "serve/http/tenants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make(struct dt_tenants *t, struct dt_err *err)
{
	const struct dt_keyfile *f = &t->file;

	t->key = calloc((size_t)f->nkeys + 1, sizeof(*t->key));
	t->tenant = calloc((size_t)f->ntenants + 1, sizeof(*t->tenant));
	if (!t->key || !t->tenant)
		return dt_err_sys(err, -ENOMEM, "cannot take the keys");
	for (int i = 0; i < f->nkeys; i++)
		t->key[i] = (struct dt_api_key){.key = f->key[i].key, .tenant = f->key[i].tenant};
	for (int i = 0; i < f->ntenants; i++) {
		const struct dt_key_tenant *from = &f->tenant[i];

		if (from->requests > 0)
			return dt_err_set(
				err, -EINVAL,
				"tenant '%s': requests-per-minute is for dt-route, which counts them",
				from->name);
		t->tenant[i] = (struct dt_tenant){
			.share = {.weight = from->weight, .priority = from->priority}, .quota = from->tokens};
		memcpy(t->tenant[i].name, from->name, sizeof(t->tenant[i].name));
	}
	return 0;
}

int dt_tenants_open(struct dt_tenants *t, const char *path, const char *const *more, int n,
		    struct dt_err *err)
{
	struct dt_tenants made = {0};
	int rc = path ? dt_keyfile_read(path, &made.file, err) : 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = dt_keyfile_add(&made.file, more[i], err);
	if (rc == 0)
		rc = make(&made, err);
	if (rc < 0)
		dt_tenants_release(&made);
	else
		*t = made;
	return rc;
}

void dt_tenants_release(struct dt_tenants *t)
{
	free(t->key);
	free(t->tenant);
	dt_keyfile_release(&t->file);
	*t = (struct dt_tenants){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
