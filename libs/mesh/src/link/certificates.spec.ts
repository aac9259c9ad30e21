import { once } from 'node:events';
import type { Socket } from 'node:net';
import { aService, anEndpoint, TestCluster, type TestProxy } from '../testing/test-cluster.js';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

const VIP = '10.96.0.20';
/** Shorter than the time after which a quiet connection is probed. */
const LIFETIME_MS = 8_000;

/** Two nodes whose certificates are valid for `lifetimes`, and an endpoint on node `b`. */
async function twoNodes(lifetimes: readonly [number, number]) {
  const issue = (id: string, ms: number) => cluster.authority.issue('node', id, ms);
  const a = await cluster.addProxy('a', { credential: await issue('a', lifetimes[0]) });
  const b = await cluster.addProxy('b', { credential: await issue('b', lifetimes[1]) });
  const port = await cluster.serve((socket) => socket.pipe(socket));
  await cluster.update({
    services: [aService('web', VIP)],
    endpoints: [anEndpoint('web', 'r1', 'b', port)],
  });
  return { a, b };
}

/** Sends a text and returns the answer. */
async function echo(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString();
}

/** Connects to the service. Returns the code of the error. */
const visit = (from: TestProxy): Promise<unknown> =>
  from
    .dial(VIP, 80)
    .then((socket) => once(socket, 'error'))
    .then(
      ([reason]: { code?: string }[]) => reason?.code,
      ({ code }: { code?: string }) => code,
    );

const linkCount = ({ proxy }: TestProxy): number => proxy.status().links.length;

/** Waits until a change of one proxy has reached the other one. */
async function until(isDone: () => boolean): Promise<void> {
  while (!isDone()) await new Promise((resolve) => setImmediate(resolve));
}

describe('certificates of open connections between nodes', () => {
  it.each([
    { whose: 'of the dialler', lifetimes: [LIFETIME_MS, 2 * LIFETIME_MS] as const },
    { whose: 'of the acceptor', lifetimes: [2 * LIFETIME_MS, LIFETIME_MS] as const },
  ])('end their connection within 2 s of the expiry of the one $whose', async ({ lifetimes }) => {
    const { a, b } = await twoNodes(lifetimes);
    const socket = await a.dial(VIP, 80);
    expect(await echo(socket, 'before')).toBe('before');
    await cluster.clock.advance(LIFETIME_MS - 2_000);
    expect(await echo(socket, 'still')).toBe('still');
    const failed = once(socket, 'error');
    await cluster.clock.advance(4_000);
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect([linkCount(a), linkCount(b)]).toEqual([0, 0]);
    expect(await visit(a)).toBe('ECONNRESET');
  });

  it.each(['a', 'b'])('end their connection at once when the node %s is banned', async (banned) => {
    const { a, b } = await twoNodes([LIFETIME_MS, LIFETIME_MS]);
    const socket = await a.dial(VIP, 80);
    expect(await echo(socket, 'before')).toBe('before');
    const failed = once(socket, 'error');
    await cluster.update({ removedNodes: [banned] });
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect([linkCount(a), linkCount(b)]).toEqual([0, 0]);
    if (banned === 'b') return expect(a.isListening(VIP, 80)).toBe(false);
    expect(await visit(a)).toBe('ECONNRESET');
    expect(a.access.at(-1)?.result).toContain('no longer, a node of this cluster');
  });

  it('are renewed for new connections while open ones continue', async () => {
    const { a, b } = await twoNodes([LIFETIME_MS, LIFETIME_MS]);
    const socket = await a.dial(VIP, 80);
    expect(await echo(socket, 'old')).toBe('old');
    const renewed = await cluster.authority.issue('node', 'a', 2 * LIFETIME_MS);
    const entry = cluster.aNode('a', { address: '', hostId: 'a' }, renewed.serial);
    const acceptedSerials = [renewed.serial, a.credential.serial];
    await cluster.update({ nodes: [{ ...entry, acceptedSerials }] });
    a.renew(renewed);
    const next = await a.dial(VIP, 80);
    expect([await echo(next, 'new'), await echo(socket, 'old again')]).toEqual([
      'new',
      'old again',
    ]);
    expect([linkCount(a), linkCount(b)]).toEqual([2, 2]);
    socket.destroy();
    await until(() => linkCount(a) + linkCount(b) === 2);
    expect(await echo(next, 'stays')).toBe('stays');
  });
});
