#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moved_suite.py FOLDER WORK SEED MOVES TESTS [NAME]: rdma-core's traffic tests, at rest and then with moves inside.

A traffic test is one that passes at rest and has completions. It is run again, by a process that is dumped and
restored in place at MOVES moments drawn from SEED, and must end as at rest. TESTS of them are taken, in an order
drawn from SEED, 0 for all; or only those with NAME in their names. What moves are like depends on the test:

  loops over RC              free, one in four waiting (see moved_run.py)
  loops over UD              waiting, at points where nothing is on its way: what comes to a UD queue pair while it
                             is stopped is lost, and these tests would wait for it
  done once, or ends in an   waiting: such a test would be at its end before a free move comes. It is run several
  error                      times, if it has not enough points for all moves in one run

Each run is a process of its own: pyverbs closes contexts and leaves mappings of their rings behind, and a process
with such mappings is not moved.

Prints a line for each move: the test, free or waiting, what had been posted and polled by then, and what the images
say of its queue pairs; and for each test how it ended.
"""
import glob
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import moved_run

LEFT_OUT = {
    'test_parent_domain': 'kills Python, on stock rxe too',
    'test_rdmacm': 'its traffic is that of two children, which do not use these helpers',
    'test_cq.CQTest.test_resize_cq': 'fails at rest now and then: it takes for granted that completions are there',
}
OTHERS_HARDWARE = ('mlx5', 'efa', 'irdma', 'cuda')
STANDSTILL = 300  # seconds; the suite itself gives up polling sooner than that
QP_STATES = ('RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR')


def say(*words):
    print(*words, flush=True)


class Mover:
    """A run of a test in a process, dumped and restored whenever it asks for it."""
    def __init__(self, folder):
        self.images = folder + '/img'
        self.result, self.output = folder + '/result', folder + '/output'
        self.state = moved_run.State(folder + '/state')

    def run(self, test, plan=None):
        self.state.clear()
        self.test = name_of(test)
        self.pid = os.fork()
        if not self.pid:
            self.child(test, plan)
        self.ours, seen, since = True, None, 0
        while not self.gone():
            now = (self.state.progress, self.state.ask)
            if now != seen:
                seen, since = now, time.monotonic()
            if self.state.ask > self.state.moved:
                self.move()
            elif time.monotonic() > since + STANDSTILL:
                self.fail(f'it stands still after {self.state.moved} moves')
            else:
                time.sleep(0.002)
        if not self.state.ended:
            self.fail('it is gone before its end')
        with open(self.result) as f:
            return json.load(f)

    def child(self, test, plan):
        os.setsid()
        for fd, path in enumerate(('/dev/null', self.output, self.output)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if fd == 1 else 0)), fd)
        os.closerange(3, 4096)
        try:
            run = moved_run.Run(sys.modules['tests.utils'], sys.modules['pyverbs.enums'], self.state, plan)
            result = run.run_test(test)
            with open(self.result, 'w') as f:
                json.dump(result, f)
            self.state.ended = 1
        finally:
            os._exit(0)

    def gone(self):
        if self.ours:
            self.ours = os.waitpid(self.pid, os.WNOHANG)[0] == 0
            return not self.ours
        return not os.path.exists(f'/proc/{self.pid}')

    def fail(self, why):
        if not self.gone():
            os.kill(self.pid, signal.SIGKILL)
        for name in (self.output, self.images + '/dump.log', self.images + '/restore.log'):
            if os.path.exists(name):
                with open(name, errors='replace') as f:
                    sys.stderr.writelines(f'{os.path.basename(name)}: {line}' for line in f.readlines()[-15:])
        sys.exit(f'moved_suite: {self.test}: {why}')

    def criu(self, what, *options):
        if subprocess.call(('criu', what, '-D', self.images, '-o', what + '.log') + options):
            self.fail(f'criu {what} failed')

    def move(self):
        shutil.rmtree(self.images, ignore_errors=True)
        os.mkdir(self.images)
        self.criu('dump', '-t', str(self.pid))
        if self.ours:
            os.waitpid(self.pid, 0)
            self.ours = False
        # The process is gone now, so these numbers are those of the moment when it was stopped.
        state, pairs = self.state, self.queue_pairs()
        if not state.progress or not {'RTS', 'ERR'} & pairs.keys():
            self.fail(f'not moved inside of traffic: progress {state.progress}, queue pairs {pairs}')
        state.at = state.progress
        say('move', self.test, 'waiting' if state.waits else 'free', 'after', state.at, 'open', state.open,
            *(f'{name}={n}' for name, n in pairs.items()))
        self.criu('restore', '-d')
        state.moved += 1

    def queue_pairs(self):
        """Of all contexts in the images: how many in which state."""
        shown = json.loads(subprocess.check_output(('godwit', 'show', '--json', self.images)))
        states = [QP_STATES[record['qp_state']]
                  for context in shown['records'] for record in context if record['type'] == 'QP']
        return {name: states.count(name) for name in QP_STATES if name in states}


def name_of(test):
    return test.id().removeprefix('tests.')


def all_tests(folder):
    found = []
    for path in sorted(glob.glob(folder + '/tests/test_*.py')):
        module = os.path.basename(path)[:-3]
        if any(word in module for word in OTHERS_HARDWARE) or module in LEFT_OUT:
            continue
        for suite in unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module('tests.' + module)):
            found += [test for test in suite if name_of(test) not in LEFT_OUT]
    return sorted(found, key=name_of)


def differs(mover, test, rest, moves, rng):
    """Run the test until it was moved often enough. Return how its end differs from that at rest, or None."""
    done = runs = 0
    while done < moves:
        how = moved_run.InLoops if rest['loops'] and not rest['errors'] else moved_run.AtPoints
        plan = how(rest, moves - done, rng)
        if not plan.moves:
            return 'it has no moment to be moved at'
        end = mover.run(test, plan)
        if end['said'] != rest['said']:
            return f"{rest['said']} at rest, then {end['said']}"
        if end['asked'] != plan.moves:
            return f"only {end['asked']} of {plan.moves} moves came inside of it"
        if end['stuck']:
            return 'nothing was posted or completed after a move'
        done += plan.moves
        runs += 1
    say(name_of(test), 'equal,', done, 'moves,', runs, 'runs')
    return None


def main(folder, work, seed, moves, wanted, only=''):
    moves, wanted = int(moves), int(wanted)
    sys.path[0:0] = [folder + '/tests', folder]
    sys.argv[1:] = ['--dev', 'rxe0']
    importlib.import_module('args_parser').parser.parse_args()
    os.makedirs(work, exist_ok=True)
    mover = Mover(work)
    for left, why in LEFT_OUT.items():
        say('left out:', left + ',', why)
    tests = all_tests(folder)
    random.Random(seed).shuffle(tests)
    taken = different = 0
    for test in tests:
        if only not in name_of(test):
            continue
        rest = mover.run(test)
        if rest['said'] != 'ok' or not rest['points'] or not rest['points'][-1][0]:
            continue
        taken += 1
        # The draw depends on the test's name, too. So a test is moved in the same way when it is taken alone.
        why = differs(mover, test, rest, moves, random.Random(seed + name_of(test)))
        if why:
            different += 1
            say(name_of(test), 'DIFFERS:', why)
        if taken == wanted:
            break
    say('ended:', taken, 'traffic tests,', different, 'differ')
    return different > 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
