# SPDX-License-Identifier: MIT
#
# Lines "ROUND SIDE PROGRAM SIZE VALUE UNIT PACKETS SENT-AGAIN" in; for each row a line
#
#	PROGRAM SIZE UNIT STOCK OURS RATIO SPREAD ROUNDS SENT-AGAIN
#
# out. RATIO is the mean over the rounds of ours/stock (of a latency: stock/ours, so that more is always
# better), SPREAD the standard error of that mean in percent.
{
	row = $3 " " $4 " " $6
	if (!(row in again))
		order[++rows] = row
	again[row] += $8
	value[row, $1, $2] = $5
	if (!((row, $1, "ours") in value) || !((row, $1, "stock") in value))
		next
	ours = value[row, $1, "ours"]
	stock = value[row, $1, "stock"]
	ratio = $6 == "us" ? stock / ours : ours / stock
	n[row]++
	sum[row] += ratio
	squares[row] += ratio * ratio
	all_ours[row] += ours
	all_stock[row] += stock
}
END {
	for (i = 1; i <= rows; i++) {
		row = order[i]
		k = n[row]
		if (k < 2)
			continue
		mean = sum[row] / k
		var = (squares[row] - k * mean * mean) / (k - 1)
		printf "%s %.2f %.2f %.4f %.2f %d %d\n", row, all_stock[row] / k, all_ours[row] / k, mean,
			100 * sqrt(var > 0 ? var / k : 0) / mean, k, again[row]
	}
}
