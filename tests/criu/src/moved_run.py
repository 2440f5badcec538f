# SPDX-License-Identifier: MIT
"""One run of one of rdma-core's tests, in a process of its own: at rest, or asking for moves at planned moments.

Nothing of the suite's text is changed: its helpers are wrapped, and a loop of the suite goes on until the moves
that are planned in it are done. The beginning or the end of a helper is a *point*. Every move is asked for at a
point. During a free move the traffic goes on. In a waiting move the test waits at the point until the move is done.
"""
import mmap
import time
import traceback
import unittest


class State:
    """Numbers in a file that both processes map. They stay when one of the two ends."""
    FIELDS = ('ask', 'moved', 'progress', 'open', 'waits', 'at', 'ended')

    def __init__(self, path):
        with open(path, 'wb') as f:
            f.write(bytes(4096))
        with open(path, 'r+b') as f:
            object.__setattr__(self, 'numbers', memoryview(mmap.mmap(f.fileno(), 4096)).cast('Q'))

    def __getattr__(self, name):
        return self.numbers[self.FIELDS.index(name)]

    def __setattr__(self, name, value):
        self.numbers[self.FIELDS.index(name)] = value

    def clear(self):
        for name in self.FIELDS:
            setattr(self, name, 0)


class InLoops:
    """Moves spread over a test's loops, with some points between two moves."""
    def __init__(self, rest, moves, rng):
        self.rng, self.datagrams = rng, rest['datagrams']
        self.todo = sorted(rng.randrange(rest['loops']) for _ in range(moves))
        self.moves = moves
        self.wait = rng.randrange(1, 60)

    def left(self, loop):
        return bool(self.todo) and self.todo[0] <= loop

    def due(self, run, quiet):
        if not run.in_loop or not self.left(run.loops - 1) or not run.state.progress:
            return None
        self.wait -= 1
        if self.wait > 0 or (self.datagrams and not quiet):
            return None
        self.todo.pop(0)
        self.wait = self.rng.randrange(2, 60)
        return 'waiting' if self.datagrams or self.rng.randrange(4) == 0 else 'free'


class AtPoints:
    """Moves at points of a test that reaches the same points in each run. Between two moves there is progress."""
    def __init__(self, rest, moves, rng):
        choice = {}
        for i, (progress, quiet) in enumerate(rest['points']):
            if 0 < progress < rest['points'][-1][0] and (quiet or not rest['datagrams']):
                choice.setdefault(progress, []).append(i)
        chosen = rng.sample(sorted(choice), min(moves, len(choice)))
        self.todo = sorted(rng.choice(choice[progress]) for progress in chosen)
        self.moves = len(self.todo)

    def left(self, _loop):
        return False

    def due(self, run, _quiet):
        if not self.todo or len(run.points) != self.todo[0]:
            return None
        self.todo.pop(0)
        return 'waiting'


class Iters(int):
    """How often a test's own loops go round."""


class Run(unittest.TestResult):
    """One run. What a run without a plan has seen is what plans are made from."""
    def __init__(self, utils, enums, state, plan):
        super().__init__()
        self.state, self.plan, self.datagram = state, plan, enums.IBV_QPT_UD
        self.success = enums.IBV_WC_SUCCESS
        self.said = 'nothing'
        self.points = []  # for each point: (progress, whether nothing is on its way)
        self.loops = self.asked = self.stuck = 0
        self.in_loop = self.datagrams = self.errors = False
        self.open = set()  # CQs of those who have posted, and not polled since
        self.real = {}
        utils.POLL_CQ_TIMEOUT = 120  # a move takes its time on a busy machine
        utils.range = self.range
        for name in ('send', 'post_recv', '_poll_cq', 'poll_cq_ex'):
            self.real[name] = getattr(utils, name)
        utils.send, utils.post_recv = self.send, self.post_recv
        utils._poll_cq = lambda *args, **kwargs: self.poll('_poll_cq', *args, **kwargs)
        utils.poll_cq_ex = lambda *args, **kwargs: self.poll('poll_cq_ex', *args, **kwargs)

    def run_test(self, test):
        set_up = test.setUp

        def with_iters():
            set_up()
            test.iters = Iters(getattr(test, 'iters', 0))
        test.setUp = with_iters
        test.run(self)
        self.look_back()
        return {'said': self.said, 'points': self.points, 'loops': self.loops, 'datagrams': self.datagrams,
                'errors': self.errors, 'asked': self.asked, 'stuck': self.stuck}

    # How it ended, in words.
    def addSuccess(self, test):
        self.said = 'ok'

    def addSkip(self, test, reason):
        self.said = 'skip: ' + reason

    def addFailure(self, test, err):
        self.said = ''.join(traceback.format_exception_only(*err[:2])).strip().replace('\n', ' / ')
        traceback.print_exception(*err)

    addError = addFailure

    def point(self, quiet=False):
        state = self.state
        if self.plan and state.ask == state.moved:
            kind = self.plan.due(self, quiet)
            if kind:
                self.look_back()
                self.asked += 1
                state.waits = kind == 'waiting'
                state.ask += 1
                while kind == 'waiting' and state.moved < state.ask:
                    time.sleep(0.001)
        self.points.append((state.progress, quiet))

    def look_back(self):
        """Since the last move, more must have been posted or completed."""
        if self.asked and self.state.progress <= self.state.at:
            self.stuck += 1

    def progress(self):
        self.state.progress += 1
        self.state.open = len(self.open)
        self.point()

    # What the suite's helpers call.
    def range(self, *args):
        if not isinstance(args[0], Iters):
            yield from range(*args)
            return
        self.loops += 1
        self.in_loop = True
        i, end = 0, args[0]
        while i < end:
            yield i
            i += 1
            if self.plan and (self.plan.left(self.loops - 1) or self.state.ask > self.state.moved):
                end = max(end, i + 3)
        self.in_loop = False

    def send(self, agr_obj, *args, **kwargs):
        self.datagrams |= agr_obj.qp.qp_type == self.datagram
        self.point(quiet=not self.open)
        self.real['send'](agr_obj, *args, **kwargs)
        self.open.add(id(agr_obj.cq))
        self.progress()

    def post_recv(self, *args, **kwargs):
        self.point(quiet=not self.open)
        self.real['post_recv'](*args, **kwargs)

    def poll(self, name, cq, *args, **kwargs):
        self.point()
        good = False
        try:
            wcs = self.real[name](cq, *args, **kwargs)
            good = all(getattr(wc, 'status', self.success) == self.success for wc in wcs)
        finally:
            self.errors |= not good
            self.open.discard(id(cq))
            self.progress()
        return wcs
