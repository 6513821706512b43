/*
 * Every number that others published about memory and that this program claims to reproduce: by which
 * account, to the digits printed. Sources stand at each group. A last test counts the numbers.
 */
#include "model/flops.h"
#include "plan/cluster.h"
#include "plan/fit.h"
#include "plan/steptime.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB 1073741824.0

static int numbers;

/* half: half of the last digit that was printed. */
static void is(const char *what, double got, double published, double half)
{
	numbers++;
	if (!(fabs(got - published) <= half * (1 + 1e-9)))
		fail_msg("%s: %.10g, published %.10g", what, got, published);
}

static void between(const char *what, double got, double low, double high)
{
	numbers++;
	if (!(got >= low && got <= high))
		fail_msg("%s: %.6g, published %g to %g", what, got, low, high);
}

static struct dt_params table_of(const char *name, struct dt_config *c)
{
	struct dt_params t;

	assert_int_equal(dt_config_find_preset(name, c), 0);
	assert_int_equal(dt_model_params(c, &t, NULL), 0);
	return t;
}

/*
 * Parameter counts. GPT-2: the released checkpoints' (Radford et al. 2019; the paper's own 117M is older);
 * Llama, Mistral, Mixtral, Qwen, Gemma, DeepSeek: the element counts in the headers of the published weights,
 * of Gemma 3 4B and 27B (4,300,079,472 and 27,432,406,640) without the 416,866,032 of the vision tower and
 * the 1152 h + 1152 that lead from it, of DeepSeek-V3 without the layer that predicts a second token.
 * GPT-NeoX-20B and Pythia: their papers and cards.
 * megatron-* and gpt3-175b: Korthikanti et al. 2022, table 3, and Brown et al. 2020, table 2.1, print
 * billions.
 */
