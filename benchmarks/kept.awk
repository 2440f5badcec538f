# SPDX-License-Identifier: MIT
#
# keep(KEY, VALUE) keeps a value. median(KEY): of all values of this key. It sorts them: values[KEY, 1] to values[KEY, number[KEY]].
function keep(key, value) {
	values[key, ++number[key]] = value
}

# It sorts by insertion, since there are only a few numbers.
function median(key,    i, j, v, n) {
	n = number[key]
	for (i = 2; i <= n; i++) {
		v = values[key, i]
		for (j = i - 1; j > 0 && values[key, j] > v; j--)
			values[key, j + 1] = values[key, j]
		values[key, j + 1] = v
	}
	return n % 2 ? values[key, (n + 1) / 2] : (values[key, n / 2] + values[key, n / 2 + 1]) / 2
}
