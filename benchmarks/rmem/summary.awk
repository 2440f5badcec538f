# SPDX-License-Identifier: MIT
#
# Lines in:
#	data ROUND put|get SIZE DEPTH RMEM-NS VERBS-NS
#	ROUND rmem|redis CLIENTS PAGES P50-US P99-US RATE COMMITS SYNCS
#	ROUND recovery MIB MS REPLAYED
# Tables out, of medians (../kept.awk). A row that misses its goal says so.
$1 == "data" {
	row = $3 " | " $4 " | " $5
	if (!(row in known)) {
		known[row] = 1
		data[++datas] = row
	}
	keep("ratio" row, $7 / $6)
	keep("rmem" row, $6 / 1000)
	keep("verbs" row, $7 / 1000)
}
$2 == "rmem" || $2 == "redis" {
	row = $4 " | " $3
	if (!((row, "c") in known)) {
		known[row, "c"] = 1
		commit[++commits] = row
		several[row] = $3 > 1
	}
	keep($2 "p50" row, $5)
	keep($2 "p99" row, $6)
	keep($2 "rate" row, $7)
	both[$1, $2, row] = $7
	if ($2 == "rmem")
		keep("syncs" row, $9 / $8)
	if ((($1, "rmem", row) in both) && (($1, "redis", row) in both))
		keep("faster" row, both[$1, "rmem", row] / both[$1, "redis", row])
}
$2 == "recovery" {
	if (!(("r", $3) in known)) {
		known["r", $3] = 1
		log_size[++logs] = $3
	}
	keep("ms" $3, $4)
	keep("replayed" $3, $5)
}

END {
	print "Microseconds for each operation; the ratio is verbs/librmem, so that more is better:\n"
	print "| | bytes | under way | librmem | verbs | ratio | |"
	print "|---|--:|--:|--:|--:|--:|---|"
	for (i = 1; i <= datas; i++) {
		r = median("ratio" data[i])
		printf "| %s | %.1f | %.1f | %.3f | %s |\n", data[i], median("rmem" data[i]), median("verbs" data[i]), r,
			(r < goal ? "below the goal" : "")
	}
	print "\nCommits, durable at a donor that persists, and SETs of as many bytes in redis, which syncs always; microseconds:\n"
	print "| pages | clients | commit p50 | p99 | per second | syncs for each commit | redis p50 | p99 | per second | rate to redis | |"
	print "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
	for (i = 1; i <= commits; i++) {
		row = commit[i]
		s = median("syncs" row)
		printf "| %s | %d | %d | %.0f | %.2f | %d | %d | %.0f | %.2f | %s |\n", row, median("rmemp50" row),
			median("rmemp99" row), median("rmemrate" row), s, median("redisp50" row), median("redisp99" row), median("redisrate" row),
			median("faster" row), (several[row] && s >= 1 ? "no group commit" : "")
	}
	print "\nFrom a donor's start after a kill until it listens:\n"
	print "| MiB committed | ms | records replayed |"
	print "|--:|--:|--:|"
	for (i = 1; i <= logs; i++)
		printf "| %d | %d | %d |\n", log_size[i], median("ms" log_size[i]), median("replayed" log_size[i])
}