static void parameters(void **state)
{
	static const struct {
		const char *name;
		int64_t n;
	} exact[] = {
		{"gpt2-124m", 124439808},
		{"gpt2-355m", 354823168},
		{"gpt2-774m", 774030080},
		{"gpt2-1558m", 1557611200},
		{"llama-2-7b", 6738415616},
		{"llama-2-13b", 13015864320},
		{"llama-2-70b", 68976648192},
		{"llama-3-8b", 8030261248},
		{"llama-3-70b", 70553706496},
		{"llama-3.1-8b", 8030261248},
		{"llama-3.1-70b", 70553706496},
		{"llama-3.1-405b", 405853388800},
		{"mistral-7b", 7241732096},
		{"mixtral-8x7b", 46702792704},
		{"llama-3.2-1b", 1235814400},
		{"llama-3.2-3b", 3212749824},
		{"llama-3.3-70b", 70553706496},
		{"qwen2.5-1.5b", 1543714304},
		{"qwen2.5-3b", 3085938688},
		{"qwen2.5-14b", 14770033664},
		{"qwen2.5-32b", 32763876352},
		{"qwen2.5-72b", 72706203648},
		{"qwen3-1.7b", 1720574976},
		{"qwen3-4b", 4022468096},
		{"qwen3-14b", 14768307200},
		{"qwen3-32b", 32762123264},
		{"qwen3-235b-a22b", 235093634560},
		{"phi-3-medium", 13960238080},
		{"phi-4", 14659507200},
		{"olmo-2-13b", 13716198400},
		{"olmo-2-32b", 32234279936},
		{"qwen2.5-0.5b", 494032768},
		{"qwen2.5-7b", 7615616512},
		{"qwen3-0.6b", 596049920},
		{"qwen3-8b", 8190735360},
		{"qwen3-30b-a3b", 30532122624},
		{"gemma-3-1b", 999885952},
		{"gemma-3-4b", 3880263168},
		{"gemma-3-27b", 27009346304},
		{"deepseek-v3", 671026419200},
		{"phi-3-mini", 3821079552},
		{"olmo-2-1b", 1484916736},
		{"olmo-2-7b", 7298617344},
		{"olmo-3-7b", 7298011136},
		{"olmo-3-32b", 32233522176},
		{"smollm3-3b", 3075098624},
		{"glm-4-9b", 9400279040},
		{"glm-4.5-air", 106852251264},
		{"glm-4.5", 352797829024},
		{"minimax-m2", 228689764864},
		{"phi-4-mini", 3836021760},
		{"pythia-70m", 70426624},
		{"pythia-160m", 162322944},
		{"pythia-410m", 405334016},
		{"pythia-1b", 1011781632},
		{"pythia-1.4b", 1414647808},
		{"pythia-2.8b", 2775208960},
		{"pythia-6.9b", 6857302016},
		{"pythia-12b", 11846072320},
		{"gpt-neox-20b", 20554567680},
		{"c4ai-command-r-v01", 34980831232},
		{"command-r7b", 8028033024},
		{"command-a", 111057580032},
		{"starcoder2-3b", 3030371328},
		{"starcoder2-7b", 7173923840},
		{"starcoder2-15b", 15957889024},
		{"granite-3.1-1b-a400m", 1334628352},
		{"granite-3.3-2b", 2533539840},
		{"granite-3.3-8b", 8170864640},
		{"gpt-oss-20b", 20914757184},
		{"gpt-oss-120b", 116829156672},
		{"gemma-2-2b", 2614341888},
		{"gemma-2-9b", 9241705984},
		{"gemma-2-27b", 27227128320},
		{"olmoe-1b-7b", 6919161856},
		{"deepseek-v2-lite", 15706484224},
		/* torchvision; kuangliu's for CIFAR; Page 2018; Jordan 2024 */
		{"resnet-18", 11689512},
		{"resnet-34", 21797672},
		{"resnet-50", 25557032},
		{"resnet-101", 44549160},
		{"resnet-18-cifar", 11173962},
		{"resnet-34-cifar", 21282122},
		{"resnet-50-cifar", 23520842},
		{"resnet-9", 6573130},
		{"airbench94", 1972792},
		/* DeiT (Touvron et al. 2021); torchvision */
		/* transformers' BertForMaskedLM and RobertaForMaskedLM; BertModel with its pooler */
		{"bert-base-uncased", 109514298},
		{"bert-large-uncased", 335174458},
		{"roberta-base", 124697433},
		{"roberta-large", 355412057},
		{"xlm-roberta-base", 278295186},
		{"xlm-roberta-large", 560142482},
		{"all-minilm-l6-v2", 22713216},
		{"bge-small-en-v1.5", 33360000},
		{"bge-base-en-v1.5", 109482240},
		{"bge-large-en-v1.5", 335141888},
		/* transformers' Mamba2ForCausalLM; projections of 296 rows, taps, three vectors, norms */
		{"mamba2-130m", 128989632},
		{"mamba2-370m", 368346624},
		{"mamba2-780m", 780161280},
		{"mamba2-1.3b", 1343757312},
		{"mamba2-2.7b", 2702599680},
		/* transformers' GraniteMoeHybridForCausalLM and BambaForCausalLM */
		{"granite-4.0-h-350m", 340332224},
		{"granite-4.0-h-1b", 1461538368},
		{"granite-4.0-h-micro", 3191396096},
		{"granite-4.0-h-tiny", 6939037248},
		{"granite-4.0-h-small", 32207337984},
		{"bamba-9b", 9780235392},
		{"hybrid-tiny", 211880},
		{"mamba2-tiny", 257 * 64 + 3 * (296 * 64 + 160 * 4 + 160 + 3 * 8 + 128 + 64 * 128 + 64) + 64},
		{"vit-ti-16", 5717416},
		{"vit-s-16", 22050664},
		{"vit-b-16", 86567656},
		{"vit-b-32", 88224232},
		{"vit-l-16", 304326632},
		{"vit-h-14", 632045800},
		/* the layers and norm of vit-ti-16; patches of 4 x 4 and a head of 10 */
		{"vit-ti-4-cifar", 5717416 - 192 * (768 + 197 + 1000) - 1000 + 192 * (48 + 65 + 10) + 10},
		{"airbench95", 4606520},
		/* two convolutions of 3 x 3, batch norms, a head over 7 x 7; one hidden layer of 512 */
		{"cnn2", 9 * 32 + 2 * 32 + 9 * 32 * 64 + 2 * 64 + 64 * 49 * 10 + 10},
		{"simple-dnn", 784 * 512 + 512 + 512 * 10 + 10},
	};
	static const struct {
		const char *name;
		double billions, half;
	} rounded[] = {{"gpt3-175b", 175, 0.5},
		       {"megatron-22b", 22, 0.5},
		       {"megatron-175b", 175, 0.5},
		       {"megatron-530b", 530, 0.5},
		       {"megatron-1t", 1008, 0.5}};
	int seen = 0;

	for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++, seen++) {
		struct dt_config c;
		struct dt_params t = table_of(exact[i].name, &c);

		is(exact[i].name, (double)dt_params_total(&t), (double)exact[i].n, 0);
		dt_params_release(&t);
	}
	for (size_t i = 0; i < sizeof(rounded) / sizeof(rounded[0]); i++, seen++) {
		struct dt_config c;
		struct dt_params t = table_of(rounded[i].name, &c);

		is(rounded[i].name, round((double)dt_params_total(&t) / 1e9), rounded[i].billions,
		   rounded[i].half);
		dt_params_release(&t);
	}
	for (int i = 0; dt_config_preset(i);
	     i++) /* five that are ours: closed forms of GPT-2, Llama and BERT */
		if (dt_config_preset(i)->hidden <= 192 && !dt_config_preset(i)->ssm_heads &&
		    !dt_config_is_image(dt_config_preset(i))) {
			const struct dt_config *c = dt_config_preset(i);
			int64_t h = c->hidden, L = c->layers, d = c->head_dim, a = c->heads, g = c->kv_heads;
			int64_t want =
				c->gated ? 2 * c->vocab * h +
						   L * (2 * h * d * (a + g) + 3 * h * c->ffn + 2 * h) + h
					 : c->vocab * h + c->max_seq * h + L * (12 * h * h + 13 * h) + 2 * h;
			struct dt_params t;

			if (c->encoder) /* a norm in front, types, a linear with a norm behind, a bias */
				want += 2 * h + h * h + 3 * h + c->vocab;
			assert_int_equal(dt_model_params(c, &t, NULL), 0);
			is(c->name, (double)dt_params_total(&t), (double)want, 0);
			dt_params_release(&t);
			seen++;
		}
	for (int i = 0; dt_config_preset(i); i++)
		seen--;
	assert_int_equal(seen, 0); /* no preset without a number */
}

