import { create } from '@bufbuild/protobuf';
import {
  ReplicaStatusSchema,
  ReplicaStatus_Phase,
  RolloutStatus_Phase,
  Rollout_Promotion,
  Rollout_Strategy,
  VersionInfoSchema,
} from '@cloudless/api';
import { FAILURE, aRollout } from '../testing/a-rollout.js';
import { aWorkload, runCli } from '../testing/run-cli.js';
import type { CliResult } from '../testing/run-cli.js';
import { formatRolloutLine } from './rollout-view.js';

const failed = aRollout({
  phase: RolloutStatus_Phase.FAILED,
  strategy: Rollout_Strategy.ROLLING_UPDATE,
  step: 1,
  steps: 2,
  failedNew: 3,
  reason: 'new replicas failed 3 times',
  failure: FAILURE,
});
failed.status?.replicas.push(
  create(ReplicaStatusSchema, {
    id: '00000000000000aa-9',
    version: 2,
    phase: ReplicaStatus_Phase.FAILED,
    nodeId: 'node2',
    lastExitCode: 1,
    lastLines: ['starting', 'no such\u001b[31m file'],
  }),
);

const runWithFailedRollout = (...argv: string[]): Promise<CliResult> =>
  runCli(argv, {
    coordinator: {
      getWorkload: () => failed,
      listWorkloads: () => ({ workloads: [failed] }),
      listEvents: () => ({}),
    },
  });

describe('rollout output', () => {
  it('shows the cause of a failure in the description of the workload', async () => {
    const { stdout } = await runWithFailedRollout('describe', 'web');
    expect(stdout).toContain(
      `Rollout:
  Phase:       Failed, step 1 of 2
  Strategy:    RollingUpdate
  Version:     2, from version 1
  Started:     60s ago
  Failed new:  3
  Failure:     version 2: new replicas failed 3 times
  failing replica: 00000000000000aa-9 on node2, exit code 1
  last lines of 00000000000000aa-9:
    starting
    no such file: config.json
`,
    );
    expect(stdout).toContain('Active version:  1\n');
  });

  it('shows the last log lines of failing replicas without control characters in the description', async () => {
    expect((await runWithFailedRollout('describe', 'web')).stdout).toContain(
      '  last lines of 00000000000000aa-9:\n    starting\n    no such [31m file\n\nVersions:',
    );
  });

  it('shows the phase in wide tables of workloads, and the reason in all tables', async () => {
    expect((await runWithFailedRollout('get', 'workloads', '-o', 'wide')).stdout).toMatch(
      /ROLLOUT .*\n.* Failed, step 1 of 2 /,
    );
    expect((await runWithFailedRollout('get', 'workloads')).stdout).toMatch(
      / RolloutFailed .* new replicas failed 3 times\n$/,
    );
  });

  it('shows the rollout settings, with the steps in the form of the flag --step', async () => {
    const steps = [
      { replicas: 1, wait: { seconds: 300n } },
      { percent: 25, promotion: Rollout_Promotion.MANUAL, gate: 'p99_ms < 200' },
    ];
    const spec = {
      image: 'x',
      rollout: { maxFailedNew: 0, onFailure: 1, progressDeadline: { seconds: 60n }, steps },
    };
    const coordinator = { getWorkload: () => aWorkload({ spec }), listEvents: () => ({}) };
    expect((await runCli(['describe', 'web'], { coordinator })).stdout).toContain(
      'RollingUpdate, max failed new 0, progress deadline 1m, rollback on failure, steps 1,wait=5m; 25%,manual,gate=p99_ms < 200\n',
    );
  });
});

describe('formatRolloutLine', () => {
  it('counts replicas of an older version as new when that version has the same template', () => {
    const workload = aRollout({ version: 3 }, { updated: 1 });
    if (workload.status !== undefined)
      Object.assign(workload.status, { version: 3, updatedReplicas: 3 });
    workload.status?.versions.push(
      create(VersionInfoSchema, { version: 3, sameAs: 1, cause: 'undo to version 1' }),
    );
    expect(formatRolloutLine(workload)).toContain('4 of 4 ready, 3 updated, 1 old');
  });
});
