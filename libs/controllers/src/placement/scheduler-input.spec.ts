import { create } from '@bufbuild/protobuf';
import { HelloSchema, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { toSchedulerNode } from './scheduler-input.js';

describe('toSchedulerNode', () => {
  it('replaces impossible amounts of the agent by the nearest possible ones, and drops bad taints', () => {
    const impossible = create(HelloSchema, {
      capacity: { cpuMillis: -5, memoryBytes: 2n ** 62n },
      maxReplicas: -1,
      taints: [{ key: '', effect: Effect.NO_SCHEDULE }],
    });
    const conditions = {
      memoryPressure: false,
      diskPressure: false,
      networkUnavailable: false,
      networkProxyProblem: '',
      containersUnavailable: false,
      agentSlow: false,
      agentSlowReason: '',
      quarantined: false,
    };
    const node = toSchedulerNode(create(NodeRecordSchema, { id: 'node-1', hello: impossible }), {
      ...conditions,
      phase: 1,
      alive: true,
      reason: '',
      reliability: 1,
    });
    expect(node).toMatchObject({
      capacity: { cpuMillis: 0, memoryBytes: Number.MAX_SAFE_INTEGER },
      taints: [],
    });
    expect(node.maxReplicas).toBeUndefined();
  });
});