/* Rajbhandari et al. 2020 (ZeRO), figure 1: 7.5 B parameters, 64 ranks, mixed precision Adam: 2 + 2 + 12. */
static void zero_figure_1(void **state)
{
	const struct dt_scheme s = {2, 2, 12};

	is("replicated", dt_state_bytes(7.5e9, s, 0, 64) / 1e9, 120, 0.5);
	is("stage 1", dt_state_bytes(7.5e9, s, 1, 64) / 1e9, 31.4, 0.05);
	is("stage 2", dt_state_bytes(7.5e9, s, 2, 64) / 1e9, 16.6, 0.05);
	is("stage 3", dt_state_bytes(7.5e9, s, 3, 64) / 1e9, 1.88, 0.0055);
}

/* Bytes of a category in every entry of an estimate, whatever the phase. */
static double bytes_of(const struct dt_estimate *t, int cat)
{
	double n = 0;

	for (int i = 0; i < t->n; i++)
		n += t->e[i].cat == cat ? (double)t->e[i].bytes : 0;
	return n;
}

/* The same of the accounts themselves: bytes a parameter, Llama-2-7B over 8 ranks. */
static void states_of_accounts(void **state)
{
	static const struct {
		enum dt_account account;
		const char *layout;
		double bytes;
	} cases[] = {
		{DT_ACCOUNT_GENERIC, "dp8", 16},
		{DT_ACCOUNT_GENERIC, "dp8.z1", 4 + 12.0 / 8},
		{DT_ACCOUNT_GENERIC, "dp8.z2", 2 + 14.0 / 8},
		{DT_ACCOUNT_GENERIC, "dp8.z3", 16.0 / 8},
		{DT_ACCOUNT_MEGATRON, "dp8", 18},
		{DT_ACCOUNT_MEGATRON, "dp8.z1", 6 + 12.0 / 8},
		{DT_ACCOUNT_DEEPSPEED, "dp8.z2", 4 + 16.0 / 8},
		{DT_ACCOUNT_DEEPSPEED, "dp8.z3", 18.0 / 8},
		{DT_ACCOUNT_DT, "dp8", 18},
	};
	static const int cats[] = {DT_MEM_WEIGHTS, DT_MEM_GRADS, DT_MEM_MASTER, DT_MEM_OPTIM};
	struct dt_config c;

	dt_config_find_preset("llama-2-7b", &c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_run s = {.config = &c,
				   .microbatch = 1,
				   .seq = 128,
				   .compute = DT_BF16,
				   .optim.kind = DT_OPTIM_ADAMW};
		struct dt_estimate t;
		double sum = 0;

		dt_layout_parse(cases[i].layout, &s.layout, NULL);
		assert_int_equal(
			dt_estimate_train(&s, (struct dt_coords){0}, cases[i].account, NULL, &t, NULL), 0);
		for (int k = 0; k < 4; k++)
			sum += bytes_of(&t, cats[k]);
		is(cases[i].layout, sum / 6738415616.0, cases[i].bytes, 1e-6);
		dt_estimate_release(&t);
	}
}

