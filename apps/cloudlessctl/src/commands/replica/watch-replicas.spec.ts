import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import { WatchReplicasResponseSchema } from '@cloudless/api';
import { ReplicaChanges } from './watch-replicas.js';

const web = { namespace: 'default', name: 'web' };
const [first, second, third] = ['r-1', 'r-2', 'r-3'].map((id, slot) => ({ id, slot }));

describe('ReplicaChanges', () => {
  const changes = new ReplicaChanges(({ replica }) => replica.reason !== 'hidden');
  const update = (init: MessageInitShape<typeof WatchReplicasResponseSchema>): readonly string[] =>
    changes
      .update(create(WatchReplicasResponseSchema, init))
      .map(({ item, isGone }) => `${item.replica.id}${isGone ? ' gone' : ''}`);

  it('reports shown changes, what is no longer selected, and what was missed before a restart', () => {
    changes.restart();
    expect(
      update({ workloads: [{ ...web, replicas: [second, first, third] as object[] }] }),
    ).toEqual(['r-1', 'r-2', 'r-3']);
    expect(update({ synced: true })).toEqual([]);
    expect(update({ workloads: [{ ...web, replicas: [{ ...first, slot: 5 }] }] })).toEqual([]);
    expect(update({ workloads: [{ ...web, replicas: [{ ...first, reason: 'hidden' }] }] })).toEqual(
      ['r-1 gone'],
    );
    expect(update({ workloads: [{ ...web, removedReplicaIds: ['r-1', 'r-9'] }] })).toEqual([]);
    changes.restart();
    expect(update({ workloads: [{ ...web, replicas: [third] as object[] }] })).toEqual([]);
    expect(update({ synced: true })).toEqual(['r-2 gone']);
  });

  it('reports a failed start as a change, as a restart', () => {
    const put = (counts: object) =>
      update({ workloads: [{ ...web, replicas: [{ id: 'r-4', ...counts }] }] });
    expect(put({})).toEqual(['r-4']);
    expect(put({ failedStarts: 1 })).toEqual(['r-4']);
    expect(put({ failedStarts: 1 })).toEqual([]);
    expect(put({ failedStarts: 1, restarts: 1 })).toEqual(['r-4']);
  });

  it('reports the start and the end of a back-off, but no corrected time within it', () => {
    const put = (nextStartAt?: Timestamp) =>
      update({
        workloads: [{ ...web, replicas: [{ id: 'r-4', ...definedFields({ nextStartAt }) }] }],
      });
    expect(put()).toEqual(['r-4']);
    expect(put(timestampFromMs(5_000))).toEqual(['r-4']);
    expect(put(timestampFromMs(5_001))).toEqual([]);
    expect(put()).toEqual(['r-4']);
  });
});
