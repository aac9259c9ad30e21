import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { ManualClock } from '@cloudless/base/testing';
import {
  ExplainWorkloadResponseSchema,
  PlacementReason_Kind as Kind,
  ReplicaStatusSchema,
  ReplicaStatus_Phase,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import { createWatch } from '../testing/a-rollout.js';
import { NOW_MS, aWorkload, runCli } from '../testing/run-cli.js';
import type { CliResult } from '../testing/run-cli.js';
import { createRefusal, isRefusedForGood, JOIN_GRACE_MS } from './refusal-check.js';

type NodeInit = NonNullable<
  MessageInitShape<typeof ExplainWorkloadResponseSchema>['nodes']
>[number];

const lasting = (text: string) => ({ kind: Kind.CAPABILITY, lasting: true, text });
const temporary = (text: string) => ({ kind: Kind.CORDONED, lasting: false, text });
const explain = (...nodes: NodeInit[]) =>
  create(ExplainWorkloadResponseSchema, {
    refusal: 'no node fits: no container runtime: 2 of 2 nodes',
    suggestion: 'would fit on n1 with a container runtime (containerd)',
    nodes,
  });
const bare = { nodeId: 'n1', zone: 'a', reasons: [lasting('no container runtime')] };
const cordoned = { nodeId: 'n2', reasons: [temporary('the node is cordoned')] };

describe('isRefusedForGood', () => {
  it.each<{ readonly name: string; readonly nodes: NodeInit[]; readonly expected: boolean }>([
    { name: 'every node has a lasting reason', nodes: [bare, bare], expected: true },
    {
      name: 'a cordoned node also has a lasting reason',
      nodes: [{ reasons: [lasting('x'), temporary('the node is cordoned')] }],
      expected: true,
    },
    { name: 'a node has only temporary reasons', nodes: [bare, cordoned], expected: false },
    { name: 'a node fits', nodes: [bare, { fits: true }], expected: false },
    { name: 'the cluster has no nodes', nodes: [], expected: false },
    {
      name: 'an older coordinator gives no typed reasons',
      nodes: [{ reason: 'capability runtime.cri' }],
      expected: false,
    },
  ])('is $expected when $name', ({ nodes, expected }) => {
    expect(isRefusedForGood(explain(...nodes))).toBe(expected);
  });
});

describe('createRefusal', () => {
  it('gives all reasons of at most six nodes, the smallest change, and the flag to wait on', () => {
    const nodes = [1, 2, 3, 4, 5, 6, 7].map((index) => ({ ...bare, nodeId: `n${index}` }));
    const [first, ...others] = createRefusal(
      { namespace: 'default', name: 'big' },
      explain(...nodes),
    ).message.split('\n');
    expect(first).toBe('workload default/big: no node fits: no container runtime: 2 of 2 nodes');
    expect(others).toEqual([
      ...[1, 2, 3, 4, 5, 6].map((index) => `  n${index} (a): no container runtime`),
      '  and 1 more nodes',
      'smallest change: would fit on n1 with a container runtime (containerd)',
      'waiting does not change this; to wait for other nodes, add --wait-capacity',
    ]);
  });
});

const unplaced = aWorkload({
  status: {
    phase: WorkloadStatus_Phase.PENDING,
    readyReplicas: 0,
    reason: '2 of 2 replicas without a node: no node fits: no container runtime: 2 of 2 nodes',
    replicas: [
      create(ReplicaStatusSchema, { id: 'x-1', phase: ReplicaStatus_Phase.PENDING, reason: 'x' }),
    ],
  },
});

/** Runs a command while no replica has a node, and advances the clock. */
async function runRefused(
  argv: readonly string[],
  nodes: readonly NodeInit[],
  advanceMs: readonly number[],
): Promise<{ readonly result: CliResult; readonly calls: number }> {
  const clock = new ManualClock(NOW_MS);
  let calls = 0;
  let seen = false;
  const running = runCli(argv, {
    clock,
    coordinator: {
      scaleWorkload: () => unplaced,
      getWorkload: () => unplaced,
      watchWorkloads: createWatch(unplaced),
      explainWorkload: () => {
        calls += 1;
        return explain(...nodes);
      },
    },
    onStdout: (text) => {
      if (text.includes('ready')) seen = true;
    },
  });
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  while (!seen) await new Promise((resolve) => setImmediate(resolve));
  for (const ms of advanceMs) {
    await clock.advance(ms);
    await settle();
  }
  return { result: await running, calls };
}

describe('a wait for replicas that no node can ever run', () => {
  it.each([{ argv: ['scale', 'web', '2', '--wait'] }, { argv: ['rollout', 'status', 'web'] }])(
    'ends with 7 after the grace for joining nodes with $argv',
    async ({ argv }) => {
      const { result, calls } = await runRefused(argv, [bare], [JOIN_GRACE_MS]);
      expect(calls).toBe(1);
      expect(result).toMatchObject({
        exitCode: 7,
        stderr: [
          'cloudlessctl: workload default/web: no node fits: no container runtime: 2 of 2 nodes',
          '  n1 (a): no container runtime',
          'smallest change: would fit on n1 with a container runtime (containerd)',
          'waiting does not change this; to wait for other nodes, add --wait-capacity',
          '',
        ].join('\n'),
      });
    },
  );

  it('goes on, and asks again every 5 s, while time may help', async () => {
    const { result, calls } = await runRefused(
      ['scale', 'web', '2', '--wait', '--timeout', '30s'],
      [bare, cordoned],
      [JOIN_GRACE_MS, 5_000, 22_000],
    );
    expect(calls).toBeGreaterThan(2);
    expect(result).toMatchObject({
      exitCode: 7,
      stderr: expect.stringContaining(
        'workload default/web did not become ready within 30s: 0 of 2 ready',
      ) as string,
    });
  });

  it('goes on with --wait-capacity', async () => {
    const { result, calls } = await runRefused(
      ['scale', 'web', '2', '--wait', '--wait-capacity', '--timeout', '30s'],
      [bare],
      [30_000],
    );
    expect(calls).toBe(0);
    expect(result.stderr).toContain('did not become ready within 30s');
  });
});
