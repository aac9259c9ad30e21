import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ControlRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { returnNode } from './node-return.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

const isTakenBack = (id: string): boolean => !bed.replica(id).lost;

/** Stores replicas `a-1` to `a-<count>`, lost with node-1, and a waiting replacement for each. */
async function loseReplicas(count: number): Promise<readonly string[]> {
  await bed.putNode('node-1', { lost: true });
  const ids = Array.from({ length: count }, (_, slot) => `a-${slot + 1}`);
  for (const [slot, id] of ids.entries()) {
    await bed.putReplica(id, {
      ...{ slot, phase: Phase.FAILED, desiredRunning: false, stopReason: 'lost', reason: 'lost' },
      ...{ lost: true, lostAt: timestampFromMs(1), orderRevision: bed.state.view().revision },
    });
    await bed.putReplica(`a-${count + slot + 1}`, { slot, nodeId: '', phase: Phase.PENDING });
  }
  return ids;
}

/** The inventory of an agent on which all these replicas run ready by their start orders. */
const listHealthy = (ids: readonly string[]) =>
  ids.map((replicaId) =>
    create(ReplicaReportSchema, {
      ...{ replicaId, workloadUid: 'a', containerId: `c-${replicaId}` },
      ...{ phase: Phase.RUNNING, ready: true, orderRevision: 1n },
    }),
  );

/**
 * Calls `action` before each commit that follows, except its own, with the number of the commit,
 * counted from 1.
 * @returns A function that returns the number of commits so far.
 */
function beforeCommit(action: (count: number) => Promise<unknown>): () => number {
  const { state } = bed;
  const commit = state.commitObserved.bind(state);
  let count = 0;
  let isActing = false;
  state.commitObserved = async (transaction) => {
    if (isActing) return commit(transaction);
    count += 1;
    isActing = true;
    await action(count);
    isActing = false;
    return commit(transaction);
  };
  return () => count;
}

/** Changes the control record of the workload, as each step of a rollout does. */
const stepRollout = () =>
  bed.state.commit(
    bed.state.transaction().put('control', 'a', create(ControlRecordSchema, { uid: 'a' })),
  );

/** Waits for a return that may wait between two attempts. */
async function finish(returned: Promise<void>): Promise<void> {
  let isSettled = false;
  void returned.finally(() => (isSettled = true)).catch(() => undefined);
  while (!isSettled) await bed.clock.advance(10);
  await returned;
}

const listEvents = () =>
  bed
    .events()
    .filter(({ reason }) => ['NodeReturned', 'ReplicasTakenBack'].includes(reason))
    .map(({ reason, replicaIds }) => `${reason} ${replicaIds.length}`);

describe('returnNode', () => {
  it('takes back more replicas than one commit holds, and ends the loss in the last commit', async () => {
    const ids = await loseReplicas(60);
    const sizes: number[] = [];
    const { state } = bed;
    const commit = state.commitObserved.bind(state);
    state.commitObserved = (transaction) => {
      sizes.push(transaction.size);
      return commit(transaction);
    };
    const wasLost: boolean[] = [];
    state.subscribe((changes) => {
      if (changes.some(({ kind }) => kind === 'node'))
        wasLost.push(state.view().node('node-1')?.value.lost === true);
    });
    await returnNode(
      bed,
      'node-1',
      () => undefined,
      () => listHealthy(ids),
    );
    expect(listEvents()).toEqual([
      'ReplicasTakenBack 25',
      'ReplicasTakenBack 25',
      'NodeReturned 0',
      'ReplicasTakenBack 10',
    ]);
    expect(wasLost).toEqual([true, true, false]);
    expect(ids.every(isTakenBack)).toBe(true);
    expect([...state.view().unplaced()]).toEqual([]);
    expect(Math.max(...sizes)).toBeLessThan(100);
  });

  it('leaves out a replica whose replacement gets a node between two commits', async () => {
    const ids = await loseReplicas(30);
    beforeCommit(async (count) => {
      if (count === 2) await bed.updateReplica('a-60', { nodeId: 'node-2', phase: Phase.ASSIGNED });
    });
    await finish(
      returnNode(
        bed,
        'node-1',
        () => undefined,
        () => listHealthy(ids),
      ),
    );
    expect(ids.filter((id) => !isTakenBack(id))).toEqual(['a-30']);
    expect(bed.state.view().node('node-1')?.value.lost).toBe(false);
  });

  it('takes replicas back after two conflicts', async () => {
    const ids = await loseReplicas(1);
    beforeCommit(async (count) => count <= 2 && (await stepRollout()));
    await finish(
      returnNode(
        bed,
        'node-1',
        () => undefined,
        () => listHealthy(ids),
      ),
    );
    expect(listEvents()).toEqual(['NodeReturned 0', 'ReplicasTakenBack 1']);
  });

  it('returns without further replicas after three conflicts in a row', async () => {
    const ids = await loseReplicas(60);
    const countCommits = beforeCommit(async (count) => count > 1 && (await stepRollout()));
    await finish(
      returnNode(
        bed,
        'node-1',
        () => undefined,
        () => listHealthy(ids),
      ),
    );
    expect(countCommits()).toBe(5);
    expect(listEvents()).toEqual(['ReplicasTakenBack 25', 'NodeReturned 0']);
    expect(ids.filter(isTakenBack)).toHaveLength(25);
  });

  it('takes no further replica back once another call has ended the loss', async () => {
    const ids = await loseReplicas(60);
    beforeCommit(async (count) => {
      if (count === 2) await returnNode(bed, 'node-1', () => undefined);
    });
    await finish(
      returnNode(
        bed,
        'node-1',
        () => undefined,
        () => listHealthy(ids),
      ),
    );
    expect(listEvents()).toEqual(['ReplicasTakenBack 25', 'NodeReturned 0']);
    expect(ids.filter(isTakenBack)).toHaveLength(25);
  });

  it('leaves the loss and the remaining replicas to the next session when its session ends', async () => {
    const ids = await loseReplicas(60);
    let commits = 0;
    await returnNode(
      bed,
      'node-1',
      () => undefined,
      () => ((commits += 1) === 1 ? listHealthy(ids) : undefined),
    );
    expect(bed.state.view().node('node-1')?.value.lost).toBe(true);
    expect(ids.filter(isTakenBack)).toHaveLength(25);
    await returnNode(
      bed,
      'node-1',
      () => undefined,
      () => listHealthy(ids),
    );
    expect(bed.state.view().node('node-1')?.value.lost).toBe(false);
    expect(ids.every(isTakenBack)).toBe(true);
  });
});
