import { create } from '@bufbuild/protobuf';
import { HelloSchema, Taint_Effect as Effect } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { toEffectiveNode } from './effective-node.js';

const hello = create(HelloSchema, {
  nodeId: 'node-1',
  zone: 'a',
  labels: { disk: 'hdd', arch: 'amd64' },
  taints: [{ key: 'gpu', value: 'yes', effect: Effect.NO_SCHEDULE }],
});

describe('toEffectiveNode', () => {
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
});
