#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""suite.py FOLDER MODULE [TEST]: one module of rdma-core's tests, or one test of it, on device $DEVICE or rxe0.

Prints "TEST RESULT" for each test, RESULT being ok, skip or fail; before that "TEST start", so that a
test that kills Python is seen too.
"""
import importlib
import os
import sys
import unittest

folder, name, *only = sys.argv[1:]
sys.path[0:0] = [folder + '/tests', folder]
sys.argv[1:] = ['--dev', os.environ.get('DEVICE', 'rxe0')]
importlib.import_module('args_parser').parser.parse_args()


class Result(unittest.TestResult):
    def say(self, test, what):
        print(test.id(), what, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.say(test, 'start')

    def addSuccess(self, test):
        self.say(test, 'ok')

    def addSkip(self, test, reason):
        self.say(test, 'skip')
        print(reason, file=sys.stderr)

    def addFailure(self, test, err):
        self.say(test, 'fail')
        print(self._exc_info_to_string(err, test), file=sys.stderr)

    addError = addFailure


module = importlib.import_module('tests.' + name)
load = unittest.defaultTestLoader
tests = load.loadTestsFromNames(only, module) if only else load.loadTestsFromModule(module)
tests.run(Result())
