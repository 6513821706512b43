/* Jobs on several kinds of devices. */
#include "plan/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dt_device worse(struct dt_device a, const struct dt_device *b)
{
	a.peak_flops = fmin(a.peak_flops, b->peak_flops);
	a.peak_fp8 = fmin(a.peak_fp8, b->peak_fp8);
	a.mem_bw = fmin(a.mem_bw, b->mem_bw);
	a.mem_bytes = fmin(a.mem_bytes, b->mem_bytes);
	a.host_bw = fmin(a.host_bw, b->host_bw);
	a.matmul_eff = fmin(a.matmul_eff, b->matmul_eff);
	a.mem_eff = fmin(a.mem_eff, b->mem_eff);
	a.attention_eff = fmin(a.attention_eff, b->attention_eff);
	a.op_s = fmax(a.op_s, b->op_s);
	a.step_s = fmax(a.step_s, b->step_s);
	a.backward_ratio = fmax(a.backward_ratio, b->backward_ratio);
	return a;
}

static int gcd(int a, int b)
{
	return b ? gcd(b, a % b) : a;
}

static int add_kind(const char *name, int n, struct dt_cluster *ret, struct dt_err *err)
{
	struct dt_cluster one;
	int rc;

	if (n < 1 || n > 1 << 20)
		return dt_err_set(err, -EINVAL, "%d is not a valid number of devices", n);
	if (ret->nkind == DT_KINDS)
		return dt_err_set(err, -EINVAL, "more than %d kinds of devices", DT_KINDS);
	if ((rc = dt_cluster_device(name, &one, err)) < 0)
		return rc;
	if (one.cores)
		return dt_err_set(err, -EINVAL,
				  "'cpu' cannot be part of a mixed cluster: its ranks share one machine");
	if (!ret->nkind) {
		struct dt_cluster first = one;

		first.gpus = 0;
		first.gpus_a_node = gcd(n, one.gpus_a_node);
		*ret = first;
	}
	ret->device = worse(ret->device, &one.device);
	ret->device.power_w = (ret->device.power_w * ret->gpus + one.device.power_w * n) / (ret->gpus + n);
	for (int i = 0; i < ret->nlevel; i++) {
		ret->level[i].bandwidth = fmin(ret->level[i].bandwidth, one.level[i].bandwidth);
		ret->level[i].latency_s = fmax(ret->level[i].latency_s, one.level[i].latency_s);
	}
	ret->gpus_a_node = gcd(gcd(n, one.gpus_a_node), ret->gpus_a_node);
	ret->gpus += n;
	ret->kind[ret->nkind++] = (struct dt_kind){one.device, n};
	return 0;
}

/* Parses one kind, "NAME:N". */
static int take_kind(const char *text, struct dt_cluster *ret, struct dt_err *err)
{
	char name[32], rest;
	int n;

	if (sscanf(text, "%31[^:]:%d%c", name, &n, &rest) != 2)
		return dt_err_set(err, -EINVAL, "'%.40s' is not a device and a number, as in H100:8", text);
	return add_kind(name, n, ret, err);
}

static void name_all(struct dt_cluster *c)
{
	size_t n = 0;

	for (int k = 0; k < c->nkind && n < sizeof(c->device.name); k++)
		n += (size_t)snprintf(c->device.name + n, sizeof(c->device.name) - n, "%s%s:%d", k ? "," : "",
				      c->kind[k].device.name, c->kind[k].gpus);
}

int dt_cluster_devices(const char *list, struct dt_cluster *ret, struct dt_err *err)
{
	char *copy = strdup(list), *at = copy, *text;
	int rc = copy ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", list);

	*ret = (struct dt_cluster){0};
	while (rc == 0 && (text = strsep(&at, ",")))
		rc = take_kind(text, ret, err);
	free(copy);
	if (rc == 0)
		name_all(ret);
	return rc;
}

json_t *dt_cluster_kinds_json(const struct dt_cluster *c)
{
	json_t *kinds = json_array();

	for (int k = 0; k < c->nkind; k++)
		json_array_append_new(kinds, json_pack("{s:s, s:i}", "device", c->kind[k].device.name, "gpus",
						       c->kind[k].gpus));
	return kinds;
}

int dt_cluster_take_kinds(struct dt_cluster *c, const json_t *kinds, struct dt_err *err)
{
	struct dt_cluster r = {0};
	int rc = 0;

	for (size_t i = 0; i < json_array_size(kinds) && rc == 0; i++) {
		const json_t *o = json_array_get(kinds, i);
		const char *name = "";
		int64_t n = 0;

		rc = dt_json_str(o, "device", true, &name, err);
		if (rc >= 0)
			rc = dt_json_int(o, "gpus", true, 1, 1 << 20, &n, err);
		if (rc >= 0)
			rc = add_kind(name, (int)n, &r, err);
	}
	if (rc == 0 && !r.nkind)
		rc = dt_err_set(err, -EINVAL, "'kinds' is not an array of devices with their numbers");
	if (rc == 0) {
		name_all(&r);
		*c = r;
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
