import { create } from '@bufbuild/protobuf';
import { EventSchema } from '@cloudless/api';
import type { Change } from '@cloudless/state-store';
import type { RecordPut, RecordWrite } from '../transaction/transaction.js';
import { OwnWrites } from './own-writes.js';

function aPut(id: string): RecordPut {
  const put = `/event/${id}`;
  return { put, value: Uint8Array.of(1), kind: 'event', id, record: create(EventSchema, { id }) };
}

/** The changes of a commit of these writes, with the same bytes. */
const toChanges = (writes: readonly RecordWrite[]): readonly Change[] =>
  writes.map((write) =>
    'put' in write
      ? { kind: 'put', entry: { key: write.put, value: write.value, modRevision: 1n } }
      : { kind: 'delete', key: write.delete, modRevision: 1n },
  );

describe('OwnWrites', () => {
  const first = [aPut('a'), aPut('b')];
  const second = [aPut('a'), { delete: '/event/b' }, aPut('c')];
  let ownWrites: OwnWrites;
  beforeEach(() => {
    ownWrites = new OwnWrites();
  });

  it('finds the puts of a transaction while one that was added before is refused', () => {
    const removeFirst = ownWrites.add(first);
    ownWrites.add(second);
    expect(ownWrites.takePuts(toChanges(second))).toEqual([second[0], undefined, second[2]]);
    removeFirst();
    expect(ownWrites.takePuts(toChanges(first))).toEqual([]);
  });

  it('finds the puts of a transaction once', () => {
    ownWrites.add(first);
    expect(ownWrites.takePuts(toChanges(first))).toEqual(first);
    expect(ownWrites.takePuts(toChanges(first))).toEqual([]);
  });

  it('finds no puts of another process between two own transactions', () => {
    ownWrites.add(first);
    ownWrites.add(second);
    const others = [aPut('a'), aPut('b')];
    expect(ownWrites.takePuts(toChanges(first))).toEqual(first);
    expect(ownWrites.takePuts(toChanges(others))).toEqual([]);
    expect(ownWrites.takePuts(toChanges(second))).toEqual([second[0], undefined, second[2]]);
  });

  it('finds no puts for a batch of deletions, and keeps the transaction of others', () => {
    ownWrites.add(first);
    expect(ownWrites.takePuts(toChanges([{ delete: '/event/a' }]))).toEqual([]);
    expect(ownWrites.takePuts(toChanges(first))).toEqual(first);
  });
});
