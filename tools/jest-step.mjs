// A step of `npm test` that runs jest, and counts test by test.
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Of more files than these, a failure has a cause that being alone does not mend. */
const AGAIN_AT_MOST = 6;
/** How a failed check of an invariant names itself: such a failure counts, whatever comes later. */
const VIOLATION = /\bVIOLATION\b|NOT LINEARIZABLE|no order explains/;
/**
 * Test files that the summary names with their time: enough to see what a step's budget is spent
 * on.
 */
const SLOWEST_SHOWN = 8;

/**
 * Returns true when an output or an error reports that an invariant was broken, such as a lost
 * write. A repetition that passes does not excuse that.
 */
export const reportsViolation = (text) => VIOLATION.test(text);

/**
 * Runs jest. What failed among all the others is run once more, alone: a test that needs the
 * machine for itself then passes, and is named in the summary as one to mend; one that fails again
 * has failed. Nothing is run again when a test has reported a broken invariant.
 * @param name - of the step: names its reports.
 * @param args - what selects the tests.
 * @param jest - runs jest with arguments and resolves with its exit code.
 * @param scratch - a folder for reports.
 * @returns what passed, failed, was skipped (by heading) and is unsteady (by full name), the failed
 *   tests with the first line of their errors, and the slowest files with their seconds, the slowest
 *   first.
 */
export async function jestStep({ name, args, jest, scratch }) {
  const first = await runJest(`${name}.json`, args, jest, scratch);
  const again = first.failedFiles;
  const isFinal = first.isBroken || first.failures.some(({ isViolation }) => isViolation);
  if (again.length === 0 || again.length > AGAIN_AT_MOST || isFinal) return toResult(first);
  console.log(`run once more, alone: ${again.join(' ')}`);
  const alone = ['--runInBand', '--runTestsByPath', ...again];
  const second = await runJest(
    `${name}-again.json`,
    [...args.filter((arg) => !arg.startsWith('--maxWorkers')), ...alone],
    jest,
    scratch,
  );
  // What a broken run says about the tests is not known: the first failures stand.
  if (second.isBroken)
    return toResult({ ...first, failures: [...first.failures, ...second.failures] });
  const stillFail = new Set(second.failures.map(({ test }) => test));
  return toResult({
    ...first,
    passed: first.passed - first.passedIn(again) + second.passed,
    failed: second.failed,
    failures: second.failures,
    unsteady: first.failures.filter(({ test }) => !stillFail.has(test)).map(toText),
  });
}

/** The result of a step, from that of its runs. */
const toResult = ({ passed, failed, skipped = [], slowest, failures, unsteady = [] }) => ({
  ...{ passed, failed, skipped, slowest, unsteady },
  failures: failures.map(toText),
});

const toText = ({ test, file, error }) => `${file}: ${test}${error === '' ? '' : `: ${error}`}`;

async function runJest(file, args, jest, scratch) {
  const report = join(scratch, file);
  // A failed test may leave a server or a timer behind, and jest would wait for them for ever.
  const code = await jest([
    ...args,
    ...['--json', `--outputFile=${report}`, '--silent=false', '--forceExit'],
  ]);
  let result;
  try {
    result = JSON.parse(readFileSync(report, 'utf8'));
  } catch (reason) {
    const error = `exit code ${code} without a report of the tests (${reason.message})`;
    const failures = [{ file: 'jest', test: 'the run', error, isViolation: false }];
    return { passed: 0, failed: 1, failedFiles: [], failures, slowest: [], isBroken: true };
  }
  return summary(result, code);
}

function summary(result, code) {
  const { testResults } = result;
  const failed = result.numFailedTests + result.numRuntimeErrorTestSuites;
  const passes = ({ assertionResults }) =>
    assertionResults.filter(({ status }) => status === 'passed').length;
  const bad = testResults.filter(({ status }) => status === 'failed');
  const isBroken = code !== 0 && failed === 0;
  const broken = {
    ...{ file: 'jest', test: 'the run', isViolation: false },
    error: `exit code ${code}, though no test has failed`,
  };
  return {
    passed: result.numPassedTests,
    failed: isBroken ? 1 : failed,
    skipped: skippedIn(testResults),
    slowest: slowestOf(testResults),
    failedFiles: bad.map(({ name }) => name),
    failures: isBroken ? [broken] : bad.flatMap(failuresIn),
    passedIn: (files) =>
      testResults
        .filter(({ name }) => files.includes(name))
        .reduce((total, file) => total + passes(file), 0),
    isBroken,
  };
}

/** The failed tests of a file; the file itself when it could not be run. */
function failuresIn({ name, message, assertionResults }) {
  const file = relative(process.cwd(), name);
  const tests = assertionResults
    .filter(({ status }) => status === 'failed')
    .map(({ fullName, failureMessages = [] }) => ({
      ...{ file, test: fullName },
      ...describeError(failureMessages.join('\n')),
    }));
  if (tests.length > 0) return tests;
  return [{ file, test: 'the file could not be run', ...describeError(message ?? '') }];
}

/** The first line of an error, and whether an invariant was broken. */
function describeError(text) {
  const plain = text.replace(/\u001b\[\d*m/g, '');
  const error = plain.split('\n').find((line) => line.trim() !== '') ?? '';
  return { error: error.trim().slice(0, 200), isViolation: reportsViolation(plain) };
}

/** The files that took longest, with whole seconds. */
function slowestOf(testResults) {
  return testResults
    .map(({ name, startTime, endTime }) => ({
      file: relative(process.cwd(), name),
      seconds: Math.round((endTime - startTime) / 1_000),
    }))
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, SLOWEST_SHOWN);
}

/** What was skipped, by the heading that says why: how many tests. */
function skippedIn(testResults) {
  const skipped = new Map();
  for (const { ancestorTitles, title, status } of testResults.flatMap(
    ({ assertionResults }) => assertionResults,
  )) {
    const heading = ancestorTitles[0] ?? title;
    if (status === 'pending') skipped.set(heading, (skipped.get(heading) ?? 0) + 1);
  }
  return [...skipped].map(([heading, count]) => `${count} of ${heading}`);
}
