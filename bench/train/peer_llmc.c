/*
 * Times llm.c's CPU training step and prints one JSON line. Built by ./run against a tree of llm.c in $LLMC,
 * with the flags of its Makefile:
 *   cc -Ofast -march=native -fopenmp -DOMP -DTESTING -I$LLMC peer_llmc.c -lm -o peer_llmc
 *   peer_llmc BATCH SEQ STEPS          GPT-2 124M, fp32, random weights, random tokens; one warm-up step
 * TESTING leaves its main() out. The model is built in memory, as its checkpoint reader would have it.
 */
#include "train_gpt2.c"

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Uniform on [-1, 1), from a 64-bit linear congruential generator (Knuth's MMIX constants). */
static float uniform(uint64_t *state)
{
	*state = *state * 6364136223846793005U + 1442695040888963407U;
	return (float)(*state >> 40) * 0x1p-23f - 1;
}

static void make_model(GPT2 *m, uint64_t *rng)
{
	memset(m, 0, sizeof(*m));
	m->config.max_seq_len = 1024;
	m->config.vocab_size = 50257;
	m->config.padded_vocab_size = 50304;
	m->config.num_layers = 12;
	m->config.num_heads = 12;
	m->config.channels = 768;
	fill_in_parameter_sizes(m->param_sizes, m->config);
	for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
		m->num_parameters += m->param_sizes[i];
	m->params_memory = malloc_and_point_parameters(&m->params, m->param_sizes);
	for (size_t i = 0; i < m->num_parameters; i++)
		m->params_memory[i] = 0.0346f * uniform(rng); /* standard deviation 0.02 */
	for (size_t i = 0; i < 12 * 768; i++)
		m->params.ln1w[i] = m->params.ln2w[i] = 1;
	for (size_t i = 0; i < 768; i++)
		m->params.lnfw[i] = 1;
	m->mean_loss = -1;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int batch = argc == 4 ? atoi(argv[1]) : 0, seq = argc == 4 ? atoi(argv[2]) : 0;
	int steps = argc == 4 ? atoi(argv[3]) : 0, *tokens, *inputs, *targets;
	FILE *out = fdopen(dup(STDOUT_FILENO), "w");
	uint64_t rng = 1;
	float first = 0;
	double *times;
	GPT2 model;

	if (batch < 1 || seq < 1 || seq > 1024 || steps < 1) {
		fprintf(stderr, "usage: peer_llmc BATCH SEQ STEPS\n");
		return 2;
	}
	dup2(STDERR_FILENO, STDOUT_FILENO); /* llm.c prints while it works */
	make_model(&model, &rng);
	tokens = mallocCheck(sizeof(int) * (size_t)batch * (size_t)(seq + 1));
	inputs = mallocCheck(sizeof(int) * (size_t)batch * (size_t)seq);
	targets = mallocCheck(sizeof(int) * (size_t)batch * (size_t)seq);
	times = mallocCheck(sizeof(double) * (size_t)steps);
	for (int i = 0; i < batch * (seq + 1); i++)
		tokens[i] = (int)((uniform(&rng) + 1) / 2 * 50256);
	for (int b = 0; b < batch; b++)
		for (int t = 0; t < seq; t++) {
			inputs[b * seq + t] = tokens[b * (seq + 1) + t];
			targets[b * seq + t] = tokens[b * (seq + 1) + t + 1];
		}
	for (int step = -1; step < steps; step++) {
		double start = now_s();

		gpt2_forward(&model, inputs, targets, (size_t)batch, (size_t)seq);
		gpt2_zero_grad(&model);
		gpt2_backward(&model);
		gpt2_update(&model, 3e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + 2);
		if (step < 0)
			first = model.mean_loss;
		else
			times[step] = now_s() - start;
	}
	qsort(times, (size_t)steps, sizeof(*times), by_value);
	double median = (times[(steps - 1) / 2] + times[steps / 2]) / 2;
	fprintf(out,
		"{\"schema\": 1, \"peer\": \"llm.c\", \"precision\": \"fp32\", \"model\": \"gpt2-124m\", "
		"\"batch\": %d, "
		"\"seq\": %d, \"steps\": %d, \"step_s\": %.6f, \"step_min_s\": %.6f, \"tokens_per_s\": %.2f, "
		"\"loss_first\": %.6f, \"loss_last\": %.6f}\n",
		batch, seq, steps, median, times[0], batch * seq / median, first, model.mean_loss);
	return fclose(out) ? 1 : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
