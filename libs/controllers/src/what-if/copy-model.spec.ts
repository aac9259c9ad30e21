import { toNodeId } from '@cloudless/base';
import type { Cluster } from '@cloudless/scheduler';
import { aNodeRecord, aSnapshot } from '../testing/records.js';
import { copyModel } from './copy-model.js';
import { createRecordSource } from './record-source.js';

const nodes = ['n1', 'n2'].map((id) => aNodeRecord(id, 'a'));
const REPLICAS = 4_500;

function openSource() {
  const records = aSnapshot(nodes, {
    web: {
      spec: { resources: { requests: { cpuMillis: 1, storageBytes: 5n } } },
      on: [...Array.from({ length: REPLICAS }, (_, index) => `n${1 + (index % 2)}`), ''],
    },
  });
  for (const replica of records.replicas) if (replica.nodeId === '') replica.nominatedNodeId = 'n2';
  return createRecordSource(records, { clock: { wallTime: () => 0 } });
}

function run(steps: Generator<void, Cluster>): { readonly copy: Cluster; readonly slices: number } {
  for (let slices = 1; ; slices += 1) {
    const next = steps.next();
    if (next.done === true) return { copy: next.value, slices };
  }
}

describe('copyModel', () => {
  it.each([
    { name: 'clones a small model at once', clonedAtOnce: 10_000, slices: 1 },
    { name: 'builds a large model in slices', clonedAtOnce: 100, slices: 3 },
  ])('$name, with equal nodes and reservations', ({ clonedAtOnce, slices }) => {
    const source = openSource();
    const result = run(copyModel(source, clonedAtOnce));
    expect(result.slices).toBe(slices);
    for (const id of ['n1', 'n2'].map(toNodeId)) {
      expect(result.copy.usage(id)).toEqual(source.cluster.usage(id));
      expect(result.copy.node(id)).toEqual(source.cluster.node(id));
    }
    expect(result.copy.usage(toNodeId('n2'))?.replicas).toBe(REPLICAS / 2 + 1);
  });

  it('is independent of the model of the source', () => {
    const source = openSource();
    const { copy } = run(copyModel(source, 100));
    copy.removeNode(toNodeId('n1'));
    expect(source.cluster.usage(toNodeId('n1'))?.replicas).toBe(REPLICAS / 2);
  });
});
