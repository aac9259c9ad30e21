import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFile } from 'node:fs/promises';
import type { Workload } from '@cloudless/api';
import { RealCluster, writeFastExample } from './support/cluster.js';
import { findBundle, repository, runToEnd, type FinishedProgram } from './support/processes.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterAll(() => cluster.stop());

const runCtl = (...args: readonly string[]): Promise<FinishedProgram> => cluster.runCtl(...args);
const runRollout = (...args: readonly string[]): Promise<FinishedProgram> =>
  cluster.runCtl('rollout', ...args);
/** Returns stdout and stderr of a command. Expects that the command succeeds. */
async function getOutput(command: Promise<FinishedProgram>): Promise<string> {
  const { code, stdout, stderr } = await command;
  expect({ code, output: stdout + stderr }).toMatchObject({ code: 0 });
  return stdout + stderr;
}
/** Flags of a small workload. A crashing replica never becomes available within 500 ms. */
const SMALL = ['--min-ready', '500ms', '--cpu', '10m', '--memory', '16Mi'];
const SLEEP = ['--', 'sleep', '1000'];
const CRASH = ['--', 'sh', '-c', 'echo cannot open config.json; exit 3'];
/** Creates a workload and waits until its three replicas are ready. */
const createReady = (name: string, ...flags: string[]): Promise<string> =>
  getOutput(
    runCtl('workload', 'create', name, '--replicas', '3', ...SMALL, ...flags, '--wait', ...SLEEP),
  );
const runUpdate = (name: string, ...rest: string[]): Promise<FinishedProgram> =>
  runCtl('workload', 'update', name, ...rest);
const listReplicaIds = ({ status }: Workload): readonly string[] =>
  (status?.replicas ?? []).filter(({ ready }) => ready).map(({ id }) => id);

describe('cloudlessctl rollout', () => {
  const verbs = ['status', 'plan', 'pause', 'resume', 'promote', 'undo', 'history', 'restart'];

  it.each(verbs)(
    '%s exits with 3 for a missing workload and with 2 for an invalid name',
    async (verb) => {
      const missing = await runRollout(verb, 'nothere');
      expect(missing).toMatchObject({ code: 3, stdout: '' });
      expect(missing.stderr).toMatch(
        /^cloudlessctl: workload "default\/nothere" .*\(NOT_FOUND\)\n$/,
      );
      expect(await runRollout(verb, 'Not/There')).toMatchObject({ code: 2, stdout: '' });
    },
  );

  it('exits with 4 and a reason when the rollout is in another state', async () => {
    await createReady('calm');
    for (const [verb, message] of [
      ['pause', 'version 1 is rolled out; nothing to pause'],
      ['resume', 'its rollout is not paused; nothing to resume'],
      ['promote', 'its rollout does not wait for a promotion'],
      ['undo', 'has no earlier version to go back to'],
    ] as const) {
      const { code, stdout, stderr } = await runRollout(verb, 'calm');
      expect({ verb, code, stdout }).toEqual({ verb, code: 4, stdout: '' });
      expect(stderr).toContain(message);
    }
    const { code, stderr } = await runRollout('undo', 'calm', '--to-version', '9');
    expect({ code, stderr }).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('has no version 9; the kept versions are 1'),
    });
    expect((await runRollout('history', 'calm', '--version', '9')).code).toBe(3);
    expect((await runRollout('undo', 'calm', '--to-version', '1')).code).toBe(4);
    expect(await runRollout('status', 'calm')).toEqual({
      code: 0,
      stdout: 'workload default/calm: version 1 is rolled out: 3 of 3 ready\n',
      stderr: '',
    });
    expect(await getOutput(runRollout('plan', 'calm'))).toContain('no steps left');
  });
});

