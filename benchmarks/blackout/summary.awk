# SPDX-License-Identifier: MIT
#
# Lines "ROUND QPS WHAT BLACKOUT CHECKPOINT TRANSFER RESTORE KIB" in, the report's tables out. WHAT is rdma,
# twin or criu; the n-th move of each, with as many QPs, are compared with one another.
function median(a, n, at,   i, k) {	# at: 0.5, or another quantile, of a[1..n]
	for (i = 1; i <= n; i++)
		for (k = i; k > 1 && sorted(a, k); k--)
			;
	i = 1 + (n - 1) * at
	k = int(i)
	return k < n ? a[k] + (i - k) * (a[k + 1] - a[k]) : a[n]
}
function sorted(a, k,   x) {	# one step of the sort: exchanges a[k - 1] and a[k] if they are in the wrong order
	if (a[k - 1] <= a[k])
		return 0
	x = a[k]
	a[k] = a[k - 1]
	a[k - 1] = x
	return 1
}
function take(a, qps, what, field,   i) {
	for (i = 1; i <= n[qps, what]; i++)
		a[i] = value[qps, what, i, field]
	return n[qps, what]
}
function cell(qps, what, field,   a, k) {
	k = take(a, qps, what, field)
	if (what == "criu" && field ~ /^(blackout|still|transfer)$/)
		return "–"
	return sprintf("%.0f (%.0f–%.0f)", median(a, k, 0.5), median(a, k, 0.25), median(a, k, 0.75))
}
function ratio(qps, what, field, what2, field2,   a, b, k, i) {
	k = take(a, qps, what, field)
	if (take(b, qps, what2, field2) < k)
		k = n[qps, what2]
	for (i = 1; i <= k; i++)
		a[i] /= b[i]
	return sprintf("%.2f (%.2f–%.2f)", median(a, k, 0.5), median(a, k, 0.25), median(a, k, 0.75))
}
{
	i = ++n[$2, $3]
	value[$2, $3, i, "blackout"] = $4
	value[$2, $3, i, "checkpoint"] = $5
	value[$2, $3, i, "transfer"] = $6
	value[$2, $3, i, "restore"] = $7
	value[$2, $3, i, "kib"] = $8
	value[$2, $3, i, "both"] = $5 + $7
	value[$2, $3, i, "still"] = $4 - $6
	if (!($2 in seen))
		order[++rows] = $2
	seen[$2]
}
END {
	print "| queue pairs | blackout less transfer, to plain CRIU's checkpoint + restore | checkpoint + restore, to plain CRIU's | blackout, to that of godwit without RDMA |"
	print "|--:|--:|--:|--:|"
	for (i = 1; i <= rows; i++)
		printf "| %s | %s | %s | %s |\n", order[i], ratio(order[i], "rdma", "still", "criu", "both"),
			ratio(order[i], "rdma", "both", "criu", "both"),
			ratio(order[i], "rdma", "blackout", "twin", "blackout")
	print ""
	print "| queue pairs | | checkpoint | restore | both | transfer | blackout | blackout less transfer | KiB |"
	print "|--:|---|--:|--:|--:|--:|--:|--:|--:|"
	name["rdma"] = "ib_send_bw, godwit"
	name["twin"] = "without RDMA, godwit"
	name["criu"] = "without RDMA, plain CRIU"
	split("rdma twin criu", whats)
	for (i = 1; i <= rows; i++)
		for (j = 1; j <= 3; j++) {
			w = whats[j]
			k = take(kib, order[i], w, "kib")
			printf "| %s | %s | %s | %s | %s | %s | %s | %s | %.0f |\n", order[i], name[w],
				cell(order[i], w, "checkpoint"), cell(order[i], w, "restore"), cell(order[i], w, "both"),
				cell(order[i], w, "transfer"), cell(order[i], w, "blackout"),
				cell(order[i], w, "still"), median(kib, k, 0.5)
		}
}
