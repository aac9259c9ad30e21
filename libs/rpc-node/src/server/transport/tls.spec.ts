import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import * as https from 'node:https';
import * as net from 'node:net';
import * as tls from 'node:tls';
import { createClient } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from '@connectrpc/connect-node';
import { CoordinatorService } from '@cloudless/api';
import type { RpcServerOptions } from '../options.js';
import { TestCluster, TestServerTls, type TestCredential } from '../../testing/test-cluster.js';
import { aLog, serversOfTest } from '../testing/fixture.js';
import { connectionKey, type ClientConnection } from './connection.js';

const open = serversOfTest(afterEach);

let cluster: TestCluster;
let serverCredential: TestCredential;
let nodeCredential: TestCredential;
beforeAll(async () => {
  cluster = await TestCluster.create();
  serverCredential = await cluster.issueServer();
  nodeCredential = await cluster.issue('node', 'n1');
});

const openSecure = (options: Partial<RpcServerOptions> = {}) =>
  open({ tls: new TestServerTls(serverCredential), ...options });

/** TLS options of a client that trusts the cluster, whatever the host name. */
function clientOptions(credential?: TestCredential): tls.ConnectionOptions {
  return {
    ca: cluster.bundlePem,
    checkServerIdentity: () => undefined,
    ...(credential === undefined ? {} : { key: credential.keyPem, cert: credential.chainPem }),
  };
}

/** Opens a TLS connection, and fails when the handshake fails. */
async function connectTo(
  port: number,
  options: tls.ConnectionOptions = {},
): Promise<tls.TLSSocket> {
  const socket = tls.connect({ port, host: '127.0.0.1', ...clientOptions(), ...options });
  await once(socket, 'secureConnect');
  socket.on('error', () => undefined);
  return socket;
}

/** Collects what a plaintext socket receives until the server closes. */
async function readAll(socket: net.Socket): Promise<string> {
  let text = '';
  socket.on('error', () => undefined).on('data', (chunk: Buffer) => (text += chunk.toString()));
  await once(socket, 'close');
  return text;
}