describe('canary rollout', () => {
  it('waits for a promotion, prints the promote command, and continues after the promotion', async () => {
    await createReady('canary', '--step', '1,manual');
    const updated = await runUpdate('canary', '--env', 'V=2', '--wait');
    expect(updated).toMatchObject({
      code: 0,
      stderr: 'promote the rollout with: cloudlessctl rollout promote canary\n',
    });
    expect(updated.stdout).toContain('waits for a promotion');
    const status = await runRollout('status', 'canary');
    expect(status).toMatchObject({
      code: 0,
      stderr: 'promote the rollout with: cloudlessctl rollout promote canary\n',
    });
    expect(status.stdout).toMatch(
      /version 2, from version 1: Paused, 3 of 3 ready, 1 updated, 2 old: step 1 of 1/,
    );
    expect(JSON.parse((await runRollout('status', 'canary', '-o', 'json')).stdout)).toMatchObject({
      ...{
        phase: 'PAUSED',
        version: 2,
        fromVersion: 1,
        step: 1,
        steps: 1,
        waitsForPromotion: true,
        strategy: 'ROLLING_UPDATE',
      },
    });
    expect(await getOutput(runCtl('describe', 'canary'))).toMatch(
      /Rollout:\n {2}Phase: +Paused, step 1 of 1\n {2}Strategy: +RollingUpdate\n/,
    );
    expect((await runRollout('promote', 'canary', '--version', '9')).code).toBe(4);
    expect(await getOutput(runRollout('promote', 'canary', '--version', '2', '--wait'))).toMatch(
      /^workload default\/canary: version 2 is promoted: the rollout continues after step 1 of 1\n[^]*3 of 3 ready\n$/,
    );
    expect(await getOutput(runRollout('status', 'canary'))).toContain(
      'version 2 is rolled out: 3 of 3 ready',
    );
  });

  it('can be paused, watched with a time limit, resumed and undone', async () => {
    await createReady('slow', '--step', '1,wait=1h');
    await getOutput(runUpdate('slow', '--env', 'V=2'));
    await cluster.waitForWorkload(
      'slow',
      ({ status }) =>
        status?.rollout?.until !== undefined && status.rollout.reason.includes('waits '),
    );
    expect(await getOutput(runRollout('plan', 'slow'))).toMatch(
      /step 1 of 1: 1 of 3 replicas run version 2/,
    );
    const timedOut = await runRollout('status', 'slow', '--timeout', '500ms');
    expect(timedOut.code).toBe(6);
    expect(timedOut.stderr).toContain(
      'the rollout did not complete within 0s: workload default/slow: version 2, from version 1: InProgress',
    );
    expect(await getOutput(runRollout('pause', 'slow'))).toContain(
      'is paused; resume the rollout with: cloudlessctl rollout resume slow',
    );
    for (const flags of [[], ['--watch=false'], ['-o', 'json']]) {
      expect((await runRollout('status', 'slow', ...flags)).code).toBe(8);
    }
    await getOutput(runRollout('pause', 'slow'));
    await getOutput(runRollout('resume', 'slow'));
    expect(await getOutput(runRollout('status', 'slow', '--watch=false'))).toContain('InProgress');
    expect((await runRollout('resume', 'slow')).code).toBe(4);
    const following = cluster.startCtl('rollout', 'status', 'slow');
    await following.waitForLine((line) => line.includes('InProgress'));
    expect(await getOutput(runRollout('undo', 'slow', '--request-id', 'u1'))).toBe(
      'workload default/slow: undo to version 1: rolling out as version 3\n',
    );
    expect(await following.exited).toBe(0);
    expect(following.lines.at(-1)).toContain('version 3 is rolled out: 3 of 3 ready');
  });
});

describe('cloudlessctl rollout history', () => {
  it('lists changes, undos and restarts, and undo restores any version', async () => {
    await createReady('past');
    await getOutput(runUpdate('past', '--env', 'V=2', '--wait'));
    expect(await getOutput(runRollout('undo', 'past', '--wait'))).toMatch(
      /: undo to version 1: rolling out as version 3\n/,
    );
    const before = listReplicaIds(await cluster.waitUntilSettled('past'));
    expect(await getOutput(runRollout('restart', 'past', '--wait'))).toContain(
      'restart: replacing every replica, as version 4\n',
    );
    const after = listReplicaIds(await cluster.waitUntilSettled('past'));
    expect(after.filter((id) => before.includes(id))).toEqual([]);
    const rows = (await getOutput(runRollout('history', 'past')))
      .trimEnd()
      .split('\n')
      .map((line) => line.split(/ {3,}/));
    expect(
      rows.map(([version, active, , cause, sameAs]) => [version, active, cause, sameAs]),
    ).toEqual([
      ['VERSION', 'ACTIVE', 'CAUSE', 'SAME AS'],
      ['1', '-', 'create', '-'],
      ['2', '-', 'change', '-'],
      ['3', '-', 'undo to version 1', '1'],
      ['4', 'yes', 'restart', '-'],
    ]);
    await getOutput(runRollout('undo', 'past', '--to-version', '2', '--wait'));
    expect((await cluster.waitUntilSettled('past')).spec).toMatchObject({
      env: { V: '2' },
      replicas: 3,
    });
  });

  it('prints a version as a manifest that can be applied', async () => {
    await createReady('shown', '--env', 'V=1');
    await getOutput(runUpdate('shown', '--env', 'V=2', '--wait'));
    const text = await getOutput(runRollout('history', 'shown', '--version', '1'));
    expect(text).toMatch(
      /^# version 1, \d{4}-.*; replicas, rollout and disconnect are those of the workload now\nkind: Workload\n/,
    );
    const file = join(cluster.directory, 'shown.yaml');
    await writeFile(file, text);
    await getOutput(runCtl('apply', '-f', file, '--wait'));
    const { spec, status } = await cluster.waitUntilSettled('shown');
    expect({ env: spec?.env, replicas: spec?.replicas, version: status?.version }).toEqual({
      ...{ env: { V: '1' }, replicas: 3, version: 3 },
    });
  });
});

