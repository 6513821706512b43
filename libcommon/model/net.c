#include "model/net.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_MLP_WIDTH (1 << 24)

/* A convolution k x k from cin to cout whose output is side x side, with its batch norm behind it. */
static void conv(struct dt_net *n, int64_t k, int64_t cin, int64_t cout, int64_t side)
{
	int64_t weights = k * k * cin * cout, out = cout * side * side;

	n->params += weights + 2 * cout;
	n->macs += (double)(weights * side * side);
	n->conv_outputs += out;
	n->kept += 2 * out; /* the norm reads one, the next convolution the other (activation in place) */
	n->largest = out > n->largest ? out : n->largest;
}

static void linear(struct dt_net *n, int64_t in, int64_t out)
{
	n->params += in * out + out;
	n->macs += (double)(in * out);
	n->conv_outputs += out;
	n->kept += out;
	n->largest = out > n->largest ? out : n->largest;
}

static void resnet(struct dt_net *n, const int blocks[4], bool bottleneck)
{
	int64_t in = 64, side = 56, width = 64;

	n->inputs = 3 * 224 * 224;
	n->kept = n->inputs;
	conv(n, 7, 3, 64, 112);
	n->kept += 64 * 56 * 56; /* after pooling */
	for (int s = 0; s < 4; s++, width *= 2) {
		int64_t out = bottleneck ? 4 * width : width;

		for (int b = 0; b < blocks[s]; b++) {
			int64_t from = side;

			if (s > 0 && b == 0)
				side /= 2;
			if (bottleneck) { /* the stride is on the 3 x 3 */
				conv(n, 1, in, width, from);
				conv(n, 3, width, width, side);
				conv(n, 1, width, out, side);
			} else {
				conv(n, 3, in, width, side);
				conv(n, 3, width, width, side);
			}
			if (in != out)
				conv(n, 1, in, out, side);
			in = out;
		}
	}
	n->kept += in; /* pooled */
	n->outputs = 1000;
	linear(n, in, n->outputs);
}

static int mlp(const char *widths, struct dt_net *n, struct dt_err *err)
{
	int64_t before = 0, w;
	int layers = 0;

	for (const char *p = widths;; p++) {
		size_t len = strcspn(p, "-");
		char text[24];

		snprintf(text, sizeof(text), "%.*s", len < sizeof(text) ? (int)len : 0, p);
		if (dt_parse_int(text, 1, MAX_MLP_WIDTH, &w, err) < 0)
			return dt_err_prefix(err, "'%.60s'", n->name);
		if (before)
			linear(n, before, w);
		else
			n->inputs = n->kept = w;
		layers += before > 0;
		before = w;
		p += len;
		if (!*p)
			break;
	}
	n->outputs = w;
	if (layers == 0)
		return dt_err_set(err, -EINVAL,
				  "'%.60s': a perceptron has two widths at least, as in mlp:784-512-10",
				  n->name);
	return 1;
}

int dt_net_parse(const char *name, struct dt_net *ret, struct dt_err *err)
{
	static const struct {
		const char *name;
		int blocks[4];
		bool bottleneck;
	} known[] = {
		{"resnet-18", {2, 2, 2, 2}, false},
		{"resnet-34", {3, 4, 6, 3}, false},
		{"resnet-50", {3, 4, 6, 3}, true},
		{"resnet-101", {3, 4, 23, 3}, true},
	};
	struct dt_net n = {0};
	int rc = 0;

	snprintf(n.name, sizeof(n.name), "%s", name);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].name, name))
			continue;
		resnet(&n, known[i].blocks, known[i].bottleneck);
		rc = 1;
	}
	if (rc == 0 && !strncmp(name, "mlp:", 4))
		rc = mlp(name + 4, &n, err);
	if (rc > 0)
		*ret = n;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
