// `npm test`: installs what is missing, then checks everything. `npm test -- unit e2e` runs only
// those steps.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { findContainers } from './containers/find.mjs';
import { jestStep } from './jest-step.mjs';
import { NEWEST_LTS, installNode } from './other-node.mjs';
import { programStep } from './program-step.mjs';
import { root, setup } from './setup.mjs';

setup();
// Tests on real containers take the set-up of tools/containers when it runs. Without it they are
// skipped; in CI they fail then.
const containers = findContainers();
console.log(`containers: ${containers.socket ?? `none (${containers.whyNot})`}`);

const scratch = mkdtempSync(join(tmpdir(), 'cloudless-test-'));
const env = {
  ...process.env,
  ...containers.env,
  NX_DAEMON: 'false',
  PATH: `${join(root, 'node_modules', '.bin')}:${process.env.PATH}`,
};
// A developer's run walks through fewer random worlds, and kills less often, than CI, which sets
// the numbers itself.
const { CLOUDLESS_SEEDS = '100', CLOUDLESS_KILLS = '10' } = process.env;
const jestEnv = {
  ...env,
  NODE_OPTIONS: '--experimental-vm-modules --no-warnings',
  CLOUDLESS_SEEDS,
  CLOUDLESS_KILLS,
};

/** Runs a command, showing what it prints. */
const run = (command, args, options = {}) =>
  new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      env,
      stdio: ['ignore', 'inherit', 'inherit'],
      ...options,
    });
    child.once('error', () => resolve(127));
    child.once('close', (code) => resolve(code ?? 1));
  });

/** A check that passes or fails as a whole. */
const check = (action) => async () =>
  (await action()) === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };

const jestProgram = join(root, 'node_modules', 'jest', 'bin', 'jest.js');
/** End-to-end tests that start each program: what another version of Node.js would break. */
const SHORT_E2E = '/(start-up|exec|daemon-cleanup)\\.e2e';

/**
 * A step that runs tests with jest.
 * @param node - The program that runs jest. Default: the Node.js of this process.
 */
const jest =
  (name, args, { node = process.execPath, env: variables = jestEnv } = {}) =>
  () =>
    jestStep({
      name,
      args,
      scratch,
      jest: (all) =>
        run(node, [jestProgram, ...all], {
          env: variables,
          stdio: ['ignore', 'ignore', 'inherit'],
        }),
    });

/**
 * Unit tests of the code that uses Node.js directly: adapters. The short e2e runs the programs. The
 * store on etcd uses the same transport as rpc-node.
 */
const NODE_DEPENDENT =
  '/libs/(app-kit|cgroup-reader|mesh|ingress|identity|observability|rpc-node|runtime-process|state-store-lmdb)/';

/**
 * Runs the unit tests of adapters, and a short e2e, on the newest Node.js with
 * long-term support. What depends on the version of Node.js shows in a few runs, so properties are
 * smaller than on the first version. Tests on real containers ran already.
 */
async function newestNodeStep() {
  const node = installNode(NEWEST_LTS);
  const newest = {
    ...jestEnv,
    PATH: `${dirname(node)}${delimiter}${jestEnv.PATH}`,
    CLOUDLESS_PROPERTY_SCALE: '0.1',
  };
  for (const name of Object.keys(containers.env)) delete newest[name];
  delete newest.CLOUDLESS_CONTAINERS;
  delete newest.CLOUDLESS_CRI_SOCKET;
  const runJest = (name, args) => jest(name, args, { node, env: newest })();
  const unit = await runJest('unit-newest', [
    '--config',
    'jest.config.cjs',
    '--maxWorkers=2',
    `--testPathPatterns=${NODE_DEPENDENT}`,
  ]);
  const e2e = await runJest('e2e-newest', [
    '--config',
    'tools/e2e/jest.config.cjs',
    '--runInBand',
    `--testPathPatterns=${SHORT_E2E}`,
  ]);
  return joinResults(unit, e2e);
}

/**
 * Runs a command, and shows what it prints when it has ended, so that the output of commands that
 * run at once does not mix.
 */
async function runBuffered(command, args) {
  const output = [];
  const code = await new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => output.push(data));
    child.once('error', () => resolve(127));
    child.once('close', (status) => resolve(status ?? 1));
  });
  process.stdout.write(Buffer.concat(output));
  return code;
}

