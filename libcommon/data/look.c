#include "data/look.h"

#include "data/dataset_look.h"
#include "data/image_look.h"

/* An action on a set, for either kind. */
struct act {
	int (*images)(const struct dt_images *d, const char *path, const struct dt_data_look *how, FILE *f,
		      struct dt_err *err);
	int (*tokens)(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
		      struct dt_err *err);
};

static int act_on(const struct act *a, const char *path, const struct dt_data_look *how, FILE *f,
		  struct dt_err *err)
{
	struct dt_images *images;
	struct dt_dataset *tokens;
	int rc = dt_images_is(path, err);

	if (rc < 0)
		return rc;
	if (rc) {
		rc = dt_images_open(path, &images, err);
		if (rc == 0) {
			rc = a->images(images, path, how, f, err);
			dt_images_close(images);
		}
		return rc;
	}
	rc = dt_dataset_open(path, &tokens, err);
	if (rc == 0) {
		rc = a->tokens(tokens, path, how, f, err);
		dt_dataset_close(tokens);
	}
	return rc;
}

int dt_data_info(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	return act_on(&(struct act){dt_images_print_info, dt_dataset_print_info}, path, how, f, err);
}

int dt_data_stats(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	return act_on(&(struct act){dt_images_print_stats, dt_dataset_print_stats}, path, how, f, err);
}

int dt_data_sample(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	return act_on(&(struct act){dt_images_print_samples, dt_dataset_print_samples}, path, how, f, err);
}

int dt_data_cat(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	return act_on(&(struct act){dt_images_print_files, dt_dataset_print_tokens}, path, how, f, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
