/* The table of families. */
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

static const struct dt_family *const families[] = {
	&dt_family_gpt2,	&dt_family_llama,      &dt_family_mistral,
	&dt_family_qwen2,	&dt_family_qwen3,      &dt_family_gemma3,
	&dt_family_mixtral,	&dt_family_qwen3_moe,  &dt_family_deepseek_v2,
	&dt_family_deepseek_v3, &dt_family_phi3,       &dt_family_olmo2,
	&dt_family_olmo3,	&dt_family_smollm3,    &dt_family_gemma2,
	&dt_family_resnet,	&dt_family_resnet9,    &dt_family_mlp,
	&dt_family_cnn,		&dt_family_olmoe,      &dt_family_policy,
	&dt_family_airbench,	&dt_family_glm4,       &dt_family_glm4_moe,
	&dt_family_minimax_m2,	&dt_family_gpt_oss,    &dt_family_granite,
	&dt_family_gpt_neox,	&dt_family_granitemoe, &dt_family_granitemoeshared,
	&dt_family_cohere,	&dt_family_cohere2,    &dt_family_starcoder2,
	&dt_family_vit,		&dt_family_bert,       &dt_family_roberta,
	&dt_family_xlm_roberta, &dt_family_mamba2,     &dt_family_granitemoehybrid,
	&dt_family_bamba,	&dt_family_idefics3,
};

const struct dt_family *dt_family_at(int i)
{
	return i >= 0 && i < (int)(sizeof(families) / sizeof(families[0])) ? families[i] : NULL;
}

const struct dt_family *dt_family_find(const char *type)
{
	const struct dt_family *f;

	for (int i = 0; (f = dt_family_at(i)); i++)
		if (!strcmp(f->type, type))
			return f;
	return NULL;
}

const struct dt_family *dt_family_of_outer(const char *type)
{
	const struct dt_family *f;

	for (int i = 0; (f = dt_family_at(i)); i++)
		for (int k = 0; f->outer[k]; k++)
			if (!strcmp(f->outer[k], type))
				return f;
	return NULL;
}

const struct dt_family *dt_family_of_arch(const char *arch)
{
	const struct dt_family *f;

	for (int i = 0; (f = dt_family_at(i)); i++)
		if (f->from_gguf && !strcmp(f->arch, arch))
			return f;
	return NULL;
}

const char *dt_family_list(bool gguf, char *buf, size_t n)
{
	const struct dt_family *f;
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; (f = dt_family_at(i)) && at < n; i++) {
		const char *const own[] = {gguf ? f->arch : f->type, NULL}, *const *names =
										    !gguf && f->outer[0]
											    ? f->outer
											    : own;

		if (gguf ? !f->from_gguf : !f->from_hf && !f->beside_text)
			continue;
		for (; *names && at < n; names++)
			at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", *names);
	}
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
