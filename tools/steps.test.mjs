import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, describe, it } from 'node:test';
import { jestStep } from './jest-step.mjs';
import { programStep } from './program-step.mjs';

const scratch = mkdtempSync(join(tmpdir(), 'cloudless-steps-'));
after(() => rmSync(scratch, { recursive: true, force: true }));

const passed = (title) => ({ title, fullName: title, ancestorTitles: [], status: 'passed' });
const failed = (title, message = 'Error: late\n  at x') => ({
  ...{ title, fullName: title, ancestorTitles: [], status: 'failed' },
  failureMessages: [message],
});

/** What jest reports of files with their tests. */
function report(files) {
  const testResults = Object.entries(files).map(([name, assertionResults]) => ({
    ...{ name: resolve(name), assertionResults, startTime: 0, endTime: 1_000 },
    status: assertionResults.some(({ status }) => status === 'failed') ? 'failed' : 'passed',
  }));
  const count = (wanted) =>
    testResults
      .flatMap(({ assertionResults }) => assertionResults)
      .filter(({ status }) => status === wanted).length;
  return {
    ...{ testResults, numRuntimeErrorTestSuites: 0 },
    ...{ numPassedTests: count('passed'), numFailedTests: count('failed') },
  };
}

/** Runs a step whose jest gives these reports, one after the other; undefined: jest gives none. */
async function runStep(...reports) {
  const calls = [];
  const jest = (args) => {
    calls.push(args);
    const next = reports.shift();
    const file = args.find((arg) => arg.startsWith('--outputFile=')).slice('--outputFile='.length);
    if (next === undefined) return Promise.resolve(137);
    writeFileSync(file, JSON.stringify(next));
    return Promise.resolve(next.code ?? (next.numFailedTests > 0 ? 1 : 0));
  };
  const name = `step-${Math.random().toString(36).slice(2)}`;
  const result = await jestStep({ name, args: ['--maxWorkers=2'], jest, scratch });
  return { result, calls };
}

describe('jestStep', () => {
  it('runs nothing again when all tests pass', async () => {
    const { result, calls } = await runStep(report({ 'a.spec.ts': [passed('a')] }));
    assert.equal(calls.length, 1);
    assert.deepEqual([result.passed, result.failed, result.failures], [1, 0, []]);
  });

  it('names a test that passes alone as unsteady, with its first error', async () => {
    const { result, calls } = await runStep(
      report({ 'a.spec.ts': [passed('a'), failed('b')], 'c.spec.ts': [passed('c')] }),
      report({ 'a.spec.ts': [passed('a'), passed('b')] }),
    );
    assert.deepEqual(calls[1].slice(0, 3), [
      '--runInBand',
      '--runTestsByPath',
      resolve('a.spec.ts'),
    ]);
    assert.deepEqual([result.passed, result.failed, result.failures], [3, 0, []]);
    assert.deepEqual(result.unsteady, ['a.spec.ts: b: Error: late']);
  });

  it('fails when a test fails again', async () => {
    const files = { 'a.spec.ts': [failed('b')] };
    const { result } = await runStep(report(files), report(files));
    assert.deepEqual([result.failed, result.unsteady], [1, []]);
    assert.deepEqual(result.failures, ['a.spec.ts: b: Error: late']);
  });

  for (const message of [
    'Error: VIOLATION: a write is lost',
    'Error: NOT LINEARIZABLE: shared: no order explains read',
    'Error: \u001b[31mx: no order explains read of b\u001b[39m',
  ])
    it(`fails without another run after ${JSON.stringify(message)}`, async () => {
      const { result, calls } = await runStep(report({ 'a.spec.ts': [failed('b', message)] }));
      assert.equal(calls.length, 1);
      assert.equal(result.failed, 1);
    });

  it('runs nothing again when many files fail', async () => {
    const names = Array.from({ length: 7 }, (_, index) => `${index}.spec.ts`);
    const { result, calls } = await runStep(
      report(Object.fromEntries(names.map((name) => [name, [failed('b')]]))),
    );
    assert.deepEqual([calls.length, result.failed, result.failures.length], [1, 7, 7]);
  });

  it('says how jest ended when there is no report', async () => {
    const { result } = await runStep(undefined);
    assert.equal(result.failed, 1);
    assert.match(result.failures[0], /^jest: the run: exit code 137 without a report/);
  });

  it('says how jest ended when no test has failed', async () => {
    const { result } = await runStep({ ...report({ 'a.spec.ts': [passed('a')] }), code: 1 });
    assert.equal(result.failed, 1);
    assert.deepEqual(result.failures, ['jest: the run: exit code 1, though no test has failed']);
  });

  it('keeps the first failures when the second run breaks', async () => {
    const { result } = await runStep(report({ 'a.spec.ts': [failed('b')] }), undefined);
    assert.deepEqual([result.failed, result.unsteady], [1, []]);
    assert.deepEqual(result.failures[0], 'a.spec.ts: b: Error: late');
  });
});

describe('programStep', () => {
  const end = (code, output = '', errors = '') => ({
    ...{ code, output, errors },
    reason: `exit code ${code}`,
  });
  /** Runs a step whose program ends in these ways, one after the other. */
  async function runProgramStep(ends, options = {}) {
    let runs = 0;
    const run = () => Promise.resolve(ends[runs++]);
    return { result: await programStep({ name: 'chaos', run, ...options }), runs };
  }

  it('passes', async () => {
    const { result, runs } = await runProgramStep([end(0)]);
    assert.deepEqual([result, runs], [{ passed: 1, failed: 0 }, 1]);
  });

  it('is unsteady when only the repetition passes', async () => {
    const { result, runs } = await runProgramStep([end(1, '', 'no leader\n'), end(0)]);
    assert.equal(runs, 2);
    assert.deepEqual([result.passed, result.failed], [1, 0]);
    assert.deepEqual(result.unsteady, ['chaos: exit code 1: no leader']);
  });

  it('fails when the repetition fails', async () => {
    const { result } = await runProgramStep([end(1, '', 'one\n'), end(127, '', 'two\n')]);
    assert.deepEqual(result.failures, ['exit code 1: one', 'exit code 127: two']);
    assert.equal(result.failed, 1);
  });

  for (const stream of ['output', 'errors'])
    it(`fails without a repetition after a violation in its ${stream}`, async () => {
      const first = { ...end(1), [stream]: 'fine\nVIOLATION: a write is lost\nmore\n' };
      const { result, runs } = await runProgramStep([first, end(0)]);
      assert.deepEqual([runs, result.failed], [1, 1]);
      assert.deepEqual(result.failures, ['exit code 1: VIOLATION: a write is lost']);
    });

  it('fails without a repetition when the program hangs', async () => {
    const { result, runs } = await runProgramStep([{ ...end(127), hangs: true }, end(0)]);
    assert.deepEqual([runs, result.failed], [1, 1]);
  });

  it('is skipped where the program cannot run', async () => {
    const { result } = await runProgramStep([end(3, '', 'no etcd\n')], { skipCode: 3 });
    assert.deepEqual(result, { passed: 0, failed: 0, skipped: ['no etcd'] });
  });
});
