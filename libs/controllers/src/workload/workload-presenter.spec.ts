import { create, fromBinary } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, WorkloadSchema, skipLength } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { ControlRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { ManualClock } from '@cloudless/base/testing';
import {
  MAX_LISTED_REPLICAS,
  createReplicaRecord,
  createSnapshotView,
  type ClusterState,
  type ClusterView,
} from '@cloudless/cluster-state';
import { createCluster } from '@cloudless/scheduler';
import { WorkloadPresenter } from './workload-presenter.js';

const UID = 'web';
const workload = create(WorkloadRecordSchema, {
  ...{ uid: UID, namespace: 'default', name: 'web', generation: 1n, version: 1 },
  spec: { replicas: 5 },
});

/** Creates a view of a workload whose replicas are ready, but every 1,000th one has crashed. */
function createView(replicaCount: number): ClusterView {
  return createSnapshotView({
    revision: 1n,
    nodes: [],
    workloads: [workload],
    versions: [],
    controls: [create(ControlRecordSchema, { uid: UID, observedGeneration: 1n })],
    replicas: Array.from({ length: replicaCount }, (_, index) => {
      const hasCrashed = index % 1_000 === 999;
      return createReplicaRecord({
        ...{ id: `${UID}-${index + 1}`, uid: UID, sequence: BigInt(index + 1), version: 1 },
        ...{ nodeId: 'node-1', phase: Phase.RUNNING, desiredRunning: true },
        ...{ ready: !hasCrashed, reason: hasCrashed ? 'crashed' : '' },
      });
    }),
  });
}

/** A view that counts the records of replicas which its readers take. */
function countReads(view: ClusterView): {
  readonly view: ClusterView;
  readonly reads: () => number;
} {
  let reads = 0;
  function* count<Item>(items: Iterable<Item>): Generator<Item> {
    for (const item of items) {
      reads += 1;
      yield item;
    }
  }
  const counted = Object.create(view, {
    replica: { value: (id: string) => ((reads += 1), view.replica(id)) },
    replicas: { value: () => count(view.replicas()) },
    replicasOf: { value: (uid: string) => count(view.replicasOf(uid)) },
    replicasOn: { value: (nodeId: string) => count(view.replicasOn(nodeId)) },
    unplaced: { value: () => count(view.unplaced()) },
    replicasInOrder: {
      value: (uid: string, after?: number) => count(view.replicasInOrder(uid, after)),
    },
  }) as ClusterView;
  return { view: counted, reads: () => reads };
}

function createPresenter(view: ClusterView): WorkloadPresenter {
  const state = { view: () => view, subscribe: () => () => undefined };
  return new WorkloadPresenter(
    state as unknown as ClusterState,
    { isAlive: () => true, subscribe: () => () => undefined },
    { cluster: createCluster(), clock: new ManualClock() },
  );
}

const reads: readonly (readonly [string, (presenter: WorkloadPresenter) => Workload])[] = [
  ['a message', (presenter) => presenter.present(workload, true)],
  [
    'encoded',
    (presenter) => fromBinary(WorkloadSchema, skipLength(presenter.encode(workload, true))),
  ],
];

describe.each(reads)('the replicas of a workload as %s', (_name, read) => {
  it.each([
    { replicas: 0, listed: 0, omitted: 0 },
    { replicas: 999, listed: 999, omitted: 0 },
    { replicas: 1_000, listed: 1_000, omitted: 0 },
    { replicas: 1_001, listed: 1_000, omitted: 1 },
    { replicas: 2_500, listed: 1_000, omitted: 1_500 },
  ])('are $listed of $replicas, the oldest, beside exact numbers', (row) => {
    const { status } = read(createPresenter(createView(row.replicas)));
    expect(status?.replicas.map(({ id }) => id)).toEqual(
      Array.from({ length: row.listed }, (_, index) => `${UID}-${index + 1}`),
    );
    expect(status).toMatchObject({
      omittedReplicas: row.omitted,
      totalReplicas: row.replicas,
      readyReplicas: row.replicas - Math.floor(row.replicas / 1_000),
      updatedReplicas: row.replicas,
      updatedReadyReplicas: row.replicas - Math.floor(row.replicas / 1_000),
    });
  });

  it('need no more reads for 100,000 replicas than for one more than the limit', () => {
    const [few = 0, many = Infinity] = [MAX_LISTED_REPLICAS + 1, 100_000].map((count) => {
      const counted = countReads(createView(count));
      read(createPresenter(counted.view));
      return counted.reads();
    });
    expect(few).toBeGreaterThanOrEqual(MAX_LISTED_REPLICAS);
    expect(many).toBeLessThanOrEqual(few);
  });
});

it('the status without replicas reads at most two of them', () => {
  const counted = countReads(createView(100_000));
  createPresenter(counted.view).present(workload, false);
  expect(counted.reads()).toBeLessThanOrEqual(2);
});
