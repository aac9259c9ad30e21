import { once } from 'node:events';
import * as http from 'node:http';
import * as net from 'node:net';
import * as tls from 'node:tls';
import type { CertificateRequest } from '@cloudless/identity/x509';
import { serversOfTest } from '../../server/testing/fixture.js';
import {
  SERVER_ID,
  TestCluster,
  TestServerTls,
  type TestCredential,
} from '../../testing/test-cluster.js';
import { createCoordinatorTransport } from '../coordinator-transport.js';
import { connectHttp2Session, connectTls, fetchServerRoot, type ClientTls } from './index.js';

const open = serversOfTest(afterEach);
const never = new AbortController().signal;
const HOUR_MS = 3_600_000;

let cluster: TestCluster;
let otherCluster: TestCluster;
let serverCredential: TestCredential;
beforeAll(async () => {
  [cluster, otherCluster] = await Promise.all([TestCluster.create(), TestCluster.create()]);
  serverCredential = await cluster.issueServer();
});

const openServers: net.Server[] = [];
afterEach(() => {
  for (const server of openServers.splice(0)) server.close();
});

/** Starts a server on a free port, and returns its address with https. */
async function listen(server: net.Server): Promise<string> {
  openServers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `https://127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

/** Starts an RPC server with a certificate that the cluster issues with these values. */
async function openWith(options: Partial<CertificateRequest>): Promise<string> {
  const { url } = await open({ tls: new TestServerTls(await cluster.issueServer(options)) });
  return url;
}

describe('createCoordinatorTransport', () => {
  it('reaches a server by its SPIFFE ID, whatever its address', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    const credential = await cluster.issue('node', 'n1');
    const transport = createCoordinatorTransport({ tls: () => cluster.toClientTls(credential) });
    const connection = await transport.connect(url, never);
    await connection.ping();
    connection.close();
    const byName = await transport.connect(url.replace('127.0.0.1', 'localhost'), never);
    await byName.ping();
    byName.close();
  });

  it('connects to http:// in plaintext, without TLS material', async () => {
    const { url } = await open();
    const transport = createCoordinatorTransport({
      tls: () => {
        throw new Error('there is no identity');
      },
    });
    const connection = await transport.connect(url, never);
    await connection.ping();
    connection.close();
  });

  it('says that the machine is reached before the TLS handshake, which may take long', async () => {
    const server = net.createServer((socket) => socket.on('error', () => undefined));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as net.AddressInfo;
    const transport = createCoordinatorTransport({ tls: () => cluster.toClientTls() });
    const stop = new AbortController();
    const reached = new Promise<void>((resolve) => {
      const dial = transport.connect(`https://127.0.0.1:${port}`, stop.signal, resolve);
      dial.catch(() => undefined);
    });
    await reached;
    stop.abort();
    server.close();
  });

  it('says that a server speaks TLS when the address has http://', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    const address = url.replace(/^https:/, 'http:');
    await expect(createCoordinatorTransport().connect(address, never)).rejects.toMatchObject({
      kind: 'precondition',
      message: `the server at ${address} speaks TLS; use ${url}`,
    });
  });

  it('says that no coordinator is reached when a server closes a connection in plaintext and does not speak TLS', async () => {
    const server = net.createServer((socket) => socket.on('error', () => undefined).destroy());
    const address = (await listen(server)).replace(/^https:/, 'http:');
    await expect(createCoordinatorTransport().connect(address, never)).rejects.toMatchObject({
      kind: 'unavailable',
      message: `no coordinator reached at ${address}`,
    });
  });

  it('closes a connection in plaintext to a server that does not answer when the attempt is aborted', async () => {
    const stop = new AbortController();
    const server = net.createServer();
    const closed = new Promise<void>((resolve) =>
      server.once('connection', (socket) => {
        socket.once('data', () => stop.abort()).once('close', () => resolve());
        socket.on('error', () => undefined);
      }),
    );
    const address = (await listen(server)).replace(/^https:/, 'http:');
    await expect(createCoordinatorTransport().connect(address, stop.signal)).rejects.toMatchObject({
      kind: 'unavailable',
    });
    await closed;
  });

  it('refuses https:// without TLS material', async () => {
    await expect(
      createCoordinatorTransport().connect('https://127.0.0.1:1', never),
    ).rejects.toMatchObject({ kind: 'precondition' });
  });
});

