import { create } from '@bufbuild/protobuf';
import { ErrorReason, EventSchema } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { decodeRecord } from '../records/records.js';
import { copyReplica } from '../records/replicas.js';
import { Transaction } from './transaction.js';

function decodeEvents(transaction: Transaction) {
  return transaction.toOperations().flatMap((operation) => {
    const { put = '', value } = operation as { readonly put?: string; readonly value: Uint8Array };
    return put.startsWith('/event/')
      ? decodeRecord('event', put.slice('/event/'.length), value)
      : [];
  });
}

function aTransaction(): Transaction {
  let count = 0;
  return new Transaction({ nextId: () => `e${(count += 1)}`, nowMs: () => 0 });
}

describe('events of a transaction', () => {
  it('carry the id and request id of their cause, which is stored before or in the same transaction', () => {
    const kept = create(EventSchema, { id: 'e0', requestId: 'r1' });
    const created = { reason: 'Created', causedBy: kept };
    const placed = { reason: 'Placed', causedBy: created };
    const events = decodeEvents(
      aTransaction().event(created).event(placed).event({ reason: 'Other' }),
    );
    expect(events).toMatchObject([
      { id: 'e1', causeId: 'e0', requestId: 'r1' },
      { id: 'e2', causeId: 'e1', requestId: 'r1' },
      { id: 'e3', causeId: '', requestId: '' },
    ]);
  });

  it.each([
    { reason: 'ReplicasUnplaced', errorReason: ErrorReason.NO_CAPACITY },
    { reason: 'ReplicasPlaced', errorReason: ErrorReason.ERROR_REASON_UNSPECIFIED },
    { reason: 'constructor', errorReason: ErrorReason.ERROR_REASON_UNSPECIFIED },
  ])('with the reason $reason get the error reason $errorReason', ({ reason, errorReason }) => {
    expect(decodeEvents(aTransaction().event({ reason }))).toMatchObject([{ reason, errorReason }]);
  });

  it('keep the error reason that they were added with', () => {
    const event = { reason: 'GetWorkload', errorReason: ErrorReason.WORKLOAD_NOT_FOUND };
    expect(decodeEvents(aTransaction().event(event))).toMatchObject([event]);
  });

  it('leave the object that they were added with unchanged', () => {
    const cause = Object.freeze({ reason: 'Created', requestId: 'r1' });
    const placed = Object.freeze({ reason: 'Placed', causedBy: cause });
    expect(decodeEvents(aTransaction().event(cause).event(placed))).toMatchObject([
      { reason: 'Created' },
      { reason: 'Placed', requestId: 'r1' },
    ]);
    expect(placed).toEqual({ reason: 'Placed', causedBy: cause });
  });

  it('get the prepended event as their cause unless they name another cause', () => {
    const kept = create(EventSchema, { id: 'e0' });
    const updated = { reason: 'Updated' };
    const transaction = aTransaction()
      .event(updated)
      .event({ reason: 'Notified', causedBy: kept })
      .event({ reason: 'Then', causedBy: updated });
    const events = decodeEvents(transaction.prependCause({ reason: 'Audit', requestId: 'r2' }));
    expect(events).toMatchObject([
      { id: 'e1', reason: 'Audit', causeId: '' },
      { id: 'e2', reason: 'Updated', causeId: 'e1', requestId: 'r2' },
      { id: 'e3', reason: 'Notified', causeId: 'e0', requestId: '' },
      { id: 'e4', reason: 'Then', causeId: 'e2', requestId: 'r2' },
    ]);
  });
});

describe('the readiness guard of a transaction', () => {
  const ready = create(ReplicaRecordSchema, {
    id: 'web-1',
    uid: 'web',
    sequence: 1n,
    ready: true,
    containerId: 'first',
  });

  it.each([
    { name: 'changes when a replica stops being ready', changes: { ready: false }, written: true },
    {
      name: 'changes when a replica is ready with another container',
      changes: { containerId: 'second' },
      written: true,
    },
    {
      name: 'does not change when a ready replica keeps its container',
      changes: { restarts: 3 },
      written: false,
    },
    {
      name: 'does not change when a replica becomes ready',
      before: { ready: false },
      changes: { ready: true },
      written: false,
    },
  ])('$name', ({ before = {}, changes, written }) => {
    const read = { value: copyReplica(ready, before), revision: 1n };
    const transaction = aTransaction().updateReplica(read, copyReplica(read.value, changes));
    const keys = transaction
      .toOperations()
      .map((operation) => ('put' in operation ? operation.put : operation.delete));
    expect(keys.includes('/evidence/web')).toBe(written);
  });
});
