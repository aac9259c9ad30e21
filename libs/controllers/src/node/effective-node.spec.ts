import { create } from '@bufbuild/protobuf';
import { HelloSchema, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { toEffectiveNode } from './effective-node.js';
import { toSchedulerNode } from '../placement/scheduler-input.js';

const hello = create(HelloSchema, {
  nodeId: 'node-1',
  zone: 'a',
  labels: { disk: 'hdd', arch: 'amd64' },
  taints: [{ key: 'gpu', value: 'yes', effect: Effect.NO_SCHEDULE }],
});

describe('effective node', () => {
  it('overrides the values of the agent with those of users', () => {
    const record = create(NodeRecordSchema, {
      id: 'node-1',
      hello,
      zone: 'b',
      labels: { disk: 'ssd' },
      removedLabels: ['arch'],
      removedTaints: [`gpu:${Effect.NO_SCHEDULE}`],
    });
    expect(toEffectiveNode(record)).toEqual({
      region: '',
      zone: 'b',
      labels: { disk: 'ssd' },
      taints: [],
    });
  });

  it('replaces impossible figures of the agent by possible ones', () => {
    const impossible = create(HelloSchema, {
      capacity: { cpuMillis: -5, memoryBytes: 2n ** 62n },
      maxReplicas: -1,
      taints: [{ key: '', effect: Effect.NO_SCHEDULE }],
    });
    const soft = {
      memoryPressure: false,
      diskPressure: false,
      networkUnavailable: false,
      containersUnavailable: false,
      quarantined: false,
    };
    const node = toSchedulerNode(create(NodeRecordSchema, { id: 'node-1', hello: impossible }), {
      ...soft,
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
