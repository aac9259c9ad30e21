import { createSocket } from 'node:dgram';
import { writeFileSync, mkdtempSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { decode, encode, streamEncode } from 'dns-packet';
import { NetworkUpdateSchema } from '@cloudless/api';
import { silentLog, type LogFields } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { NetworkModel } from '../model/network-model.js';
import type { ListeningSockets } from '../ports.js';
import { createLocalClients } from './local-clients.js';
import { NetworkDns } from './network-dns.js';

const WEB = 'web.default.svc.cloudless.internal';
const question = (name: string, id = 7): Buffer =>
  encode({ type: 'query', id, flags: 0x0100, questions: [{ name, type: 'A', class: 'IN' }] });

const sockets: ListeningSockets = {
  listenTcp: (host, port) =>
    new Promise((resolve, reject) => {
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
      server.once('error', reject);
      server.listen({ host, port }, () => resolve(server));
    }),
  bindUdp: (address, port) =>
    new Promise((resolve, reject) => {
      if (port === 53) throw new Error('bind EADDRINUSE 127.0.0.1:53');
      const socket = createSocket('udp4');
      socket.once('error', reject);
      socket.bind({ address, port }, () => resolve(socket));
    }),
};

function askByUdp(port: number, message: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    socket.on('message', (response) => {
      socket.close();
      resolve(response);
    });
    socket.send(message, port, '127.0.0.1');
  });
}

/** Sends bytes, ends the sending half, and returns what the server sends until it ends. */
function talkByTcp(port: number, bytes: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const received: Buffer[] = [];
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('data', (data) => received.push(data));
    socket.on('error', () => resolve(Buffer.concat(received)));
    socket.on('end', () => socket.end());
    socket.on('close', () => resolve(Buffer.concat(received)));
    socket.end(bytes);
  });
}

const update = (clusterIp: string, complete: boolean): Parameters<NetworkModel['apply']>[0] =>
  create(NetworkUpdateSchema, {
    revision: 1n,
    reset: true,
    complete,
    settings: {
      serviceCidr: '10.96.0.0/16',
      clusterDomain: 'cloudless.internal',
      dnsAddress: '127.0.0.1',
    },
    services: [
      {
        namespace: 'default',
        name: 'web',
        clusterIp,
        spec: { ports: [{ name: 'http', port: 80 }] },
      },
    ],
  });

/** Listens again while `mustRetry` holds, as when the free UDP port is taken for TCP. */
async function listenWhile(dns: NetworkDns, mustRetry: () => boolean): Promise<void> {
  do await dns.listen();
  while (mustRetry());
}

describe('NetworkDns', () => {
  const model = new NetworkModel();
  const file = join(mkdtempSync(join(tmpdir(), 'cloudless-dns-')), 'resolv.conf');
  const dns = new NetworkDns({
    view: model,
    sockets,
    clock: new ManualClock(),
    log: silentLog,
    isLocalNode: () => true,
    resolvConf: file,
    ports: [53, 0],
  });
  const port = (): number => dns.address?.port ?? 0;

  beforeAll(async () => {
    writeFileSync(file, 'nameserver 10.96.0.10\n');
    dns.apply(model.apply(update('10.96.0.20', true)), true);
    await listenWhile(dns, () => dns.problem !== undefined);
  });
  afterAll(() => dns.close());

  it('listens at another port when 53 is taken', () => {
    expect(dns.problem).toBeUndefined();
    expect(port()).toBeGreaterThan(1_023);
  });

  it('answers by UDP, and follows changes of the network', async () => {
    expect(decode(await askByUdp(port(), question(WEB)))).toMatchObject({
      id: 7,
      answers: [{ type: 'A', data: '10.96.0.20', ttl: 5 }],
    });
    dns.apply(model.apply(update('10.96.0.21', true)), true);
    expect(decode(await askByUdp(port(), question(WEB))).answers).toMatchObject([
      { data: '10.96.0.21' },
    ]);
  });

  it('answers several questions of one TCP connection, also to a client that sent its end', async () => {
    const messages = [question(WEB, 1), question(`no.${WEB}`, 2), question(WEB, 3)];
    const bytes = Buffer.concat(messages.map((each) => streamEncode(decode(each))));
    const received = await talkByTcp(port(), bytes);
    const ids: (number | undefined)[] = [];
    for (let at = 0; at < received.length; at += 2 + received.readUInt16BE(at)) {
      ids.push(decode(received.subarray(at + 2, at + 2 + received.readUInt16BE(at))).id);
    }
    expect([...ids].sort()).toEqual([1, 2, 3]);
  });

  it('closes a TCP connection whose message is longer than a question can be', async () => {
    expect(await talkByTcp(port(), Buffer.from([0xff, 0xff, 1, 2, 3]))).toHaveLength(0);
  });

  it('answers SERVFAIL for foreign names when the host has no resolver but this one', async () => {
    const response = decode(await askByUdp(port(), question('example.org')));
    expect(response).toMatchObject({ rcode: 'SERVFAIL' });
  });
});

