import { clone } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { SimulatedChanges } from '@cloudless/cluster-state';
import { TestBed } from '../testing/test-bed.js';
import { FrozenSource } from './frozen-source.js';
import { WhatIfService } from './what-if-service.js';

const NOTHING: SimulatedChanges = { nodes: [], addedNodes: [], workloads: [], deletions: [] };

let bed: TestBed;
beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2', 'node-3'] });
  await bed.createWorkload({ replicas: 2 });
  await bed.addReplicas(2);
  await bed.changeControl({ nextSequence: 3n, activeVersion: 1, rollout: { version: 1 } });
});
afterEach(() => bed.close());

const loseNode1 = (): SimulatedChanges => ({
  ...NOTHING,
  nodes: [
    {
      kind: 'lost',
      node: Object.assign(clone(NodeRecordSchema, bed.node('node-1')), { lost: true }),
    },
  ],
});
const openService = (): WhatIfService => new WhatIfService(bed.dependencies({}));

describe('WhatIfService', () => {
  it('predicts changes of the current state, and commits nothing', async () => {
    const { revision } = bed.state.view();
    const state = openService().openCurrent();
    const result = await state.simulate(loseNode1(), new AbortController().signal);
    state.close();
    expect(result.moves.map(({ toNodeId }) => toNodeId)).toEqual(['node-2', 'node-3']);
    expect(result.revision).toBe(revision);
    expect(bed.state.view().revision).toBe(revision);
    expect(bed.replicas().every(({ nodeId, ready }) => nodeId === 'node-1' && ready)).toBe(true);
  });

  it('predicts changes of an older revision', async () => {
    const { revision } = bed.state.view();
    await bed.changeReplica('web-1', { nodeId: 'node-3' });
    await bed.deleteWorkload();
    const opening = openService().openRevision(revision);
    // Other work runs after each page of records.
    await bed.advance(10);
    const state = await opening;
    const result = await state.simulate(loseNode1(), new AbortController().signal);
    expect(result.revision).toBe(revision);
    expect(result.moves.map(({ fromNodeId }) => fromNodeId)).toEqual(['node-1', 'node-1']);
  });

  it('refuses a revision that the store has not reached', async () => {
    const newer = bed.state.view().revision + 10n;
    await expect(openService().openRevision(newer)).rejects.toMatchObject({ kind: 'compacted' });
  });

  it('lets other work run between slices, and stops when the call is aborted', async () => {
    const aborted = new AbortController();
    const state = openService().openCurrent();
    let isDone = false;
    const result = state
      .simulate(
        {
          ...loseNode1(),
          addedNodes: Array.from({ length: 5_000 }, (_, index) =>
            Object.assign(clone(NodeRecordSchema, bed.node('node-2')), { id: `added-${index}` }),
          ),
          workloads: Array.from({ length: 5 }, (_, index) => ({
            namespace: 'default',
            name: `new-${index}`,
            current: undefined,
            spec: bed.workload().spec ?? ({} as never),
          })),
        },
        aborted.signal,
      )
      .finally(() => (isDone = true));
    await Promise.resolve();
    expect(isDone).toBe(false);
    aborted.abort();
    await expect(result).rejects.toMatchObject({ name: 'StoppedError' });
    state.close();
  });
});

describe('FrozenSource', () => {
  it('keeps showing the records of its creation while they change', async () => {
    const source = new FrozenSource(bed.dependencies({}));
    const show = () => ({
      workload: source.view.workload('web')?.value.generation,
      created: source.view.workload('new')?.value.uid,
      control: source.view.control('web')?.value.nextSequence,
      versions: source.view.versions('web').map(({ version }) => version),
      version: source.view.version('web', 2)?.version,
      cordoned: source.view.node('node-1')?.value.cordoned,
      nodes: [...source.view.nodes()].length,
      workloads: [...source.view.workloads()].length,
      replicas: [...source.view.replicasOf('web')]
        .map(({ value }) => [value.id, value.ready])
        .sort(),
      onNode1: [...source.view.replicasOn('node-1')].map(({ value }) => value.id).sort(),
      onNode2: [...source.view.replicasOn('node-2')].map(({ value }) => value.id).sort(),
      alive: source.nodes.isAlive('node-3'),
      revision: source.view.revision,
    });
    const before = show();
    await bed.updateWorkload({ replicas: 2, args: ['new'] });
    await bed.createWorkload({}, 'new');
    await bed.changeControl({ nextSequence: 9n });
    await bed.changeNode('node-1', { cordoned: true });
    await bed.addNode('node-4');
    await bed.changeReplica('web-1', { ready: false });
    await bed.changeReplica('web-1', { nodeId: 'node-2' });
    bed.disconnect('node-3');
    expect(show()).toEqual(before);
    source.close();
  });
});
