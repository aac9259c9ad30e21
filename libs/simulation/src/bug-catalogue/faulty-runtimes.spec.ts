import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { jest } from '@jest/globals';
import { describeContainerRuntime } from '@cloudless/runtime/conformance';
import { FAULTY_RUNTIMES, createFaultyHarness } from './faulty-runtimes.js';

/** True in the inner Jest process that {@link runJest} starts, in which the suites must fail. */
const IS_INNER = process.env['CLOUDLESS_BUG_CATALOGUE_SUITE'] === 'run';
const NO_FAULT = 'no fault';

/** The inner Jest process takes long on a busy machine. */
jest.setTimeout(120_000);

if (IS_INNER) {
  describeContainerRuntime(NO_FAULT, createFaultyHarness({ inject: (runtime) => runtime }));
  for (const bug of FAULTY_RUNTIMES) describeContainerRuntime(bug.name, createFaultyHarness(bug));
} else {
  describe('runtime conformance suite', () => {
    let failed: ReadonlyMap<string, readonly string[]>;
    beforeAll(async () => {
      failed = await runSuites();
    });

    it.each(FAULTY_RUNTIMES)('finds the bug: $name', ({ name, cases }) => {
      expect(failed.get(name)).toEqual(expect.arrayContaining([...cases]));
    });

    it('passes for the same runtime without a bug', () => {
      expect(failed.get(NO_FAULT)).toEqual([]);
    });
  });
}

interface JestResult {
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly ancestorTitles: readonly string[];
      readonly title: string;
      readonly status: string;
    }[];
  }[];
}

/**
 * Runs the conformance suites of this file in another Jest process.
 * @returns The titles of the failed cases by runtime.
 */
async function runSuites(): Promise<ReadonlyMap<string, readonly string[]>> {
  const file = fileURLToPath(import.meta.url);
  const result = JSON.parse(await runJest(file)) as JestResult;
  const failed = new Map<string, string[]>();
  for (const { ancestorTitles, title, status } of result.testResults.flatMap(
    ({ assertionResults }) => assertionResults,
  )) {
    const name = (ancestorTitles[0] ?? '').replace(' as a container runtime', '');
    failed.set(name, [...(failed.get(name) ?? []), ...(status === 'passed' ? [] : [title])]);
  }
  return failed;
}

function runJest(file: string): Promise<string> {
  const jestMain = createRequire(import.meta.url).resolve('jest/bin/jest');
  const config = fileURLToPath(new URL('../../jest.config.cjs', import.meta.url));
  const env = {
    ...process.env,
    CLOUDLESS_BUG_CATALOGUE_SUITE: 'run',
    NODE_OPTIONS: '--experimental-vm-modules --no-warnings',
  };
  const args = [
    jestMain,
    '--config',
    config,
    '--json',
    '--silent',
    '--runInBand',
    '--runTestsByPath',
    file,
  ];
  return new Promise((resolve, reject) => {
    // Jest exits with code 1, because suites must fail; its report is on stdout nevertheless.
    execFile(
      process.execPath,
      args,
      { env, maxBuffer: 64 * 1024 * 1024 },
      (reason, stdout, stderr) =>
        stdout.trimStart().startsWith('{')
          ? resolve(stdout)
          : reject(new Error(`the suite did not run: ${stderr}`, { cause: reason })),
    );
  });
}
