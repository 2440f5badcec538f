# SPDX-License-Identifier: MIT
#
# Lines "ROUND QPS KIND SECONDS CPU" in, KIND busy or stopped; a table of medians out.
{
	if (!($2 in rows)) {
		rows[$2] = 1
		order[++n] = $2
	}
	k = ++count[$2, $3]
	wall[$2, $3, k] = $4
	cpu[$2, $3, k] = $5
}
function median(of, q, kind,    k, i, j, t, v) {
	k = count[q, kind]
	for (i = 1; i <= k; i++)
		v[i] = of[q, kind, i]
	for (i = 2; i <= k; i++)
		for (j = i; j > 1 && v[j] < v[j - 1]; j--) {
			t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
		}
	return k ? (k % 2 ? v[(k + 1) / 2] : (v[k / 2] + v[k / 2 + 1]) / 2) : 0
}
END {
	print "| queue pairs | beside traffic | of which CPU | traffic stopped | of which CPU | beside traffic, to 1 queue pair |"
	print "|---|---|---|---|---|---|"
	first = median(wall, order[1], "busy")
	for (i = 1; i <= n; i++) {
		q = order[i]
		b = median(wall, q, "busy")
		printf "| %d | %.2f | %.2f | %.2f | %.2f | %.1f |\n", q, b, median(cpu, q, "busy"),
			median(wall, q, "stopped"), median(cpu, q, "stopped"), b / first
	}
}
