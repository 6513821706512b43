# Sourced first: starts the script once more with a /dev/shm of its own, so that what is left there is the script's,
# whoever runs beside it. Where a mount namespace is not allowed, nothing is looked for.
# shellcheck shell=bash
if [ -z "${OWN_SHM:-}" ]; then
	for own_shm in 'unshare --mount' 'unshare --map-root-user --mount'; do
		# shellcheck disable=SC2086 # words
		! $own_shm mount -t tmpfs own /dev/shm 2>/dev/null ||
			OWN_SHM=yes exec $own_shm sh -c 'mount -t tmpfs own /dev/shm && exec "$@"' sh "$0" "$@"
	done
	echo "no mount namespace: what is left in /dev/shm is not looked for"
fi

# left_in_shm: the names of ours that are left, if any
left_in_shm()
{
	[ -z "${OWN_SHM:-}" ] || find /dev/shm -name '*dt*'
}
# SPDX-License-Identifier: Apache-2.0
