import { create } from '@bufbuild/protobuf';
import { HelloSchema, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import { toSchedulerNode } from './scheduler-input.js';

const healthy: NodeLiveStatus = {
  ...{ phase: 1, alive: true, reason: '', reliability: 1, quarantined: false },
  ...{ memoryPressure: false, diskPressure: false, diskFull: false, networkUnavailable: false },
  ...{ networkProxyProblem: '', diskFullReason: '', containersUnavailable: false },
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
