import { create } from '@bufbuild/protobuf';
import {
  EventSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  type Event,
} from '@cloudless/api';
import {
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { Transaction } from '@cloudless/cluster-state';
import { ReadyEvents } from './ready-events.js';

const placed = create(EventSchema, { id: '1-1', reason: 'ReplicasPlaced' });

const other = create(WorkloadRecordSchema, { namespace: 'default', name: 'other' });
const single = create(WorkloadRecordSchema, { namespace: 'default', name: 'single' });
const web = create(WorkloadRecordSchema, { namespace: 'default', name: 'web' });
const webElsewhere = create(WorkloadRecordSchema, { namespace: 'elsewhere', name: 'web' });

/** What {@link ReadyEvents} gets about one replica. */
interface Ready {
  readonly replica: ReplicaRecord;
  readonly workload: WorkloadRecord;
  readonly cause: Event;
}

const aReady = (index: number, fields: Partial<Ready> = {}): Ready => ({
  replica: create(ReplicaRecordSchema, { id: `web-${index}`, nodeId: `node-${index}` }),
  workload: web,
  cause: placed,
  ...fields,
});

/** Adds replicas to one commit, and returns the events that are written. */
function write(added: readonly Ready[]) {
  const ready = new ReadyEvents();
  const transaction = new Transaction({ nextId: () => String(Math.random()), nowMs: () => 0 });
  for (const { replica, workload, cause } of added) ready.add(replica, workload, cause);
  const { size } = ready;
  ready.flush(transaction);
  expect(transaction.size).toBe(size);
  return transaction
    .toOperations()
    .flatMap((write) => ('put' in write && write.kind === 'event' ? [write.record as Event] : []));
}
const readyReplicas = (count: number, fields: Partial<Ready> = {}): readonly Ready[] =>
  Array.from({ length: count }, (_, index) => aReady(index, fields));

describe('ReadyEvents', () => {
  it('keeps an event for each replica while few become ready together', () => {
    const written = write(readyReplicas(8));
    expect(written).toHaveLength(8);
    expect(written[3]).toMatchObject({ message: 'replica web-3 is ready', replicaId: 'web-3' });
  });

  it('writes one event that names all replicas when many become ready together', () => {
    const written = write(readyReplicas(20));
    expect(written).toMatchObject([
      {
        ...{ reason: 'ReplicaReady', message: '20 replicas are ready' },
        ...{ category: Category.WORKLOAD, severity: Severity.INFO },
        ...{ namespace: 'default', workload: 'web' },
        ...{ replicaId: '', nodeId: '', causeId: '1-1' },
        replicaIds: Array.from({ length: 20 }, (_, index) => `web-${index}`),
      },
    ]);
  });

  it('names the node when all replicas are on one node', () => {
    const replica = create(ReplicaRecordSchema, { id: 'web-1', nodeId: 'node-1' });
    expect(write(readyReplicas(9, { replica }))).toMatchObject([{ nodeId: 'node-1' }]);
  });

  it('merges no replicas of different workloads or namespaces, or with different causes', () => {
    const cause = create(EventSchema, { id: '1-2', reason: 'ReplicasPlaced' });
    const written = write([
      ...readyReplicas(5),
      ...readyReplicas(5, { workload: other }),
      ...readyReplicas(5, { workload: webElsewhere }),
    ]);
    expect(written).toHaveLength(15);
    expect(write([...readyReplicas(5), ...readyReplicas(5, { cause })])).toHaveLength(10);
  });

  it('merges the few replicas of each workload when many become ready in one commit', () => {
    const written = write([
      ...readyReplicas(8),
      ...readyReplicas(8, { workload: other }),
      aReady(0, { workload: single }),
    ]);
    expect(written.map(({ message }) => message)).toEqual([
      '8 replicas are ready',
      '8 replicas are ready',
      'replica web-0 is ready',
    ]);
    expect(written[2]).toMatchObject({ workload: 'single', replicaId: 'web-0', replicaIds: [] });
  });
});
