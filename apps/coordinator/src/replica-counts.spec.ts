import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import type { ChangeListener, ClusterState, Stored } from '@cloudless/cluster-state';
import { ReplicaCounts, getReplicaState } from './replica-counts.js';

/** Replicas in memory, and the listener that follows their changes. */
class FakeState {
  readonly replicas = new Map<string, ReplicaRecord>();
  walked = 0;
  private listener: ChangeListener = () => undefined;

  asState(): Pick<ClusterState, 'view' | 'subscribe'> {
    const listReplicas = function* (this: FakeState): Generator<Stored<ReplicaRecord>> {
      for (const value of this.replicas.values()) {
        this.walked += 1;
        yield { value, revision: 1n };
      }
    }.bind(this);
    return {
      view: () => ({ replicas: listReplicas }) as unknown as ReturnType<ClusterState['view']>,
      subscribe: (listener) => {
        this.listener = listener;
        return () => undefined;
      },
    };
  }

  put(id: string, after: ReplicaRecord | undefined): void {
    const before = this.replicas.get(id);
    if (after === undefined) this.replicas.delete(id);
    else this.replicas.set(id, after);
    this.listener(
      [
        {
          kind: 'replica',
          id,
          ...(before === undefined ? {} : { before }),
          ...(after === undefined ? {} : { after }),
        },
      ],
      2n,
    );
  }
}

const arbReplica = fc
  .record({
    phase: fc.integer({ min: 0, max: 7 }),
    nodeId: fc.constantFrom('', 'n1'),
    desiredRunning: fc.boolean(),
    ready: fc.boolean(),
    lost: fc.boolean(),
  })
  .map((fields) => create(ReplicaRecordSchema, fields));
const arbChange = fc.tuple(
  fc.constantFrom('a', 'b', 'c', 'd'),
  fc.option(arbReplica, { nil: undefined }),
);

describe('ReplicaCounts', () => {
  it('has the counts of a walk over all replicas after any changes, and walks them once', () => {
    fc.assert(
      fc.property(fc.array(arbChange), fc.array(arbChange), (initial, changes) => {
        const state = new FakeState();
        for (const [id, replica] of initial) state.put(id, replica);
        const { counts } = new ReplicaCounts(state.asState());
        const { walked } = state;
        for (const [id, replica] of changes) state.put(id, replica);
        const expected = { ready: 0, unready: 0, unplaced: 0, leaving: 0, lost: 0, ended: 0 };
        for (const replica of state.replicas.values()) expected[getReplicaState(replica)] += 1;
        expect(counts).toEqual(expected);
        expect(state.walked).toBe(walked);
      }),
    );
  });
});
