import { once } from 'node:events';
import type { Socket } from 'node:net';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
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

/** Lets what is under way between two proxies of this process arrive. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
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

  describe.each([
    { whose: 'of the dialler', renewing: 'a' },
    { whose: 'of the acceptor', renewing: 'b' },
  ])('$whose', ({ renewing }) => {
    /** Renews the certificate of a node. The cluster accepts both certificates, as in operation. */
    async function renew(nodes: { readonly a: TestProxy; readonly b: TestProxy }) {
      const node = renewing === 'a' ? nodes.a : nodes.b;
      const renewed = await cluster.authority.issue('node', renewing, 20 * LIFETIME_MS);
      const address = `127.0.0.1:${node.proxy.status().meshAddress?.port}`;
      const entry = {
        ...cluster.aNode(renewing, { address, hostId: renewing }, renewed.serial),
        newestNotAfter: timestampFromMs(cluster.clock.wallTime() + 20 * LIFETIME_MS),
      };
      const acceptedSerials = [renewed.serial, node.credential.serial];
      await cluster.update({ nodes: [{ ...entry, acceptedSerials }] });
      return { node, renewed, entry };
    }
    /** Lets new connections be made at each step, then advances the clock to after each check. */
    async function advance(ms: number): Promise<void> {
      for (let passed = 0; passed < ms; passed += 500) {
        await settle();
        await cluster.clock.advance(500);
      }
    }

    it('is renewed for open streams, which outlast the replacement and the expiry', async () => {
      const nodes = await twoNodes(
        renewing === 'a' ? [LIFETIME_MS, 10 * LIFETIME_MS] : [10 * LIFETIME_MS, LIFETIME_MS],
      );
      const socket = await nodes.a.dial(VIP, 80);
      expect(await echo(socket, 'before')).toBe('before');
      const { node, renewed, entry } = await renew(nodes);
      node.renew(renewed);
      await until(() => linkCount(nodes.a) === 2 && linkCount(nodes.b) === 2);
      await cluster.update({ nodes: [entry] }); // only the new certificate
      await advance(6_000);
      expect(await echo(socket, 'after the replacement')).toBe('after the replacement');
      await advance(LIFETIME_MS);
      expect(await echo(socket, 'after the expiry')).toBe('after the expiry');
    });

    it('ends the streams within 5 s when the node does not show the new one', async () => {
      const nodes = await twoNodes([10 * LIFETIME_MS, 10 * LIFETIME_MS]);
      const socket = await nodes.a.dial(VIP, 80);
      expect(await echo(socket, 'before')).toBe('before');
      const { entry } = await renew(nodes);
      const failed = once(socket, 'error');
      await cluster.update({ nodes: [entry] });
      await advance(5_000);
      expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    });

    it('ends the streams at once when it is refused without a newer one', async () => {
      const nodes = await twoNodes([LIFETIME_MS, LIFETIME_MS]);
      const socket = await nodes.a.dial(VIP, 80);
      expect(await echo(socket, 'before')).toBe('before');
      const failed = once(socket, 'error');
      const node = cluster.aNode(renewing, { address: '', hostId: renewing }, 'another');
      await cluster.update({ nodes: [node] });
      expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    });

    it('ends the streams of a banned node at once after a renewal', async () => {
      const nodes = await twoNodes([LIFETIME_MS, LIFETIME_MS]);
      const socket = await nodes.a.dial(VIP, 80);
      expect(await echo(socket, 'before')).toBe('before');
      const { node, renewed } = await renew(nodes);
      node.renew(renewed);
      await until(() => linkCount(nodes.a) === 2);
      const failed = once(socket, 'error');
      await cluster.update({ removedNodes: [renewing] });
      expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    });
  });
});
