// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit settle: the word of a person where the source can't give its own any more.
 */
#include <stdio.h>
#include <string.h>
#include "host.h"
#include "peer.h"

#define ANSWER_MS	30000

int cmd_settle(int argc, char **argv)
{
	struct peer peer = PEER_INIT;
	json_t *answer;

	if (argc != 3 || (strcmp(argv[2], "commit") && strcmp(argv[2], "abort")))
		usage();
	if (host_check_root() || peer_connect(&peer, NULL, NULL, argv[1], true))
		return failed(EXIT_REFUSED);
	answer = peer_ask(&peer, json_pack("{s:s}", "op", argv[2]), ANSWER_MS);
	if (!answer)
		return failed(EXIT_LOST);
	json_decref(answer);
	answer = peer_ask(&peer, json_pack("{s:s}", "op", "bye"), ANSWER_MS);
	json_decref(answer);
	peer_close(&peer);
	printf("godwit: %s: %s\n", argv[1], strcmp(argv[2], "commit") ? "forgotten" : "the process runs here");
	return EXIT_OK;
}
