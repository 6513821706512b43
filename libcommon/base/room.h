/* Arrays that grow by one element at a time. */
#ifndef DT_BASE_ROOM_H
#define DT_BASE_ROOM_H

#include <stdbool.h>
#include <stdlib.h>

/*
 * Makes room for one more in an array of n elements with places for cap: the places double, from `first` on.
 * array and cap are variables. False when out of memory; the array is then as before.
 */
#define DT_ROOM(array, n, cap, first)                                                                        \
	({                                                                                                   \
		bool room_ = (n) < (cap);                                                                    \
                                                                                                             \
		if (!room_) {                                                                                \
			const __typeof__(cap) more_ = (cap) ? 2 * (cap) : (first);                           \
			void *grown_ = realloc((array), (size_t)more_ * sizeof(*(array)));                   \
                                                                                                             \
			if (grown_) {                                                                        \
				(array) = grown_;                                                            \
				(cap) = more_;                                                               \
				room_ = true;                                                                \
			}                                                                                    \
		}                                                                                            \
		room_;                                                                                       \
	})

#endif
/* SPDX-License-Identifier: Apache-2.0 */
