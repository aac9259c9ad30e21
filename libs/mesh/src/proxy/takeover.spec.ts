import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { aService, anEndpoint, TestCluster, type TestProxy } from '../testing/test-cluster.js';

const VIP = '10.96.0.20';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

/** Ends, and returns everything that arrives; an error is the result too. */
async function ask(socket: Socket, text: string): Promise<string> {
  const chunks: Buffer[] = [];
  let failure = '';
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('error', (reason) => (failure = String(reason)));
  socket.end(text);
  await once(socket, 'close').catch(() => undefined);
  return failure === '' ? Buffer.concat(chunks).toString() : failure;
}

const serveEcho = (): Promise<number> =>
  cluster.serve((socket) => {
    socket.write('echo:');
    socket.on('data', (chunk) => socket.write(chunk));
    socket.on('end', () => socket.end('!'));
  });

const meshPortOf = ({ proxy }: TestProxy): number => proxy.status().meshAddress?.port ?? 0;

/** The address of the node "b", whose connections go to one proxy after the other. */
async function aSharedAddress(earlier: TestProxy) {
  let proxy = earlier;
  const port = await cluster.serve((socket) => {
    const far = connect({ port: meshPortOf(proxy), host: '127.0.0.1', allowHalfOpen: true });
    far.on('error', () => socket.destroy());
    far.on('close', () => socket.destroy());
    socket.on('close', () => far.destroy());
    socket.pipe(far).pipe(socket);
  });
  const { serial } = earlier.credential;
  const publish = () =>
    cluster.update({
      nodes: [cluster.aNode('b', { address: `127.0.0.1:${port}`, hostId: 'b' }, serial)],
    });
  return { publish, lead: (next: TestProxy) => (proxy = next) };
}

/** A client of "a", and the earlier and the later proxy of "b", where the replica is. */
async function aTakeover() {
  let onDialling = (): void => undefined;
  const a = await cluster.addProxy('a', {
    identifyClient: () => {
      onDialling();
      return undefined;
    },
  });
  const credential = await cluster.authority.issue('node', 'b');
  const earlier = await cluster.addProxy('b', { credential });
  const address = await aSharedAddress(earlier);
  await cluster.update({
    services: [aService('web', VIP)],
    endpoints: [anEndpoint('web', 'r1', 'b', await serveEcho())],
  });
  const later = await cluster.addProxy('b', { credential });
  await address.publish();
  let ended: Promise<void> = Promise.resolve();
  /** The later proxy listens by now; the earlier one ends with its last connection. */
  const takeOver = (): void => {
    onDialling = () => undefined;
    address.lead(later);
    ended = earlier.proxy.drain(60_000).then(() => earlier.proxy.close());
  };
  return {
    ...{ a, earlier, takeOver },
    ended: () => ended,
    /** Takes over just before "a" sends its request for the next connection. */
    takeOverWhileDialling: () => (onDialling = takeOver),
  };
}

describe('a takeover', () => {
  it('loses no connection whose request crosses the notice of a peer with open streams', async () => {
    const { a, takeOverWhileDialling, ended } = await aTakeover();
    const kept = await a.dial(VIP, 80);
    await once(kept, 'data');
    takeOverWhileDialling();
    expect(await ask(await a.dial(VIP, 80), 'x')).toBe('echo:x!');
    expect(await ask(kept, 'y')).toBe('y!');
    await ended();
  });

  it('loses no connection whose request crosses the end of an idle connection', async () => {
    const { a, takeOverWhileDialling, ended } = await aTakeover();
    expect(await ask(await a.dial(VIP, 80), 'w')).toBe('echo:w!');
    takeOverWhileDialling();
    expect(await ask(await a.dial(VIP, 80), 'x')).toBe('echo:x!');
    await ended();
  });

  it('loses no connection during the handshake with a peer that is replaced', async () => {
    const { a, earlier, takeOver, ended } = await aTakeover();
    const answer = a.dial(VIP, 80).then((socket) => ask(socket, 'x'));
    const pending = (): Promise<number> =>
      earlier.meter.read('cloudless_network_pending_handshakes');
    while ((await pending()) !== 1) await new Promise((resolve) => setImmediate(resolve));
    takeOver();
    expect(await answer).toBe('echo:x!');
    await ended();
  });

  it.each([
    { what: 'is replaced', begin: 'drain' },
    { what: 'renews its certificate', begin: 'renew' },
  ])('loses no client of a proxy that $what before the peer has answered', async ({ begin }) => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b');
    const renewed = await cluster.authority.issue('node', 'a');
    const entry = cluster.aNode('a', { address: '', hostId: 'a' }, renewed.serial);
    const acceptedSerials = [renewed.serial, a.credential.serial];
    await cluster.update({
      nodes: [{ ...entry, acceptedSerials }],
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'b', await serveEcho())],
    });
    const answer = a.dial(VIP, 80).then((socket) => ask(socket, 'x'));
    // after the TLS handshake, and before the first message of "b"
    while (a.proxy.status().links.length === 0)
      await new Promise((resolve) => setImmediate(resolve));
    if (begin === 'renew') a.renew(renewed);
    const drained = begin === 'drain' ? a.proxy.drain(60_000) : Promise.resolve();
    expect(await answer).toBe('echo:x!');
    await drained.then(() => a.proxy.close());
    // While coordinators are away there is no relay, to which a failed attempt would turn.
    expect(a.access.map(({ path }) => path)).toEqual(['link']);
  });

  it('keeps a proxy that dials an endpoint for a client until the client has its answer', async () => {
    let onDialling = (): void => undefined;
    const a = await cluster.addProxy('a', {
      identifyClient: () => (onDialling(), undefined),
    });
    await cluster.addProxy('b');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'b', await serveEcho())],
    });
    let ended: Promise<void> = Promise.resolve();
    onDialling = () => {
      onDialling = () => undefined;
      ended = a.proxy.drain(60_000).then(() => a.proxy.close());
    };
    expect(await ask(await a.dial(VIP, 80), 'x')).toBe('echo:x!');
    await ended;
  });

  it('delivers a whole answer that the earlier proxy of the replica has read', async () => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    const text = 'z'.repeat(2_000_000);
    let ended: Promise<void> = Promise.resolve();
    const port = await cluster.serve((socket) => {
      ended = b.proxy.drain(60_000).then(() => b.proxy.close());
      socket.resume().end(text);
    });
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'b', port)],
    });
    const answer = await ask(await a.dial(VIP, 80), '');
    expect([answer.length, answer === text]).toEqual([text.length, true]);
    await ended;
  });

  it('ends a proxy within its time although a connection stays open', async () => {
    const { a, earlier } = await aTakeover();
    const kept = await a.dial(VIP, 80);
    await once(kept, 'data');
    let isDrained = false;
    const drained = earlier.proxy.drain(5_000).then(() => (isDrained = true));
    await cluster.clock.advance(4_999);
    expect(isDrained).toBe(false);
    await cluster.clock.advance(1);
    await drained;
  });
});
