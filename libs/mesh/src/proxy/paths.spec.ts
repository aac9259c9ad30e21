import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import * as tls from 'node:tls';
import { RecordingTracer } from '@cloudless/base/testing';
import { CERTIFICATE_MISTAKES, TestAuthority } from '@cloudless/identity/testing';
import { aService, anEndpoint, TestCluster, type TestProxy } from '../testing/test-cluster.js';
import { MESH_PROTOCOL } from '../link/link-tls.js';

let cluster: TestCluster;
let udp: UdpSocket;
beforeEach(async () => {
  cluster = await TestCluster.create();
  udp = createSocket('udp4');
});
afterEach(async () => {
  udp.close();
  await cluster.close();
});

const VIP = '10.96.0.20';

/** Returns the first bytes that arrive, or the code of the error. */
async function greet(socket: Socket): Promise<string> {
  const greeting = new Promise<string>((resolve) => {
    socket.once('data', (chunk) => resolve(chunk.toString()));
    socket.once('error', (reason: NodeJS.ErrnoException) => resolve(reason.code ?? ''));
    socket.once('end', () => resolve('end'));
  });
  socket.write('x');
  return greeting;
}

/** Connects to the service and returns the greeting, or the code of the error. */
const visit = (from: TestProxy): Promise<string> =>
  from.dial(VIP, 80).then(greet, (reason: NodeJS.ErrnoException) => reason.code ?? '');

const serve = (name: string): Promise<number> =>
  cluster.serve((socket) => socket.once('data', () => socket.write(name)));

/** Serves TLS with the certificate of another authority. */
async function serveTls(): Promise<number> {
  const authority = await TestAuthority.create({ nowMs: cluster.clock.wallTime() });
  const { keyPem, chainPem } = await authority.issue('node', 'b');
  const secureContext = tls.createSecureContext({ key: keyPem, cert: chainPem });
  return cluster.serve((socket) => {
    const options = { isServer: true, secureContext, ALPNProtocols: [MESH_PROTOCOL] };
    new tls.TLSSocket(socket, options).on('error', () => undefined).resume();
  });
}

async function withService(nodeId: string): Promise<void> {
  const port = await serve(nodeId);
  await cluster.update({
    services: [aService('web', VIP)],
    endpoints: [anEndpoint('web', 'r1', nodeId, port)],
  });
}

const anUdpService = aService('dns', VIP, { ports: [{ name: 'udp', port: 53, protocol: 1 }] });
const anUdpEndpoint = (id: string, nodeId: string, port: number, ready = true) =>
  anEndpoint('dns', id, nodeId, port, {
    ...{ ready, ports: [{ name: 'udp', ip: '127.0.0.1', port }] },
  });

async function exchange(port: number, text: string): Promise<string> {
  udp.send(text, port, '127.0.0.1');
  const [answer] = (await once(udp, 'message')) as [Buffer];
  return answer.toString();
}

