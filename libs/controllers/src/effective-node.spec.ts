import { create } from '@bufbuild/protobuf';
import { HelloSchema, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { effectiveNode } from './effective-node.js';
import { toSchedulerNode } from './scheduler-input.js';

const hello = create(HelloSchema, {
  nodeId: 'node-1',
  zone: 'a',
  labels: { disk: 'hdd', arch: 'amd64' },
  taints: [{ key: 'gpu', value: 'yes', effect: Effect.NO_SCHEDULE }],
});

describe('what a node is', () => {
  it('is what its agent says, with the word of users over it', () => {
    const record = create(NodeRecordSchema, {
      id: 'node-1',
      hello,
      zone: 'b',
      labels: { disk: 'ssd' },
      removedLabels: ['arch'],
      removedTaints: [`gpu:${Effect.NO_SCHEDULE}`],
    });
    expect(effectiveNode(record)).toEqual({
      region: '',
      zone: 'b',
      labels: { disk: 'ssd' },
      taints: [],
    });
  });

  it('is made of figures that can be, whatever the record says', () => {
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
