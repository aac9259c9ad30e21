import { clone } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { SimulatedChanges } from '@cloudless/cluster-state';
import { TestBed } from '../testing/test-bed.js';
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