describe('paths between nodes', () => {
  it('reaches a node that can only dial out through the relay', async () => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b', { isReachable: false });
    await withService('b');
    expect(await visit(a)).toBe('b');
    expect(a.proxy.status().links).toMatchObject([{ nodeId: 'b', path: 'relay' }]);
  });

  it('traces how a connection reaches its endpoint, on both nodes', async () => {
    const [ofA, ofB] = [new RecordingTracer(), new RecordingTracer()];
    const a = await cluster.addProxy('a', { tracer: ofA });
    await cluster.addProxy('b', { tracer: ofB });
    await withService('b');
    expect(await visit(a)).toBe('b');
    expect(ofA.spans).toMatchObject([
      {
        ...{ name: 'connect default/web', kind: 'client', parent: undefined },
        attributes: {
          'cloudless.service': 'default/web',
          'cloudless.endpoint': 'default/web/r1',
          'cloudless.path': 'link',
          'cloudless.attempts': 1,
        },
      },
    ]);
    expect(ofB.spans).toMatchObject([
      {
        ...{ name: 'connect default/web/r1', kind: 'server', parent: ofA.spans[0]?.traceparent },
        attributes: { 'cloudless.peer': 'a', 'cloudless.path': 'link' },
      },
    ]);
  });

  it('traces a connection that reaches no endpoint, with the reason', async () => {
    const tracer = new RecordingTracer();
    const a = await cluster.addProxy('a', { hasTls: false, tracer });
    await cluster.addProxy('b', { hasTls: false });
    await withService('b');
    expect(await visit(a)).toBe('ECONNRESET');
    expect(tracer.spans).toMatchObject([
      {
        failure: expect.stringContaining('nothing is sent in plaintext'),
        attributes: { 'cloudless.endpoint': '', 'cloudless.path': 'none', 'cloudless.attempts': 1 },
      },
    ]);
  });

  it('begins no trace on the node of the endpoint for a connection without one', async () => {
    const tracer = new RecordingTracer();
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b', { tracer });
    await withService('b');
    expect([await visit(a), tracer.spans]).toEqual(['b', []]);
  });

  it('refuses endpoints on other machines in a plaintext cluster', async () => {
    const a = await cluster.addProxy('a', { hasTls: false });
    await cluster.addProxy('b', { hasTls: false });
    await withService('b');
    expect(await visit(a)).toBe('ECONNRESET');
    expect(a.access).toMatchObject([
      { path: 'none', result: expect.stringContaining('nothing is sent in plaintext') },
    ]);
  });

  it('reaches endpoints of another node of the same machine directly in a plaintext cluster', async () => {
    const a = await cluster.addProxy('a', { hasTls: false, hostId: 'machine' });
    await cluster.addProxy('b', { hasTls: false, hostId: 'machine' });
    await withService('b');
    expect(await visit(a)).toBe('b');
    expect(a.proxy.status().links).toEqual([]);
  });

  it('never dials a node directly because of its host id in a cluster with certificates', async () => {
    const a = await cluster.addProxy('a', { hostId: 'machine' });
    await cluster.addProxy('b', { hostId: 'machine' });
    await withService('b');
    expect(await visit(a)).toBe('b');
    expect(a.proxy.status().links).toMatchObject([{ nodeId: 'b', path: 'link' }]);
    a.proxy.setLocalNodes(['b']);
    expect(await visit(a)).toBe('b');
    expect(a.proxy.status().links).toMatchObject([{ streams: 1 }]);
  });

  it('carries datagrams to both nodes and forgets sessions whose endpoint leaves', async () => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b');
    const near = await cluster.serveUdp('near:');
    const far = await cluster.serveUdp('far:');
    udp.bind(0, '127.0.0.1');
    await cluster.update({ services: [anUdpService], endpoints: [anUdpEndpoint('n', 'a', near)] });
    const port = await a.udpPort(VIP, 53);
    expect(await exchange(port, '1')).toBe('near:1');
    await cluster.update({
      endpoints: [anUdpEndpoint('n', 'a', near, false), anUdpEndpoint('f', 'b', far)],
    });
    expect(await exchange(port, '2')).toBe('far:2');
    expect(await exchange(port, '3')).toBe('far:3');
    expect(a.proxy.status().openConnections).toBe(1);
    await cluster.update({ removedEndpoints: ['default/dns/n', 'default/dns/f'] });
    expect(a.proxy.status().openConnections).toBe(0);
  });
});

