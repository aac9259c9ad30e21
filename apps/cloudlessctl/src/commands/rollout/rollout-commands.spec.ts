import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { RolloutStatus_Phase, Rollout_Strategy, VersionInfoSchema } from '@cloudless/api';
import type { PromoteRolloutRequest, UndoRolloutRequest } from '@cloudless/api';
import { aRollout, createWatch } from '../../testing/a-rollout.js';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';
import type { FakeCoordinator } from '../../testing/run-cli.js';

const paused = aRollout({ phase: RolloutStatus_Phase.PAUSED, pausedByUser: true });
const undone = aWorkload({ status: { version: 3 } });

describe('cloudlessctl rollout', () => {
  it.each<{ argv: string[]; coordinator: FakeCoordinator; says: string }>([
    {
      argv: ['pause', 'web'],
      coordinator: { pauseRollout: () => paused },
      says: 'the rollout of version 2, from version 1 is paused; resume the rollout with: cloudlessctl rollout resume web',
    },
    {
      argv: ['pause', 'default/web', '-n', 'prod'],
      coordinator: { pauseRollout: () => paused },
      says: 'the rollout of version 2, from version 1 is paused; resume the rollout with: cloudlessctl rollout resume default/web',
    },
    {
      argv: ['resume', 'web'],
      coordinator: { resumeRollout: () => aRollout() },
      says: 'the rollout of version 2, from version 1 is resumed',
    },
    {
      argv: ['promote', 'web'],
      coordinator: { promoteRollout: () => aRollout({ step: 1, steps: 3 }) },
      says: 'version 2 is promoted: the rollout continues after step 1 of 3',
    },
    {
      argv: ['promote', 'web'],
      coordinator: { promoteRollout: () => aRollout({ strategy: Rollout_Strategy.BLUE_GREEN }) },
      says: 'version 2 is promoted: traffic switches to this version now',
    },
    {
      argv: ['undo', 'web'],
      coordinator: {
        undoRollout: () => undone,
        getWorkloadVersion: ({ version }) => ({
          info: { version, cause: version === 3 ? 'undo to version 1' : '' },
        }),
      },
      says: 'undo to version 1: rolling out as version 3',
    },
    {
      argv: ['undo', 'web', '--to-version', '1'],
      coordinator: { undoRollout: () => undone },
      says: 'undo: rolling out as version 3',
    },
    {
      argv: ['restart', 'web'],
      coordinator: { restartRollout: () => undone },
      says: 'restart: replacing every replica, as version 3',
    },
  ])('prints "$says" with the arguments $argv', async ({ argv, coordinator, says }) => {
    expect(await runCli(['rollout', ...argv], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: `workload default/web: ${says}\n`,
      stderr: '',
    });
  });

  it('sends name, version and request id with undo and promote', async () => {
    const requests: unknown[] = [];
    const coordinator = {
      undoRollout: (request: UndoRolloutRequest) => (requests.push(request), undone),
      promoteRollout: (request: PromoteRolloutRequest) => (requests.push(request), undone),
    };
    await runCli(['rollout', 'undo', 'prod/web', '--to-version', '4', '--request-id', 'r1'], {
      coordinator,
    });
    await runCli(['rollout', 'promote', 'web', '--version', '7'], { coordinator });
    expect(requests).toMatchObject([
      { namespace: 'prod', name: 'web', toVersion: 4, requestId: 'r1' },
      { namespace: 'default', name: 'web', version: 7, requestId: '' },
    ]);
  });

  it.each([
    {
      argv: ['undo', 'web', '--to-version', 'x'],
      message: '--to-version: expected a whole number, got "x"',
    },
    {
      argv: ['undo', 'web', '--to-version', '0'],
      message: '--to-version: version numbers start at 1',
    },
    {
      argv: ['promote', 'web', '--version', '-1'],
      message: '--version: expected a whole number, got "-1"',
    },
    { argv: ['pause', 'Web!'], message: '"Web!" is not a valid workload name' },
    { argv: ['stauts', 'web'], message: "unknown command 'stauts'\n(Did you mean status?)" },
    {
      argv: ['status', 'web', '--watch=no'],
      message: "option '--watch <boolean>' argument 'no' is invalid",
    },
  ])(
    'rejects the invalid arguments $argv with exit code 2 before it connects',
    async ({ argv, message }) => {
      const { exitCode, stderr, servers } = await runCli(['rollout', ...argv]);
      expect({ exitCode, servers }).toEqual({ exitCode: 2, servers: [] });
      expect(stderr).toContain(message);
    },
  );

  it.each([
    { name: 'NOT_FOUND', code: Code.NotFound, exitCode: 3 },
    { name: 'FAILED_PRECONDITION', code: Code.FailedPrecondition, exitCode: 4 },
  ])(
    'exits with $exitCode when the coordinator refuses pause with the error code $name',
    async ({ code, exitCode }) => {
      const coordinator = {
        pauseRollout: () => {
          throw new ConnectError('no rollout is under way', code);
        },
      };
      expect(await runCli(['rollout', 'pause', 'web'], { coordinator })).toMatchObject({
        exitCode,
      });
    },
  );

  it('waits until the rollout is complete with resume --wait', async () => {
    const done = aWorkload();
    const coordinator = {
      resumeRollout: () => aRollout(),
      watchWorkloads: createWatch(aRollout(), done),
    };
    expect(await runCli(['rollout', 'resume', 'web', '--wait'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: [
        'workload default/web: the rollout of version 2, from version 1 is resumed',
        'workload default/web: 4 of 4 ready, 1 updated, 3 old',
        'workload default/web: 2 of 2 ready',
        '',
      ].join('\n'),
    });
  });
});

describe('cloudlessctl rollout plan', () => {
  it('shows the remaining steps of a rollout', async () => {
    const coordinator: FakeCoordinator = {
      getWorkload: () => aRollout({ reason: 'waits for replica x' }),
      planWorkload: ({ spec, updateMask }) => {
        expect({ given: spec?.image, updateMask }).toEqual({ given: '', updateMask: undefined });
        const steps = [{ description: 'stop 1 of version 1', ready: 3, live: 4 }];
        return { steps, lowestReady: 3, minAvailable: 3, highestLive: 5 };
      },
    };
    expect((await runCli(['rollout', 'plan', 'web'], { coordinator })).stdout).toBe(
      [
        'workload default/web: version 2, from version 1: InProgress, 4 of 4 ready, 1 updated, 3 old: waits for replica x',
        '  STEP                  READY   MIN   LIVE',
        '  stop 1 of version 1   3       3     4',
        '  lowest ready 3 (minimum 3), highest live 5',
        '',
      ].join('\n'),
    );
  });

  it('explains why no steps are left when the rollout is paused', async () => {
    const coordinator: FakeCoordinator = { getWorkload: () => paused, planWorkload: () => ({}) };
    expect((await runCli(['rollout', 'plan', 'web'], { coordinator })).stdout).toContain(
      'no steps left while the rollout is paused\n',
    );
  });
});

describe('cloudlessctl rollout history', () => {
  const versions = [
    create(VersionInfoSchema, {
      version: 3,
      active: true,
      sameAs: 1,
      cause: 'undo to version 1',
      summary: 'web:1',
    }),
    create(VersionInfoSchema, {
      version: 1,
      summary: 'web:1',
      createdAt: timestampFromMs(NOW_MS - 7_200_000),
    }),
    create(VersionInfoSchema, { version: 2, summary: 'web:2' }),
  ];
  const coordinator: FakeCoordinator = {
    getWorkload: () => aWorkload({ status: { versions } }),
    getWorkloadVersion: ({ version }) => ({
      info: { version, cause: 'restart', createdAt: timestampFromMs(NOW_MS) },
      template: { image: 'web:2', terminationGracePeriod: { seconds: 5n } },
    }),
  };

  it('lists the stored versions, oldest first in the table', async () => {
    expect((await runCli(['rollout', 'history', 'web'], { coordinator })).stdout).toBe(
      [
        'VERSION   ACTIVE   CREATED    CAUSE               SAME AS   CHANGES',
        '1         -        120m ago   create              -         web:1',
        '2         -        -          change              -         web:2',
        '3         yes      -          undo to version 1   1         web:1',
        '',
      ].join('\n'),
    );
    const { stdout } = await runCli(['rollout', 'history', 'web', '-o', 'json'], { coordinator });
    expect(JSON.parse(stdout)).toMatchObject({
      versions: [{ version: 3, sameAs: 1 }, { version: 1 }, { version: 2 }],
    });
  });

  it('prints a version as a manifest, and with -o json as JSON', async () => {
    const { stdout } = await runCli(['rollout', 'history', 'web', '--version', '2'], {
      coordinator,
    });
    expect(stdout).toBe(
      `# version 2, restart, 2026-01-01T00:00:00Z; replicas, rollout and disconnect are those of the workload now
kind: Workload
namespace: default
name: web
spec:
  image: web:2
  replicas: 2
  terminationGracePeriod: 5s
`,
    );
    const json = await runCli(['rollout', 'history', 'web', '--version', '2', '-o', 'json'], {
      coordinator,
    });
    expect(JSON.parse(json.stdout)).toMatchObject({
      info: { version: 2 },
      template: { image: 'web:2' },
    });
  });
});
