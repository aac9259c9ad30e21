import { randomUUID } from 'node:crypto';
import { silentLog } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { explainHolder, NamespaceLock } from './namespace-lock.js';

// Abstract sockets exist on Linux only, as the network proxy.
const onLinux = process.platform === 'linux' ? describe : describe.skip;

onLinux('NamespaceLock', () => {
  const locks: NamespaceLock[] = [];
  const never = new AbortController().signal;
  let name: string;
  const createLock = (nodeId: string): NamespaceLock => {
    const deps = { clock: systemClock, log: silentLog };
    const lock = new NamespaceLock({ nodeId, pid: 7 }, deps, name);
    locks.push(lock);
    return lock;
  };
  beforeEach(() => void (name = `\0cloudless-test-${randomUUID()}`));
  afterEach(() => locks.splice(0).forEach((lock) => lock.release()));

  it('belongs to one process; the next takes over when the holder ends', async () => {
    const [first, second] = [createLock('node-1'), createLock('node-2')];
    await first.acquire(never);
    let isTaken = false;
    const taken = second.acquire(never).then(() => (isTaken = true));
    while (second.holder === undefined) await new Promise(setImmediate);
    expect([second.holder, isTaken]).toEqual([{ nodeId: 'node-1', pid: 7 }, false]);
    first.release();
    await taken;
    expect([second.holder, second.socket?.listening]).toEqual([undefined, true]);
  });

  it('stays with the process that got its socket when the earlier holder releases the lock', async () => {
    const [first, second] = [createLock('node-1'), createLock('node-2')];
    await first.acquire(never);
    second.adopt(first.socket!);
    await second.acquire(never);
    expect(second.socket?.listening).toBe(true);
  });

  it('ends the wait when the proxy stops', async () => {
    const stopping = new AbortController();
    await createLock('node-1').acquire(never);
    const waiting = createLock('node-2').acquire(stopping.signal);
    stopping.abort();
    await expect(waiting).rejects.toMatchObject({ name: 'StoppedError' });
  });
});

describe('explainHolder', () => {
  const isNode = (nodeId: string): boolean => nodeId === 'node-1';

  it.each([
    ['a node of the cluster', isNode, 'node-1', 'node node-1 (process 7) serves the virtual'],
    [
      'nodes that are not known yet',
      undefined,
      'other',
      'node other (process 7) serves the virtual',
    ],
    [
      'a process that is no node of the cluster',
      isNode,
      `evil\n${'x'.repeat(100)}`,
      `a process that calls itself node "evil\\n${'x'.repeat(59)}", which is no node of this cluster`,
    ],
  ])('names %s', (_, known, nodeId, expected) => {
    expect(explainHolder({ nodeId, pid: 7 }, known)).toContain(expected);
  });

  it('says how the process is found', () => {
    expect(explainHolder({ nodeId: 'evil', pid: 7 }, isNode)).toContain(
      'ss -xlp | grep @cloudless-network-proxy',
    );
  });
});