/* Hu et al. 2021: r 8 on q and v of Llama-2-7B is 4,194,304 parameters; 16 or 18 bytes each. */
static void adapters(void **state)
{
	static const enum dt_role roles[] = {DT_W_Q, DT_W_V};
	const struct dt_extras x = {.lora_rank = 8, .targets = DT_LORA_QV, .base = DT_WF_BF16};
	struct dt_config c;
	struct dt_params p = table_of("llama-2-7b", &c);
	struct dt_run s = {
		.config = &c, .microbatch = 1, .seq = 128, .compute = DT_BF16, .optim.kind = DT_OPTIM_ADAMW};
	struct dt_estimate t;

	is("adapter parameters", (double)dt_lora_params(&p, roles, 2, 8), 4194304, 0);
	dt_params_release(&p);
	dt_layout_parse("dp1", &s.layout, NULL);
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_GENERIC, &x, &t, NULL), 0);
	is("16-bit gradients", bytes_of(&t, DT_EST_ADAPTERS) / 4194304, 16, 0);
	is("the frozen base", bytes_of(&t, DT_MEM_WEIGHTS), 2 * 6738415616.0, 0);
	dt_estimate_release(&t);
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_MEGATRON, &x, &t, NULL), 0);
	is("f32 gradients", bytes_of(&t, DT_EST_ADAPTERS) / 4194304, 18, 0);
	dt_estimate_release(&t);
}

/* DeepSpeed's documentation, "Memory Requirements": 2851e6 parameters, 8 GPUs, ZeRO-2. */
static void deepspeed_documentation(void **state)
{
	is("offloaded", dt_deepspeed_zero2_bytes(2851e6, 8, true) / GIB, 5.31, 0.005);
	is("on the device", dt_deepspeed_zero2_bytes(2851e6, 8, false) / GIB, 15.93, 0.005);
}

/* Llama 3.1 at 128,000 tokens in 16 bits; GPT-2 XL and DeepSeek-V3 a token. */
static void kv_cache(void **state)
{
	struct dt_config c;

	dt_config_find_preset("llama-3.1-8b", &c);
	is("8B", dt_kv_token_bytes(&c, 1, 2) * 128000 / GIB, 15.62, 0.0055);
	is("8B, tp 8", dt_kv_token_bytes(&c, 8, 2), dt_kv_token_bytes(&c, 1, 2) / 8, 0);
	is("8B, tp 16: a head is not split", dt_kv_token_bytes(&c, 16, 2), dt_kv_token_bytes(&c, 8, 2), 0);
	dt_config_find_preset("llama-3.1-70b", &c);
	is("70B", dt_kv_token_bytes(&c, 1, 2) * 128000 / GIB, 39.06, 0.0055);
	dt_config_find_preset("gpt2-1558m", &c);
	is("GPT-2 XL", dt_kv_token_bytes(&c, 1, 2), 307200, 0);
	dt_config_find_preset("deepseek-v3", &c);
	is("DeepSeek-V3", dt_kv_token_bytes(&c, 1, 2), 70272, 0);
	is("61 layers, rank 512, 64 rotary", dt_mla_token_bytes(61, 512, 64, 2), 70272, 0);
	dt_config_find_preset("mistral-7b", &c);
	is("a window of 4096", (double)dt_kv_tokens(&c, 100000, 16), 4096, 0);
	is("whole blocks", (double)dt_kv_tokens(&c, 17, 16), 32, 0);
}

