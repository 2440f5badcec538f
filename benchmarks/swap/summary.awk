# SPDX-License-Identifier: MIT
#
# Lines in:
#	ROUND WAY KIND NS P50-NS P99-NS FAULTS PAGES HOST-US SERVER-NS WAITED-NS RAN SERVER-NS WAITED-NS RAN
# The last six fields are the server's: three from before, and three from after. Tables out, of medians (../kept.awk); ratios are
# medians of each round's. A row that misses its goal says so.
{
	if (!($2 in name))
		name[$2] = $2
	if (!(($1, $3) in seen)) {
		seen[$1, $3] = 1
		round[++rounds] = $1 SUBSEP $3
	}
	p50[$2, $1, $3] = $5
	took[$2, $1, $3] = $4
	if ($3 == "fault") {
		keep($2 "p50", $5 / 1000)
		keep($2 "p99", $6 / 1000)
	} else {
		keep($2 $3, $4 / 1000000)
	}
	pages[$2] += $8
	host[$2] += $9
	ran[$2] += $15 - $12
	busy[$2] += ($13 - $10) / 1000
}

END {
	name["rmem"] = "a donor"
	name["nbd"] = "nbd over TCP"
	name["nvme"] = "nvme-rdma, a ramdisk"
	name["disk"] = "a disk that takes " delay " ms more"
	goal["nbd"] = 0.7
	goal["nvme"] = 0.5
	ways = split("rmem nbd nvme disk", way, " ")
	kinds = split("cache scan walk", kind, " ")
	for (i = 1; i <= rounds; i++) {
		split(round[i], at, SUBSEP)
		for (w = 2; w <= ways; w++)
			if (at[2] == "fault")
				keep(way[w] "fault ratio", p50["rmem", at[1], at[2]] / p50[way[w], at[1], at[2]])
			else
				keep(way[w] at[2] " ratio", took["rmem", at[1], at[2]] / took[way[w], at[1], at[2]])
	}
	print "A page fault, in microseconds, and the donor's p50 to it:\n"
	print "| swap to | p50 | p99 | ratio | lowest | highest | |"
	print "|---|--:|--:|--:|--:|--:|---|"
	for (w = 1; w <= ways; w++) {
		if (w == 1) {
			printf "| %s | %d | %d | | | | |\n", name[way[w]], median(way[w] "p50"), median(way[w] "p99")
			continue
		}
		r = median(way[w] "fault ratio")
		printf "| %s | %d | %d | %.2f | %.2f | %.2f | %s |\n", name[way[w]], median(way[w] "p50"), median(way[w] "p99"), r,
			values[way[w] "fault ratio", 1], values[way[w] "fault ratio", number[way[w] "fault ratio"]],
			(way[w] in goal && r > goal[way[w]] ? "above the goal" : "")
	}
	print "\nTime to the end with memory for half of the pages, in milliseconds, and the donor's time to it:\n"
	print "| swap to | memcached-like | ratio | scan | ratio | graph walk | ratio |"
	print "|---|--:|--:|--:|--:|--:|--:|"
	for (w = 1; w <= ways; w++) {
		printf "| %s |", name[way[w]]
		for (k = 1; k <= kinds; k++)
			printf " %d | %s |", median(way[w] kind[k]), (w == 1 ? "" : sprintf("%.2f", median(way[w] kind[k] " ratio")))
		print ""
	}
	print "\nWhat a page costs the host that lends, and how often its server's process ran for it:\n"
	print "| swap to | pages | host, microseconds | process, microseconds | process ran, for 1000 pages | |"
	print "|---|--:|--:|--:|--:|---|"
	for (w = 1; w < ways; w++) {
		v = way[w]
		printf "| %s | %d | %.0f | ", name[v], pages[v], host[v] / pages[v]
		if (v == "nvme")
			print "(in the kernel) | | |"
		else
			printf "%.1f | %.1f | %s |\n", busy[v] / pages[v], 1000 * ran[v] / pages[v],
				(v == "rmem" && ran[v] > pages[v] / 50 ? "above the goal" : "")
	}
}
