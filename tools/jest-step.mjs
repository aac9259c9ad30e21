// A step of `npm test` that runs jest, and counts test by test.
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Of more files than these, a failure has a cause that being alone does not mend. */
const AGAIN_AT_MOST = 3;
/**
 * Test files that the summary names with their time: enough to see what a step's budget is spent
 * on.
 */
const SLOWEST_SHOWN = 8;

/**
 * Runs jest. What failed among all the others is run once more, alone: a test that needs the
 * machine for itself then passes, and is named in the summary as one to mend; one that fails again
 * has failed.
 * @param name - of the step: names its reports.
 * @param args - what selects the tests.
 * @param jest - runs jest with arguments and resolves with its exit code.
 * @param scratch - a folder for reports.
 * @returns what passed, failed, was skipped (by heading) and is unsteady (by full name), and the
 *   slowest files with their seconds, the slowest first.
 */
export async function jestStep({ name, args, jest, scratch }) {
  const first = await runJest(`${name}.json`, args, jest, scratch);
  const again = first.failedFiles;
  if (again.length === 0 || again.length > AGAIN_AT_MOST || first.isBroken) return first;
  console.log(`run once more, alone: ${again.join(' ')}`);
  const alone = ['--runInBand', '--runTestsByPath', ...again];
  const second = await runJest(
    `${name}-again.json`,
    [...args.filter((arg) => !arg.startsWith('--maxWorkers')), ...alone],
    jest,
    scratch,
  );
  const stillFail = new Set(second.failedTests);
  return {
    ...first,
    passed: first.passed - first.passedIn(again) + second.passed,
    failed: second.failed,
    unsteady: first.failedTests.filter((test) => !stillFail.has(test)),
  };
}

async function runJest(file, args, jest, scratch) {
  const report = join(scratch, file);
  // A failed test may leave a server or a timer behind, and jest would wait for them for ever.
  const code = await jest([
    ...args,
    ...['--json', `--outputFile=${report}`, '--silent=false', '--forceExit'],
  ]);
  try {
    return summary(JSON.parse(readFileSync(report, 'utf8')), code);
  } catch {
    return { passed: 0, failed: 1, failedFiles: [], slowest: [], isBroken: true };
  }
}

function summary(result, code) {
  const { testResults } = result;
  const failed = result.numFailedTests + result.numRuntimeErrorTestSuites;
  const passes = ({ assertionResults }) =>
    assertionResults.filter(({ status }) => status === 'passed').length;
  const bad = testResults.filter(({ status }) => status === 'failed');
  return {
    passed: result.numPassedTests,
    failed: code !== 0 && failed === 0 ? 1 : failed,
    skipped: skippedIn(testResults),
    slowest: slowestOf(testResults),
    failedFiles: bad.map(({ name }) => name),
    // A file that could not be run has no tests to name.
    failedTests: bad.flatMap(({ name, assertionResults }) => {
      const names = assertionResults
        .filter(({ status }) => status === 'failed')
        .map(({ fullName }) => fullName);
      return names.length > 0 ? names : [name];
    }),
    passedIn: (files) =>
      testResults
        .filter(({ name }) => files.includes(name))
        .reduce((total, file) => total + passes(file), 0),
    isBroken: code !== 0 && failed === 0,
  };
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