describe('a server with TLS', () => {
  it.each([
    ['Connect over HTTP/1.1', createConnectTransport, '1.1'],
    ['Connect over HTTP/2', createConnectTransport, '2'],
    ['gRPC', createGrpcTransport, '2'],
    ['gRPC-Web over HTTP/1.1', createGrpcWebTransport, '1.1'],
    ['gRPC-Web over HTTP/2', createGrpcWebTransport, '2'],
  ] as const)('serves %s', async (_name, createTransport, httpVersion) => {
    const { url } = await openSecure();
    expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    const transport = createTransport({
      baseUrl: url,
      httpVersion,
      nodeOptions: clientOptions(nodeCredential),
    } as never);
    const client = createClient(CoordinatorService, transport);
    expect(await client.getWorkload({ namespace: 'default', name: 'web' })).toMatchObject({
      name: 'web',
    });
  });

  it('gives handlers the certificates of the client, and none for a client without one', async () => {
    const connections: (ClientConnection | undefined)[] = [];
    const { url } = await openSecure({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.getWorkload, (_request, { values }) => {
          connections.push(values.get(connectionKey));
          return {};
        }),
    });
    for (const credential of [nodeCredential, undefined]) {
      const transport = createConnectTransport({
        baseUrl: url,
        httpVersion: '1.1',
        nodeOptions: {
          ...clientOptions(credential),
          agent: new https.Agent(clientOptions(credential)),
        },
      });
      await createClient(CoordinatorService, transport).getWorkload({});
    }
    const [withCertificate, without] = connections;
    expect(withCertificate).toMatchObject({ tls: true, protocol: 'http/1.1' });
    expect(withCertificate?.peer?.chainDer.map((der) => toPem(der)).join('')).toBe(
      nodeCredential.chainPem,
    );
    expect(without).toMatchObject({ tls: true, peer: undefined });
  });

  it('refuses TLS 1.2', async () => {
    const { address } = await openSecure();
    const attempt = connectTo(address.port, { maxVersion: 'TLSv1.2' });
    await expect(attempt).rejects.toMatchObject({
      code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
    });
  });

  it('makes a full handshake when a client offers the session of an earlier connection', async () => {
    const { address } = await openSecure();
    const options = { key: nodeCredential.keyPem, cert: nodeCredential.chainPem };
    const first = await connectTo(address.port, options);
    const [session] = (await once(first, 'session')) as [Buffer];
    const second = await connectTo(address.port, { ...options, session });
    expect(second.isSessionReused()).toBe(false);
    first.destroy();
    second.destroy();
  });

  it('uses a new certificate for new connections, and keeps open streams', async () => {
    const serverTls = new TestServerTls(serverCredential);
    const log = aLog();
    const server = await open({
      tls: serverTls,
      log,
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.watchWorkloads, async function* () {
          yield {};
          await renewed;
          yield {};
        }),
    });
    let renew: () => void = () => undefined;
    const renewed = new Promise<void>((resolve) => (renew = resolve));
    const { address, url } = server;
    const transport = createGrpcTransport({ baseUrl: url, nodeOptions: clientOptions() });
    const stream = createClient(CoordinatorService, transport)
      .watchWorkloads({})
      [Symbol.asyncIterator]();
    await stream.next();
    const newCredential = await cluster.issueServer();
    serverTls.replace(newCredential);
    const serials = async (): Promise<string> => {
      const socket = await connectTo(address.port);
      const serial = socket.getPeerX509Certificate()?.serialNumber ?? '';
      socket.destroy();
      return serial.toLowerCase();
    };
    expect(await serials()).toBe(newCredential.serial);
    renew();
    expect(await stream.next()).toMatchObject({ done: false });
    serverTls.replace({ ...serverCredential, keyPem: nodeCredential.keyPem });
    expect(await serials()).toBe(newCredential.serial);
    expect(log.lines.map(({ message }) => message)).toContain(
      'the new server certificate is not valid; the old certificate stays in use',
    );
    await server.close();
    expect(serverTls.subscriptions).toBe(0);
  });

  it('answers plaintext HTTP/1.1 with a text that names https, and closes plaintext HTTP/2', async () => {
    const { address } = await openSecure();
    const http1 = net.connect(address.port, address.host);
    http1.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const answer = await readAll(http1);
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer).toContain('this port speaks TLS; use https:// instead of http://');
    const http2Socket = net.connect(address.port, address.host);
    http2Socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    expect(await readAll(http2Socket)).toBe('');
  });

  it('accepts any host, but only its own origin and allowed origins', async () => {
    const { address } = await openSecure({ allowedOrigins: ['https://console.example'] });
    const get = async (headers: Record<string, string>): Promise<number> => {
      const request = https.get({
        ...{ port: address.port, host: '127.0.0.1', path: '/', headers, agent: false },
        ...clientOptions(),
      });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.resume();
      return response.statusCode ?? 0;
    };
    expect(await get({ host: 'coordinator.example' })).toBe(200);
    expect(await get({ host: 'c.example:8080', origin: 'https://c.example:8080' })).toBe(200);
    expect(await get({ host: 'c.example', origin: 'https://console.example' })).toBe(200);
    expect(await get({ host: 'c.example', origin: 'https://evil.example' })).toBe(403);
    expect(await get({ host: 'c.example', origin: 'http://c.example' })).toBe(403);
    expect(await get({ host: 'c.example', origin: 'http://localhost:5173' })).toBe(403);
    expect(await get({ host: 'c.example', origin: 'null' })).toBe(403);
  });

  it('listens on every address, which a server without TLS refuses', async () => {
    const { url } = await openSecure({ host: '0.0.0.0' });
    expect(url).toMatch(/^https:\/\/0\.0\.0\.0:/);
    await expect(openSecure({ host: '' })).rejects.toMatchObject({ kind: 'invalid' });
    await expect(open({ host: '0.0.0.0' })).rejects.toMatchObject({ kind: 'precondition' });
  });

  it('does not start with a key that does not belong to its certificate', async () => {
    const context = { ...serverCredential, keyPem: nodeCredential.keyPem };
    await expect(openSecure({ tls: new TestServerTls(context) })).rejects.toMatchObject({
      kind: 'precondition',
      message:
        'the private key and the certificate of the server are not valid or do not fit together',
    });
  });
});

/** Runs `openssl s_client`, and returns what it prints, whether it succeeds or not. */
function runOpenssl(port: number, options: readonly string[]): Promise<string> {
  const args = ['s_client', '-connect', `127.0.0.1:${port}`, '-brief', ...options];
  return new Promise((resolve) => {
    const child = execFile('openssl', args, (_error, stdout, stderr) => resolve(stdout + stderr));
    child.stdin?.end();
  });
}

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

(hasOpenssl ? describe : describe.skip)('openssl s_client', () => {
  it('connects with TLS 1.3 and the protocols of HTTP, and with no older version', async () => {
    const { address } = await openSecure();
    const options = ['-tls1_3', '-alpn', 'h2,http/1.1', '-no_ign_eof'];
    const current = await runOpenssl(address.port, options);
    expect(current).toContain('Protocol version: TLSv1.3');
    for (const version of ['-tls1', '-tls1_1', '-tls1_2']) {
      const old = await runOpenssl(address.port, [version, '-cipher', 'ALL:@SECLEVEL=0']);
      expect(old).not.toContain('CONNECTION ESTABLISHED');
      expect(old).toMatch(/alert protocol version|unsupported protocol|no protocols available/);
    }
  });
});

describe('a server without TLS', () => {
  it('closes a TLS connection, and logs the 1st and the 10th', async () => {
    const log = aLog();
    const { address } = await open({ log });
    for (let count = 0; count < 10; count += 1)
      await expect(connectTo(address.port)).rejects.toMatchObject({ code: 'ECONNRESET' });
    const lines = log.lines.filter(({ level }) => level === 'warn');
    expect(lines.map(({ message, fields }) => [message, fields['refused']])).toEqual([
      ['connections refused: TLS on a plaintext port; clients must use http://', 1],
      ['connections refused: TLS on a plaintext port; clients must use http://', 10],
    ]);
  });
});

function toPem(der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}