describe('connectTls', () => {
  const expectRefusal = async (
    address: string,
    clientTls: ClientTls,
    reason: string,
    message: string | RegExp,
  ): Promise<void> => {
    const attempt = connectTls(address, clientTls, never);
    await expect(attempt).rejects.toMatchObject({
      name: 'CloudlessError',
      reason,
      message: expect.stringMatching(message),
    });
    await expect(connectHttp2Session(address, clientTls, never)).rejects.toMatchObject({ reason });
  };

  it('refuses a server of another certificate authority', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    await expectRefusal(
      url,
      otherCluster.toClientTls(),
      'CERTIFICATE_INVALID',
      /^the server at https:\S+ is not trusted: the certificate is of another certificate authority/,
    );
  });

  it.each([
    ['with another SPIFFE ID', { serverIds: ['spiffe://cloudless/controller/other'] }],
    ['when it accepts no server', { serverIds: [] }],
    ['of another trust domain', { trustDomain: 'other' }],
    ['of another kind', { serverKinds: ['node' as const] }],
  ])('refuses a server %s', async (_name, change) => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    await expectRefusal(
      url,
      { ...cluster.toClientTls(), ...change },
      'CERTIFICATE_INVALID',
      /^the server at https:\S+ is not trusted: the certificate is of/,
    );
  });

  it('trusts a server of an accepted kind whose SPIFFE ID is not listed', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    const clientTls = {
      ...cluster.toClientTls(),
      serverIds: [],
      serverKinds: ['controller' as const],
    };
    const socket = await connectTls(url, clientTls, never);
    expect(socket.authorized).toBe(true);
    socket.destroy();
  });

  it('refuses a certificate of the expected server that is only for clients', async () => {
    await expectRefusal(
      await openWith({ usage: 'client' }),
      cluster.toClientTls(),
      'CERTIFICATE_INVALID',
      /the certificate is not made for servers/,
    );
  });

  it('refuses an expired certificate', async () => {
    await expectRefusal(
      await openWith({ nowMs: Date.now() - 2 * HOUR_MS }),
      cluster.toClientTls(),
      'CERTIFICATE_EXPIRED',
      /^the server at https:\S+ is not trusted: the certificate expired at \S+, and the clock here shows \S+$/,
    );
  });

  it('refuses a certificate that is not valid yet, and names the difference of the clocks', async () => {
    await expectRefusal(
      await openWith({ nowMs: Date.now() + 3 * HOUR_MS }),
      cluster.toClientTls(),
      'CERTIFICATE_NOT_YET_VALID',
      /the clock of this machine is at least 17[56] min behind the clock of the server$/,
    );
  });

  it('names http:// when a server speaks plaintext', async () => {
    const { address } = await open();
    const plaintext = await listen(http.createServer());
    await expectRefusal(
      `https://127.0.0.1:${address.port}`,
      cluster.toClientTls(),
      'TEMPORARILY_UNAVAILABLE',
      /closed the connection before the TLS handshake was complete; a coordinator with --tls off has an address with http:/,
    );
    await expectRefusal(
      plaintext,
      cluster.toClientTls(),
      'TEMPORARILY_UNAVAILABLE',
      /does not speak TLS; a coordinator with --tls off has an address with http:/,
    );
  });

  it('refuses TLS 1.2, and a server without HTTP/2', async () => {
    const credential = { key: serverCredential.keyPem, cert: serverCredential.chainPem };
    const old = tls.createServer({ ...credential, maxVersion: 'TLSv1.2' });
    await expectRefusal(
      await listen(old),
      cluster.toClientTls(),
      'TEMPORARILY_UNAVAILABLE',
      /does not speak TLS 1.3 and HTTP\/2/,
    );
    await expectRefusal(
      await listen(tls.createServer(credential)),
      cluster.toClientTls(),
      'TEMPORARILY_UNAVAILABLE',
      /does not speak HTTP\/2; is the port the one of the API\?$/,
    );
  });

  it('says that no coordinator was reached at a closed port, and when the attempt is aborted', async () => {
    const server = net.createServer();
    const address = await listen(server);
    await new Promise((resolve) => server.close(resolve));
    await expectRefusal(
      address,
      cluster.toClientTls(),
      'TEMPORARILY_UNAVAILABLE',
      /^no coordinator reached at https:/,
    );
    const silent = await listen(net.createServer());
    const abort = new AbortController();
    const attempt = connectTls(silent, cluster.toClientTls(), abort.signal);
    abort.abort(new Error('stop'));
    await expect(attempt).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('refuses a key that does not belong to the certificate, without parts of the key', async () => {
    const other = await cluster.issue('node', 'n2');
    const clientTls = cluster.toClientTls({ ...serverCredential, keyPem: other.keyPem });
    await expect(connectTls('https://127.0.0.1:1', clientTls, never)).rejects.toMatchObject({
      reason: 'CERTIFICATE_INVALID',
      message: expect.stringMatching(
        /^the private key and the certificate of this client do not fit together or are damaged/,
      ),
    });
  });
});

