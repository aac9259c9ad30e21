import { create } from '@bufbuild/protobuf';
import { EventSchema, type Event } from '@cloudless/api';
import { Transaction, type EventInit } from '@cloudless/cluster-state';
import { ReadyEvents } from './ready-events.js';

const placed = create(EventSchema, { id: '1-1', reason: 'ReplicasPlaced' });

const aReadyEvent = (index: number, fields: Partial<EventInit> = {}): EventInit => ({
  reason: 'ReplicaReady',
  message: `replica web-${index} is ready`,
  ...{ namespace: 'default', workload: 'web', replicaId: `web-${index}`, nodeId: `node-${index}` },
  causedBy: placed,
  ...fields,
});

/** Adds events to one commit, and returns the events that are written. */
function write(events: readonly EventInit[]) {
  const ready = new ReadyEvents();
  const transaction = new Transaction({ nextId: () => String(Math.random()), nowMs: () => 0 });
  const taken = events.map((event) => ready.add(event));
  const { size } = ready;
  ready.flush(transaction);
  expect(transaction.size).toBe(size);
  const written = transaction
    .toOperations()
    .flatMap((write) => ('put' in write && write.kind === 'event' ? [write.record as Event] : []));
  return { taken, written };
}
const readyEvents = (count: number, fields: Partial<EventInit> = {}): readonly EventInit[] =>
  Array.from({ length: count }, (_, index) => aReadyEvent(index, fields));

describe('ReadyEvents', () => {
  it('keeps an event for each replica while few become ready together', () => {
    const { written } = write(readyEvents(8));
    expect(written).toHaveLength(8);
    expect(written[3]).toMatchObject({ message: 'replica web-3 is ready', replicaId: 'web-3' });
  });

  it('writes one event that names all replicas when many become ready together', () => {
    const { written } = write(readyEvents(20));
    expect(written).toMatchObject([
      {
        ...{ reason: 'ReplicaReady', message: '20 replicas are ready', workload: 'web' },
        ...{ replicaId: '', nodeId: '', causeId: '1-1' },
        replicaIds: Array.from({ length: 20 }, (_, index) => `web-${index}`),
      },
    ]);
  });

  it('names the node when all replicas are on one node', () => {
    expect(write(readyEvents(9, { nodeId: 'node-1' })).written).toMatchObject([
      { nodeId: 'node-1' },
    ]);
  });

  it('merges neither replicas of different workloads nor those with different causes', () => {
    const cause = create(EventSchema, { id: '1-2', reason: 'ReplicasPlaced' });
    const { written } = write([
      ...readyEvents(5),
      ...readyEvents(5, { workload: 'other' }),
      ...readyEvents(5, { causedBy: cause }),
    ]);
    expect(written).toHaveLength(15);
  });

  it('merges the few replicas of each workload when many become ready in one commit', () => {
    const { written } = write([
      ...readyEvents(8),
      ...readyEvents(8, { workload: 'other' }),
      aReadyEvent(0, { workload: 'single' }),
    ]);
    expect(written.map(({ message }) => message)).toEqual([
      '8 replicas are ready',
      '8 replicas are ready',
      'replica web-0 is ready',
    ]);
    expect(written[2]).toMatchObject({ workload: 'single', replicaId: 'web-0', replicaIds: [] });
  });

  it.each([
    { name: 'another reason', event: aReadyEvent(1, { reason: 'ReplicaNotReady' }) },
    { name: 'a count', event: aReadyEvent(1, { count: 3 }) },
    {
      name: 'a cause in the same commit',
      event: aReadyEvent(1, { causedBy: { reason: 'ImagePulled' } }),
    },
  ])('leaves an event with $name to the caller', ({ event }) => {
    expect(write([event]).taken).toEqual([false]);
  });
});
