#include "plan/run_rows.h"

#include "kernels/unpack.h"
#include "plan/objective.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How a field of struct dt_run is written as an argument. */
enum form {
	TEXT,
	INTEGER,
	REAL,
	REAL32,
	FLAG,
	CHOICE,
	LAYOUT,
	PIPELINE,
	RECOMPUTE,
	MASTER,
	LOSS_SCALE,
	SEED,
	BN_SPAN
};

enum emit { NEVER, CHANGED, ALWAYS }; /* among the arguments that dt-plan emits */

struct row {
	struct dt_opt opt; /* dest: the offset in struct dt_run_options */
	enum form form;
	size_t at; /* in struct dt_run */
	enum dt_run_change change;
	enum emit emit;
};

#define O(member) ((void *)offsetof(struct dt_run_options, member))
#define R(member) offsetof(struct dt_run, member)

/* A row is a paragraph. */
/* clang-format off */
static const struct row rows[] = {
	{{"model", 'm', DT_OPT_STR, O(run.model), "MODEL",
	  "preset, config.json, checkpoint, Hugging Face folder or GGUF", .complete = DT_COMPLETE_MODEL},
	 TEXT,
	 R(model),
	 LOCAL,
	 NEVER},
	{{"init", 0, DT_OPT_CHOICE, O(run.init), DT_RUN_INIT_CHOICES,
	  "what a new run starts from; auto: the weights of --model where it holds some", .def = "auto"},
	 CHOICE,
	 R(init),
	 LOCAL,
	 NEVER},
	{{"lora", 0, DT_OPT_INT, O(run.lora.rank), "RANK",
	  "train adapters of this rank, everything else frozen", .min = 1, .max = DT_LORA_RANK_MAX},
	 INTEGER,
	 R(lora.rank),
	 MEANING,
	 CHANGED},
	{{"lora-alpha", 0, DT_OPT_REAL, O(run.lora.alpha), "X", "adapters are scaled by X / RANK", .min = 0,
	  .max = 1e6, .def_text = "2 RANK"},
	 REAL,
	 R(lora.alpha),
	 MEANING,
	 CHANGED},
	{{"lora-targets", 0, DT_OPT_STR, O(run.lora.targets), "all|attention|qv|REGEX",
	  "which linears have adapters; REGEX: those whose whole name matches", .def = "all"},
	 TEXT,
	 R(lora.targets),
	 MEANING,
	 CHANGED},
	{{"lora-base", 0, DT_OPT_CHOICE, O(run.lora.base), DT_BLOCKS_NAMES,
	  "frozen linears of the layers are kept in blocks; none: in the type of --precision", .def = "none"},
	 CHOICE,
	 R(lora.base),
	 MEANING,
	 CHANGED},
	{{"lora-kind", 0, DT_OPT_CHOICE, O(run.lora.kind), DT_LORA_KINDS,
	  "rslora: adapters are scaled by X / sqrt(RANK)", .def = "lora"},
	 CHOICE,
	 R(lora.kind),
	 MEANING,
	 CHANGED},
	{{"rope-scaling", 0, DT_OPT_STR, O(run.rope_scaling), "KIND:FACTOR",
	  "stretch rotary positions for sequences longer than the model's: linear, ntk, dynamic, yarn or "
	  "llama3",
	  .def_text = "as the model has them"},
	 TEXT,
	 R(rope_scaling),
	 MEANING,
	 CHANGED},
	{{"vocab", 0, DT_OPT_INT, O(run.vocab), "N",
	  "tokens of the vocabulary, for a preset or a config.json without weights", .min = 1, .max = 1 << 24,
	  .def_text = "the model's"},
	 INTEGER,
	 R(vocab),
	 MEANING,
	 CHANGED},
	{{"objective", 0, DT_OPT_CHOICE, O(run.objective.kind), DT_OBJECTIVES,
	  "what is minimised: the cross-entropy, or a loss of answers, in pairs or scored", .def = "nll"},
	 CHOICE,
	 R(objective.kind),
	 MEANING,
	 NEVER},
	{{"beta", 0, DT_OPT_REAL, O(run.objective.beta), "X",
	  "of --objective: how much the log-probabilities of answers count", .min = 0, .max = 1e6,
	  .def_text = "0.1, of simpo 2"},
	 REAL,
	 R(objective.beta),
	 MEANING,
	 NEVER},
	{{"gamma", 0, DT_OPT_REAL, O(run.objective.gamma), "X", "of --objective simpo: the margin it asks for",
	  .min = 0, .max = 1e6, .def_text = "1"},
	 REAL,
	 R(objective.gamma),
	 MEANING,
	 NEVER},
	{{"reference", 0, DT_OPT_STR, O(run.objective.reference), "FILE",
	  "where the log-probabilities are kept that the model the run starts from gives, without --lora",
	  .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(objective.reference),
	 LOCAL,
	 NEVER},
	{{"neftune", 0, DT_OPT_REAL, O(run.neftune), "ALPHA",
	  "noise on embeddings in training, of ALPHA / sqrt(tokens of the example x width) at most; 0: none",
	  .min = 0, .max = 1e6, .def = "0"},
	 REAL,
	 R(neftune),
	 MEANING,
	 NEVER},
	{{"data", 'd', DT_OPT_STR, O(run.data.train), "FILE",
	  "training set made by dt-dataset; A:0.7,B:0.3 mixes several", .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(data.train),
	 FREE,
	 NEVER},
	{{"rollouts", 0, DT_OPT_STR, O(run.rl.rollouts), "FILE", "scored answers of dt-rollout to learn from",
	  .complete = DT_COMPLETE_FILE},
	 TEXT, R(rl.rollouts), FREE, NEVER},
	{{"prompts", 0, DT_OPT_INT, O(run.rl.batch), "N", "prompts a step, each with its group of answers",
	  .min = 1, .max = 1 << 20, .def = "32"},
	 INTEGER, R(rl.batch), MEANING, NEVER},
	{{"task", 0, DT_OPT_STR, O(run.rl.task), "TASK:SIZE",
	  "answer prompts of this task in every step, as dt-rollout does: sort:7 for example"},
	 TEXT, R(rl.task), MEANING, NEVER},
	{{"reward", 0, DT_OPT_STR, O(run.rl.reward), "COMMAND",
	  "a program that scores those answers: JSON lines in, a number a line out", .def_text = "the task"},
	 TEXT, R(rl.reward), LOCAL, NEVER},
	{{"group", 0, DT_OPT_INT, O(run.rl.group), "N", "answers to each prompt of --task", .min = 1, .max = 128,
	  .def = "16"},
	 INTEGER, R(rl.group), MEANING, NEVER},
	{{"answer-tokens", 0, DT_OPT_INT, O(run.rl.answer), "N", "tokens of an answer to --task at most", .min = 1,
	  .max = 1 << 20, .def = "32"},
	 INTEGER, R(rl.answer), MEANING, NEVER},
	{{"refresh", 0, DT_OPT_INT, O(run.rl.refresh), "STEPS",
	  "the weights that answer --task are taken anew this often", .min = 1, .max = 1e9, .def = "1"},
	 INTEGER, R(rl.refresh), MEANING, NEVER},
	{{"clip-low", 0, DT_OPT_REAL, O(run.rl.low), "X", "ratios of an objective are clipped below at 1 - X",
	  .min = 0, .max = 1, .def_text = "the objective's"},
	 REAL, R(rl.low), MEANING, NEVER},
	{{"clip-high", 0, DT_OPT_REAL, O(run.rl.high), "X", "ratios of an objective are clipped above at 1 + X",
	  .min = 0, .max = 1e6, .def_text = "the objective's"},
	 REAL, R(rl.high), MEANING, NEVER},
	{{"ratio-cap", 0, DT_OPT_REAL, O(run.rl.ratio), "X",
	  "rloo, reinforce and cispo weigh a token by its ratio, X at most; 0: not at all", .min = 0, .max = 1e6,
	  .def_text = "the objective's"},
	 REAL, R(rl.ratio), MEANING, NEVER},
	{{"layout", 'l', DT_OPT_STR, O(layout), "LAYOUT",
	  "how ranks split the work, dp2.tp2 for example; see dt-layout(7)", .def_text = "dp over all ranks"},
	 LAYOUT,
	 R(layout),
	 LOCAL,
	 ALWAYS},
	{{"pipeline", 0, DT_OPT_STR, O(pipeline), "NAME",
	  "schedule where pp > 1: gpipe, 1f1b, interleaved:V or zb-h1", .def = "1f1b"},
	 PIPELINE,
	 R(pipeline),
	 LOCAL,
	 CHANGED},
	{{"schedule-file", 0, DT_OPT_STR, O(run.schedule_file), "FILE",
	  "run this table of a pipeline, in the form that dt-train --schedule-table prints",
	  .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(schedule_file),
	 LOCAL,
	 CHANGED},
	{{"seq", 's', DT_OPT_INT, O(run.seq), "TOKENS", "sequence length", .min = 1, .max = 1 << 24,
	  .def_text = "256, or the model's positions"},
	 INTEGER,
	 R(seq),
	 MEANING,
	 ALWAYS},
	{{"microbatch", 'b', DT_OPT_INT, O(run.microbatch), "SAMPLES", "samples a rank computes at a time",
	  .min = 1, .max = 1 << 24, .def = "4"},
	 INTEGER,
	 R(microbatch),
	 FREE,
	 ALWAYS},
	{{"global-batch", 0, DT_OPT_INT, O(run.global_batch), "SAMPLES", "samples a step over all ranks",
	  .min = 1, .max = 1 << 30, .def_text = "microbatch x dp"},
	 INTEGER,
	 R(global_batch),
	 MEANING,
	 ALWAYS},
	{{"steps", 'n', DT_OPT_INT, O(run.steps), "N", "train until this many steps are done", .min = 1,
	  .max = 1e15, .def = "100"},
	 INTEGER,
	 R(steps),
	 TOLD,
	 NEVER},
	{{"optimizer", 0, DT_OPT_CHOICE, O(run.optim.kind), DT_OPTIM_CHOICES, "update rule", .def = "adamw"},
	 CHOICE,
	 R(optim.kind),
	 MEANING,
	 ALWAYS},
	{{"lr", 0, DT_OPT_REAL, O(run.lr.lr), "X", "peak learning rate", .min = 0, .max = 1e6, .def = "3e-4"},
	 REAL,
	 R(lr.lr),
	 MEANING,
	 NEVER},
	{{"scale-lr", 0, DT_OPT_STR, O(run.scale_lr), "linear:B|sqrt:B",
	  "--lr is for a batch of B samples, and grows with the batch or its root", .def_text = "as it is"},
	 TEXT, R(scale_lr), MEANING, NEVER},
	{{"layer-lr-decay", 0, DT_OPT_REAL, O(run.layer_decay), "X",
	  "a layer's learning rate is X times that of the layer above it", .min = 0.001, .max = 1, .def = "1"},
	 REAL,
	 R(layer_decay),
	 MEANING,
	 NEVER},
	{{"min-lr", 0, DT_OPT_REAL, O(min_lr), "X", "learning rate at the end", .min = 0, .max = 1e6,
	  .def_text = "a tenth of --lr"},
	 REAL,
	 R(lr.min_lr),
	 MEANING,
	 NEVER},
	{{"schedule", 0, DT_OPT_STR, O(run.lr.text), DT_LR_WORDS "|step:STEP[,STEP...][:X]",
	  "course of the learning rate; step: times X, 0.1, at each of those steps", .def = "cosine"},
	 TEXT,
	 R(lr.text),
	 MEANING,
	 NEVER},
	{{"warmup", 0, DT_OPT_INT, O(run.lr.warmup), "STEPS", "steps of linear warm-up", .min = 0,
	  .max = 1e15, .def = "0"},
	 INTEGER,
	 R(lr.warmup),
	 MEANING,
	 NEVER},
	{{"decay-steps", 0, DT_OPT_INT, O(run.lr.decay), "STEPS", "length of the decay at the end of wsd",
	  .min = 0, .max = 1e15, .def_text = "a tenth of --steps"},
	 INTEGER,
	 R(lr.decay),
	 TOLD,
	 NEVER},
	{{"beta1", 0, DT_OPT_REAL, O(beta1), "X", "momentum; first Adam moment", .min = 0, .max = 1,
	  .def = "0.9"},
	 REAL32, R(optim.beta1), MEANING, NEVER},
	{{"beta2", 0, DT_OPT_REAL, O(beta2), "X", "second Adam moment; RMSprop's average", .min = 0, .max = 1,
	  .def = "0.95"},
	 REAL32, R(optim.beta2), MEANING, NEVER},
	{{"eps", 0, DT_OPT_REAL, O(eps), "X", "term added to the denominator", .min = 0, .max = 1,
	  .def = "1e-8"},
	 REAL32, R(optim.eps), MEANING, NEVER},
	{{"weight-decay", 0, DT_OPT_REAL, O(weight_decay), "X",
	  "on what --no-decay leaves", .min = 0, .max = 1e6, .def = "0.1"},
	 REAL32, R(optim.weight_decay), MEANING, NEVER},
	{{"no-decay", 0, DT_OPT_STR, O(run.no_decay), "norm,bias|REGEX",
	  "what --weight-decay spares; none; REGEX: parameters whose whole name matches", .def = "norm,bias"},
	 TEXT, R(no_decay), MEANING, NEVER},
	{{"trust", 0, DT_OPT_REAL, O(trust), "X",
	  "ratio by which lars and lamb scale the rate of a matrix; 0: from its norms", .min = 0, .max = 1e6,
	  .def = "0"},
	 REAL32, R(optim.trust), MEANING, NEVER},
	{{"clip", 0, DT_OPT_REAL, O(run.clip), "X", "largest gradient norm; 0: no clipping", .min = 0,
	  .max = 1e30, .def = "1"},
	 REAL, R(clip), MEANING, NEVER},
	{{"ema", 0, DT_OPT_REAL, O(run.ema), "D",
	  "keep an average of the weights, of which D stays each step, and evaluate that; 0: none", .min = 0,
	  .max = 0.9999999, .def = "0"},
	 REAL, R(ema), MEANING, CHANGED},
	{{"noise-scale", 0, DT_OPT_FLAG, O(run.noise_scale), NULL,
	  "measure the gradient noise scale: batches far above it train little faster"},
	 FLAG, R(noise_scale), LOCAL, NEVER},
	{{"balance-loss", 0, DT_OPT_REAL, O(run.mixture.balance), "X",
	  "factor of the loss that evens out the load of experts; 0: none", .min = 0, .max = 1e6,
	  .def = "0.01"},
	 REAL,
	 R(mixture.balance),
	 MEANING,
	 NEVER},
	{{"balance-over", 0, DT_OPT_CHOICE, O(run.mixture.over), DT_OVER_CHOICES,
	  "where loads of experts are counted for that", .def = "sequence"},
	 CHOICE,
	 R(mixture.over),
	 MEANING,
	 NEVER},
	{{"router-z-loss", 0, DT_OPT_REAL, O(run.mixture.z), "X",
	  "factor of the loss that keeps the router's scores small; 0: none", .min = 0, .max = 1e6,
	  .def = "0"},
	 REAL,
	 R(mixture.z),
	 MEANING,
	 NEVER},
	{{"router-bias-rate", 0, DT_OPT_REAL, O(run.mixture.bias_rate), "X",
	  "by what biases of the choice of experts move a step, where the model has some", .min = 0,
	  .max = 1e6, .def = "1e-3"},
	 REAL,
	 R(mixture.bias_rate),
	 MEANING,
	 NEVER},
	{{"capacity-factor", 0, DT_OPT_REAL, O(run.mixture.capacity), "X",
	  "an expert drops the choices of a microbatch past so many even shares; 0: none are dropped",
	  .min = 0, .max = 1e6, .def = "0"},
	 REAL,
	 R(mixture.capacity),
	 MEANING,
	 CHANGED},
	{{"precision", 'p', DT_OPT_CHOICE, O(run.compute), "fp32|bf16|fp16",
	  "compute type; master weights and gradients are always fp32", .def = "bf16",
	  .elsewhere = "f32=fp32|float32=fp32|float=fp32|tf32=fp32|bfloat16=bf16|mixed=bf16|f16=fp16|"
		       "float16=fp16|half=fp16|fp8=bf16 with --fp8|int8=bf16|bf16-mixed=bf16|16-mixed=fp16"},
	 CHOICE,
	 R(compute),
	 MEANING,
	 ALWAYS},
	{{"fp8", 0, DT_OPT_FLAG, O(run.fp8), NULL,
	  "linears of the layers in 8 bits: E4M3 forward, E5M2 gradients, a scale a tensor"},
	 FLAG,
	 R(fp8),
	 MEANING,
	 CHANGED},
	{{"master", 0, DT_OPT_FLAG, O(master), NULL,
	  "keep fp32 master weights beside 16-bit ones; without them bf16 is rounded at random",
	  .negatable = true, .def = "on"},
	 MASTER,
	 R(no_master),
	 MEANING,
	 CHANGED},
	{{"recompute", 0, DT_OPT_STR, O(recompute), DT_RECOMPUTE_CHOICES,
	  "what backward computes again instead of keeping", .def = "none"},
	 RECOMPUTE,
	 R(recompute),
	 FREE,
	 ALWAYS},
	{{"ops", 0, DT_OPT_STR, O(run.ops), "FILE",
	  "times of operations on this machine, output of dt-calibrate, for --recompute auto",
	  .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(ops),
	 LOCAL,
	 NEVER},
	{{"loss-chunk", 0, DT_OPT_INT, O(run.loss_chunk), "TOKENS", "rows of logits held at a time", .min = 1,
	  .max = 1 << 24, .def_text = "512"},
	 INTEGER,
	 R(loss_chunk),
	 FREE,
	 CHANGED},
	{{"documents", 0, DT_OPT_CHOICE, O(run.documents), DT_RUN_DOCUMENTS_CHOICES,
	  "whether attention, positions and targets stay inside a document; auto: where the data set keeps "
	  "them apart",
	  .def = "auto"},
	 CHOICE,
	 R(documents),
	 MEANING,
	 CHANGED},
	{{"offload", 0, DT_OPT_STR, O(run.offload.what_text), "WHAT[,WHAT...]",
	  "what lies elsewhere than where it is computed with: optimizer (its states and master weights), weights, "
	  "activations, all (the first two) or none",
	  .def = "none"},
	 TEXT, R(offload.what_text), LOCAL, CHANGED},
	{{"offload-to", 0, DT_OPT_STR, O(run.offload.to_text), "host|disk:DIR",
	  "where that is: in the memory of a card's host, or in a file of each rank in DIR", .def = "host"},
	 TEXT, R(offload.to_text), LOCAL, CHANGED},
	{{"offload-fraction", 0, DT_OPT_SHARE, O(run.offload.fraction), "F", "how much of it is offloaded", .min = 0,
	  .max = 1, .def = "1"},
	 REAL, R(offload.fraction), LOCAL, CHANGED},
	{{"seed", 0, DT_OPT_INT, O(seed), "N", "of initial weights and data order", .def = "1337"},
	 SEED,
	 R(data.seed),
	 MEANING,
	 NEVER},
	{{"loss-scale", 0, DT_OPT_STR, O(loss_scale), "X|dynamic[:X]", "factor of the loss during backward",
	  .def_text = "dynamic for fp16, else 1"},
	 LOSS_SCALE,
	 R(loss_scale),
	 TOLD,
	 NEVER},
	{{"reproducible", 0, DT_OPT_FLAG, O(run.reproducible), NULL,
	  "sum gradients so that dp, pp and accumulation do not change a bit"},
	 FLAG,
	 R(reproducible),
	 TOLD,
	 CHANGED},
	{{"cp-comm", 0, DT_OPT_CHOICE, O(run.cp_comm), DT_CP_COMM_CHOICES,
	  "how attention looks across the cuts of cp: keys and values gathered, going around a ring, or "
	  "heads cut in "
	  "place of tokens",
	  .def = "auto"},
	 CHOICE,
	 R(cp_comm),
	 FREE,
	 CHANGED},
	{{"grad-comm", 0, DT_OPT_STR, O(run.compress.text), DT_GRAD_COMM,
	  "how gradients travel; auto: by what the link and compressing take, measured", .def = "fp32"},
	 TEXT,
	 R(compress.text),
	 TOLD,
	 CHANGED},
	{{"sync", 0, DT_OPT_STR, O(run.sync.text), "all|local:H|diloco:H",
	  "data-parallel ranks add up gradients every step, or average weights after H steps alone", .def = "all"},
	 TEXT, R(sync.text), MEANING, CHANGED},
	{{"sync-from", 0, DT_OPT_INT, O(run.sync.from), "STEP",
	  "ranks add up gradients until this step, and train alone from there", .min = 0, .max = 1e15, .def = "0"},
	 INTEGER, R(sync.from), MEANING, NEVER},
	{{"outer-lr", 0, DT_OPT_REAL, O(run.sync.lr), "X", "rate of diloco's outer step", .min = 0, .max = 100,
	  .def = "0.7"},
	 REAL, R(sync.lr), MEANING, NEVER},
	{{"outer-momentum", 0, DT_OPT_REAL, O(run.sync.momentum), "X", "Nesterov momentum of diloco's outer step",
	  .min = 0, .max = 1, .def = "0.9"},
	 REAL, R(sync.momentum), MEANING, NEVER},
	{{"bucket-size", 0, DT_OPT_SIZE, O(bucket), "SIZE",
	  "gradients are reduced in pieces of about this size", .def = "25MiB"},
	 REAL,
	 R(bucket_bytes),
	 LOCAL,
	 NEVER},
	{{"eval-data", 0, DT_OPT_STR, O(run.data.eval), "FILE", "evaluation set, of the same tokenizer",
	  .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(data.eval),
	 LOCAL,
	 NEVER},
	{{"eval-every", 0, DT_OPT_INT, O(run.data.eval_every), "STEPS", "evaluate this often, and at the end",
	  .min = 1, .max = 1e15},
	 INTEGER,
	 R(data.eval_every),
	 LOCAL,
	 NEVER},
	{{"eval-tokens", 0, DT_OPT_INT, O(run.data.eval_tokens), "N",
	  "stop an evaluation after this many tokens", .min = 1, .max = 1e15},
	 INTEGER,
	 R(data.eval_tokens),
	 LOCAL,
	 NEVER},
	{{"image-size", 0, DT_OPT_INT, O(run.image.size), "PIXELS", "side of a sample of images", .min = 1,
	  .max = 4096, .def_text = "the data's, else the model's"},
	 INTEGER, R(image.size), MEANING, CHANGED},
	{{"crop", 0, DT_OPT_STR, O(run.image.crop), "none|pad:N[:reflect]|resized[:LEAST]",
	  "a random part of each training image: padded by so much, or of random area and ratio",
	  .def = "none"},
	 TEXT, R(image.crop), MEANING, NEVER},
	{{"flip", 0, DT_OPT_FLAG, O(run.image.flip), NULL, "half of the training images are mirrored"},
	 FLAG, R(image.flip), MEANING, NEVER},
	{{"cutout", 0, DT_OPT_INT, O(run.image.cutout), "PIXELS",
	  "side of the square of each training image that is set to the mean", .min = 0, .max = 4096,
	  .def = "0"},
	 INTEGER, R(image.cutout), MEANING, NEVER},
	{{"mixup", 0, DT_OPT_REAL, O(run.image.mixup), "ALPHA",
	  "images are mixed in pairs, by a share drawn from Beta(ALPHA, ALPHA); 0: not", .min = 0, .max = 100,
	  .def = "0"},
	 REAL, R(image.mixup), MEANING, NEVER},
	{{"cutmix", 0, DT_OPT_REAL, O(run.image.cutmix), "ALPHA",
	  "a part of each image comes from its partner, likewise", .min = 0, .max = 100, .def = "0"},
	 REAL, R(image.cutmix), MEANING, NEVER},
	{{"normalize", 0, DT_OPT_STR, O(run.image.normalize), "auto|data|NAME",
	  "mean and deviation of pixels: the weights', else the training set's; or published ones", .def = "auto"},
	 TEXT, R(image.normalize), MEANING, NEVER},
	{{"label-smoothing", 0, DT_OPT_REAL, O(run.label_smoothing), "X",
	  "share of a target that goes to all classes alike", .min = 0, .max = 0.99, .def = "0"},
	 REAL, R(label_smoothing), MEANING, NEVER},
	{{"bn-span", 0, DT_OPT_STR, O(bn_span), "dp|rank|N",
	  "images that a batch norm is over: a microbatch of all ranks, of one rank, or N", .def = "dp"},
	 BN_SPAN, R(bn_span), MEANING, CHANGED},
	{{"new-head", 0, DT_OPT_FLAG, O(run.image.new_head), NULL,
	  "weights of --model get a last layer of their own, with the data's classes"},
	 FLAG, R(image.new_head), LOCAL, NEVER},
	{{"loader-threads", 0, DT_OPT_INT, O(run.image.workers), "N",
	  "threads of a rank that decode images ahead; 0: none, it does so when it needs them", .min = 0,
	  .max = 1024, .def = "1"},
	 INTEGER, R(image.workers), LOCAL, NEVER},
	{{"save", 0, DT_OPT_STR, O(run.save.dir), "DIR",
	  "folder of checkpoints; one is always written at the end", .complete = DT_COMPLETE_DIR},
	 TEXT, R(save.dir), LOCAL, NEVER},
	{{"overwrite", 0, DT_OPT_FLAG, O(run.save.overwrite), NULL,
	  "start over where --save holds the checkpoints of another run"},
	 FLAG, R(save.overwrite), LOCAL, NEVER},
	{{"save-every", 0, DT_OPT_INT, O(run.save.every), "STEPS", "also save this often", .min = 1,
	  .max = 1e15},
	 INTEGER, R(save.every), LOCAL, NEVER},
	{{"keep", 0, DT_OPT_INT, O(run.save.keep), "N", "keep only the newest N checkpoints", .min = 1,
	  .max = 1 << 30},
	 INTEGER, R(save.keep), LOCAL, NEVER},
	{{"keep-every", 0, DT_OPT_INT, O(run.save.keep_every), "STEPS",
	  "with --keep: also keep multiples of this", .min = 1, .max = 1e15},
	 INTEGER, R(save.keep_every), LOCAL, NEVER},
	{{"save-async", 0, DT_OPT_FLAG, O(run.save.async), NULL,
	  "write checkpoints from a copy in memory while training goes on"},
	 FLAG, R(save.async), LOCAL, NEVER},
	{{"save-errors", 0, DT_OPT_CHOICE, O(save_errors), "stop|continue",
	  "what a checkpoint that cannot be written does to the run", .def = "stop"},
	 FLAG,
	 R(save.proceed),
	 LOCAL,
	 NEVER},
	{{"compress", 0, DT_OPT_FLAG, O(run.save.compress), NULL, "deflate checkpoints"},
	 FLAG,
	 R(save.compress),
	 LOCAL,
	 NEVER},
	{{"save-grads", 0, DT_OPT_FLAG, O(run.save.grads), NULL,
	  "checkpoints also hold the gradients of their step, as grad/NAME"},
	 FLAG,
	 R(save.grads),
	 LOCAL,
	 NEVER},
	{{"resume", 0, DT_OPT_STR, O(run.save.resume), "auto|PATH",
	  "go on from the newest checkpoint of --save if there is one, or from PATH",
	  .complete = DT_COMPLETE_DIR},
	 TEXT,
	 R(save.resume),
	 LOCAL,
	 NEVER},
	{{"on-spike", 0, DT_OPT_STR, O(run.watch.on_spike_text), "ignore|skip|rollback:STEPS|stop",
	  "what follows a step whose loss or gradient norm is far above those before it", .def = "ignore"},
	 TEXT,
	 R(watch.on_spike_text),
	 TOLD,
	 NEVER},
	{{"spike-window", 0, DT_OPT_INT, O(run.watch.window), "STEPS",
	  "how many steps a step is compared with", .min = 8, .max = 1024, .def = "128"},
	 INTEGER,
	 R(watch.window),
	 TOLD,
	 NEVER},
	{{"spike-factor", 0, DT_OPT_REAL, O(run.watch.factor), "X",
	  "a spike is this many times their spread above the median", .min = 1, .max = 1e9, .def = "10"},
	 REAL,
	 R(watch.factor),
	 TOLD,
	 NEVER},
	{{"nan-skips", 0, DT_OPT_INT, O(run.watch.nan_skips), "K",
	  "leave out up to K updates in a row whose loss or gradient is not finite", .min = 0, .max = 1e9,
	  .def = "0"},
	 INTEGER,
	 R(watch.nan_skips),
	 TOLD,
	 NEVER},
	{{"check-replicas", 0, DT_OPT_INT, O(run.watch.replicas), "STEPS",
	  "this often, and before a checkpoint, compare what data-parallel ranks hold and compute; 0: never",
	  .min = 0, .max = 1e9, .def = "0"},
	 INTEGER,
	 R(watch.replicas),
	 FREE,
	 NEVER},
	{{"elastic", 0, DT_OPT_CHOICE, O(run.watch.elastic), DT_RUN_ELASTIC_CHOICES,
	  "dp: go on without a data-parallel rank that is lost", .def = "none"},
	 CHOICE, R(watch.elastic), LOCAL, NEVER},
	{{"mem-limit", 0, DT_OPT_SIZE, O(run.mem_limit), "SIZE",
	  "refuse to start (exit 3) when the plan needs more a rank"},
	 INTEGER, R(mem_limit), LOCAL, NEVER},
	{{"device", 0, DT_OPT_STR, O(run.device), "auto|cpu|cuda[:N]", "where to compute",
	  .def_text = "the processor"},
	 TEXT,
	 R(device),
	 LOCAL,
	 NEVER},
	{{"threads", 't', DT_OPT_INT, O(run.threads), "N", "threads a rank", .min = 1, .max = 4096,
	  .def_text = "cores over the ranks of the machine"},
	 INTEGER,
	 R(threads),
	 LOCAL,
	 NEVER},
	{{"metrics", 0, DT_OPT_STR, O(run.metrics), "FILE", "JSON line a step; - is standard output",
	  .complete = DT_COMPLETE_FILE, .def = "-"},
	 TEXT,
	 R(metrics),
	 LOCAL,
	 NEVER},
	{{"progress", 0, DT_OPT_CHOICE, O(run.progress), DT_RUN_PROGRESS_CHOICES,
	  "for people, once a second on standard error: a line drawn in place, or lines; auto: a line on a "
	  "terminal",
	  .def = "auto"},
	 CHOICE,
	 R(progress),
	 LOCAL,
	 NEVER},
	{{"error-file", 0, DT_OPT_STR, O(run.error_file), "FILE",
	  "where a failure is also written, as JSON: code, message and hint", .complete = DT_COMPLETE_FILE},
	 TEXT,
	 R(error_file),
	 LOCAL,
	 NEVER},
	{{"trace", 0, DT_OPT_STR, O(run.trace), "FILE",
	  "what every rank did and when, for Perfetto or chrome://tracing",
	  .complete = DT_COMPLETE_FILE},
	 TEXT, R(trace), LOCAL, NEVER},
	{{"tensorboard", 0, DT_OPT_STR, O(run.tensorboard), "DIR", "the metrics as events of TensorBoard too",
	  .complete = DT_COMPLETE_DIR},
	 TEXT, R(tensorboard), LOCAL, NEVER},
	{{"prometheus", 0, DT_OPT_STR, O(run.prometheus), "FILE",
	  "a page for Prometheus, renewed each second", .complete = DT_COMPLETE_FILE},
	 TEXT, R(prometheus), LOCAL, NEVER},
	{{"details", 0, DT_OPT_INT, O(run.details), "STEPS",
	  "this often a line also has norms of every unit, times of every rank and percentiles; 0: never",
	  .min = 0, .max = 1e15, .def = "0"},
	 INTEGER, R(details), LOCAL, NEVER},
	{{"mfu", 0, DT_OPT_FLAG, O(run.measure_mfu), NULL, "measure the matmul rate at the start, for mfu",
	  .negatable = true, .def = "on"},
	 FLAG,
	 R(measure_mfu),
	 LOCAL,
	 NEVER},
};
/* clang-format on */
#define NROWS ((int)(sizeof(rows) / sizeof(rows[0])))
_Static_assert(NROWS <= DT_RUN_ROWS_MAX, "given[] is too short");

int dt_run_row_find(const char *name)
{
	int i = 0;

	while (i < NROWS && strcmp(rows[i].opt.name, name))
		i++;
	return i < NROWS ? i : -1;
}

struct dt_opt dt_run_row_bound(struct dt_run_options *o, int i)
{
	struct dt_opt opt = rows[i].opt;

	opt.dest = (char *)o + (size_t)opt.dest;
	return opt;
}

void dt_run_options_table(struct dt_run_options *o, const struct dt_opt *own,
			  struct dt_opt ret[DT_RUN_OPTS_MAX])
{
	int n = 0;

	for (; own[n].name || own[n].help; n++) {
		const struct dt_opt *e = &own[n];
		int i;

		ret[n] = *e;
		if (!e->name || e->type)
			continue;
		i = dt_run_row_find(e->name);
		if (i < 0 || n >= DT_RUN_OPTS_MAX - 1)
			abort(); /* a mistake in the program's table */
		ret[n] = dt_run_row_bound(o, i);
		ret[n].given = &o->given[i];
		if (e->help)
			ret[n].help = e->help;
		if (e->arg)
			ret[n].arg = e->arg;
		if (e->dest)
			ret[n].dest = e->dest;
		if (e->def || e->def_text) {
			ret[n].def = e->def;
			ret[n].def_text = e->def_text;
		}
	}
	ret[n] = own[n];
}

bool dt_run_options_given(const struct dt_run_options *o, const char *name)
{
	int i = dt_run_row_find(name);

	return i >= 0 && o->given[i];
}

/* The fewest digits that give the same number again. */
static void format_real(double v, bool single, char *buf, size_t n)
{
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(buf, n, "%.*g", digits, v);
		if (single ? strtof(buf, NULL) == (float)v : strtod(buf, NULL) == v)
			return;
	}
}

static void format_pipeline(const struct dt_run *r, char *buf, size_t n)
{
	static const char *const name[] = {"gpipe", "1f1b", "1f1b", "zb-h1"};

	/* The chunks of an interleaved one are in the layout. */
	snprintf(buf, n, "%s", r->layout.pp > 1 ? name[r->pipeline] : "1f1b");
}

/* The value of a row in buf, as on a command line; a flag is "on" or "off". NULL: it has none. */
static const char *format(const struct row *row, const struct dt_run *r, char *buf, size_t n)
{
	const void *at = (const char *)r + row->at;

	switch (row->form) {
	case TEXT:
		return *(const char *const *)at;
	case INTEGER:
	case SEED:
		if (row->opt.min > *(const int64_t *)at) /* not given, and nothing holds instead */
			return NULL;
		snprintf(buf, n, "%lld", (long long)*(const int64_t *)at);
		return buf;
	case REAL:
		if (row->opt.min > *(const double *)at)
			return NULL;
		format_real(*(const double *)at, false, buf, n);
		return buf;
	case REAL32:
		format_real((double)*(const float *)at, true, buf, n);
		return buf;
	case FLAG:
		return *(const bool *)at ? "on" : "off";
	case MASTER:
		return *(const bool *)at ? "off" : "on";
	case CHOICE:
		return dt_opt_choice_name(row->opt.arg, *(const int *)at, buf, n);
	case LAYOUT:
		return dt_layout_format(&r->layout, buf, n);
	case PIPELINE:
		format_pipeline(r, buf, n);
		return buf;
	case RECOMPUTE:
		return dt_keep_format(r->recompute, buf, n);
	case BN_SPAN:
		snprintf(buf, n, "%lld", (long long)r->bn_span);
		return r->bn_span == DT_BN_DP ? "dp" : r->bn_span == DT_BN_RANK ? "rank" : buf;
	case LOSS_SCALE:
		snprintf(buf, n, r->loss_scale == 0 ? "dynamic:" : "%s", "");
		format_real(r->loss_scale == 0 ? r->loss_scale_start : r->loss_scale, false,
			    buf + strlen(buf), n - strlen(buf));
		return buf;
	}
	return NULL;
}

const char *dt_run_arguments(const struct dt_run *r, char *buf, size_t n)
{
	size_t k = 0;

	buf[0] = '\0';
	for (int i = 0; i < NROWS && k < n; i++) {
		const struct row *row = &rows[i];
		char value[128];
		const char *v = format(row, r, value, sizeof(value)), *def = row->opt.def;

		if (!def && row->opt.type == DT_OPT_FLAG)
			def = "off";
		if ((!strncmp(row->opt.name, "lora-", 5) && !r->lora.rank) ||
		    (!strncmp(row->opt.name, "offload-", 8) && !r->offload.what))
			continue;
		if (row->emit == NEVER || !v || (row->emit == CHANGED && def && !strcmp(v, def)))
			continue;
		if (row->opt.type == DT_OPT_FLAG)
			snprintf(buf + k, n - k, "%s--%s%s", k ? " " : "", strcmp(v, "on") ? "no-" : "",
				 row->opt.name);
		else
			snprintf(buf + k, n - k, "%s--%s %s", k ? " " : "", row->opt.name, v);
		k += strlen(buf + k);
	}
	return buf;
}

int dt_run_row_count(void)
{
	return NROWS;
}

enum dt_run_change dt_run_row_change(int i)
{
	return rows[i].change;
}

const char *dt_run_row_value(int i, const struct dt_run *r, char *buf, size_t n)
{
	return format(&rows[i], r, buf, n);
}

json_t *dt_run_to_json(const struct dt_run *r)
{
	json_t *o = json_object();

	for (int i = 0; i < NROWS && o; i++) {
		char value[128];
		bool without = !strncmp(rows[i].opt.name, "lora-", 5) && !r->lora.rank;
		const char *v =
			rows[i].change == LOCAL || without ? NULL : format(&rows[i], r, value, sizeof(value));

		if (v)
			json_object_set_new(o, rows[i].opt.name, json_string(v));
	}
	return o;
}

/* SPDX-License-Identifier: Apache-2.0 */