describe('fetchServerRoot', () => {
  it('returns the root, the trust domain and the SPIFFE ID of a server with the expected root', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    const root = await fetchServerRoot(url, [cluster.rootSha256], never);
    expect(root).toEqual({
      bundlePem: cluster.bundlePem,
      serverId: SERVER_ID,
      trustDomain: 'cloudless',
    });
    const { ...clientTls } = { ...root, serverIds: [root.serverId] };
    (await connectTls(url, clientTls, never)).destroy();
  });

  it('accepts a server with one of two expected roots', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    const digests = [otherCluster.rootSha256, cluster.rootSha256];
    const { bundlePem } = await fetchServerRoot(url, digests, never);
    expect(bundlePem).toBe(cluster.bundlePem);
  });

  it('refuses a server with another root', async () => {
    const { url } = await open({ tls: new TestServerTls(serverCredential) });
    await expect(fetchServerRoot(url, [otherCluster.rootSha256], never)).rejects.toMatchObject({
      reason: 'CERTIFICATE_INVALID',
      message: expect.stringMatching(
        /is not trusted: its certificate is not of the certificate authority that the token names; check the address, and that the token was created by this cluster$/,
      ),
    });
  });

  it('refuses a server that presents the expected root beside a certificate of another root', async () => {
    const other = await otherCluster.issueServer();
    const chainPem = `${other.chainPem}${cluster.bundlePem}`;
    const { url } = await open({ tls: new TestServerTls({ ...other, chainPem }) });
    await expect(fetchServerRoot(url, [cluster.rootSha256], never)).rejects.toMatchObject({
      reason: 'CERTIFICATE_INVALID',
    });
  });

  it('refuses a node that presents its own certificate, and an expired certificate', async () => {
    const node = await cluster.issue('node', 'n1', { usage: 'both' });
    const { url } = await open({ tls: new TestServerTls(node) });
    await expect(fetchServerRoot(url, [cluster.rootSha256], never)).rejects.toMatchObject({
      reason: 'CERTIFICATE_INVALID',
      message: expect.stringContaining(
        'the certificate is of the node "n1"; allowed here: controller',
      ),
    });
    const expired = await openWith({ nowMs: Date.now() - 2 * HOUR_MS });
    await expect(fetchServerRoot(expired, [cluster.rootSha256], never)).rejects.toMatchObject({
      reason: 'CERTIFICATE_EXPIRED',
    });
  });

  it('fails for a server in plaintext and for a closed port', async () => {
    const plaintext = await listen(http.createServer());
    await expect(fetchServerRoot(plaintext, [cluster.rootSha256], never)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('does not speak TLS'),
    });
    const closed = fetchServerRoot('https://127.0.0.1:1', [cluster.rootSha256], never);
    await expect(closed).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'no coordinator reached at https://127.0.0.1:1',
    });
  });
});
