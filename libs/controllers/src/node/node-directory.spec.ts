import { create } from '@bufbuild/protobuf';
import {
  Condition_Type as ConditionType,
  ConditionSchema,
  NodeStatus_Phase as Phase,
} from '@cloudless/api';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { NodeDirectory } from './node-directory.js';

const NODES = ['a', 'b', 'c', 'd', 'e', 'f'];

describe('NodeDirectory', () => {
  it('engages the replacement brake at a mass loss, also when the brake is checked 37 s later', async () => {
    const clock = new ManualClock();
    const nodes = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000 });
    nodes.start([]);
    for (const nodeId of NODES) nodes.startSession(nodeId);
    // The leases end after 3 s. A coordinator that is busy with the loss may check the brake after
    // its window of 30 s.
    await clock.advance(40_000);
    expect(nodes.checkReplacementBrake()).toMatchObject({
      kind: 'holding',
      silentCount: NODES.length,
    });
    nodes.close();
  });

  describe('after a change of the leader', () => {
    const THREE = ['a', 'b', 'c'].map((id) => ({ id }));

    /** Advances the clock in steps of 100 ms; the connected nodes send a message at each step. */
    const advanceTo = async (
      clock: ManualClock,
      nodes: NodeDirectory,
      { atMs, connected }: { readonly atMs: number; readonly connected: readonly string[] },
    ): Promise<void> => {
      while (clock.now() < atMs) {
        await clock.advance(100);
        for (const nodeId of connected) nodes.renewLease(nodeId);
      }
    };

    it.each([
      { name: 'no node returns', returnAtMs: undefined, trustedMs: 4_900, lostMs: 5_200 },
      { name: 'the others return at once', returnAtMs: 200, trustedMs: 4_900, lostMs: 5_200 },
      { name: 'the others return late', returnAtMs: 2_500, trustedMs: 5_400, lostMs: 5_700 },
    ])('trusts a node that is late when $name', async ({ returnAtMs, trustedMs, lostMs }) => {
      const clock = new ManualClock();
      const nodes = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000 });
      nodes.start(THREE);
      const connected = returnAtMs === undefined ? [] : ['a', 'b'];
      await clock.advance(returnAtMs ?? 0);
      for (const nodeId of connected) nodes.startSession(nodeId);
      await advanceTo(clock, nodes, { atMs: trustedMs, connected });
      expect(nodes.status('c').phase).not.toBe(Phase.LOST);
      await advanceTo(clock, nodes, { atMs: lostMs, connected });
      expect(nodes.status('c').phase).toBe(Phase.LOST);
      nodes.close();
    });
  });

  it.each([
    {
      name: 'no message came',
      lose: (): void => undefined,
      reason: 'its lease ended: no message from its agent',
    },
    {
      name: 'the connection broke',
      lose: (nodes: NodeDirectory, session: number) => nodes.endSession('a', session),
      reason: 'its lease ended: no message from its agent',
    },
    {
      name: 'the agent left and did not return',
      lose: (nodes: NodeDirectory, session: number) => nodes.leaveSession('a', session, 'upgrade'),
      reason: 'its agent left and did not return within 20s',
    },
    {
      name: 'an operator confirmed the loss of a node that is away',
      lose: (nodes: NodeDirectory, session: number) => {
        nodes.leaveSession('a', session, 'upgrade');
        nodes.confirmLost('a');
      },
      reason: 'its agent left, and an operator confirmed the loss',
    },
  ])('explains the loss of a node when $name', async ({ lose, reason }) => {
    const { clock, nodes } = startDirectory();
    lose(nodes, nodes.startSession('a'));
    await clock.advance(21_000);
    expect(nodes.status('a')).toMatchObject({ phase: Phase.LOST, reason });
    nodes.close();
  });

  it('explains the loss of a node whose agent hangs while its lease is renewed', async () => {
    const { clock, nodes } = startDirectory();
    nodes.startSession('a');
    for (let loopAgeMs = 0; loopAgeMs <= 12_000; loopAgeMs += 1_000) {
      nodes.renewLease('a', loopAgeMs);
      await clock.advance(1_000);
    }
    expect(nodes.status('a')).toMatchObject({
      phase: Phase.LOST,
      reason: 'the main loop of its agent did not turn for 10s',
    });
    nodes.close();
  });

  it('keeps that the disk of a node is full, and notifies of the change', () => {
    const { nodes } = startDirectory();
    nodes.startSession('a');
    let notified = 0;
    nodes.subscribe(() => (notified += 1));
    const report = (reason: string) => {
      const condition = { type: ConditionType.DISK_FULL, status: true, reason };
      nodes.updateStatus('a', [create(ConditionSchema, condition)]);
      const { diskFull, diskFullReason } = nodes.status('a');
      return { diskFull, diskFullReason, notified };
    };
    const almostFull = 'the file system of the data directory is almost full';
    expect(report('')).toEqual({
      ...{ diskFull: true, notified: 1 },
      diskFullReason: `${almostFull}: nothing new is placed on this node`,
    });
    expect(report('9 of 9 inodes are in use')).toEqual({
      ...{ diskFull: true, notified: 1 },
      diskFullReason: `${almostFull} (9 of 9 inodes are in use): nothing new is placed on this node`,
    });
    nodes.updateStatus('a', []);
    expect(nodes.status('a')).toMatchObject({ diskFull: false, diskFullReason: '' });
    expect(notified).toBe(2);
    nodes.close();
  });

  it.each([
    { of: 'its network proxy', name: 'networkProxyProblem', type: 'NETWORK_PROXY_DEGRADED' },
    {
      of: 'the supervisor of its processes',
      name: 'processesProblem',
      type: 'PROCESS_RUNTIME_UNAVAILABLE',
    },
  ] as const)('keeps what the agent reports of $of, and notifies of each change', (condition) => {
    const { nodes } = startDirectory();
    nodes.startSession('a');
    let notified = 0;
    nodes.subscribe(() => (notified += 1));
    const report = (status: boolean, reason: string): unknown[] => {
      const type = ConditionType[condition.type];
      nodes.updateStatus('a', [create(ConditionSchema, { type, status, reason })]);
      return [nodes.status('a')[condition.name], notified];
    };
    expect(report(false, '')).toEqual(['', 0]);
    expect(report(true, 'port 53 is taken')).toEqual(['port 53 is taken', 1]);
    expect(report(true, 'port 53 is taken')).toEqual(['port 53 is taken', 1]);
    expect(report(true, 'no route')).toEqual(['no route', 2]);
    expect(report(true, 'x'.repeat(3_000))).toEqual(['x'.repeat(2_000), 3]);
    expect(report(false, '')).toEqual(['', 4]);
    nodes.close();
  });

  it('counts no node that is away for the replacement brake after its loss was confirmed', async () => {
    const { clock, nodes } = startDirectory();
    for (const nodeId of NODES) {
      const session = nodes.startSession(nodeId);
      if (nodeId === 'e') continue;
      nodes.leaveSession(nodeId, session, '');
    }
    for (const nodeId of ['a', 'b', 'c', 'd']) {
      nodes.confirmLost(nodeId);
      expect(nodes.status(nodeId).phase).toBe(Phase.LOST);
    }
    await clock.advance(200);
    expect(nodes.checkReplacementBrake().kind).toBe('released');
    nodes.close();
  });
});

function startDirectory(): { readonly clock: ManualClock; readonly nodes: NodeDirectory } {
  const clock = new ManualClock();
  const nodes = new NodeDirectory({
    clock,
    log: silentLog,
    leaseMs: 3_000,
    leaveGraceMs: 20_000,
    hungAfterMs: 10_000,
  });
  nodes.start([]);
  return { clock, nodes };
}
