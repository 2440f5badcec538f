/* SPDX-License-Identifier: MIT */
#ifndef RMEM_PLACES_H
#define RMEM_PLACES_H

/* The first place @i below @count for which @condition is true, or @count. It must be true for all places behind that one, too. */
#define RMEM_FIRST_PLACE(i, count, condition) ({	\
	size_t first_ = 0, end_ = (count);		\
							\
	while (first_ < end_) {				\
		size_t i = first_ + (end_ - first_) / 2;\
							\
		if (condition)				\
			end_ = i;			\
		else					\
			first_ = i + 1;			\
	}						\
	first_;						\
})

#endif
