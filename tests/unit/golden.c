#include "golden.h"

#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *golden_path(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", GOLDEN_DIR, name);
	return path;
}

void golden_open(struct golden *g, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/golden-%s.h5", GOLDEN_DIR, name);
	snprintf(g->name, sizeof(g->name), "golden-%s.h5", name);
	g->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (g->file < 0)
		fail_msg("cannot open '%s'", path);
}

void golden_close(struct golden *g)
{
	/* The file's own identifier is one; any more were leaked above. */
	assert_int_equal(H5Fget_obj_count(g->file, H5F_OBJ_ALL | H5F_OBJ_LOCAL), 1);
	H5Fclose(g->file);
	g->file = -1;
}

/* H5Lexists needs every group on the way to be there. */
bool golden_has(const struct golden *g, const char *dataset)
{
	char path[256];

	snprintf(path, sizeof(path), "%s", dataset);
	for (char *s = strchr(path, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (*path && H5Lexists(g->file, path, H5P_DEFAULT) <= 0)
			return false;
		*s = '/';
	}
	return H5Lexists(g->file, path, H5P_DEFAULT) > 0;
}

static hid_t open_dataset(const struct golden *g, const char *dataset)
{
	hid_t d;

	if (!golden_has(g, dataset))
		fail_msg("%s: no dataset '%s'", g->name, dataset);
	d = H5Dopen(g->file, dataset, H5P_DEFAULT);
	if (d < 0)
		fail_msg("%s: '%s' is not a dataset", g->name, dataset);
	return d;
}

int golden_shape(const struct golden *g, const char *dataset, int64_t shape[4])
{
	hid_t d = open_dataset(g, dataset), s = H5Dget_space(d);
	int ndim = H5Sget_simple_extent_ndims(s);
	hsize_t dims[4] = {0};

	if (ndim < 0 || ndim > 4)
		fail_msg("%s: '%s' has %d dimensions", g->name, dataset, ndim);
	H5Sget_simple_extent_dims(s, dims, NULL);
	for (int i = 0; i < ndim; i++)
		shape[i] = (int64_t)dims[i];
	H5Sclose(s);
	H5Dclose(d);
	return ndim;
}

static void *read_all(const struct golden *g, const char *dataset, H5T_class_t class, hid_t type,
		      int64_t *ret_n)
{
	hid_t d = open_dataset(g, dataset), s = H5Dget_space(d), stored = H5Dget_type(d);
	hssize_t n = H5Sget_simple_extent_npoints(s);
	void *data = malloc(n > 0 ? (size_t)n * H5Tget_size(type) : 1);

	if (H5Tget_class(stored) != class)
		fail_msg("%s: '%s' holds %s", g->name, dataset,
			 class == H5T_FLOAT ? "no real numbers" : "no integers");
	if (!data || H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
		fail_msg("%s: cannot read '%s'", g->name, dataset);
	H5Tclose(stored);
	H5Sclose(s);
	H5Dclose(d);
	if (ret_n)
		*ret_n = n;
	return data;
}

float *golden_f32(const struct golden *g, const char *dataset, int64_t *ret_n)
{
	return read_all(g, dataset, H5T_FLOAT, H5T_NATIVE_FLOAT, ret_n);
}

double *golden_f64(const struct golden *g, const char *dataset, int64_t *ret_n)
{
	return read_all(g, dataset, H5T_FLOAT, H5T_NATIVE_DOUBLE, ret_n);
}

int32_t *golden_i32(const struct golden *g, const char *dataset, int64_t *ret_n)
{
	return read_all(g, dataset, H5T_INTEGER, H5T_NATIVE_INT32, ret_n);
}

double golden_scalar(const struct golden *g, const char *dataset)
{
	int64_t n;
	double *p = golden_f64(g, dataset, &n), x = p[0];

	free(p);
	if (n != 1)
		fail_msg("%s: '%s' has %lld elements, not one", g->name, dataset, (long long)n);
	return x;
}

/* Opens an attribute and checks the class of its type. */
static hid_t open_attr(const struct golden *g, const char *object, const char *attr, H5T_class_t class)
{
	hid_t a, t;

	if (H5Aexists_by_name(g->file, object, attr, H5P_DEFAULT) <= 0)
		fail_msg("%s: '%s' has no attribute '%s'", g->name, object, attr);
	a = H5Aopen_by_name(g->file, object, attr, H5P_DEFAULT, H5P_DEFAULT);
	t = H5Aget_type(a);
	if (H5Tget_class(t) != class)
		fail_msg("%s: attribute '%s' of '%s' is of another type", g->name, attr, object);
	H5Tclose(t);
	return a;
}

int64_t golden_int(const struct golden *g, const char *object, const char *attr)
{
	hid_t a = open_attr(g, object, attr, H5T_INTEGER);
	int64_t x = 0;

	if (H5Aread(a, H5T_NATIVE_INT64, &x) < 0)
		fail_msg("%s: cannot read attribute '%s'", g->name, attr);
	H5Aclose(a);
	return x;
}

double golden_real(const struct golden *g, const char *object, const char *attr)
{
	hid_t a = open_attr(g, object, attr, H5T_FLOAT);
	double x = 0;

	if (H5Aread(a, H5T_NATIVE_DOUBLE, &x) < 0)
		fail_msg("%s: cannot read attribute '%s'", g->name, attr);
	H5Aclose(a);
	return x;
}

void golden_str(const struct golden *g, const char *object, const char *attr, char *ret, size_t n)
{
	hid_t a = open_attr(g, object, attr, H5T_STRING), t = H5Tcopy(H5T_C_S1);

	/* A NUL-terminated memory type: HDF5 cuts what does not fit and always ends it. */
	H5Tset_size(t, n);
	if (H5Aread(a, t, ret) < 0)
		fail_msg("%s: cannot read attribute '%s'", g->name, attr);
	H5Tclose(t);
	H5Aclose(a);
}

/* Index of the attribute's value in a list of names. */
static int choice(const struct golden *g, const char *attr, const char *const *names, int n)
{
	char s[32];

	golden_str(g, "/", attr, s, sizeof(s));
	for (int i = 0; i < n; i++)
		if (!strcmp(s, names[i]))
			return i;
	fail_msg("%s: attribute '%s' is '%s'", g->name, attr, s);
	return -1;
}

/* Of the models that have it. */
static void optional(const struct golden *g, const char *attr, int64_t *i, double *r, bool *b)
{
	if (H5Aexists_by_name(g->file, "/", attr, H5P_DEFAULT) <= 0)
		return;
	if (r)
		*r = golden_real(g, "/", attr);
	else if (b)
		*b = golden_int(g, "/", attr) != 0;
	else
		*i = golden_int(g, "/", attr);
}

/* The numbers of a text attribute, if the file has it. */
static void numbers(const struct golden *g, const char *name, float *ret)
{
	char text[256], *at = text, *end;

	if (H5Aexists(g->file, name) <= 0)
		return;
	golden_str(g, "/", name, text, sizeof(text));
	for (int i = 0; i < DT_ROPE_FACTORS; i++, at = end) {
		ret[i] = strtof(at, &end);
		if (end == at)
			break;
	}
}

/* Sets the bits of the numbers of a text attribute. */
static void bits(const struct golden *g, const char *name, uint64_t *ret)
{
	char text[256], *at = text, *end;

	if (H5Aexists(g->file, name) <= 0)
		return;
	golden_str(g, "/", name, text, sizeof(text));
	for (long n = strtol(at, &end, 10); end != at; n = strtol(at, &end, 10)) {
		ret[n / 64] |= UINT64_C(1) << n % 64;
		at = end;
	}
}

static void encoder(const struct golden *g, struct dt_config *c)
{
	static const char *const heads[] = {"masked", "none", "classes"};
	int64_t loss = 0;

	optional(g, "encoder", NULL, NULL, &c->encoder);
	if (!c->encoder)
		return;
	c->head = (enum dt_encoder_head)choice(g, "head", heads, 3);
	optional(g, "token_types", &c->token_types, NULL, NULL);
	optional(g, "pos_first", &c->pos_first, NULL, NULL);
	optional(g, "labels", &c->labels, NULL, NULL);
	optional(g, "label_loss", &loss, NULL, NULL);
	c->label_loss = (int)loss;
	optional(g, "mask_token", &c->mask_token, NULL, NULL);
}

void golden_config(const struct golden *g, struct dt_config *ret)
{
	static const char *const norms[] = {"layer", "rms"}, *const positions[] = {"learned", "rope", "none"},
				 *const pairings[] = {"half", "adjacent"},
				 *const scalings[] = {"none", "linear", "llama3", "yarn", "longrope"},
				 *const acts[] = {"gelu_tanh", "gelu_erf", "silu", "relu", "silu_clamped"};
	struct dt_config c = {.bos = -1, .eos = -1, .init_std = 0.02};
	const struct {
		const char *attr;
		int64_t *to;
	} ints[] = {{"vocab", &c.vocab},       {"hidden", &c.hidden},
		    {"ffn", &c.ffn},	       {"layers", &c.layers},
		    {"heads", &c.heads},       {"kv_heads", &c.kv_heads},
		    {"head_dim", &c.head_dim}, {"max_seq", &c.max_seq},
		    {"window", &c.window},     {"rope_original_seq", &c.rope_original_seq}};
	const struct {
		const char *attr;
		double *to;
	} reals[] = {{"norm_eps", &c.norm_eps},
		     {"rope_theta", &c.rope_theta},
		     {"rope_factor", &c.rope_factor},
		     {"rope_low_freq", &c.rope_low_freq},
		     {"rope_high_freq", &c.rope_high_freq}};
	const struct {
		const char *attr;
		bool *to;
	} flags[] = {{"gated", &c.gated},	{"tied", &c.tied},	   {"qkv_bias", &c.qkv_bias},
		     {"out_bias", &c.out_bias}, {"mlp_bias", &c.mlp_bias}, {"qk_norm", &c.qk_norm}};

	snprintf(c.name, sizeof(c.name), "%s", g->name);
	golden_str(g, "/", "family", c.family, sizeof(c.family));
	for (size_t i = 0; i < sizeof(ints) / sizeof(*ints); i++)
		*ints[i].to = golden_int(g, "/", ints[i].attr);
	for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++)
		*reals[i].to = golden_real(g, "/", reals[i].attr);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		*flags[i].to = golden_int(g, "/", flags[i].attr) != 0;
	c.norm = choice(g, "norm", norms, 2) ? DT_NORM_RMS : DT_NORM_LAYER;
	c.pos = (enum dt_pos_kind)choice(g, "pos", positions, 3);
	c.rope_pairing = choice(g, "rope_pairing", pairings, 2) ? DT_ROPE_ADJACENT : DT_ROPE_HALF;
	c.rope_scaling = (enum dt_rope_scaling[]){
		DT_ROPE_SCALING_NONE, DT_ROPE_SCALING_LINEAR, DT_ROPE_SCALING_LLAMA3, DT_ROPE_SCALING_YARN,
		DT_ROPE_SCALING_LONGROPE}[choice(g, "rope_scaling", scalings, 5)];
	c.act = (int[]){DT_ACT_GELU_TANH, DT_ACT_GELU_ERF, DT_ACT_SILU, DT_ACT_RELU,
			DT_ACT_SILU_CLAMPED}[choice(g, "act", acts, 5)];
	optional(g, "rope_beta_fast", NULL, &c.rope_beta_fast, NULL);
	optional(g, "rope_beta_slow", NULL, &c.rope_beta_slow, NULL);
	optional(g, "rope_mscale", NULL, &c.rope_mscale, NULL);
	optional(g, "rope_untruncated", NULL, NULL, &c.rope_untruncated);
	optional(g, "attn_sinks", NULL, NULL, &c.attn_sinks);
	optional(g, "expert_bias", NULL, NULL, &c.expert_bias);
	optional(g, "global_every", &c.global_every, NULL, NULL);
	optional(g, "rope_skip_every", &c.rope_skip_every, NULL, NULL);
	optional(g, "score_dim", &c.score_dim, NULL, NULL);
	optional(g, "ssm_heads", &c.ssm_heads, NULL, NULL);
	optional(g, "ssm_head_dim", &c.ssm_head_dim, NULL, NULL);
	optional(g, "ssm_groups", &c.ssm_groups, NULL, NULL);
	optional(g, "ssm_state", &c.ssm_state, NULL, NULL);
	optional(g, "ssm_kernel", &c.ssm_kernel, NULL, NULL);
	bits(g, "attn_layers", c.attn_layers);
	optional(g, "experts", &c.experts, NULL, NULL);
	optional(g, "experts_used", &c.experts_used, NULL, NULL);
	optional(g, "expert_ffn", &c.expert_ffn, NULL, NULL);
	optional(g, "rope_local_theta", NULL, &c.rope_local_theta, NULL);
	optional(g, "score_cap", NULL, &c.score_cap, NULL);
	optional(g, "logit_cap", NULL, &c.logit_cap, NULL);
	optional(g, "embed_factor", NULL, &c.embed_factor, NULL);
	optional(g, "score_factor", NULL, &c.score_factor, NULL);
	optional(g, "residual_factor", NULL, &c.residual_factor, NULL);
	optional(g, "logit_divisor", NULL, &c.logit_divisor, NULL);
	numbers(g, "rope_short", c.rope_short);
	numbers(g, "rope_long", c.rope_long);
	optional(g, "parallel_residual", NULL, NULL, &c.parallel_residual);
	optional(g, "one_norm", NULL, NULL, &c.one_norm);
	optional(g, "norm_no_bias", NULL, NULL, &c.norm_no_bias);
	optional(g, "no_pre_norms", NULL, NULL, &c.no_pre_norms);
	optional(g, "qk_norm_whole", NULL, NULL, &c.qk_norm_whole);
	optional(g, "post_norms", NULL, NULL, &c.post_norms);
	optional(g, "norm_plus_one", NULL, NULL, &c.norm_plus_one);
	optional(g, "embed_scaled", NULL, NULL, &c.embed_scaled);
	optional(g, "router_unscaled", NULL, NULL, &c.router_unscaled);
	optional(g, "router_sigmoid", NULL, NULL, &c.router_sigmoid);
	optional(g, "router_bias", NULL, NULL, &c.router_bias);
	optional(g, "router_groups", &c.router_groups, NULL, NULL);
	optional(g, "router_groups_used", &c.router_groups_used, NULL, NULL);
	optional(g, "router_scale", NULL, &c.router_scale, NULL);
	optional(g, "shared_ffn", &c.shared_ffn, NULL, NULL);
	optional(g, "dense_layers", &c.dense_layers, NULL, NULL);
	optional(g, "mtp_layers", &c.mtp_layers, NULL, NULL);
	optional(g, "kv_rank", &c.kv_rank, NULL, NULL);
	optional(g, "q_rank", &c.q_rank, NULL, NULL);
	optional(g, "rope_dim", &c.rope_dim, NULL, NULL);
	optional(g, "v_dim", &c.v_dim, NULL, NULL);
	encoder(g, &c);
	optional(g, "lora_rank", &c.lora.rank, NULL, NULL);
	optional(g, "lora_alpha", NULL, &c.lora.alpha, NULL);
	optional(g, "lora_dora", NULL, NULL, &c.lora.dora);
	if (c.lora.rank) {
		strcpy(c.lora.targets, "all");
		if (H5Aexists(g->file, "lora_modules_to_save") > 0)
			golden_str(g, "/", "lora_modules_to_save", c.lora.modules_to_save,
				   sizeof(c.lora.modules_to_save));
	}
	*ret = c;
}

/* Where got is farthest from want (a NaN is farthest of all), and the largest |want|. */
static int64_t worst(const float *got, const float *want, int64_t n, double *ret_diff, double *ret_largest)
{
	double diff = 0, largest = 0;
	int64_t at = 0;

	for (int64_t i = 0; i < n; i++) {
		double d = fabs((double)got[i] - want[i]);

		largest = fmax(largest, fabs(want[i]));
		if (!isfinite(d))
			d = INFINITY;
		if (d > diff) {
			diff = d;
			at = i;
		}
	}
	*ret_diff = diff;
	*ret_largest = largest;
	return at;
}

double golden_largest(const float *x, int64_t n)
{
	float largest = 0; /* gcc 12 ends in an internal error for arm64 where it is a double */

	for (int64_t i = 0; i < n; i++)
		largest = fmaxf(largest, fabsf(x[i]));
	return (double)largest;
}

double golden_err(const float *got, const float *want, int64_t n, double floor)
{
	double diff, largest;

	worst(got, want, n, &diff, &largest);
	return diff == 0 ? 0 : diff / fmax(largest, floor);
}

void golden_assert_close(const char *what, const float *got, const float *want, int64_t n, double floor,
			 double tol)
{
	double diff, largest, err;
	int64_t at = worst(got, want, n, &diff, &largest);

	err = diff == 0 ? 0 : diff / fmax(largest, floor);
	if (!(err <= tol))
		fail_msg("%s[%lld]: got %.9g, want %.9g; error %.2e of the largest value, allowed %.2e", what,
			 (long long)at, got[at], want[at], err, tol);
}
/* SPDX-License-Identifier: Apache-2.0 */
