import { Rollout_OnFailure, Rollout_Promotion, Rollout_Strategy } from '@cloudless/api';
import type { CreateWorkloadRequest, UpdateWorkloadRequest } from '@cloudless/api';
import { aWorkload, runCli, type CliOptions } from '../testing/run-cli.js';

describe('rollout flags', () => {
  it('set every field of the rollout settings', async () => {
    const requests: CreateWorkloadRequest[] = [];
    const coordinator = {
      createWorkload: (request: CreateWorkloadRequest) => (requests.push(request), aWorkload()),
    };
    const limits = [
      '--max-surge',
      '2',
      '--max-unavailable',
      '1',
      '--min-available',
      '3',
      '--max-failed-new',
      '0',
    ];
    const times = ['--min-ready', '1m', '--progress-deadline', '5m', '--pause-duration', '90s'];
    const words = ['--strategy', 'blue-green', '--on-failure', 'rollback', '--promotion', 'manual'];
    const argv = ['workload', 'create', 'web', '--image', 'x', ...limits, ...times, ...words];
    expect(await runCli(argv, { coordinator })).toMatchObject({ exitCode: 0 });
    expect(requests[0]?.spec?.rollout).toMatchObject({
      maxSurge: 2,
      maxUnavailable: 1,
      minAvailable: 3,
      maxFailedNew: 0,
      minReadyDuration: { seconds: 60n },
      progressDeadline: { seconds: 300n },
      pauseDuration: { seconds: 90n },
      strategy: Rollout_Strategy.BLUE_GREEN,
      onFailure: Rollout_OnFailure.ROLLBACK,
      promotion: Rollout_Promotion.MANUAL,
    });
  });

  it.each([
    { value: '25%', expected: { maxFailedNewPercent: 25 }, absent: 'maxFailedNew' as const },
    { value: '2', expected: { maxFailedNew: 2 }, absent: 'maxFailedNewPercent' as const },
  ])(
    'set the failure limit to $value and clear the field of the other unit',
    async ({ value, expected, absent }) => {
      const requests: UpdateWorkloadRequest[] = [];
      const coordinator = {
        updateWorkload: (request: UpdateWorkloadRequest) => (requests.push(request), aWorkload()),
      };
      const argv = ['workload', 'update', 'web', '--max-failed-new', value];
      expect(await runCli(argv, { coordinator })).toMatchObject({ exitCode: 0 });
      expect(requests[0]?.spec?.rollout).toMatchObject(expected);
      expect(requests[0]?.spec?.rollout?.[absent]).toBeUndefined();
      expect(requests[0]?.updateMask?.paths).toEqual([
        'rollout.max_failed_new',
        'rollout.max_failed_new_percent',
      ]);
    },
  );

  it('set the canary steps in order, and remove them with none', async () => {
    const requests: UpdateWorkloadRequest[] = [];
    const coordinator = {
      updateWorkload: (request: UpdateWorkloadRequest) => (requests.push(request), aWorkload()),
    };
    const update = ['workload', 'update', 'web'];
    await runCli(
      [
        ...update,
        '--step',
        '1,wait=5m',
        '--step',
        '25%,weight=10%,manual',
        '--step',
        '50%,wait=1m,gate=p99_ms < 200',
      ],
      {
        coordinator,
      },
    );
    await runCli([...update, '--step', 'none'], { coordinator });
    expect(requests[0]?.spec?.rollout?.steps).toMatchObject([
      { replicas: 1, wait: { seconds: 300n } },
      { percent: 25, weightPercent: 10, promotion: Rollout_Promotion.MANUAL },
      { percent: 50, wait: { seconds: 60n }, gate: 'p99_ms < 200' },
    ]);
    expect(requests[1]?.spec?.rollout?.steps).toEqual([]);
    expect(requests.map(({ updateMask }) => updateMask?.paths)).toEqual([
      ['rollout.steps'],
      ['rollout.steps'],
    ]);
  });

  it.each([
    ['weight=10%', { weightPercent: 10 }],
    ['weight=50%,wait=5m', { weightPercent: 50, wait: { seconds: 300n } }],
    ['weight=60%,manual,gate=a < 1', { weightPercent: 60, gate: 'a < 1' }],
  ])(
    'send the canary step %s without a number of replicas, and show the step so',
    async (text, step) => {
      const requests: UpdateWorkloadRequest[] = [];
      const coordinator: NonNullable<CliOptions['coordinator']> = {
        updateWorkload: (request) => (requests.push(request), aWorkload()),
        getWorkload: () => aWorkload({ spec: { ...requests[0]!.spec!, image: 'a' } }),
      };
      await runCli(['workload', 'update', 'web', '--step', text], { coordinator });
      expect(requests[0]?.spec?.rollout?.steps).toMatchObject([
        { ...step, replicas: 0, percent: 0 },
      ]);
      const { stdout } = await runCli(['workload', 'describe', 'web'], { coordinator });
      expect(stdout).toContain(`steps ${text}\n`);
    },
  );

  const stepProblem =
    'expected a number of replicas or a percentage, weight=PERCENT, or both, then wait=DURATION or manual, then gate=EXPRESSION, for example 1,wait=5m or weight=10%,wait=5m or 25%,weight=10%,manual or 10%,wait=5m,gate=p99_ms < 200';
  it.each([
    { given: 'x', says: `--step: ${stepProblem}, got "x"` },
    { given: 'weight=10', says: `--step: ${stepProblem}, got "weight=10"` },
    { given: 'wait=5m', says: `--step: ${stepProblem}, got "wait=5m"` },
    { given: 'weight=10%,25%', says: `--step: ${stepProblem}, got "weight=10%,25%"` },
    { given: '1,gate= ', says: `--step: ${stepProblem}, got "1,gate= "` },
    { given: '1,soon', says: `--step: ${stepProblem}, got "1,soon"` },
    { given: '1,manual,wait=5m', says: `--step: ${stepProblem}, got "1,manual,wait=5m"` },
    {
      given: '1,wait=5',
      says: '--step: expected a duration such as "500ms", "2s" or "1h30m", got "5"; write "5s" for seconds',
    },
  ])('reject the canary step $given', async ({ given, says }) => {
    const { exitCode, stderr } = await runCli(['workload', 'update', 'web', '--step', given]);
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: `cloudlessctl: ${says}\n` });
  });
});
