import { ManualClock } from '@cloudless/base/testing';
import { HandshakeQueue } from './handshake-queue.js';

interface TestConnection {
  readonly name: string;
  readonly remoteAddress: string;
}

/** A queue, and an event loop that the test moves. */
function aQueue(maxHandshakes: number) {
  const clock = new ManualClock();
  const actions: (() => void)[] = [];
  const started: string[] = [];
  const evicted: string[] = [];
  const queue = new HandshakeQueue<TestConnection>({
    ...{ clock, maxHandshakes },
    start: ({ name }) => started.push(name),
    evict: ({ name }) => evicted.push(name),
    nextIteration: (action) => void actions.push(action),
  });
  return {
    ...{ clock, queue, started, evicted },
    /** Adds connections `<first letter>1` to `<first letter>N` of one address. */
    add(letter: string, count: number): readonly TestConnection[] {
      const connections = Array.from({ length: count }, (_, index) => ({
        name: `${letter}${index + 1}`,
        remoteAddress: `10.0.0.${letter.charCodeAt(0)}`,
      }));
      for (const connection of connections) queue.add(connection);
      return connections;
    },
    runIterations(count: number): void {
      for (let done = 0; done < count; done += 1) for (const action of actions.splice(0)) action();
    },
  };
}

describe('HandshakeQueue', () => {
  it('starts at most 16 handshakes in one iteration of the event loop', () => {
    const bed = aQueue(100);
    bed.add('a', 40);
    expect(bed.started).toHaveLength(16);
    bed.runIterations(1);
    expect(bed.started).toHaveLength(32);
    bed.runIterations(5);
    expect(bed.started).toHaveLength(40);
  });

  it('lets thousands of clients wait, and drops none while handshakes complete', () => {
    const bed = aQueue(50);
    const connections = bed.add('a', 5_000);
    for (let done = 0; done < connections.length; done += 25) {
      bed.runIterations(4);
      for (const connection of connections.slice(done, done + 25)) bed.queue.complete(connection);
    }
    expect(bed.started).toEqual(connections.map(({ name }) => name));
    expect(bed.evicted).toEqual([]);
    expect(bed.queue.size).toBe(0);
  });

  it('lets handshakes wait while 64 others are incomplete', () => {
    const bed = aQueue(1_000);
    const connections = bed.add('a', 100);
    bed.runIterations(10);
    expect(bed.started).toHaveLength(64);
    for (const connection of connections.slice(0, 10)) bed.queue.complete(connection);
    bed.runIterations(10);
    expect(bed.started).toHaveLength(74);
  });

  it('waits 1 s for handshakes that take long, while others complete', async () => {
    const bed = aQueue(1_000);
    bed.add('a', 63);
    bed.runIterations(4);
    const others = bed.add('b', 12);
    for (const other of others.slice(0, 9)) {
      await bed.clock.advance(100);
      bed.queue.complete(other);
      bed.runIterations(1);
    }
    expect(bed.started).toHaveLength(63 + 10);
    await bed.clock.advance(99);
    expect(bed.started).toHaveLength(63 + 10);
    await bed.clock.advance(1);
    expect(bed.started).toHaveLength(63 + 12);
  });

  it('waits 200 ms for clients that never answer', async () => {
    const bed = aQueue(1_000);
    bed.add('a', 150);
    bed.runIterations(10);
    expect(bed.started).toHaveLength(64);
    await bed.clock.advance(200);
    bed.runIterations(10);
    expect(bed.started).toHaveLength(128);
    await bed.clock.advance(200);
    bed.runIterations(10);
    expect(bed.started).toHaveLength(150);
    expect(bed.evicted).toEqual([]);
  });

  it('replaces incomplete handshakes after 2 s without any completion, and only for others', async () => {
    const bed = aQueue(2);
    bed.add('a', 2);
    await bed.clock.advance(10_000);
    bed.runIterations(1);
    expect(bed.evicted).toEqual([]);
    bed.add('b', 2);
    expect(bed.evicted).toEqual(['a1', 'a2']);
    bed.add('c', 1);
    await bed.clock.advance(1_999);
    bed.runIterations(1);
    expect(bed.started).toEqual(['a1', 'a2', 'b1', 'b2']);
    await bed.clock.advance(1);
    expect(bed.evicted).toEqual(['a1', 'a2', 'b1']);
    expect(bed.started.at(-1)).toBe('c1');
  });

  it('replaces a handshake after 5 s while others complete', async () => {
    const bed = aQueue(2);
    bed.add('a', 1);
    const others = bed.add('b', 100);
    for (const [second, other] of others.slice(0, 4).entries()) {
      await bed.clock.advance(1_000);
      bed.queue.complete(other);
      bed.runIterations(1);
      expect([second, bed.evicted]).toEqual([second, []]);
    }
    await bed.clock.advance(999);
    expect(bed.evicted).toEqual([]);
    await bed.clock.advance(1);
    expect(bed.evicted).toEqual(['a1']);
  });

  it('starts a waiting handshake as soon as another completes', () => {
    const bed = aQueue(2);
    const [first] = bed.add('a', 3) as [TestConnection];
    expect(bed.started).toEqual(['a1', 'a2']);
    bed.queue.remove(first);
    expect(bed.started).toEqual(['a1', 'a2', 'a3']);
  });

  it('serves addresses in turn, so that many connections of one delay another by one turn', () => {
    const bed = aQueue(1);
    const [first, second] = bed.add('a', 1_000) as [TestConnection, TestConnection];
    bed.add('b', 1);
    bed.queue.remove(first);
    bed.queue.remove(second);
    expect(bed.started).toEqual(['a1', 'a2', 'b1']);
  });

  it('forgets a connection that is closed while it waits', () => {
    const bed = aQueue(1);
    const [first, second] = bed.add('a', 3) as [TestConnection, TestConnection];
    bed.queue.remove(second);
    bed.queue.remove(first);
    expect(bed.started).toEqual(['a1', 'a3']);
    expect(bed.queue.size).toBe(1);
  });

  it('gives up the newest of the address with the most waiting, or else the oldest incomplete', () => {
    const bed = aQueue(1);
    expect(bed.queue.findLeastUseful('10.0.0.1')).toBeUndefined();
    bed.add('a', 1);
    expect(bed.queue.findLeastUseful('10.0.0.1')?.name).toBe('a1');
    bed.add('b', 3);
    bed.add('c', 2);
    expect(bed.queue.findLeastUseful('10.0.0.1')?.name).toBe('b3');
    expect(bed.queue.findLeastUseful('10.0.0.98')?.name).toBe('a1');
  });
});
