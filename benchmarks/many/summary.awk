# SPDX-License-Identifier: MIT
#
# Lines "ROUND SIDE ROW VALUE" in; a table of each row's medians out, with a column for each of the sides.
BEGIN { m = split(sides, side) }
{
	if (!($3 in rows)) {
		rows[$3] = 1
		row[++n] = $3
	}
	value[$3, $2, ++count[$3, $2]] = $4
}
END {
	printf "|"
	for (j = 1; j <= m; j++)
		printf "| %s ", side[j]
	printf "|\n|---"
	for (j = 1; j <= m; j++)
		printf "|--:"
	print "|"
	for (i = 1; i <= n; i++) {
		printf "| %s ", row[i]
		for (j = 1; j <= m; j++) {
			k = count[row[i], side[j]]
			for (l = 1; l <= k; l++)
				v[l] = value[row[i], side[j], l]
			printf "| %.2f ", median(v, k)
		}
		print "|"
	}
}
