import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as net from 'node:net';
import * as tls from 'node:tls';
import {
  FRAME,
  RawClient,
  encodeCall,
  encodeCallHead,
  encodeEnvelope,
  encodeFrame,
  encodeOpening,
  listStreamIds,
  readResidentMiB,
  runAttack,
} from './support/http2-frames.js';
import { SecureCluster } from './support/secure-cluster.js';

/** Bound for the memory growth of a coordinator over all attacks. */
const GROWTH_MIB = 512;

let cluster: SecureCluster;
let restMiB = 0;
let clientHello: Buffer;
const clients: RawClient[] = [];

beforeAll(async () => {
  cluster = await SecureCluster.start({ agents: [] });
  const spec = { command: ['true'], replicas: 0 };
  await cluster.admin.coordinator.createWorkload({ name: 'w1', spec });
  restMiB = readResidentMiB(cluster.coordinator.pid);
  clientHello = await captureClientHello();
});
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});
afterAll(async () => {
  await cluster.stop();
});

/** Opens connections without credentials, which are closed after the test. */
function connectMany(count: number, protocol: 'h2' | 'http/1.1' | 'tcp'): readonly RawClient[] {
  const url = protocol === 'tcp' ? cluster.url.replace('https:', 'http:') : cluster.url;
  const opened = Array.from(
    { length: count },
    () => new RawClient(url, protocol === 'tcp' ? undefined : protocol),
  );
  clients.push(...opened);
  return opened;
}

/** Returns the first message of a TLS client. */
async function captureClientHello(): Promise<Buffer> {
  const listener = net.createServer();
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  const client = tls.connect((listener.address() as net.AddressInfo).port, '127.0.0.1');
  client.on('error', () => undefined);
  const [socket] = (await once(listener, 'connection')) as [net.Socket];
  const [hello] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  listener.close();
  return hello;
}

/**
 * Runs an attack. Expects that an administrator is served, and that memory stays within the bound.
 */
async function expectResilience(attack: () => Promise<void>): Promise<void> {
  const { pid } = cluster.coordinator;
  const effect = await runAttack(pid, restMiB, cluster.admin.coordinator, 'w1', attack);
  process.stdout.write(`    ${expect.getState().currentTestName}: ${JSON.stringify(effect)}\n`);
  expect(effect.failures).toEqual([]);
  expect(effect.growthMiB).toBeLessThan(GROWTH_MIB);
}

const all = (work: readonly Promise<unknown>[]): Promise<void> =>
  Promise.all(work).then(() => undefined);
const get = encodeCallHead('GetWorkload', 'application/grpc');
const watch = encodeCallHead('WatchWorkloads', 'application/grpc');
const emptyMessage = encodeEnvelope(new Uint8Array());

describe('a coordinator with TLS serves an administrator while', () => {
  it('1,000 handshakes are started and never completed', () =>
    expectResilience(async () => {
      for (let round = 0; round < 2; round += 1)
        await all(connectMany(500, 'tcp').map((client) => client.send(clientHello)));
    }));

  it('handshakes arrive in small parts', () =>
    expectResilience(async () => {
      const slow = connectMany(200, 'tcp');
      for (let offset = 0; offset < 100; offset += 10)
        await all(slow.map((client) => client.send(clientHello.subarray(offset, offset + 10))));
    }));

  it('connections send garbage after the beginning of a handshake', () =>
    expectResilience(() =>
      all(
        connectMany(200, 'tcp').map(async (client) => {
          await client.send(Buffer.concat([clientHello, randomBytes(4_096)]));
          await client.closed;
        }),
      ),
    ));

  it('plaintext arrives on the port', () =>
    expectResilience(() =>
      all(
        connectMany(200, 'tcp').map((client, index) =>
          client.send(index % 2 === 0 ? encodeOpening() : 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
        ),
      ),
    ));

  it('clients without credentials open 2,560 streams', () =>
    expectResilience(async () => {
      const calls = Buffer.concat(
        listStreamIds(128).map((stream) => encodeCall(stream, watch, emptyMessage)),
      );
      await all(
        connectMany(20, 'h2').map((client) => client.send(Buffer.concat([encodeOpening(), calls]))),
      );
    }));

  it('a client without credentials opens and resets streams (CVE-2023-44487)', () =>
    expectResilience(async () => {
      const [client] = connectMany(1, 'h2') as [RawClient];
      await client.send(encodeOpening());
      const pairs = listStreamIds(10_000).map((id) =>
        Buffer.concat([
          encodeCall(id, get, emptyMessage),
          encodeFrame(FRAME.reset, 0, id, Buffer.from([0, 0, 0, 8])),
        ]),
      );
      for (let from = 0; from < pairs.length && !client.isClosed; from += 500)
        await client.send(Buffer.concat(pairs.slice(from, from + 500)));
      await client.closed;
    }));

  it('a client without credentials sends endless CONTINUATION frames (CVE-2024-27983)', () =>
    expectResilience(async () => {
      const [client] = connectMany(1, 'h2') as [RawClient];
      await client.send(Buffer.concat([encodeOpening(), encodeFrame(FRAME.headers, 0, 1, get)]));
      const fields = Array.from({ length: 100 }, () => encodeCallHead('x', 'y'));
      const continuation = encodeFrame(FRAME.continuation, 0, 1, Buffer.concat(fields));
      await client.sendRepeatedly(continuation, 5_000);
      await client.closed;
    }));

  it('clients without credentials send bodies slowly over HTTP/1.1', () =>
    expectResilience(async () => {
      const head =
        'POST /cloudless.api.CoordinatorService/EnrollNode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n';
      const slow = connectMany(200, 'http/1.1');
      await all(slow.map((client) => client.send(`${head}${'['.repeat(1_000)}`)));
      for (let round = 0; round < 5; round += 1) await all(slow.map((client) => client.send('[')));
    }));
});
