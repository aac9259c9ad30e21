import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { EventSchema } from '@cloudless/api';
import { EventIndex } from './event-index.js';

const event = (init: MessageInitShape<typeof EventSchema>) => create(EventSchema, init);
const web = { kind: 'workload', namespace: 'default', name: 'web' } as const;
const ofWeb = { namespace: 'default', workload: 'web' };

describe('EventIndex', () => {
  it('returns the newest event of each replica, also of replicas in a list, until the replica is removed', () => {
    const index = new EventIndex();
    const placed = event({
      id: '2',
      reason: 'ReplicasPlaced',
      replicaIds: ['w-1', 'w-2'],
      ...ofWeb,
    });
    index.applyChange(
      undefined,
      event({ id: '1', reason: 'ReplicasCreated', replicaIds: ['w-1', 'w-2'], ...ofWeb }),
    );
    index.applyChange(undefined, placed);
    index.applyChange(
      undefined,
      event({ id: '3', reason: 'ReplicaReady', replicaId: 'w-1', ...ofWeb }),
    );
    expect([index.getLastOfReplica('w-1')?.id, index.getLastOfReplica('w-2')?.id]).toEqual([
      '3',
      '2',
    ]);
    index.forgetReplica('w-1');
    expect(index.getLastOfReplica('w-1')).toBeUndefined();
    index.applyChange(placed, undefined);
    expect(index.getLastOfReplica('w-2')).toBeUndefined();
  });

  it('keeps the newest event of a replica when an older one follows or is written again', () => {
    const index = new EventIndex();
    const older = event({ id: '1', replicaIds: ['w-1', 'w-2'], ...ofWeb });
    index.applyChange(undefined, event({ id: '2', replicaId: 'w-1', ...ofWeb }));
    index.applyChange(undefined, older);
    expect(['w-1', 'w-2'].map((id) => index.getLastOfReplica(id)?.id)).toEqual(['2', '1']);
    const again = event({ id: '1', replicaIds: ['w-1', 'w-2'], message: 'again', ...ofWeb });
    index.applyChange(older, again);
    expect(['w-1', 'w-2'].map((id) => index.getLastOfReplica(id)?.message)).toEqual(['', 'again']);
  });

  it('ignores audit events about a replica', () => {
    const index = new EventIndex();
    index.applyChange(
      undefined,
      event({ id: '1', reason: 'ReplicasStopping', replicaIds: ['w-1'], ...ofWeb }),
    );
    const call = event({
      id: '2',
      reason: 'ExecCommand',
      replicaId: 'w-1',
      ...ofWeb,
      audit: { rpc: 'x' },
    });
    index.applyChange(undefined, call);
    expect(index.getLastOfReplica('w-1')?.id).toBe('1');
    index.applyChange(call, undefined);
    expect(index.getLastOfReplica('w-1')?.id).toBe('1');
  });

  it('returns the newest event of a workload or node by reason, without events of single replicas and audit events', () => {
    const index = new EventIndex();
    const updated = event({ id: '2', reason: 'WorkloadUpdated', ...ofWeb });
    index.applyChange(undefined, event({ id: '1', reason: 'WorkloadCreated', ...ofWeb }));
    index.applyChange(undefined, updated);
    index.applyChange(
      undefined,
      event({ id: '3', reason: 'WorkloadUpdated', namespace: 'other', workload: 'web' }),
    );
    index.applyChange(
      undefined,
      event({ id: '4', reason: 'WorkloadUpdated', ...ofWeb, audit: { rpc: 'x' } }),
    );
    index.applyChange(undefined, event({ id: '5', reason: 'NodeLost', nodeId: 'a1' }));
    const reasons = ['WorkloadCreated', 'WorkloadUpdated'];
    expect(index.getLast(web, reasons)?.id).toBe('2');
    index.applyChange(updated, undefined);
    expect(index.getLast(web, reasons)?.id).toBe('1');
    expect(index.getLast({ kind: 'node', nodeId: 'a1' }, ['NodeLost'])?.id).toBe('5');
    expect(index.getLast({ kind: 'node', nodeId: 'a2' }, ['NodeLost'])).toBeUndefined();
  });

  it('lists the audit records of each secret in the order of their ids, until they are removed', () => {
    const index = new EventIndex();
    const record = (id: string, ...secrets: readonly string[]) =>
      event({ id, reason: 'GetSecret', audit: { rpc: 'x', secrets: [...secrets] } });
    const both = record('2', 'a/db', 'a/tls');
    for (const added of [record('1', 'a/db'), record('3', 'a/db'), both, record('4')])
      index.applyChange(undefined, added);
    const list = (key: string) => index.listOfSecret(key).map(({ id }) => id);
    expect([list('a/db'), list('a/tls'), list('a/none')]).toEqual([['1', '2', '3'], ['2'], []]);
    index.applyChange(both, record('2', 'a/db'));
    expect([list('a/db'), list('a/tls')]).toEqual([['1', '2', '3'], []]);
    index.applyChange(both, undefined);
    expect(list('a/db')).toEqual(['1', '3']);
  });
});