/* Llama 3.1 8B as GGUF; bits a weight of GGUF's blocks (34 bytes for 32, ...) and of NF4 (Dettmers et al.
 * 2023). */
static void quantised(void **state)
{
	static const struct {
		enum dt_weight_format f;
		double bits;
	} formats[] = {{DT_WF_Q4_0, 4.5},     {DT_WF_Q4_1, 5},	    {DT_WF_Q8_0, 8.5},
		       {DT_WF_Q4_K, 4.5},     {DT_WF_Q6_K, 6.5625}, {DT_WF_NF4, 4.5},
		       {DT_WF_NF4_DQ, 4.127}, {DT_WF_Q5_K, 5.5},    {DT_WF_MXFP4, 4.25}};
	struct dt_config c;
	struct dt_params t = table_of("llama-3.1-8b", &c);

	is("Q4_K_M", dt_whole_weight_bytes(&c, &t, DT_WF_Q4_K_M) / GIB, 4.58, 0.005);
	is("Q8_0", dt_whole_weight_bytes(&c, &t, DT_WF_Q8_0) / GIB, 7.95, 0.005);
	dt_params_release(&t);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		is("bits", dt_weight_bits(formats[i].f), formats[i].bits, 1e-12);
}

/*
 * A widely used handbook's 7B in bf16 with Adam and no master weights. Its 12 GB of activations come without
 * a shape, so they are taken as they are.
 */
static void handbook_7b(void **state)
{
	double act = 12, w = dt_state_bytes(7e9, (struct dt_scheme){2, 0, 0}, 0, 1) / 1e9;
	double g = dt_state_bytes(7e9, (struct dt_scheme){0, 2, 0}, 0, 1) / 1e9;
	double o = dt_state_bytes(7e9, (struct dt_scheme){0, 0, 4}, 0, 1) / 1e9;

	is("weights", w, 14, 0.5);
	is("gradients", g, 14, 0.5);
	is("moments", o, 28, 0.5);
	is("forward", w + o + act, 54, 0.5);
	is("backward", w + g + o + act, 68, 0.5);
	is("step", w + g + o, 56, 0.5);
	is("the peak is backward", fmax(fmax(w + o + act, w + g + o + act), w + g + o), 68, 0.5);
}

/* The same handbook's table, bf16 with Adam: with what 2048 tokens keep for backward in flash attention. */
static void handbook_table(void **state)
{
	static const struct {
		const char *model;
		double params, low, high;
	} rows[] = {{"llama-2-7b", 7e9, 60, 70},
		    {"llama-2-13b", 13e9, 110, 130},
		    {"llama-2-70b", 70e9, 600, 700}};
	const struct dt_scheme s = {2, 2, 4};

	is("1B", dt_state_bytes(1e9, s, 0, 1) / 1e9, 8, 0.5);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double gb = dt_state_bytes(rows[i].params, s, 0, 1) / 1e9;
		struct dt_config c;

		dt_config_find_preset(rows[i].model, &c);
		for (int64_t l = 0; l < c.layers; l++)
			gb += dt_megatron_layer_bytes(&c, l, 2048, 1, 1, false, true, DT_RECOMPUTE_NONE) /
			      1e9;
		between(rows[i].model, gb, rows[i].low, rows[i].high);
	}
}

