import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

/** Answers with the name of the server and what the client sent, once the client has ended. */
const serveName = (name: string): Promise<number> =>
  cluster.serve((socket) => {
    socket.write(`${name}:`);
    socket.on('data', (chunk) => socket.write(chunk));
    socket.on('end', () => socket.end('!'));
  });

/** Sends a text, ends, and returns everything that arrives. */
async function ask(socket: Socket, text: string): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.end(text);
  await once(socket, 'close');
  return Buffer.concat(chunks).toString();
}

const VIP = '10.96.0.20';

describe('a network proxy', () => {
  it('carries both directions to an endpoint of its node, each to its own end', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('one');
    await cluster.update({ services: [aService('web', VIP)] });
    expect(a.isListening(VIP, 80)).toBe(false);
    await cluster.update({ endpoints: [anEndpoint('web', 'r1', 'a', port)] });
    expect(await ask(await a.dial(VIP, 80), 'hello')).toBe('one:hello!');
    expect(a.access).toMatchObject([
      {
        service: 'default/web',
        path: 'direct',
        result: 'closed',
        sentBytes: 5,
        receivedBytes: 10,
        clientIdentity: 'spiffe://cloudless/node/a',
        endpointIdentity: 'spiffe://cloudless/workload/default.web',
      },
    ]);
  });

  it('has the kernel probe clients that may have gone away without closing the connection', async () => {
    const a = await cluster.addProxy('a');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'a', await serveName('one'))],
    });
    const { setKeepAlive } = Socket.prototype;
    const delays: (number | undefined)[] = [];
    Socket.prototype.setKeepAlive = function (isOn, delayMs) {
      if (isOn === true) delays.push(delayMs);
      return setKeepAlive.call(this, isOn, delayMs);
    };
    await ask(await a.dial(VIP, 80), 'x').finally(
      () => (Socket.prototype.setKeepAlive = setKeepAlive),
    );
    expect(delays).toEqual([60_000]);
  });

  it('reaches an endpoint of another node over one connection between both nodes', async () => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    const port = await serveName('far');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'b', port)],
    });
    const answers = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => ask(await a.dial(VIP, 80), `${index}`)),
    );
    expect(answers).toEqual(answers.map((_, index) => `far:${index}!`));
    expect(a.proxy.status().links).toMatchObject([{ nodeId: 'b', direction: 'out', path: 'link' }]);
    expect(b.access[0]).toMatchObject({
      side: 'exit',
      clientIdentity: 'spiffe://cloudless/node/a via a',
    });
  });

  it('tries the next endpoint when one does not accept the connection', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('good');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [
        anEndpoint('web', 'good', 'a', port),
        // Nothing listens at a privileged port of the loopback interface.
        ...['x', 'y'].map((id) => anEndpoint('web', id, 'a', 1)),
      ],
    });
    for (let count = 0; count < 6; count += 1)
      expect(await ask(await a.dial(VIP, 80), '')).toBe('good:!');
    const labels = { service: 'default/web', port: 'http' };
    expect(await a.meter.read('cloudless_network_connections_total', labels)).toBe(6);
    expect(await a.meter.read('cloudless_network_connect_failures_total', labels)).toBeGreaterThan(
      0,
    );
  });

  it('ends listening when the last endpoint is not ready, and keeps open connections', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('one');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'a', port)],
    });
    const socket = await a.dial(VIP, 80);
    await once(socket, 'data');
    await cluster.update({ endpoints: [anEndpoint('web', 'r1', 'a', port, { ready: false })] });
    expect(a.isListening(VIP, 80)).toBe(false);
    expect(await ask(socket, 'still')).toBe('still!');
  });

  it.each(['a', 'b'])('resets connections to a replica on node %s that is gone', async (nodeId) => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b');
    const port = await serveName('one');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', nodeId, port)],
    });
    const socket = await a.dial(VIP, 80);
    await once(socket, 'data');
    const failed = once(socket, 'error');
    await cluster.update({ removedEndpoints: ['default/web/r1'] });
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect(a.proxy.status().openConnections).toBe(0);
  });

  it('resets connections to a replica that the agent saw end', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('one');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'a', port)],
    });
    const socket = await a.dial(VIP, 80);
    await once(socket, 'data');
    const failed = once(socket, 'error');
    a.proxy.endReplicas(['r1']);
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
  });

  it.each(['a', 'b'])(
    'opens no connection to a replica on node %s that ended, whoever has its port by now',
    async (nodeId) => {
      const a = await cluster.addProxy('a');
      const b = await cluster.addProxy('b');
      const port = await serveName('another');
      const good = await serveName('good');
      await cluster.update({
        services: [aService('web', VIP), aService('db', '10.96.0.21')],
        endpoints: ['web', 'db'].map((name) => anEndpoint(name, 'r1', nodeId, port)),
      });
      const owner = nodeId === 'a' ? a : b;
      owner.proxy.endReplicas(['r1']);
      // The coordinator repeats what it knows; another service keeps its own endpoint.
      await cluster.update({
        endpoints: [
          anEndpoint('web', 'r1', nodeId, port, { slot: 1 }),
          anEndpoint('db', 'r2', nodeId, good),
        ],
      });
      expect(owner.isListening(VIP, 80)).toBe(false);
      if (nodeId === 'b') {
        expect(await ask(await a.dial(VIP, 80), 'x').catch(String)).not.toContain('another');
        expect(a.access.at(-1)?.result).toContain('has ended');
      }
      for (let count = 0; count < 6; count += 1)
        expect(await ask(await a.dial('10.96.0.21', 80), '')).toBe('good:!');
    },
  );

  it('resets connections to an endpoint that got another address', async () => {
    const a = await cluster.addProxy('a');
    const before = await serveName('before');
    const after = await serveName('after');
    const put = (port: number, slot = 0) =>
      cluster.update({ endpoints: [anEndpoint('web', 'r1', 'a', port, { slot })] });
    await cluster.update({ services: [aService('web', VIP)] });
    await put(before);
    const socket = await a.dial(VIP, 80);
    await once(socket, 'data');
    await put(before, 1);
    expect(a.proxy.status().openConnections).toBe(1);
    const failed = once(socket, 'error');
    await put(after);
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect(await ask(await a.dial(VIP, 80), 'x')).toBe('after:x!');
  });

  it('sends the address of the client in a PROXY header, also from another node', async () => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b');
    const headers: Buffer[] = [];
    const port = await cluster.serve((socket) => {
      socket.once('data', (chunk) => {
        headers.push(chunk);
        socket.end();
      });
      socket.resume();
    });
    for (const nodeId of ['a', 'b']) {
      await cluster.update({
        services: [
          aService('web', VIP, { ports: [{ name: 'http', port: 80 }], proxyProtocol: true }),
        ],
        endpoints: [anEndpoint('web', 'r1', nodeId, port)],
      });
      const socket = await a.dial(VIP, 80);
      const local = socket.localPort ?? 0;
      await ask(socket, '');
      const header = headers.at(-1);
      expect(header?.subarray(0, 16).toString('hex')).toBe('0d0a0d0a000d0a515549540a2111000c');
      expect(header?.readUInt16BE(24)).toBe(local);
    }
  });

  it('does not read from a sender whose endpoint does not read', async () => {
    const a = await cluster.addProxy('a');
    await cluster.addProxy('b');
    const port = await cluster.serve((socket) => socket.pause());
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'b', port)],
    });
    const socket = await a.dial(VIP, 80);
    const chunk = Buffer.alloc(1024 * 1024);
    for (let count = 0; count < 64; count += 1) socket.write(chunk);
    let before = -1;
    // Until the sender makes no progress in 50 turns of the event loop.
    for (let quiet = 0; quiet < 50; quiet = before === socket.bytesWritten ? quiet + 1 : 0) {
      before = socket.bytesWritten;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(socket.writableLength).toBeGreaterThan(32 * chunk.length);
    socket.destroy();
  });

  it('serves from its snapshot when it starts again without a coordinator', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('one');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'a', port)],
    });
    await a.proxy.close();
    const again = await cluster.addProxy('a', { isOffline: true });
    expect(again.proxy.status()).toMatchObject({ complete: false, services: 1, endpoints: 1 });
    expect(await ask(await again.dial(VIP, 80), 'x')).toBe('one:x!');
  });

  it('drains: no new connections, and the end of the last one', async () => {
    const a = await cluster.addProxy('a');
    const port = await serveName('one');
    await cluster.update({
      services: [aService('web', VIP)],
      endpoints: [anEndpoint('web', 'r1', 'a', port)],
    });
    const socket = await a.dial(VIP, 80);
    await once(socket, 'data');
    let isDrained = false;
    const drained = a.proxy.drain(60_000).then(() => (isDrained = true));
    expect(a.isListening(VIP, 80)).toBe(false);
    expect(await ask(socket, 'bye')).toBe('bye!');
    await drained;
    expect(isDrained).toBe(true);
  });

  it('checks the endpoints outside the cluster that it is assigned, and reports to a coordinator', async () => {
    const targets: unknown[] = [];
    const tcp = (target: unknown) => Promise.resolve(void targets.push(target));
    const unused = () => Promise.reject(new Error('not used'));
    await cluster.addProxy('a', { checkClients: { tcp, http: unused, grpc: unused } });
    const ports = [{ name: 'http', ip: '10.0.0.1', port: 5432 }];
    await cluster.update({
      services: [aService('db', VIP, {}, { healthCheck: {} })],
      endpoints: ['a', 'b'].map((checkedByNodeId) =>
        anEndpoint('db', `of-${checkedByNodeId}`, '', 0, { ports, checkedByNodeId }),
      ),
    });
    await cluster.clock.advance(1_000);
    expect(targets).toEqual([{ ip: '10.0.0.1', port: 5432 }]);
    expect(cluster.reports).toMatchObject([{ service: 'db', endpointId: 'of-a', nodeId: 'a' }]);
  });

  it('answers the names of services at the DNS address', async () => {
    const a = await cluster.addProxy('a');
    await cluster.update({ services: [aService('web', VIP)] });
    const resolver = new Resolver();
    resolver.setServers([`127.0.0.1:${await a.udpPort('10.96.0.10', 53)}`]);
    expect(await resolver.resolve4('web.default.svc.cloudless.internal')).toEqual([VIP]);
  });
});
