import { describe, expect, it } from '@jest/globals';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import type { ContainerEvent } from '../container-runtime.js';
import { EventBroadcaster } from './event-broadcaster.js';

const event = (digit: string): ContainerEvent => ({
  kind: 'started',
  status: {
    containerId: toContainerId(digit.repeat(64)),
    labels: {},
    phase: 'running',
    startedAtMs: 0,
    endpoints: [],
  },
});
const failure = new CloudlessError('unavailable', 'gone');

async function read(events: AsyncIterable<ContainerEvent>): Promise<string[]> {
  const seen: string[] = [];
  try {
    for await (const { status } of events) seen.push(status.containerId[0] ?? '');
  } catch (reason) {
    seen.push(String((reason as Error).message));
  }
  return seen;
}

describe('EventBroadcaster', () => {
  it('delivers all events since the subscription to each reader, then the failure', async () => {
    const readers = new EventBroadcaster();
    const { signal } = new AbortController();
    const firstReader = readers.subscribe(signal);
    readers.publish(event('a'));
    const secondReader = readers.subscribe(signal);
    readers.publish(event('b'));
    readers.fail(failure);
    readers.publish(event('c'));
    expect([await read(firstReader), await read(secondReader)]).toEqual([
      ['a', 'b', 'gone'],
      ['b', 'gone'],
    ]);
    expect(readers.isEmpty).toBe(true);
  });

  it('ends and drops readers whose signal is aborted, also before the subscription', async () => {
    const readers = new EventBroadcaster();
    const stop = new AbortController();
    const events = readers.subscribe(stop.signal);
    expect(readers.isEmpty).toBe(false);
    stop.abort();
    const never = readers.subscribe(stop.signal);
    await settle();
    expect([readers.isEmpty, await read(events), await read(never)]).toEqual([true, [], []]);
  });

  it('fails a reader with a refusal at once, unless the signal of the reader is aborted', async () => {
    const readers = new EventBroadcaster();
    const stop = new AbortController();
    expect(await read(readers.subscribe(stop.signal, failure))).toEqual(['gone']);
    stop.abort();
    expect(await read(readers.subscribe(stop.signal, failure))).toEqual([]);
    expect(readers.isEmpty).toBe(true);
  });
});