describe('NetworkDns beside another DNS server', () => {
  it('moves to its own port when that is free', async () => {
    const model = new NetworkModel();
    const state = { isTaken: true };
    const dns = new NetworkDns({
      view: model,
      sockets: {
        ...sockets,
        bindUdp: (address, port) =>
          port === 53 && !state.isTaken
            ? sockets.bindUdp(address, 0)
            : sockets.bindUdp(address, port),
      },
      clock: new ManualClock(),
      log: silentLog,
      isLocalNode: () => true,
      ports: [53, 0],
    });
    dns.apply(model.apply(update('10.96.0.20', true)), true);
    await listenWhile(dns, () => dns.problem !== undefined);
    const earlier = dns.address;
    await dns.listen();
    expect(dns.address).toEqual(earlier);
    state.isTaken = false;
    await listenWhile(dns, () => dns.address?.port === earlier?.port);
    const later = dns.address;
    expect(later?.port).not.toBe(earlier?.port);
    await dns.listen();
    expect(dns.address).toEqual(later);
    expect(decode(await askByUdp(later?.port ?? 0, question(WEB))).answers).toHaveLength(1);
    dns.close();
  });
});

describe('NetworkDns whose TCP listener cannot begin to listen', () => {
  it('logs the first failure, each new reason, and once that the listener works again', async () => {
    const model = new NetworkModel();
    const lines: string[] = [];
    const record = (message: string, { error = '' }: LogFields = {}): void =>
      void lines.push(`${message} ${String(error)}`.trim());
    let tcp: Server | undefined;
    const dns = new NetworkDns({
      view: model,
      sockets: {
        ...sockets,
        listenTcp: async (address, port) => (tcp = await sockets.listenTcp(address, port)),
      },
      clock: new ManualClock(),
      log: { ...silentLog, warn: record, info: record },
      isLocalNode: () => true,
      ports: [0],
    });
    dns.apply(model.apply(update('10.96.0.20', true)), true);
    await listenWhile(dns, () => dns.problem !== undefined);
    lines.length = 0; // drop the log lines about a UDP port whose TCP port is taken
    // As a server that waits for the address of an earlier process, see `ListeningSockets`.
    for (const reason of ['EADDRINUSE', 'EADDRINUSE', 'EACCES', 'EACCES', 'EADDRINUSE'])
      tcp?.emit('error', new Error(reason));
    tcp?.emit('listening');
    tcp?.emit('listening');
    tcp?.emit('error', new Error('EADDRINUSE'));
    expect(lines).toEqual([
      'the DNS listener failed EADDRINUSE',
      'the DNS listener failed EACCES',
      'the DNS listener failed EADDRINUSE',
      'the DNS listener works again',
      'the DNS listener failed EADDRINUSE',
    ]);
    dns.close();
  });
});

describe('createLocalClients', () => {
  it('takes own addresses and the networks of bridges for local, and neighbours not', () => {
    const isLocal = createLocalClients(new ManualClock(), () => [
      { interfaceName: 'eth0', address: '192.0.2.10', cidr: '192.0.2.10/24', isBridge: false },
      { interfaceName: 'cni0', address: '10.88.0.1', cidr: '10.88.0.1/16', isBridge: true },
      { interfaceName: 'cni0', address: 'fd00::1', cidr: 'fd00::1/64', isBridge: true },
    ]);
    const addresses = [
      '127.0.0.9',
      '192.0.2.10',
      '192.0.2.11',
      '10.88.3.4',
      '10.89.0.1',
      'fd00::7',
      'fd01::7',
      'x',
    ];
    expect(addresses.filter(isLocal)).toEqual(['127.0.0.9', '192.0.2.10', '10.88.3.4', 'fd00::7']);
  });
});