/** Tests of the tools of this repository, which node runs without jest. */
function nodeTests(files) {
  const args = ['--test', '--test-reporter=tap', ...files.map((file) => join(root, file))];
  const { stdout, status } = spawnSync(process.execPath, args, {
    cwd: root,
    env,
    encoding: 'utf8',
  });
  if (status !== 0) console.error(stdout);
  const count = (what) => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(stdout)?.[1] ?? 0);
  return {
    passed: count('pass'),
    failed: Math.max(count('fail') + count('cancelled'), status === 0 ? 0 : 1),
    skipped: [...stdout.matchAll(/^ *ok \d+ - (.*# SKIP.*)$/gm)].map((match) => match[1]),
  };
}

/** The set-up of real containers. In CI there must be a container runtime for the other tests. */
async function containersStep() {
  const result = nodeTests([
    'tools/containers/packages.test.mjs',
    'tools/containers/setup.test.mjs',
  ]);
  if (!containers.required || containers.socket !== undefined) return result;
  console.error(`the tests on real containers must run here, and cannot: ${containers.whyNot}`);
  return { ...result, failed: result.failed + 1 };
}

/**
 * Certificates with a lifetime of seconds, of nodes, users and containers, and a rotation of the
 * certificate authority, while calls, streams, commands and rollouts go on. About 45 s.
 */
async function rotationStep() {
  if (containers.socket === undefined)
    return { passed: 0, failed: 0, skipped: [`rotation with containers: ${containers.whyNot}`] };
  const flags = ['--minutes', '0.5', '--lifetime', '15', '--cri-socket', containers.socket];
  const script = join(root, 'tools/bench/src/rotate.ts');
  return programStep({
    name: 'rotation',
    run: () => runProgram([script, ...flags], ROTATION_HANGS_MS),
  });
}

/** Time after which the rotation has hung, milliseconds. A run takes about a minute. */
const ROTATION_HANGS_MS = 8 * 60_000;
/** Exit code of chaos on a machine that lacks something a run needs; the last line says what. */
const CHAOS_CANNOT_RUN = 3;
/** Time after which chaos has hung, milliseconds. A run takes about 2 minutes. */
const CHAOS_HANGS_MS = 10 * 60_000;

/**
 * A short script of faults on a highly available cluster of real programs: leader, etcd and nodes
 * fail. Times are shown and not judged, so that a slow machine does not fail; lost or repeated
 * writes, failed requests, surplus replicas and the like always do. About 2 minutes.
 */
async function chaosStep() {
  const script = join(root, 'tools/chaos/src/main.ts');
  const flags = ['--short', '--untimed', '--seed', '1', '--writers', '20', '--agents', '3'];
  return programStep({
    name: 'chaos',
    run: () => runProgram([script, ...flags], CHAOS_HANGS_MS),
    ...(process.env.CLOUDLESS_CHAOS === 'required' ? {} : { skipCode: CHAOS_CANNOT_RUN }),
  });
}

/**
 * Runs a TypeScript program from source, shows what it prints, and returns that with its exit code.
 * A program that runs for `limitMs` is ended.
 */
function runProgram(args, limitMs) {
  const child = spawn('tsx', ['--conditions=@cloudless/source', ...args], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: AbortSignal.timeout(limitMs),
  });
  const outputs = { output: '', errors: '' };
  const show = (stream, name, target) =>
    stream.on('data', (data) => {
      outputs[name] += data;
      target.write(data);
    });
  show(child.stdout, 'output', process.stdout);
  show(child.stderr, 'errors', process.stderr);
  return new Promise((resolve) => {
    child.once('error', ({ name, message }) => {
      const hangs = name === 'AbortError';
      const reason = hangs ? `ended after ${limitMs / 60_000} minutes` : message;
      resolve({ ...outputs, code: 127, hangs, reason });
    });
    child.once('close', (code, signal) =>
      resolve({ ...outputs, code: code ?? 1, reason: `exit code ${code ?? signal}` }),
    );
  });
}

/** The committed code must be what the proto files generate today. */
async function drift() {
  for (const [template, folder] of [
    ['buf.gen.yaml', 'libs/api/src/gen'],
    ['buf.gen.cri.yaml', 'libs/runtime-cri/src/gen'],
    ['buf.gen.etcd.yaml', 'libs/state-store-etcd/src/gen'],
  ]) {
    const code = await run('buf', ['generate', '--template', template, '-o', scratch]);
    if (code !== 0) return code;
    const { status, stdout } = spawnSync(
      'diff',
      ['-r', join(scratch, folder), join(root, folder)],
      { encoding: 'utf8' },
    );
    if (status === 0) continue;
    console.error(
      `generated code differs from proto/; run "npm run generate":\n${stdout.slice(0, 2_000)}`,
    );
    return status ?? 1;
  }
  return 0;
}

/** Bundles the apps, which end-to-end tests start. Resolves with an exit code. */
async function buildApps() {
  const { build } = await import('./build.mjs');
  return build().then(
    () => 0,
    () => 1,
  );
}

/** The sums and lists of two results. */
const joinResults = (first, second) => ({
  passed: first.passed + second.passed,
  failed: first.failed + second.failed,
  skipped: [...(first.skipped ?? []), ...(second.skipped ?? [])],
  unsteady: [...(first.unsteady ?? []), ...(second.unsteady ?? [])],
  failures: [...(first.failures ?? []), ...(second.failures ?? [])],
  slowest: [...(first.slowest ?? []), ...(second.slowest ?? [])],
});

/**
 * A step that runs only when it is named, or with CLOUDLESS_NEWEST_NODE=true. It uses the bundles of
 * the step `build`.
 */
const NEWEST_NODE = 'newest node';
const isInFullRun = (name) =>
  name !== NEWEST_NODE || process.env['CLOUDLESS_NEWEST_NODE'] === 'true';

const steps = {
  format: check(() => runBuffered('prettier', ['--check', '--cache', '--log-level', 'warn', '.'])),
  // The boundary rule reads the project graph, which a fresh clone has not computed yet.
  lint: check(
    async () =>
      (await run('nx', ['show', 'projects'], { stdio: 'ignore' })) ||
      runBuffered('eslint', ['--max-warnings=0', '-c', 'tools/checks/lint-all.config.mjs', '.']),
  ),
  types: check(() => runBuffered('tsc', ['-b'])),
  // References of documents, comments and texts lead somewhere; retired words do not come back.
  documents: async () =>
    nodeTests(['tools/checks/documents.test.mjs', 'tools/checks/words.test.mjs']),
  imports: async () => nodeTests(['tools/checks/import-cycles.test.mjs']),
  // The tools that the other steps use.
  tools: async () =>
    nodeTests([
      'tools/jest/code-cache.test.mjs',
      'tools/jest/fast-check.test.mjs',
      'tools/jest/sequencer.test.mjs',
      'tools/checks/agent-bundles.test.mjs',
      'tools/checks/cli-bundle.test.mjs',
      'tools/checks/cli-package.test.mjs',
      'tools/checks/locked-versions.test.mjs',
      'tools/checks/program-packages.test.mjs',
      'tools/checks/set-up-imports.test.mjs',
      'tools/start.test.mjs',
      'tools/steps.test.mjs',
    ]),
  'buf lint': check(() => run('buf', ['lint'])),
  'buf breaking': check(() => run('buf', ['breaking', '--against', 'proto/baseline.binpb'])),
  'generated code': check(drift),
  containers: containersStep,
  unit: jest('unit', ['--config', 'jest.config.cjs', '--maxWorkers=2']),
  build: check(buildApps),
  e2e: async () =>
    joinResults(
      await jest('e2e-parallel', [
        '--config',
        'tools/e2e/jest.parallel.config.cjs',
        '--maxWorkers=2',
      ])(),
      await jest('e2e', ['--config', 'tools/e2e/jest.serial.config.cjs', '--runInBand'])(),
    ),
  rotation: rotationStep,
  chaos: chaosStep,
  [NEWEST_NODE]: newestNodeStep,
};

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !(name in steps));
if (unknown.length > 0) {
  console.error(`unknown step ${unknown.join(', ')}; there are ${Object.keys(steps).join(', ')}`);
  process.exit(2);
}
/** Checks of one thread each, which run at once. */
const AT_ONCE = ['format', 'lint', 'types'];

