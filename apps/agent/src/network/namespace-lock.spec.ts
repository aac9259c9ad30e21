import { linkSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import { explainHolder, NamespaceLock, type NamespaceLockOptions } from './namespace-lock.js';

describe('NamespaceLock', () => {
  const locks: NamespaceLock[] = [];
  const never = new AbortController().signal;
  let directory: string;
  const createLock = (nodeId: string, options: Partial<NamespaceLockOptions> = {}) => {
    const common = { directory: () => directory, namespace: 'net-1' };
    const deps = { clock: systemClock, log: silentLog };
    const lock = new NamespaceLock({ nodeId, pid: 7 }, { ...common, ...deps, ...options });
    locks.push(lock);
    return lock;
  };
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'cloudless-lock-'))));
  afterEach(() => {
    for (const lock of locks.splice(0)) lock.release();
    rmSync(directory, { recursive: true });
  });

  it('is held by one process, and then by a process that waits for it', async () => {
    const [first, second] = [createLock('node-1'), createLock('node-2')];
    await first.acquire(never);
    let isTaken = false;
    const taken = second.acquire(never).then(() => (isTaken = true));
    while (second.holder === undefined) await new Promise(setImmediate);
    expect([second.holder, isTaken]).toEqual([{ nodeId: 'node-1', pid: 7 }, false]);
    first.release();
    await taken;
    expect([second.holder, second.socket?.listening]).toEqual([undefined, true]);
    expect(readdirSync(directory)).toEqual(['net-1.lock.2']);
  });

  it('is held by one of eight processes that ask at the same time', async () => {
    const all = Array.from({ length: 8 }, (_, index) => createLock(`node-${index}`));
    const stopping = new AbortController();
    const waits = all.map((lock) => lock.acquire(stopping.signal).catch(() => undefined));
    await Promise.any(waits);
    while (all.some(({ socket, holder }) => !socket && !holder)) await new Promise(setImmediate);
    expect(all.filter(({ socket }) => socket !== undefined)).toHaveLength(1);
    stopping.abort();
    await Promise.all(waits);
  });

  it('is free when its holder has ended without a release', async () => {
    const dead = net.createServer().listen(join(directory, 'dead'));
    await once(dead, 'listening');
    linkSync(join(directory, 'dead'), join(directory, 'net-1.lock.4'));
    dead.close();
    const lock = createLock('node-1');
    await lock.acquire(never);
    expect([lock.handed?.path, readdirSync(directory)]).toEqual([
      join(directory, 'net-1.lock.5'),
      ['net-1.lock.5'],
    ]);
  });

  it('stays with the process that got its socket when the earlier holder releases the lock', async () => {
    const [first, second] = [createLock('node-1'), createLock('node-2')];
    await first.acquire(never);
    const { server, path } = first.handed!;
    second.adopt(server, path);
    await second.acquire(never);
    expect(second.socket?.listening).toBe(true);
  });

  it('does not adopt a socket at a path that other processes do not check', async () => {
    const elsewhere = net.createServer().listen(join(directory, 'elsewhere'));
    await once(elsewhere, 'listening');
    const lock = createLock('node-1');
    lock.adopt(elsewhere, join(directory, 'elsewhere'));
    expect([elsewhere.listening, lock.socket]).toEqual([false, undefined]);
    await lock.acquire(never);
    expect(lock.handed?.path).toBe(join(directory, 'net-1.lock.1'));
  });

  it('can be held once in each network namespace', async () => {
    await createLock('node-1').acquire(never);
    await createLock('node-2', { namespace: 'net-12' }).acquire(never);
    expect(readdirSync(directory).sort()).toEqual(['net-1.lock.1', 'net-12.lock.1']);
  });

  it('reports a problem of its directory, and is acquired once the directory can be used', async () => {
    const clock = new ManualClock();
    let problem: string | undefined = 'the directory belongs to user 1001';
    const lock = createLock('node-1', {
      clock,
      directory: () => {
        if (problem !== undefined) throw new Error(problem);
        return directory;
      },
    });
    const acquired = lock.acquire(never);
    expect(lock.problem).toContain('are not served: the directory belongs to user 1001');
    problem = undefined;
    await clock.advance(5_000);
    await acquired;
    expect([lock.problem, lock.socket?.listening]).toEqual([undefined, true]);
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
    ['a node of the cluster', isNode, 'node-1'],
    ['nodes that are not known yet', undefined, 'other'],
  ])('sees no problem in %s', (_, known, nodeId) => {
    expect(explainHolder({ nodeId, pid: 7 }, known)).toBeUndefined();
  });

  it('names a node of another cluster, and says what to do', () => {
    const nodeId = `other\n${'x'.repeat(100)}`;
    expect(explainHolder({ nodeId, pid: 7 }, isNode)).toContain(
      `process 7 of node "other\\n${'x'.repeat(58)}", which is no node of this cluster`,
    );
    expect(explainHolder({ nodeId: 'other', pid: 7 }, isNode)).toContain('end that agent');
  });
});