/* And its 70B served in bf16: 32 sequences of 2048 tokens. */
static void handbook_serving(void **state)
{
	struct dt_config c;
	struct dt_serve_shape s = {.config = &c,
				   .weights = DT_WF_BF16,
				   .account = DT_ACCOUNT_GENERIC,
				   .compute = DT_BF16,
				   .max_seqs = 32,
				   .max_len = 2048,
				   .block = 16,
				   .max_tokens = 2048};
	struct dt_estimate t;

	dt_config_find_preset("llama-2-70b", &c);
	dt_layout_parse("dp1", &s.layout, NULL);
	assert_int_equal(dt_estimate_serve(&s, &t, NULL), 0);
	is("weights, of 70e9", (double)t.cat_bytes[DT_MEM_WEIGHTS] / 68976648192 * 70e9 / 1e9, 140, 0.5);
	between("cache", (double)t.cat_bytes[DT_EST_CACHE] / 1e9, 20, 40);
	dt_estimate_release(&t);
}

/* Korthikanti et al. 2022, table 2, in units of sbh: GPT-3 (h 12288, a 96, s 2048, 5as/h = 80), t 8. */
static void activations_of_a_layer(void **state)
{
	static const struct {
		bool sp, flash;
		enum dt_recompute mode;
		double sbh;
	} cases[] = {
		{false, false, DT_RECOMPUTE_NONE, 10 + 24 / 8.0 + 80 / 8.0},
		{true, false, DT_RECOMPUTE_NONE, 114 / 8.0},
		{false, false, DT_RECOMPUTE_SELECTIVE, 13},
		{true, false, DT_RECOMPUTE_SELECTIVE, 34 / 8.0},
		{false, false, DT_RECOMPUTE_FULL, 2},
		{true, false, DT_RECOMPUTE_FULL, 2 / 8.0},
		{false, true, DT_RECOMPUTE_NONE, 13 + 4 * 96 / 12288.0 / 8}, /* 4asb instead of 5as^2b */
	};
	struct dt_config c;

	dt_config_find_preset("gpt3-175b", &c);
	is("5as/h", 5.0 * 96 * 2048 / 12288, 80, 0);
	is("saved by selective, section 5", 1 - 34.0 / 114, 0.70, 0.005);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double sbh = 2048.0 * 12288;

		is("paper's own model",
		   dt_megatron_activation_bytes(12288, 96, 2048, 1, 8, cases[i].sp, cases[i].flash,
						cases[i].mode) /
			   sbh,
		   cases[i].sbh, 1e-9);
		is("the account's",
		   dt_megatron_layer_bytes(&c, 0, 2048, 1, 8, cases[i].sp, cases[i].flash, cases[i].mode) /
			   sbh,
		   cases[i].sbh, 1e-9);
	}
}

/* Bytes of activations of stage 0 by the megatron account: in units of one microbatch over all layers of a
 * stage. */
static double held(const char *layout, enum dt_pipeline kind, int64_t microbatches)
{
	struct dt_config c;
	struct dt_run s = {.config = &c,
			   .microbatch = 1,
			   .seq = 2048,
			   .compute = DT_BF16,
			   .optim.kind = DT_OPTIM_ADAMW,
			   .pipeline = kind,
			   .accumulation = microbatches};
	struct dt_estimate t;
	double layer, n;

	dt_config_find_preset("gpt3-175b", &c);
	assert_int_equal(dt_layout_parse(layout, &s.layout, NULL), 0);
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_MEGATRON, NULL, &t, NULL),
			 0);
	layer = dt_megatron_layer_bytes(&c, 0, 2048, 1, 1, false, true, DT_RECOMPUTE_NONE);
	n = bytes_of(&t, DT_MEM_ACTIVATIONS) / layer / ((double)c.layers / s.layout.pp);
	dt_estimate_release(&t);
	return n;
}

