# Helpers for tests of programs that run on several ranks. Use: `load ranks`, on_ranks in setup_file,
# in_folder in setup.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the files that load this

load slow

in_folder() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
}

# fixed_text: writes text.txt, 22 KB of words that never change: the licence, then each of its lines with the
# words reversed.
fixed_text() {
    { cat "$DT_SRC/LICENSE"; awk '{ for (i = NF; i > 0; i--) printf "%s%s", $i, i > 1 ? " " : "\n" }' "$DT_SRC/LICENSE"; } >text.txt
}

# licence_set: writes the data set d.h5 of the licence, with the byte tokenizer.
licence_set() {
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

# tiny_models [VOCABULARY OF LLAMA]: writes gpt2.json and llama.json: three layers, hidden size 48.
tiny_models() {
    jq -n '{model_type: "gpt2", vocab_size: 263, n_embd: 48, n_layer: 3, n_head: 4, n_positions: 64}' >gpt2.json
    jq -n --argjson vocabulary "${1:-261}" '{model_type: "llama", vocab_size: $vocabulary, hidden_size: 48, intermediate_size: 90,
        num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
}

# train_refused STATUS TEXT OPTION...: dt-train with $common and these options exits with STATUS, and stderr
# contains TEXT.
train_refused() {
    run --separate-stderr dt-train "${common[@]}" "${@:3}"
    [ "$status" -eq "$1" ] || { echo "$status: $stderr" >&2; return 1; }
    [[ $stderr == *"$2"* ]] || { echo "$stderr" >&2; return 1; }
}

# train RANKS METRICS OPTION...: runs dt-train with $opts on RANKS ranks; prints its stderr if it fails.
train() {
    mpirun -np "$1" dt-train "${opts[@]}" --metrics "$2" "${@:3}" 2>"$2.err" || { cat "$2.err"; return 1; }
}

on_ranks() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    in_folder
}
# SPDX-License-Identifier: Apache-2.0
