// CPU time of a connection with mutual TLS beside a connection in plaintext; then a client that
// starts many handshakes and completes none, while another client makes calls.
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import * as net from 'node:net';
import * as tls from 'node:tls';
import { fileURLToPath } from 'node:url';
import { systemClock } from '@cloudless/app-kit';
import { CertificateAuthority, createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import { connectHttp2Session, type ClientTls } from '@cloudless/rpc-node/tls-client';
import type { HandshakeServerFigures, HandshakeServerStart } from './handshake-server.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

/** Connections of each kind, one after the other in each lane. */
const CONNECTIONS = 2_000;
/** Connections that are opened in parallel. */
const LANES = 16;
/** Handshakes that are started and never completed. */
const INCOMPLETE = Number(process.argv[2] ?? 12_000);
/** Incomplete handshakes that start at once. */
const BURST = 1_000;
/** Default of `RpcLimits.maxHandshakes`, a burst that waits, and room for the other client. */
const MOST_HELD = 1_024 + BURST + 16;

const violations = new Violations();
const server = fork(fileURLToPath(new URL('handshake-server.ts', import.meta.url)), {
  execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
});

async function readFigures(child: ChildProcess): Promise<HandshakeServerFigures> {
  const reply = once(child, 'message');
  child.send({});
  const [figures] = (await reply) as [HandshakeServerFigures];
  return figures;
}

/** Returns key, certificate and trust of a node. */
async function createClientTls({ authorityPems }: HandshakeServerStart): Promise<ClientTls> {
  const nowMs = Date.now();
  const trustDomain = 'cloudless';
  const authority = await CertificateAuthority.load(authorityPems, {
    trustDomain,
    generation: 1,
    nowMs,
  });
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const { pem } = await authority.issue({
    id: { trustDomain, kind: 'node', id: 'n1' },
    publicKey,
    lifetimeMs: 3_600_000,
    nowMs,
    usage: 'client',
  });
  return {
    keyPem,
    chainPem: pem,
    bundlePem: authority.rootPem,
    serverIds: ['spiffe://cloudless/controller/coordinator'],
    trustDomain,
  };
}

/** Opens one HTTP/2 session, waits for the reply to a PING, and closes the session. */
async function connectOnce(url: string, clientTls: ClientTls | undefined): Promise<number> {
  const startedAt = systemClock.now();
  const session = await connectHttp2Session(url, clientTls, new AbortController().signal);
  await new Promise((resolve) => session.ping(resolve));
  const durationMs = systemClock.now() - startedAt;
  session.destroy();
  return durationMs;
}

/** Measures the CPU time of the server, and the time of the client, for one connection. */
async function measureConnections(url: string, clientTls: ClientTls | undefined) {
  const before = await readFigures(server);
  const durationsMs: number[] = [];
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let count = 0; count < CONNECTIONS / LANES; count += 1)
        durationsMs.push(await connectOnce(url, clientTls));
    }),
  );
  const after = await readFigures(server);
  const cpuMs = ((after.cpuSeconds - before.cpuSeconds) * 1_000) / CONNECTIONS;
  return {
    serverCpuMsPerConnection: Math.round(cpuMs * 100) / 100,
    clientMs: summarise(durationsMs),
  };
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

/** Starts a handshake. Resolves when the server has answered or closed the connection. */
function startHandshake(port: number, hello: Buffer, sockets: net.Socket[]): Promise<void> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    sockets.push(socket);
    socket.on('error', () => undefined).once('close', () => resolve());
    socket.once('data', () => resolve());
    socket.write(hello);
  });
}

/** Starts many handshakes, while another client connects again and again. */
async function measureIncomplete(url: string, clientTls: ClientTls) {
  const hello = await captureClientHello();
  const before = await readFigures(server);
  const sockets: net.Socket[] = [];
  const otherClientMs: number[] = [];
  let mostHeld = 0;
  let maxLoopDelayMs = 0;
  for (let started = 0; started < INCOMPLETE; started += BURST) {
    const burst = Array.from({ length: BURST }, () =>
      startHandshake(Number(new URL(url).port), hello, sockets),
    );
    otherClientMs.push(await connectOnce(url, clientTls));
    await Promise.all(burst);
    const figures = await readFigures(server);
    mostHeld = Math.max(mostHeld, figures.connections);
    maxLoopDelayMs = Math.max(maxLoopDelayMs, figures.maxLoopDelayMs);
  }
  const after = await readFigures(server);
  for (const socket of sockets) socket.destroy();
  violations.check(mostHeld <= MOST_HELD, `${mostHeld} connections were held at once`);
  return {
    started: INCOMPLETE,
    mostHeld,
    dropped: after.connectionsDropped - before.connectionsDropped,
    serverMemoryMb: { before: before.memoryMb, after: after.memoryMb },
    serverCpuMsPerHandshake:
      Math.round(((after.cpuSeconds - before.cpuSeconds) * 100_000) / INCOMPLETE) / 100,
    maxLoopDelayMs,
    otherClientMs: summarise(otherClientMs),
  };
}

try {
  const [start] = (await once(server, 'message')) as [HandshakeServerStart];
  const clientTls = await createClientTls(start);
  await connectOnce(start.secureUrl, clientTls); // loads code
  const plaintext = await measureConnections(start.plaintextUrl, undefined);
  const mutualTls = await measureConnections(start.secureUrl, clientTls);
  const incomplete = await measureIncomplete(start.secureUrl, clientTls);
  printReport('handshakes', {
    connections: CONNECTIONS,
    lanes: LANES,
    plaintext,
    mutualTls,
    incomplete,
    violations: violations.texts,
  });
} finally {
  server.kill('SIGKILL');
}
process.exit(violations.exitCode());