/* In flight on stage 0 (Narayanan et al. 2021; Korthikanti et al. 2022, section 4.3), and the bubble. */
static void pipelines(void **state)
{
	static const int shapes[][3] = {{4, 1, 16}, {8, 1, 8}, {4, 2, 16}, {4, 3, 8}, {2, 2, 8}};

	is("1F1B", held("pp4", DT_PIPE_1F1B, 16), 4, 1e-9);
	is("1F1B, fewer than stages", held("pp4", DT_PIPE_1F1B, 2), 2, 1e-9);
	is("GPipe", held("pp4", DT_PIPE_GPIPE, 16), 16, 1e-9);
	is("interleaved: p (1 + (p - 1) / (p v))", held("pp4.v2", DT_PIPE_INTERLEAVED, 16), 4 * (1 + 3 / 8.0),
	   1e-9);
	is("interleaved by 4", held("pp4.v4", DT_PIPE_INTERLEAVED, 16), 4 * (1 + 3 / 16.0), 1e-9);
	is("interleaved by 3", held("pp8.v3", DT_PIPE_INTERLEAVED, 32), 8 * (1 + 7 / 24.0), 1e-9);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		int p = shapes[i][0], v = shapes[i][1], m = shapes[i][2];
		struct dt_pipe_cost cost[16];
		struct dt_schedule s;
		double bubble;

		for (int k = 0; k < p * v; k++)
			cost[k] = (struct dt_pipe_cost){1, 2, 0};
		assert_int_equal(
			dt_schedule_make(v > 1 ? DT_PIPE_INTERLEAVED : DT_PIPE_1F1B, p, v, m, &s, NULL), 0);
		dt_schedule_simulate(&s, cost, 0, &bubble);
		is("bubble over work", bubble / (1 - bubble), (p - 1.0) / (v * m), 1e-9);
		dt_schedule_release(&s);
	}
}

/* Unfused cross-entropy: 10 sbV in 16 bits (logits in 16 and 32, gradients in 32). */
static void cross_entropy(void **state)
{
	struct dt_config c;
	struct dt_run s = {
		.config = &c, .microbatch = 2, .seq = 1024, .compute = DT_BF16, .optim.kind = DT_OPTIM_ADAMW};
	struct dt_estimate t;

	dt_config_find_preset("megatron-22b", &c);
	dt_layout_parse("tp8", &s.layout, NULL);
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_MEGATRON, NULL, &t, NULL),
			 0);
	is("of sbV / t", bytes_of(&t, DT_MEM_LOGITS) / (2.0 * 1024 * 51200 / 8), 10, 1e-9);
	dt_estimate_release(&t);
}

/*
 * 72 L h^2 (1 + s / 6h + V / 12hL) flops a token (Narayanan et al. 2021, equation 3, without recomputation;
 * Chowdhery et al. 2022, appendix B), and the A100's ridge: 312 TFLOP/s over 2 TB/s.
 */
static void flops(void **state)
{
	static const char *const models[] = {"gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t"};
	struct dt_cluster a100;

	for (size_t i = 0; i < 4; i++) {
		struct dt_config c;
		double h, L, paper;

		dt_config_find_preset(models[i], &c);
		h = (double)c.hidden;
		L = (double)c.layers;
		paper = 72 * L * h * h * (1 + 2048 / (6 * h) + (double)c.vocab / (12 * h * L));
		is(models[i], dt_model_flops_per_token(&c, 2048, true) / paper, 1, 1e-12);
	}
	dt_cluster_device("A100", &a100, NULL);
	is("TFLOP/s", a100.device.peak_flops / 1e12, 312, 0);
	is("FLOP a byte over 2 TB/s", a100.device.peak_flops / 2e12, 156, 0.5);
}

static void how_many(void **state)
{
	print_message("%d published numbers\n", numbers);
	assert_true(numbers >= 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters),
		cmocka_unit_test(zero_figure_1),
		cmocka_unit_test(states_of_accounts),
		cmocka_unit_test(adapters),
		cmocka_unit_test(deepspeed_documentation),
		cmocka_unit_test(kv_cache),
		cmocka_unit_test(quantised),
		cmocka_unit_test(handbook_7b),
		cmocka_unit_test(handbook_table),
		cmocka_unit_test(handbook_serving),
		cmocka_unit_test(activations_of_a_layer),
		cmocka_unit_test(pipelines),
		cmocka_unit_test(cross_entropy),
		cmocka_unit_test(flops),
		cmocka_unit_test(how_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