/** Runs a step, and returns its result with its name and its time. */
async function runStep(name) {
  const began = performance.now();
  const result = await steps[name]();
  return { name, ...result, seconds: Math.round((performance.now() - began) / 100) / 10 };
}

const selected = Object.keys(steps).filter((name) =>
  wanted.length > 0 ? wanted.includes(name) : isInFullRun(name),
);
const together = selected.filter((name) => AT_ONCE.includes(name));
if (together.length > 0) console.log(`\n── ${together.join(', ')}`);
const results = await Promise.all(together.map(runStep));
for (const name of selected.filter((other) => !together.includes(other))) {
  console.log(`\n── ${name}`);
  results.push(await runStep(name));
}
rmSync(scratch, { recursive: true, force: true });

console.log('');
for (const {
  name,
  passed,
  failed,
  seconds,
  skipped = [],
  unsteady = [],
  failures = [],
  slowest = [],
} of results) {
  for (const { file, seconds: taken } of slowest)
    console.log(`slowest ${name.padEnd(14)} ${String(taken).padStart(4)} s  ${file}`);
  for (const what of skipped) console.log(`skipped ${name.padEnd(14)} ${what}`);
  for (const what of unsteady)
    console.log(`UNSTEADY ${name.padEnd(13)} failed first, passed once more: ${what}`);
  for (const what of failures) console.log(`failure ${name.padEnd(14)} ${what}`);
  console.log(
    `${failed === 0 ? 'ok    ' : 'FAILED'} ${name.padEnd(15)} ${passed} passed, ${failed} failed, ${seconds} s`,
  );
}
const sum = (key) => results.reduce((total, result) => total + result[key], 0);
console.log(`\n${sum('passed')} passed, ${sum('failed')} failed`);
process.exit(sum('failed') === 0 ? 0 : 1);
