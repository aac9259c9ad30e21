import { EventSchema } from '@cloudless/api';
import { create } from '@bufbuild/protobuf';
import { decodeRecord } from '../records/records.js';
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
  it('have the id and request id of their cause, stored before or in the same transaction', () => {
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

  it('get the prepended event as cause unless they have one', () => {
    const kept = create(EventSchema, { id: 'e0' });
    const updated = { reason: 'Updated' };
    const transaction = aTransaction()
      .event(updated)
      .event({ reason: 'Told', causedBy: kept })
      .event({ reason: 'Then', causedBy: updated });
    const events = decodeEvents(transaction.prependCause({ reason: 'Audit', requestId: 'r2' }));
    expect(events).toMatchObject([
      { id: 'e1', reason: 'Audit', causeId: '' },
      { id: 'e2', reason: 'Updated', causeId: 'e1', requestId: 'r2' },
      { id: 'e3', reason: 'Told', causeId: 'e0', requestId: '' },
      { id: 'e4', reason: 'Then', causeId: 'e2', requestId: 'r2' },
    ]);
  });
});
