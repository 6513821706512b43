#!/usr/bin/env bats
# Random faults: kill -9, SIGSTOP, EIO, ENOSPC, a full tmpfs, damaged files. ckpt-trials.py states the
# requirements.
load slow

trials() { # COUNT SEED
	python3 "$DT_SRC/tests/cli/ckpt-trials.py" --bin "$DT_BIN" --help-bin "$DT_HELP" --work "$BATS_TEST_TMPDIR/w" --trials "$1" \
		--seed "$2" >"$BATS_TEST_TMPDIR/out" || { cat "$BATS_TEST_TMPDIR/out"; return 1; }
	cat "$BATS_TEST_TMPDIR/out"
	# saves were really interrupted, and damage was really detected
	jq -e '.violations == 0 and (.outcomes | .kill.interrupted > 0 and .errno.interrupted > 0 and .stop.stopped > 0 and
		.flip.refused > 0 and .swap.refused > 0 and .alien.refused > 0 and .future.refused > 0)' "$BATS_TEST_TMPDIR/out"
}

@test "22 random faults: never a wrong tensor, never an older checkpoint lost" {
	trials 22 20261121
}

@test "550 random faults" {
	slow || skip "takes minutes: DT_SLOW=1"
	trials 550 4711
}

@test "the trials detect a faulty reader" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	# a verify that always succeeds
	cat >"$BATS_TEST_TMPDIR/bin/dt-shard-ckpt" <<SH
#!/bin/sh
[ "\$1" != verify ] || exit 0
exec "$DT_BIN/dt-shard-ckpt" "\$@"
SH
	chmod +x "$BATS_TEST_TMPDIR/bin/dt-shard-ckpt"
	run python3 "$DT_SRC/tests/cli/ckpt-trials.py" --bin "$BATS_TEST_TMPDIR/bin" --help-bin "$DT_HELP" --work "$BATS_TEST_TMPDIR/w" \
		--trials 3 --only missing
	[ "$status" -eq 1 ]
	[[ $output == *"verify finds nothing"* ]]
}
# SPDX-License-Identifier: Apache-2.0
