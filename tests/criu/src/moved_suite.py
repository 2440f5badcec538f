#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moved_suite.py FOLDER [--seed N] [--count N] [--moves N] [TEST...]: traffic tests of rdma-core's suite on rxe0

Prints "TEST RESULT STRETCHES" for each TEST (module.class.method), RESULT being ok, skip or fail, and STRETCHES
how many times it is fit to be moved: in a loop of messages of the suite's, or with work posted that is not polled
yet. Without TESTs: those of the whole suite, in an order that the seed gives, until --count of them were ok and had
such a stretch.

With --moves each stretch lasts until this process was moved as many times: the loops go round, and else it stands
still. FOLDER/want.N is made when move N may come; whoever has made it makes FOLDER/moved.N.
"""
import argparse
import gc
import importlib
import inspect
import os
import random
import sys
import time
import unittest

# No traffic there, or over rdma_cm, which is not moved; other drivers.
LEFT_OUT = ('addr', 'device', 'fork', 'pd', 'qp', 'rdmacm')
OTHERS = ('cuda', 'efa', 'irdma', 'mlx5')
LOOPS = ('traffic', 'rdma_traffic', 'atomic_traffic', 'flush_traffic')
BAD_FLOWS = ('post_rq_state_bad_flow', 'post_sq_state_bad_flow', 'full_rq_bad_flow')

parser = argparse.ArgumentParser()
parser.add_argument('folder')
parser.add_argument('--seed', type=int, default=0)
parser.add_argument('--count', type=int, default=0)
parser.add_argument('--moves', type=int, default=0)
parser.add_argument('tests', nargs='*')
args = parser.parse_args()

sys.path[0:0] = [args.folder + '/tests', args.folder]
sys.argv[1:] = ['--dev', 'rxe0']
importlib.import_module('args_parser').parser.parse_args()
utils = importlib.import_module('tests.utils')


class Stretch:
    """Of a test: as many moves are made in it as asked for. In place of a number of rounds, too."""
    moved = 0    # in all
    number = 0   # of this test's
    inside = None

    def __init__(self, rounds=0, quiet=False):
        self.rounds, self.quiet = rounds, quiet
        self.left = 0

    def begin(self):
        Stretch.number += 1
        self.left = args.moves
        self.want()

    def want(self):
        if self.left and not self.quiet:
            open(f'{args.folder}/want.{Stretch.moved + 1}', 'w').close()

    def look(self):
        if self.left and os.path.exists(f'{args.folder}/moved.{Stretch.moved + 1}'):
            Stretch.moved += 1
            self.left -= 1
            self.want()

    def stand(self, left=0):
        """Do nothing until no more moves are left to make than these."""
        if self.left > left:
            quiet, self.quiet = self.quiet, False
            self.want()
            while self.left > left:
                time.sleep(0.01)
                self.look()
            self.quiet = quiet

    def __iter__(self):
        self.begin()
        done, pause = 0, random.randrange(self.rounds)
        while done < self.rounds or self.left:
            yield done
            # A message over UD that is on its way is lost: then no move may come between two looks.
            if not self.quiet:
                self.look()
            elif done >= pause and self.left:
                self.stand(self.left - 1)
                pause = done + 1 + random.randrange(self.rounds)
            done += 1


def rounds(*numbers):
    return numbers[0] if isinstance(numbers[0], Stretch) else range(*numbers)


def loop(function):
    signature = inspect.signature(function)

    def run(*positional, **named):
        bound = signature.bind(*positional, **named)
        if Stretch.inside:
            return function(*bound.args, **bound.kwargs)
        given = bound.arguments
        Stretch.inside = Stretch(given['iters'], utils.is_datagram_qp(given['client']))
        given['iters'] = Stretch.inside
        try:
            return function(*bound.args, **bound.kwargs)
        finally:
            # It may have ended early, with an error that the test waits for.
            Stretch.inside.stand()
            Stretch.inside = None
    return run


def stand_still():
    stretch = Stretch()
    stretch.begin()
    stretch.stand()


def poll(function):
    def run(*positional, **named):
        if not Stretch.inside and not Stretch.number:
            stand_still()
        return function(*positional, **named)
    return run


def bad_flow(function):
    def run(*positional, **named):
        function(*positional, **named)
        stand_still()
    return run


for wrap, names in ((loop, LOOPS), (poll, ('poll_cq',)), (bad_flow, BAD_FLOWS)):
    for name in names:
        setattr(utils, name, wrap(getattr(utils, name)))
utils.range = rounds
# Time goes on while a process is not there.
utils.POLL_CQ_TIMEOUT = 300


class Result(unittest.TestResult):
    fit = 0

    def startTest(self, test):
        super().startTest(test)
        Stretch.number = 0
        self.verdict = 'ok'

    def stopTest(self, test):
        super().stopTest(test)
        print(test.id().removeprefix('tests.'), self.verdict, Stretch.number, flush=True)
        self.fit += self.verdict == 'ok' and Stretch.number > 0
        if args.count and self.fit == args.count:
            self.stop()

    def addSkip(self, test, reason):
        self.verdict = 'skip'

    def addFailure(self, test, err):
        self.verdict = 'fail'
        print(self._exc_info_to_string(err, test), file=sys.stderr, flush=True)

    addError = addFailure


def whole_suite():
    for file in sorted(os.listdir(args.folder + '/tests')):
        name = file.removesuffix('.py').removeprefix('test_')
        if file == f'test_{name}.py' and name not in LEFT_OUT and not name.startswith(OTHERS):
            module = importlib.import_module(f'tests.test_{name}')
            for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
                yield from suite


# pyverbs dies now and then when objects of a context go in the order of the garbage collector.
gc.disable()
random.seed(args.seed)
if args.tests:
    tests = list(unittest.defaultTestLoader.loadTestsFromNames(f'tests.{name}' for name in args.tests))
else:
    tests = list(whole_suite())
    random.shuffle(tests)
unittest.TestSuite(tests).run(Result())
os._exit(0)