describe('rollout of a crashing version', () => {
  it('makes --wait and status exit with 8, the cause and the last log lines, and the old version stays', async () => {
    await createReady('crashes', '--max-failed-new', '1');
    const failed = await runUpdate('crashes', '--wait', ...CRASH);
    expect(failed.code).toBe(8);
    expect(failed.stderr).toMatch(/^cloudlessctl: workload default\/crashes: the rollout failed: /);
    const lastLines =
      /failing replica: [0-9a-f]{16}-\d+ on agent-\d, exit code 3\nlast lines of [0-9a-f]{16}-\d+:\n {2}cannot open config.json\n/;
    expect(failed.stderr).toMatch(lastLines);
    const status = await runRollout('status', 'crashes');
    expect(status.code).toBe(8);
    expect(status.stderr).toMatch(lastLines);
    expect(await getOutput(runCtl('describe', 'crashes'))).toMatch(/Failure: +version 2: /);
    expect(
      (await cluster.client.getWorkload({ name: 'crashes' })).status?.readyReplicas,
    ).toBeGreaterThanOrEqual(2);
    expect((await runRollout('pause', 'crashes')).code).toBe(4);
    expect((await runRollout('resume', 'crashes', '--wait')).code).toBe(8);
    await getOutput(runRollout('undo', 'crashes', '--wait'));
    expect(await getOutput(runRollout('status', 'crashes'))).toContain(
      'version 3 is rolled out: 3 of 3 ready',
    );
  });

  it('is rolled back with on_failure ROLLBACK, and later changes succeed', async () => {
    await createReady('returns', '--max-failed-new', '1', '--on-failure', 'rollback');
    const failed = await runUpdate('returns', '--wait', ...CRASH);
    expect(failed.code).toBe(8);
    expect(failed.stderr).toContain('cannot open config.json');
    const status = await runRollout('status', 'returns');
    expect(status.code).toBe(8);
    expect(status.stderr).toContain('version 2 failed and was rolled back, as version 3: ');
    expect(status.stderr).toContain('cannot open config.json');
    expect(await getOutput(runRollout('history', 'returns'))).toContain('rollback to version 1');
    expect(await getOutput(runCtl('scale', 'returns', '4', '--wait'))).toContain('4 of 4 ready');
  });
});

describe('blue/green rollout', () => {
  it('switches to the new version when it is promoted', async () => {
    await createReady('bluegreen', '--strategy', 'blue-green', '--promotion', 'manual');
    expect(await getOutput(runUpdate('bluegreen', '--env', 'V=2', '--wait'))).toContain(
      'rollout promote bluegreen',
    );
    expect((await cluster.client.getWorkload({ name: 'bluegreen' })).status?.activeVersion).toBe(1);
    expect(await getOutput(runRollout('promote', 'bluegreen', '--wait'))).toContain(
      'version 2 is promoted: traffic switches to this version now\n',
    );
    expect((await cluster.waitUntilSettled('bluegreen')).status?.activeVersion).toBe(2);
  });
});

/** Returns the commands of the page docs/operating/rollouts.md with their exit codes. */
function readDocumentedCommands(): { readonly command: string; readonly code: number }[] {
  const text = readFileSync(join(repository, 'docs/operating/rollouts.md'), 'utf8');
  const lines = [...text.matchAll(/```sh rollouts\n([^]*?)```/g)].flatMap(([, block = '']) =>
    block.trim().split('\n'),
  );
  return lines.map((line) => {
    const [, command = '', code = '0'] = /^(.*?)(?: # ends with (\d+))?$/.exec(line) ?? [];
    return { command, code: Number(code) };
  });
}

const setMinReady = (duration: string): Promise<string> =>
  getOutput(runCtl('workload', 'update', 'hello', '--min-ready', duration));

describe('commands in docs/operating/rollouts.md', () => {
  beforeAll(async () => {
    const manifest = join(cluster.directory, 'hello.yaml');
    await writeFastExample(manifest);
    await getOutput(runCtl('apply', '-f', manifest, '--wait'));
    // The first rollout lasts until it is paused, however long the command takes to start.
    await setMinReady('60s');
  });

  it('are more than 15', () => {
    expect(readDocumentedCommands().length).toBeGreaterThan(15);
  });

  it.each(readDocumentedCommands())('run as documented: $command', async ({ command, code }) => {
    const localCommand = command.replace(
      'cloudlessctl',
      `'${process.execPath}' '${findBundle('cloudlessctl')}'`,
    );
    const finished = await runToEnd('bash', ['-c', localCommand], { env: cluster.ctlEnv });
    expect(finished).toMatchObject({ code });
    if (command === 'cloudlessctl rollout pause hello') await setMinReady('1s');
  });

  it('end with the restored version active and its three replicas ready', async () => {
    const { status } = await cluster.waitForWorkload(
      'hello',
      (workload) => workload.status?.activeVersion === 9,
    );
    expect(status?.versions.find(({ version }) => version === 9)).toMatchObject({
      sameAs: 7,
      cause: 'undo to version 7',
    });
    expect(status?.replicas.filter(({ version, ready }) => version === 7 && ready).length).toBe(3);
  });
});
