import { Code, ConnectError } from '@connectrpc/connect';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ManualClock } from '@cloudless/base/testing';
import { RolloutGateStatus_Verdict, RolloutStatus_Phase as Phase } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { FAILURE, aRollout, createWatch } from '../../testing/a-rollout.js';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';
import type { CliOptions, CliResult, FakeCoordinator } from '../../testing/run-cli.js';

const done = aRollout({ phase: Phase.COMPLETED }, { updated: 4 });
const promotion = aRollout({
  phase: Phase.PAUSED,
  waitsForPromotion: true,
  reason: 'step 1 of 2: waits for a promotion',
  step: 1,
  steps: 2,
});
/** Runs `rollout status web` while the workload passes through the states. */
const follow = (
  states: Workload[],
  more: string[] = [],
  options: CliOptions = {},
): Promise<CliResult> =>
  runCli(['rollout', 'status', 'web', ...more], {
    coordinator: { getWorkload: () => states[0] ?? done, watchWorkloads: createWatch(...states) },
    ...options,
  });
const prefix = 'workload default/web: version 2, from version 1';

describe('cloudlessctl rollout status', () => {
  it('prints a line for each step of progress until the rollout is complete', async () => {
    const states = [
      aRollout(),
      aRollout(),
      aRollout({ reason: 'waits for replica x' }),
      aRollout({}, { updated: 3 }),
      done,
    ];
    expect(await follow(states)).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout: [
        `${prefix}: InProgress, 4 of 4 ready, 1 updated, 3 old`,
        `${prefix}: InProgress, 4 of 4 ready, 3 updated, 1 old`,
        'workload default/web: version 2 is rolled out: 4 of 4 ready',
        '',
      ].join('\n'),
    });
  });

  it('waits until the status describes the newest generation', async () => {
    const outdated = aRollout({ phase: Phase.COMPLETED });
    outdated.generation = 4n;
    const current = aRollout({ phase: Phase.COMPLETED }, { updated: 4 });
    current.generation = 4n;
    if (current.status !== undefined) current.status.observedGeneration = 4n;
    const { stdout, exitCode } = await follow([outdated, current]);
    expect(exitCode).toBe(0);
    expect(stdout).toContain('version 2 is rolled out');
  });

  it.each([
    {
      name: 'has failed',
      state: aRollout({ phase: Phase.FAILED, reason: 'x', failure: FAILURE }),
      says: 'the rollout of version 2 failed: new replicas failed 3 times\nfailing replica: 00000000000000aa-9 on node2, exit code 1\nlast lines of 00000000000000aa-9:\n  starting\n  no such file: config.json',
    },
    {
      name: 'was rolled back',
      state: aRollout({ phase: Phase.ROLLED_BACK, version: 3, failure: FAILURE }),
      says: 'version 2 failed and was rolled back, as version 3: new replicas failed 3 times\nfailing replica: ',
    },
    {
      name: 'is paused by a user',
      state: aRollout({ phase: Phase.PAUSED, pausedByUser: true, reason: 'paused by a user' }),
      says: 'the rollout is paused: paused by a user; resume the rollout with: cloudlessctl rollout resume web',
    },
    {
      name: 'is paused by impossible limits',
      state: aRollout({ phase: Phase.PAUSED, reason: 'no replica may be stopped' }),
      says: 'the rollout is paused: no replica may be stopped\n',
    },
  ])('exits with 8 when the rollout $name', async ({ state, says }) => {
    for (const more of [[], ['--watch=false']]) {
      const { exitCode, stderr, stdout } = await follow(
        [aRollout(), state].slice(more.length),
        more,
      );
      expect(exitCode).toBe(8);
      expect(stdout).toContain(prefix.split(':')[0] ?? '');
      expect(stderr).toContain(`cloudlessctl: workload default/web: ${says}`);
    }
  });

  it('keeps watching while a failed version is rolled back', async () => {
    const back = aRollout({ version: 3, failure: FAILURE });
    const { stdout, exitCode } = await follow([
      back,
      aRollout({ phase: Phase.ROLLED_BACK, version: 3, failure: FAILURE }),
    ]);
    expect(exitCode).toBe(8);
    expect(stdout.match(/InProgress|RolledBack/g)).toEqual(['InProgress', 'RolledBack']);
  });

  it('exits with 0 and prints the promote command when the rollout waits for a promotion', async () => {
    expect(await follow([promotion])).toMatchObject({
      exitCode: 0,
      stdout: `${prefix}: Paused, 4 of 4 ready, 1 updated, 3 old: step 1 of 2: waits for a promotion\n`,
      stderr: 'promote the rollout with: cloudlessctl rollout promote web\n',
    });
  });

  it('keeps watching with --wait-promotion when the rollout waits for a promotion', async () => {
    const { exitCode, stdout, stderr } = await follow([promotion, done], ['--wait-promotion']);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(stdout).toContain('is rolled out');
  });

  it('prints the gate of the step with its figures with --watch=false', async () => {
    const gate = {
      expression: 'errors_per_s < 1 && p99_ms < 200',
      verdict: RolloutGateStatus_Verdict.NO_DATA,
      since: timestampFromMs(NOW_MS - 40_000),
      reason: 'no data: p99_ms',
      values: [{ name: 'errors_per_s', value: 0.1234 }, { name: 'p99_ms' }],
    };
    const coordinator = { getWorkload: () => aRollout({ step: 1, steps: 3, gate }) };
    const { stdout } = await runCli(['rollout', 'status', 'web', '--watch=false'], { coordinator });
    expect(stdout.split('\n')[1]).toBe(
      'gate errors_per_s < 1 && p99_ms < 200 is without a result for 40s: errors_per_s = 0.123, p99_ms = missing (no data: p99_ms)',
    );
    const described = await runCli(['workload', 'describe', 'web'], {
      coordinator: { ...coordinator, listEvents: () => ({}) },
    });
    expect(described.stdout).toContain('errors_per_s = 0.123, p99_ms = missing');
  });

  it('prints the current status once with --watch=false, -o json and -o yaml', async () => {
    const coordinator = { getWorkload: () => aRollout({ step: 1, steps: 3 }) };
    expect(
      await runCli(['rollout', 'status', 'web', '--watch=false'], { coordinator }),
    ).toMatchObject({
      exitCode: 0,
      stdout: `${prefix}: InProgress, step 1 of 3, 4 of 4 ready, 1 updated, 3 old\n`,
    });
    const { stdout, exitCode } = await runCli(['rollout', 'status', 'web', '-o', 'json'], {
      coordinator,
    });
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      phase: 'IN_PROGRESS',
      version: 2,
      step: 1,
      pausedByUser: false,
    });
    const failed = { getWorkload: () => aRollout({ phase: Phase.FAILED }) };
    expect(
      (await runCli(['rollout', 'status', 'web', '-o', 'yaml'], { coordinator: failed })).exitCode,
    ).toBe(8);
  });

  it('exits with 3 when the workload does not exist', async () => {
    const getWorkload = () => {
      throw new ConnectError('workload default/web does not exist', Code.NotFound);
    };
    expect(
      (await runCli(['rollout', 'status', 'web'], { coordinator: { getWorkload } })).exitCode,
    ).toBe(3);
  });

  it('exits with 4 when the workload is deleted during the watch', async () => {
    const coordinator = {
      getWorkload: () => done,
      watchWorkloads: createWatch(aRollout(), 'gone'),
    };
    expect(await runCli(['rollout', 'status', 'web'], { coordinator })).toMatchObject({
      exitCode: 4,
      stderr: 'cloudlessctl: workload default/web was deleted while waiting\n',
    });
  });

  it('exits with 6 when --timeout expires', async () => {
    const clock = new ManualClock(NOW_MS);
    let seen = false;
    const onStdout = (): void => void (seen = true);
    const running = follow([aRollout()], ['--timeout', '30s'], { clock, onStdout });
    while (!seen) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(30_000);
    expect(await running).toMatchObject({
      exitCode: 6,
      stderr: `cloudlessctl: the rollout did not complete within 30s: ${prefix}: InProgress, 4 of 4 ready, 1 updated, 3 old\n`,
    });
  });

  it('draws progress bars on a terminal, and redraws the remaining time each second', async () => {
    const clock = new ManualClock(NOW_MS);
    const stop = new AbortController();
    let drawn = '';
    const onStdout = (text: string): void => void (drawn += text);
    const until = timestampFromMs(NOW_MS + 90_000);
    const waiting = aRollout({ reason: 'step 1 of 3: waits 2m', step: 1, steps: 3, until });
    const running = follow([waiting], [], {
      ...{ clock, onStdout, isTTY: true, signal: stop.signal },
      env: { NO_COLOR: '1' },
    });
    while (!drawn.includes('left')) await new Promise((resolve) => setImmediate(resolve));
    expect(drawn).toContain(
      [
        'workload default/web  version 2, from version 1, step 1 of 3  0s',
        'ready  [#############################|##########] 4 of 4, minimum 3',
        'new    [##########..............................] 1 of 4 ready',
        'old    [##############################..........] 3',
        '  step 1 of 3: waits 2m',
        '  90s left',
      ].join('\n'),
    );
    await clock.advance(1_000);
    while (!drawn.includes('89s left')) await new Promise((resolve) => setImmediate(resolve));
    stop.abort();
    expect((await running).exitCode).toBe(130);
  });

  it('shows the gate on a terminal, and reads its figures again every 5 s', async () => {
    const clock = new ManualClock(NOW_MS);
    const stop = new AbortController();
    let drawn = '';
    const withErrors = (value: number, step = 1): Workload =>
      aRollout({
        ...{ reason: 'step 1 of 3: its gate is evaluated', step, steps: 3 },
        gate: {
          ...{ expression: 'errors_per_s < 1', verdict: RolloutGateStatus_Verdict.PASSED },
          since: timestampFromMs(NOW_MS - 10_000),
          values: [{ name: 'errors_per_s', value }],
        },
      });
    const reads: Workload[] = [withErrors(0.2), withErrors(0.4), withErrors(9, 2)];
    const running = runCli(['rollout', 'status', 'web'], {
      coordinator: {
        getWorkload: () => reads.shift() ?? withErrors(0.7),
        watchWorkloads: createWatch(withErrors(0.2)),
      },
      ...{ clock, isTTY: true, signal: stop.signal, env: { NO_COLOR: '1' } },
      onStdout: (text) => void (drawn += text),
    });
    const passUntilDrawn = async (text: string): Promise<void> => {
      while (!drawn.includes(text)) {
        await clock.advance(drawn === '' ? 0 : 1_000);
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await passUntilDrawn('  gate errors_per_s < 1 is true for 10s: errors_per_s = 0.2');
    await passUntilDrawn('errors_per_s = 0.4');
    // The figures of another step are not those of the step that is shown.
    await passUntilDrawn('errors_per_s = 0.7');
    expect(drawn).not.toContain('errors_per_s = 9');
    stop.abort();
    expect((await running).exitCode).toBe(130);
  });

  it('shows several rollouts, and ends with the exit code of the first that did not succeed', async () => {
    const failed = { phase: Phase.FAILED, reason: 'crashed' };
    const completed = { phase: Phase.COMPLETED };
    const coordinator: FakeCoordinator = {
      listWorkloads: () => ({ workloads: [aWorkload({ name: 'api' }), aWorkload()] }),
      getWorkload: ({ name }) =>
        aWorkload({ name, status: { rollout: name === 'api' ? failed : completed } }),
    };
    const argv = ['rollout', 'status', '-l', 'app=shop', '--watch=false'];
    const { exitCode, stdout, stderr } = await runCli(argv, { coordinator });
    expect(exitCode).toBe(8);
    expect(stdout).toMatch(/^workload default\/api: .*\nworkload default\/web: .*\n$/);
    expect(stderr).toMatch(/^cloudlessctl: workload default\/api: .*crashed/);
    expect(stderr).toMatch(/\ncloudlessctl: 1 of 2 rollouts failed\n$/);
    const json = await runCli([...argv, '-o', 'json'], { coordinator });
    expect(json.exitCode).toBe(8);
    expect(
      json.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toMatchObject([
      { namespace: 'default', name: 'api', status: { phase: 'FAILED' } },
      { namespace: 'default', name: 'web', status: { phase: 'COMPLETED' } },
    ]);
  });
});
