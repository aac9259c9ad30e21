import { mkdtempSync, rmSync, statSync } from 'node:fs';
import net from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { CloudlessError, silentLog } from '@cloudless/base';
import { ControlClient, openRelaySocket } from './control-client.js';
import {
  LineReader,
  MAX_REQUEST_BYTES,
  parseLine,
  type ControlRequest,
  type ProxySettings,
} from './control-messages.js';
import { ControlServer, type ControlHandler } from './control-server.js';

const SETTINGS: ProxySettings = {
  ...{ nodeId: 'node-1', zone: '', region: '', hostId: 'h', dataDir: '/d', usesTls: false },
  coordinators: ['http://127.0.0.1:8080'],
};

describe('the control socket of a network proxy', () => {
  const before = process.cwd();
  let directory: string;
  let server: ControlServer;
  const requests: ControlRequest[] = [];
  const relayed: [string, net.Socket][] = [];
  const handler: ControlHandler = {
    settings: () => SETTINGS,
    answer: async (request) => {
      requests.push(request);
      if (request.type === 'upgrade') throw new CloudlessError('precondition', 'not now');
      // A proxy of an earlier version returns nothing for a request that it does not know.
      if (request.type === 'addresses') return undefined as never;
      return request.type === 'metrics' ? { type: 'metrics', text: 'a 1\n' } : { type: 'done' };
    },
    acceptRelay: (fromNodeId, socket) => void relayed.push([fromNodeId, socket]),
  };

  beforeEach(async () => {
    requests.length = 0;
    relayed.length = 0;
    directory = mkdtempSync(join(tmpdir(), 'cloudless-control-'));
    process.chdir(directory); // as the process of a proxy does
    server = await ControlServer.listen(handler, silentLog);
  });
  afterEach(() => {
    server.close();
    for (const [, socket] of relayed) socket.destroy();
    process.chdir(before);
    rmSync(directory, { recursive: true });
  });

  it('stays with a successor when its predecessor closes late', async () => {
    const predecessor = server;
    server = await ControlServer.listen(handler, silentLog);
    predecessor.close();
    const socket = net.connect('control');
    await once(socket, 'connect');
    socket.destroy();
  });

  it('belongs to its user only', () => {
    expect(statSync(join(directory, 'control')).mode & 0o777).toBe(0o600);
  });

  it('introduces the proxy and answers requests in any order', async () => {
    const { client, hello } = await ControlClient.open(directory, () => undefined);
    expect(hello).toMatchObject({ pid: process.pid, settings: SETTINGS });
    const answers = await Promise.all([
      client.request({ type: 'metrics' }),
      client.request({ type: 'reload' }),
    ]);
    expect(answers.map(({ type }) => type)).toEqual(['metrics', 'done']);
    client.close();
  });

  it('returns the reason of a refusal', async () => {
    const { client } = await ControlClient.open(directory, () => undefined);
    await expect(client.request({ type: 'upgrade', command: ['a'] })).rejects.toThrow('not now');
    client.close();
  });

  it('takes the answer of an earlier proxy to an unknown request for a refusal', async () => {
    const { client } = await ControlClient.open(directory, () => undefined);
    await expect(client.request({ type: 'addresses', patterns: ['*'] })).rejects.toMatchObject({
      kind: 'precondition',
    });
    expect((await client.request({ type: 'metrics' })).type).toBe('metrics');
    client.close();
  });

  it('has room for the longest list of patterns', async () => {
    const { client } = await ControlClient.open(directory, () => undefined);
    const patterns = Array.from({ length: 64 }, () => 'a'.repeat(127));
    await client.request({ type: 'addresses', patterns }).catch(() => undefined);
    expect(requests).toMatchObject([{ type: 'addresses', patterns }]);
    client.close();
  });

  it('fails requests and tells the client when the proxy ends', async () => {
    const closed = new Promise<void>((resolve) => {
      void ControlClient.open(directory, resolve).then(() => server.close());
    });
    await closed;
    await expect(ControlClient.open(directory, () => undefined)).rejects.toMatchObject({
      kind: 'unavailable',
    });
  });

  it('turns a connection into a relay of bytes, whose halves close separately', async () => {
    const socket = await openRelaySocket(directory, 'node-9');
    socket.write('from the coordinator');
    while (relayed.length === 0) await new Promise(setImmediate);
    const [fromNodeId, proxySide] = relayed[0]!;
    proxySide.resume();
    const [data] = (await once(proxySide, 'data')) as [Buffer];
    expect([fromNodeId, data.toString()]).toEqual(['node-9', 'from the coordinator']);
    socket.end();
    await once(proxySide, 'end');
    proxySide.end('answer');
    socket.resume();
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toBe('answer');
    socket.destroy();
  });

  it('closes connections that send anything else', async () => {
    const socket = net.connect(join(directory, 'control'));
    socket.resume();
    socket.write('GET / HTTP/1.1\r\n\r\n');
    await once(socket, 'close');
    expect(requests).toEqual([]);
  });
});

describe('LineReader', () => {
  it('returns the same lines in whatever chunks the bytes arrive', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'grapheme-ascii', maxLength: 30 }), { maxLength: 10 }),
        fc.integer({ min: 1, max: 20 }),
        (lines, size) => {
          const clean = lines.map((line) => line.replaceAll('\n', ''));
          const bytes = Buffer.from(clean.map((line) => `${line}\n`).join(''));
          const reader = new LineReader(100);
          const seen: string[] = [];
          for (let start = 0; start < bytes.length; start += size) {
            const chunk = bytes.subarray(start, start + size);
            for (let line = reader.next(chunk); line !== undefined; line = reader.next())
              seen.push(line);
          }
          expect(seen).toEqual(clean);
        },
      ),
    );
  });

  it('refuses a line that never ends', () => {
    const reader = new LineReader(MAX_REQUEST_BYTES);
    expect(() => reader.next(Buffer.alloc(MAX_REQUEST_BYTES + 1, 'a'))).toThrow(
      expect.objectContaining({ kind: 'invalid' }),
    );
  });

  it.each(['', 'null', '1', '[]', '{"type":1}', '{'])('is followed by a refusal of %j', (line) => {
    expect(() => parseLine(line)).toThrow(expect.objectContaining({ kind: 'invalid' }));
  });
});
