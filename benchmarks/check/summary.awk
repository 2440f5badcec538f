# SPDX-License-Identifier: MIT
#
# Lines "ROUND QPS KIND SECONDS CPU" in, KIND busy or stopped; a table of medians (../median.awk) out.
{
	if (!($2 in rows)) {
		rows[$2] = 1
		order[++n] = $2
	}
	k = ++count[$2, $3]
	wall[$2, $3, k] = $4
	cpu[$2, $3, k] = $5
}
function middle(of, q, kind,    k, i, v) {
	k = count[q, kind]
	for (i = 1; i <= k; i++)
		v[i] = of[q, kind, i]
	return median(v, k)
}
END {
	print "| queue pairs | beside traffic | of which CPU | traffic stopped | of which CPU | beside traffic, to the first row without |"
	print "|---|---|---|---|---|---|"
	first = middle(wall, order[1], "stopped")
	for (i = 1; i <= n; i++) {
		q = order[i]
		b = middle(wall, q, "busy")
		printf "| %d | %.2f | %.2f | %.2f | %.2f | %.1f |\n", q, b, middle(cpu, q, "busy"),
			middle(wall, q, "stopped"), middle(cpu, q, "stopped"), b / first
	}
}