describe('attacks on a proxy', () => {
  const meshPort = (to: TestProxy): number => to.proxy.status().meshAddress?.port ?? 0;

  it('refuses a node whose certificate is revoked, in both directions, never in plaintext', async () => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    await withService('b');
    expect(await visit(a)).toBe('b');
    const port = meshPort(b);
    const node = cluster.aNode('b', { address: `127.0.0.1:${port}`, hostId: 'b' }, 'other');
    await cluster.update({ nodes: [node] });
    expect(a.proxy.status().links).toEqual([]);
    expect(await visit(a)).toBe('ECONNRESET');
    expect(a.access.at(-1)?.result).toMatch(/certificate .* of the node "b" is revoked/);
  });

  it('refuses a peer that answers at the address of another node', async () => {
    const a = await cluster.addProxy('a');
    const evil = await cluster.addProxy('evil');
    const b = await cluster.addProxy('b');
    await b.proxy.drain(0); // refuses the connection through the relay
    await withService('b');
    const address = `127.0.0.1:${meshPort(evil)}`;
    await cluster.update({ nodes: [cluster.aNode('b', { address, hostId: 'b' }, 'any')] });
    expect(await visit(a)).toBe('ECONNRESET');
    expect(a.access.at(-1)?.result).toContain(
      'the certificate is of spiffe://cloudless/node/evil; expected: spiffe://cloudless/node/b',
    );
  });

  it.each([
    { name: 'another node', serveAt: async () => meshPort(await cluster.addProxy('c')) },
    { name: 'a stranger with TLS', serveAt: () => serveTls() },
    { name: 'a server without TLS', serveAt: () => serve('no TLS') },
  ])('reaches a node through the relay when $name has its address', async ({ serveAt }) => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    await withService('b');
    const address = `127.0.0.1:${await serveAt()}`;
    const node = cluster.aNode('b', { address, hostId: 'b' }, b.credential.serial);
    await cluster.update({ nodes: [node] });
    expect(await visit(a)).toBe('b');
    expect(a.proxy.status().links).toMatchObject([{ nodeId: 'b', path: 'relay' }]);
  });

  it.each([
    { name: 'an endpoint of a third node', endpoint: 'default/web/c', port: 'http' },
    { name: 'an address in place of an endpoint', endpoint: '127.0.0.1:22', port: '22' },
    { name: 'an undeclared port', endpoint: 'default/web/b', port: 'ssh' },
    { name: 'an endpoint outside the cluster', endpoint: 'default/web/x', port: 'http' },
  ])('refuses a node that asks for $name', async ({ endpoint, port }) => {
    await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    await cluster.addProxy('c');
    const served = await serve('secret');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [
        anEndpoint('web', 'b', 'b', served),
        anEndpoint('web', 'c', 'c', served),
        anEndpoint('web', 'x', '', served),
      ],
    });
    const { LinkTls } = await import('../link/link-tls.js');
    const { Link, OpenRefusedError } = await import('../link/link.js');
    const credential = await cluster.authority.issue('node', 'a');
    const { bundlePem } = cluster.authority;
    const secure = new LinkTls({ ...credential, bundlePem, trustDomain: 'cloudless' });
    await cluster.update({
      nodes: [cluster.aNode('a', { address: '', hostId: 'a' }, credential.serial)],
    });
    const socket = await new Promise<tls.TLSSocket>((resolve, reject) =>
      secure.dial(
        connect(meshPort(b), '127.0.0.1'),
        'b',
        () => undefined,
        () => cluster.clock.wallTime(),
        (result) =>
          result.kind === 'secure' ? resolve(result.socket) : reject(new Error(result.reason)),
      ),
    );
    const link = new Link({
      ...{ socket, isDialler: true, nodeId: 'a', peerNodeId: 'b', path: 'link', maxStreams: 10 },
      ...{ clock: cluster.clock, onOpen: () => undefined },
      ...{ onUnusable: () => undefined, onClose: () => undefined },
    });
    await link.ready();
    const request = {
      ...{ endpoint, port, protocol: 'tcp' as const, client: '1.2.3.4:5' },
      ...{ virtual: '10.96.0.20:80', identity: 'spiffe://cloudless/node/a' },
    };
    const opened = link.open(request, new AbortController().signal);
    let failure: unknown;
    opened.catch((reason: unknown) => (failure = reason));
    // The proxy waits for an endpoint that may arrive late.
    while (failure === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      await cluster.clock.advance(100);
    }
    expect(failure).toBeInstanceOf(OpenRefusedError);
    link.close('done');
  });

  it.each([
    { name: 'loopback', ip: '127.0.0.1', why: 'a loopback address' },
    { name: 'metadata', ip: '169.254.169.254', why: 'a link-local address' },
    { name: 'mapped loopback', ip: '::ffff:127.0.0.1', why: 'an IPv4 address in IPv6 form' },
    { name: 'virtual', ip: '10.96.0.30', why: 'the range of virtual addresses' },
  ])('does not dial a $name address outside the cluster', async ({ ip, why }) => {
    const a = await cluster.addProxy('a');
    const port = await serve('local');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'x', '', port, { ports: [{ name: 'http', ip, port }] })],
    });
    expect(await visit(a)).toBe('ECONNRESET');
    expect(a.access.at(-1)?.result).toContain(why);
  });

  it('serves virtual addresses to this machine only, and external addresses to all clients', async () => {
    const state = { isLocal: false };
    const a = await cluster.addProxy('a', { isLocalClient: () => state.isLocal });
    const port = await serve('a');
    const external = { type: 2, externalIps: ['192.0.2.1'], ports: [{ name: 'http', port: 80 }] };
    await cluster.update({
      services: [aService('web', VIP, external), { ...anUdpService, clusterIp: '10.96.0.21' }],
      endpoints: [
        anEndpoint('web', 'r1', 'a', port),
        anUdpEndpoint('n', 'a', await cluster.serveUdp('udp:')),
      ],
    });
    udp.bind(0, '127.0.0.1');
    const udpPort = await a.udpPort('10.96.0.21', 53);
    expect(await visit(a)).toBe('ECONNRESET');
    expect(await a.dial('192.0.2.1', 80).then(greet)).toBe('a');
    udp.send('lost', udpPort, '127.0.0.1');
    state.isLocal = true;
    expect(await visit(a)).toBe('a');
    expect(await exchange(udpPort, '1')).toMatch(/^udp:/);
  });

  it('refuses every mistake in a certificate of a peer', async () => {
    const b = await cluster.addProxy('b');
    for (const mistake of CERTIFICATE_MISTAKES) {
      const { keyPem, chainPem } = await cluster.authority.issueMistake(mistake, 'node', 'b');
      const socket = tls.connect({
        ...{ port: meshPort(b), host: '127.0.0.1', rejectUnauthorized: false },
        ...{ key: keyPem, cert: chainPem, ALPNProtocols: [MESH_PROTOCOL] },
      });
      socket.on('error', () => undefined).resume();
      await once(socket, 'close');
    }
    expect(b.proxy.status().links).toEqual([]);
  });

  it('keeps accepting nodes while others hold incomplete handshakes', async () => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b', { limits: { maxHandshakes: 8 } });
    await withService('b');
    const idle = Array.from({ length: 50 }, () => connect(meshPort(b), '127.0.0.1'));
    for (const socket of idle) socket.on('error', () => undefined);
    await Promise.all(idle.map((socket) => once(socket, 'connect')));
    const pending = await b.meter.read('cloudless_network_pending_handshakes');
    expect(pending).toBeLessThanOrEqual(8);
    await cluster.clock.advance(300);
    expect([await visit(a), a.access.map(({ result }) => result)]).toEqual(['b', []]);
    for (const socket of idle) socket.destroy();
  });
});
