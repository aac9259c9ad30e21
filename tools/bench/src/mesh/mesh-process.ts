/** The processes of the benchmark `mesh`: a server, and the network proxy of a node. */
import { once } from 'node:events';
import { createSocket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { create, fromJsonString } from '@bufbuild/protobuf';
import { NetworkReportSchema, NetworkUpdateSchema, type NodeNetworkClient } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { noMeter, silentLog } from '@cloudless/base';
import { createNetworkProxy, type ProxyIdentity } from '@cloudless/mesh';

/** Settings of a proxy, in a file. */
export interface ProxyProcess {
  readonly nodeId: string;
  readonly identity?: ProxyIdentity;
  readonly meshListen?: { readonly host: string; readonly port: number };
  /** A NetworkUpdate as JSON. */
  readonly update: string;
  readonly snapshotFile: string;
  /** Address at which virtual addresses are bound in place of their own. */
  readonly bindAddress: string;
}

/** First byte of a connection whose bytes are counted and not sent back. See `loadBytes`. */
const SINK_MARK = 2;
/** First byte of a connection whose client reads nothing of {@link FLOOD_BYTES}. See `openUnread`. */
const FLOOD_MARK = 3;
const FLOOD_BYTES = 8 * 1024 * 1024;

async function listen(host: string, port: number): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
  server.listen({ host, port, backlog: 4_096 });
  await once(server, 'listening');
  return server;
}

const MODES: ReadonlyMap<number, 'sink' | 'flood'> = new Map([
  [SINK_MARK, 'sink'],
  [FLOOD_MARK, 'flood'],
]);

/** Sends as much as the client, or the proxies on the way, take. */
function flood(socket: Socket): void {
  const chunk = Buffer.alloc(64 * 1024);
  let sent = 0;
  const send = (): void => {
    while (sent < FLOOD_BYTES) {
      sent += chunk.length;
      if (!socket.write(chunk)) return void socket.once('drain', send);
    }
  };
  send();
}

async function runServer(host: string): Promise<void> {
  const server = await listen(host, 0);
  server.on('connection', (socket) => {
    let mode: 'echo' | 'sink' | 'flood' | undefined;
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      const isFirst = mode === undefined;
      mode ??= MODES.get(chunk[0] ?? 0) ?? 'echo';
      if (mode === 'echo') socket.write(chunk);
      if (isFirst && mode === 'flood') flood(socket);
    });
    socket.on('end', () => (mode === 'sink' ? socket.end('!') : socket.end()));
    socket.resume();
  });
  announce((server.address() as AddressInfo).port);
}

async function runProxy(file: string): Promise<void> {
  const settings = JSON.parse(readFileSync(file, 'utf8')) as ProxyProcess;
  const { nodeId, identity, meshListen, snapshotFile, bindAddress } = settings;
  let port = 0;
  const client = {
    async *syncNetwork(reports: AsyncIterable<unknown>) {
      const iterator = reports[Symbol.asyncIterator]();
      await iterator.next();
      yield fromJsonString(NetworkUpdateSchema, settings.update);
      for (;;) if ((await iterator.next()).done === true) return;
    },
  } as unknown as NodeNetworkClient;
  create(NetworkReportSchema);
  const proxy = createNetworkProxy({
    ...{ nodeId, hostId: nodeId, zone: '', region: '', snapshotFile },
    identity:
      identity === undefined ? undefined : { current: () => identity, onChange: () => undefined },
    connect: () =>
      Promise.resolve({ client, reportHealth: () => Promise.resolve(), close: () => undefined }),
    checkClients: {
      tcp: () => Promise.resolve(),
      http: () => Promise.resolve(200),
      grpc: () => Promise.resolve('SERVING'),
    },
    meshListen,
    sockets: {
      listenTcp: async (address, at) => {
        const isMesh = address === meshListen?.host && at === meshListen.port;
        const server = await listen(isMesh ? address : bindAddress, isMesh ? at : 0);
        if (!isMesh) port = (server.address() as AddressInfo).port;
        if (!isMesh) announce(port);
        return server;
      },
      bindUdp: () => Promise.resolve(createSocket('udp4')),
    },
    prepareRange: () => Promise.resolve(),
    mayListen: () => Promise.resolve(),
    ...{ clock: systemClock, random: systemRandom, log: silentLog, meter: noMeter },
    onAccess: () => undefined,
  });
  await proxy.start();
}

function announce(port: number): void {
  process.stdout.write(`${JSON.stringify({ port })}\n`);
}

const [role = '', argument = ''] = process.argv.slice(2);
// Keeps the process alive while it only waits for connections of others.
setInterval(() => undefined, 60_000);
await (role === 'server' ? runServer(argument) : runProxy(argument));
