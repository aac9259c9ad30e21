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
  /** The cluster of each node that has joined one, by node id. */
  const clusters = new Map<string, { readonly clusterId: string }>();
  const createLock = (nodeId: string, options: Partial<NamespaceLockOptions> = {}) => {
    const common = { directory: () => directory, namespace: 'net-1' };
    const deps = { clock: systemClock, log: silentLog };
    const describeSelf = () => ({ nodeId, pid: 7, ...clusters.get(nodeId) });
    const lock = new NamespaceLock(describeSelf, { ...common, ...deps, ...options });
    locks.push(lock);
    return lock;
  };
  beforeEach(() => clusters.clear());
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

  it('shows waiting processes the cluster of the holder, also after a later join', async () => {
    const [first, second] = [createLock('node-1'), createLock('node-2')];
    await first.acquire(never);
    const taken = second.acquire(never);
    while (second.holder === undefined) await new Promise(setImmediate);
    expect(second.holder).toEqual({ nodeId: 'node-1', pid: 7 });
    clusters.set('node-1', { clusterId: 'a' });
    first.announce();
    while (second.holder.clusterId === undefined) await new Promise(setImmediate);
    expect(second.holder).toEqual({ nodeId: 'node-1', pid: 7, clusterId: 'a' });
    first.release();
    await taken;
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
  const isNode = (nodeId: string): boolean => ['node-1', 'node-2'].includes(nodeId);
  const self = { nodeId: 'node-1', clusterId: 'a', isNode };
  const holder = { nodeId: 'node-2', pid: 7 };

  it.each([
    { name: 'a node of the cluster', of: holder, by: self },
    {
      name: 'a node of the same cluster',
      of: { ...holder, nodeId: 'new', clusterId: 'a' },
      by: self,
    },
    {
      name: 'nodes that are not known yet',
      of: { ...holder, nodeId: 'other' },
      by: { ...self, isNode: undefined },
    },
  ])('sees no problem in $name', ({ of, by }) => {
    expect(explainHolder(of, by)).toBeUndefined();
  });

  it.each([
    { name: 'another cluster with a node of the same id', of: { ...holder, clusterId: 'b' } },
    { name: 'another proxy with the id of this node', of: { ...holder, nodeId: 'node-1' } },
    { name: 'a node that is not known', of: { ...holder, nodeId: 'other' } },
  ])('names $name, and says what to do', ({ of }) => {
    expect(explainHolder(of, self, () => undefined)).toBe(
      `virtual addresses of this machine are not served: process 7, the network proxy of node ` +
        `"${of.nodeId}" of another cluster, serves those of its own cluster; one machine serves ` +
        `one cluster: end that agent and its network proxy ("cloudless-agent reset" in its data ` +
        `directory)`,
    );
  });

  it('needs no list of nodes when both clusters are known', () => {
    const by = { ...self, isNode: undefined };
    expect(explainHolder({ ...holder, clusterId: 'b' }, by)).toContain('process 7');
  });

  it.each([
    {
      directory: '/data/other/network',
      advice:
        'end the agent of the data directory /data/other and its network proxy ("cloudless-agent ' +
        'reset --data-dir /data/other")',
    },
    {
      directory: '/data/other/network (deleted)',
      advice: 'its data directory /data/other was deleted: end the process ("kill 7")',
    },
    {
      directory: '/proc/of/another/program',
      advice:
        'end that agent and its network proxy ("cloudless-agent reset" in its data directory)',
    },
  ])('names the data directory of a holder in $directory', ({ directory, advice }) => {
    const text = explainHolder({ ...holder, clusterId: 'b' }, self, (pid) => `${pid}` && directory);
    expect(text?.endsWith(`one machine serves one cluster: ${advice}`)).toBe(true);
  });

  it('cuts a long node id, and quotes control characters', () => {
    const nodeId = `other\n${'x'.repeat(100)}`;
    expect(explainHolder({ nodeId, pid: 7 }, self)).toContain(
      `node "other\\n${'x'.repeat(58)}" of`,
    );
  });
});
