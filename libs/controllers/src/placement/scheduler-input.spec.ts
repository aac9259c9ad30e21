import { create } from '@bufbuild/protobuf';
import { HelloSchema, NodeStatus_Phase as Phase, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import { toSchedulerNode } from './scheduler-input.js';

const healthy: NodeLiveStatus = {
  ...{ phase: 1, alive: true, reason: '', reliability: 1, quarantined: false },
  ...{ memoryPressure: false, diskPressure: false, diskFull: false, networkUnavailable: false },
  ...{ networkProxyProblem: '', diskFullReason: '', containersUnavailable: false },
  processesProblem: '',
  ...{ agentSlow: false, agentSlowReason: '' },
};

describe('toSchedulerNode', () => {
  it.each([
    { name: 'nothing on a healthy node', live: {}, suspended: undefined, reason: undefined },
    {
      name: 'containers while the container runtime does not answer',
      live: { containersUnavailable: true },
      suspended: ['runtime.cri'],
    },
    {
      name: 'processes while their supervisor does not answer',
      live: { processesProblem: 'the supervisor hangs' },
      suspended: ['runtime.process'],
    },
    {
      name: 'every runtime while the disk is full, with the reason',
      live: { containersUnavailable: true, diskFull: true },
      suspended: ['runtime.process', 'runtime.cri'],
      reason: 'the disk of the node is full',
    },
  ])('suspends $name', ({ live, suspended, reason }) => {
    const capabilities = ['runtime.process', 'exec.tty', 'runtime.cri'];
    const record = create(NodeRecordSchema, { id: 'node-1', hello: { capabilities } });
    const node = toSchedulerNode(record, { ...healthy, ...live });
    expect(node.suspendedCapabilities).toEqual(suspended);
    expect(node.suspensionReason).toBe(reason);
  });

  it.each([
    { name: 'nothing of a connected node', live: {}, facts: {} },
    {
      name: 'unreachable for a node that has not connected to a new leader yet',
      live: { phase: Phase.UNKNOWN, alive: false },
      facts: { unreachable: true },
    },
    {
      name: 'unreachable for a node whose agent does not answer',
      live: { phase: Phase.READY, alive: false, agentSlow: true },
      facts: { unreachable: true },
    },
    {
      name: 'lost for a node whose lease has ended',
      live: { phase: Phase.LOST, alive: false },
      facts: { lost: true },
    },
    {
      name: 'lost for a node whose loss an earlier leader recorded',
      live: { phase: Phase.UNKNOWN, alive: false },
      lost: true,
      facts: { lost: true },
    },
  ])('reports $name', ({ live, lost = false, facts }) => {
    const record = create(NodeRecordSchema, { id: 'node-1', lost });
    expect(toSchedulerNode(record, { ...healthy, ...live }).availability).toMatchObject({
      ...{ lost: false, unreachable: false },
      ...facts,
    });
  });

  it('replaces impossible amounts of the agent by the nearest possible ones, and drops bad taints', () => {
    const impossible = create(HelloSchema, {
      capacity: { cpuMillis: -5, memoryBytes: 2n ** 62n },
      maxReplicas: -1,
      taints: [{ key: '', effect: Effect.NO_SCHEDULE }],
    });
    const node = toSchedulerNode(
      create(NodeRecordSchema, { id: 'node-1', hello: impossible }),
      healthy,
    );
    expect(node).toMatchObject({
      capacity: { cpuMillis: 0, memoryBytes: Number.MAX_SAFE_INTEGER },
      taints: [],
    });
    expect(node.maxReplicas).toBeUndefined();
  });
});
