#include "data/image_source.h"
#include "data/unpack.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CIFAR_BYTES 3072
#define NAMES_BYTES ((size_t)1 << 20)

struct idx {
	struct unpack *f;
	const char *path;
	int type, rank;
	uint32_t dim[4];
};

static uint32_t big_endian(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int idx_open(struct idx *x, const char *path, struct dt_err *err)
{
	uint8_t head[4], dim[4];
	int rc = unpack_open(path, &x->f, err);

	x->path = path;
	if (rc == 0)
		rc = unpack_all(x->f, head, 4, "the header", err);
	if (rc < 0)
		return rc;
	x->type = head[2];
	x->rank = head[3];
	if (head[0] || head[1] || x->rank < 1 || x->rank > 4)
		return dt_err_set(err, -EBADMSG, "'%s' is not an IDX file of 1 to 4 dimensions", path);
	for (int i = 0; i < x->rank && rc == 0; i++) {
		rc = unpack_all(x->f, dim, 4, "the header", err);
		x->dim[i] = big_endian(dim);
	}
	return rc;
}

/* Bytes of an integer of the type; 0: not an integer type. */
static int bytes_of(int type)
{
	return type == 0x08 || type == 0x09 ? 1 : type == 0x0b ? 2 : type == 0x0c ? 4 : 0;
}

static int next_label(struct idx *x, int *ret, struct dt_err *err)
{
	uint8_t b[4] = {0};
	int n = bytes_of(x->type), rc = unpack_all(x->f, b, (size_t)n, "the list of labels", err);

	if (rc < 0)
		return rc;
	*ret = x->type == 0x09	 ? (int8_t)b[0]
	       : x->type == 0x0b ? (int16_t)(b[0] << 8 | b[1])
	       : x->type == 0x0c ? (int32_t)big_endian(b)
				 : b[0];
	return 0;
}

static int at_end(struct unpack *f, const char *path, struct dt_err *err)
{
	char more;
	int got = unpack_read(f, &more, 1, err);

	return got > 0 ? dt_err_set(err, -EBADMSG, "'%s' is longer than its header says", path) : got;
}

static int give_idx(struct idx *images, struct idx *labels, const struct dt_image_sink *to,
		    struct dt_err *err)
{
	char name[32];
	struct dt_image_item item = {.name = name,
				     .raw = true,
				     .channels = 1,
				     .height = (int)images->dim[1],
				     .width = (int)images->dim[2],
				     .n = (size_t)images->dim[1] * images->dim[2]};
	uint8_t *bytes = malloc(item.n);
	int rc = bytes ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", images->path);

	item.bytes = bytes;
	for (uint32_t i = 0; i < images->dim[0] && rc == 0; i++) {
		snprintf(name, sizeof(name), "image %u", i);
		rc = unpack_all(images->f, bytes, item.n, "the list of images", err);
		if (rc == 0)
			rc = next_label(labels, &item.label, err);
		if (rc == 0)
			rc = to->image(to->ctx, &item, err);
	}
	free(bytes);
	if (rc == 0)
		rc = at_end(images->f, images->path, err);
	return rc == 0 ? at_end(labels->f, labels->path, err) : rc;
}

static int check_idx(const struct idx *images, const struct idx *labels, struct dt_err *err)
{
	if (images->rank != 3 || labels->rank != 1)
		return dt_err_set(err, -EBADMSG, "'%s' has %d dimensions and '%s' %d: not images and labels",
				  images->path, images->rank, labels->path, labels->rank);
	if (images->type != 0x08 || !bytes_of(labels->type))
		return dt_err_set(err, -EBADMSG, "the elements of '%s' and '%s' are not bytes and integers",
				  images->path, labels->path);
	if (images->dim[0] != labels->dim[0])
		return dt_err_set(err, -EBADMSG, "'%s' has %u images, '%s' has %u labels", images->path,
				  images->dim[0], labels->path, labels->dim[0]);
	if (images->dim[1] < 1 || images->dim[2] < 1 || images->dim[1] > DT_IMAGE_SIDE_MAX ||
	    images->dim[2] > DT_IMAGE_SIDE_MAX ||
	    (int64_t)images->dim[1] * images->dim[2] > DT_IMAGE_PIXELS_MAX)
		return dt_err_set(err, -EBADMSG, "'%s': images of %u x %u are not supported", images->path,
				  images->dim[1], images->dim[2]);
	return 0;
}

int dt_image_from_idx(const char *const path[2], const struct dt_image_sink *to, struct dt_err *err)
{
	struct idx x[2] = {0};
	int rc = idx_open(&x[0], path[0], err), images;

	if (rc == 0)
		rc = idx_open(&x[1], path[1], err);
	images = x[0].rank < x[1].rank;
	if (rc == 0)
		rc = check_idx(&x[images], &x[!images], err);
	if (rc == 0)
		rc = give_idx(&x[images], &x[!images], to, err);
	unpack_close(x[0].f);
	unpack_close(x[1].f);
	return rc;
}

/* Reads class names, one a line, from a text file beside path. Without the file classes have no names. */
static int cifar_names(const char *path, bool hundred, const struct dt_image_sink *to, struct dt_err *err)
{
	const char *slash = strrchr(path, '/'), *file = hundred ? "fine_label_names.txt" : "batches.meta.txt";
	char *beside, *text = NULL, *save, *line;
	size_t n;
	int rc;

	if (!to->cls || asprintf(&beside, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, file) < 0)
		return 0;
	rc = dt_read_file(beside, NAMES_BYTES, &text, &n, NULL);
	free(beside);
	if (rc < 0)
		return 0;
	for (line = strtok_r(text, "\r\n", &save); line && rc == 0; line = strtok_r(NULL, "\r\n", &save))
		rc = to->cls(to->ctx, line, err);
	free(text);
	return rc;
}

int dt_image_from_cifar(const char *path, bool hundred, const struct dt_image_sink *to, struct dt_err *err)
{
	uint8_t record[2 + CIFAR_BYTES];
	char name[64];
	int head = hundred ? 2 : 1, size = head + CIFAR_BYTES;
	struct dt_image_item item = {.name = name,
				     .raw = true,
				     .channels = 3,
				     .height = 32,
				     .width = 32,
				     .bytes = record + head,
				     .n = CIFAR_BYTES};
	struct unpack *f;
	int rc = unpack_open(path, &f, err), got = 1;

	if (rc < 0)
		return rc;
	rc = cifar_names(path, hundred, to, err);
	for (int64_t i = 0; rc == 0 && (got = unpack_read(f, record, 1, err)) > 0; i++) {
		snprintf(name, sizeof(name), "record %lld", (long long)i);
		rc = unpack_all(f, record + 1, (size_t)size - 1, name, err);
		item.label = record[head - 1];
		if (rc == 0)
			rc = to->image(to->ctx, &item, err);
	}
	unpack_close(f);
	return rc < 0 ? rc : got;
}
/* SPDX-License-Identifier: Apache-2.0 */
