import { randomBytes } from 'node:crypto';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { createCoordinatorClient } from '@cloudless/api';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  attacked,
  callFrames,
  callHead,
  envelope,
  frame,
  FRAME,
  opening,
  RawClient,
  residentMiB,
  streams,
} from './attack-tools.js';
import { COORDINATOR, post } from './calls.js';
import { RealCluster } from './cluster.js';

/**
 * Bound for the memory growth of a coordinator over all attacks of a group: 128 MiB of unread
 * answers, 64 MiB of requests, 2 048 streams of about 100 KiB, and heap that Node keeps after a
 * burst. The bound is coarse, so the tests also check the metrics of held memory.
 */
const GROWTH_MIB = 512;
const MIB = 1024 * 1024;

let cluster: RealCluster;
let restMiB = 0;
const clients: RawClient[] = [];

/**
 * Starts a coordinator for the tests of one group, because Node does not return the memory of an
 * earlier group.
 */
function onItsOwnCoordinator(): void {
  beforeAll(async () => {
    cluster = await RealCluster.start([]);
    const annotations = Object.fromEntries(
      Array.from({ length: 4 }, (_, index) => [`k${index}`, 'x'.repeat(8_000)]),
    );
    const spec = { command: ['true'], replicas: 0, annotations };
    for (let index = 0; index < 32; index += 1)
      await cluster.client.createWorkload({ name: `w${index}`, spec });
    restMiB = residentMiB(cluster.coordinatorProcess.pid);
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.destroy();
  });
  afterAll(async () => {
    await cluster.stop();
  });
}

function raw(): RawClient {
  const client = new RawClient(cluster.url);
  clients.push(client);
  return client;
}

function manyRaw(count: number): readonly RawClient[] {
  return Array.from({ length: count }, raw);
}

/**
 * Runs an attack and expects that other clients are served and that memory stays within the bound.
 */
async function survives(attack: () => Promise<void>): Promise<void> {
  const bystander = createCoordinatorClient(createGrpcTransport({ baseUrl: cluster.url }));
  const seen = await attacked(cluster.coordinatorProcess.pid, restMiB, bystander, 'w1', attack);
  process.stdout.write(`    ${expect.getState().currentTestName}: ${JSON.stringify(seen)}\n`);
  expect(seen.failures).toEqual([]);
  expect(seen.growthMiB).toBeLessThan(GROWTH_MIB);
}

const all = (work: readonly Promise<unknown>[]): Promise<void> =>
  Promise.all(work).then(() => undefined);
const watchHead = callHead('WatchWorkloads', 'application/grpc');
const nothing = envelope(new Uint8Array());

describe('resource limits of the coordinator', () => {
  onItsOwnCoordinator();

  it('serve other clients while one connection opens too many streams', () =>
    survives(async () => {
      const client = raw();
      await client.send(opening());
      for (const stream of streams(5_000))
        await client.send(callFrames(stream, watchHead, nothing));
      await client.closed; // too many refused streams
    }));

  it('serve other clients while many connections open streams', () =>
    survives(async () => {
      const calls = Buffer.concat(
        streams(128).map((stream) => callFrames(stream, watchHead, nothing)),
      );
      for (const client of manyRaw(40)) {
        await client.send(opening());
        await client.send(calls);
      }
      await untilMetric('cloudless_rpc_waiting{lane="read"}', (waiting) => waiting === 0);
      await untilMetric('cloudless_rpc_streams', (open) => open > 0 && open <= 2_048);
    }));

  it('serve other clients while many connections send nothing', () =>
    survives(async () => {
      for (let round = 0; round < 20; round += 1)
        await all(manyRaw(500).map((client) => client.send('P')));
    }));
});

describe('slow clients', () => {
  onItsOwnCoordinator();

  const head = `POST /${COORDINATOR}/CreateWorkload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;

  it.each([
    { name: 'headers', bytes: head },
    { name: 'bodies', bytes: `${head}Content-Length: 4000000\r\n\r\n${'['.repeat(1_000)}` },
  ])('are disconnected when they send $name slowly over HTTP/1.1', ({ bytes }) =>
    survives(async () => {
      const slow = manyRaw(1_000);
      await all(slow.map((client) => client.send(bytes)));
      for (let round = 0; round < 5; round += 1) await all(slow.map((client) => client.send('[')));
    }),
  );

  it('are disconnected when they send bodies slowly over HTTP/2', () =>
    survives(async () => {
      const createHead = callHead('CreateWorkload', 'application/grpc');
      const slow = manyRaw(40);
      for (const client of slow) {
        const calls = streams(128).map((stream) => callFrames(stream, createHead));
        await client.send(Buffer.concat([opening(), ...calls]));
      }
      const part = Buffer.alloc(500, 1);
      for (let round = 0; round < 5; round += 1) {
        const data = Buffer.concat(
          streams(128).map((stream) => frame(FRAME.data, 0, stream, part)),
        );
        await all(slow.map((client) => client.send(data)));
      }
    }));

  it.each([
    { name: 'readers of lists over HTTP/2 with an empty window', rpc: 'ListWorkloads' },
    { name: 'readers of watches over HTTP/2 with an empty window', rpc: 'WatchWorkloads' },
  ])('are disconnected as $name', ({ rpc }) =>
    survives(async () => {
      const calls = Buffer.concat(
        streams(128).map((stream) =>
          callFrames(stream, callHead(rpc, 'application/grpc'), nothing),
        ),
      );
      for (const client of manyRaw(10)) await client.send(Buffer.concat([opening(0), calls]));
      // served, or refused after 5 s
      await untilMetric('cloudless_rpc_waiting{lane="read"}', (waiting) => waiting === 0);
      expect(await metric('cloudless_rpc_waiting_bytes{what="answers"}')).toBeLessThanOrEqual(
        128 * MIB,
      );
    }),
  );
});

describe('HTTP/2 floods', () => {
  onItsOwnCoordinator();

  const get = callHead('GetWorkload', 'application/grpc');
  const reset = Buffer.from([0, 0, 0, 8]);

  it('of opened and reset streams do not disturb other clients (CVE-2023-44487)', () =>
    survives(async () => {
      for (let round = 0; round < 3; round += 1) {
        const client = raw();
        await client.send(opening());
        const pairs = streams(10_000).map((id) =>
          Buffer.concat([callFrames(id, get, nothing), frame(FRAME.reset, 0, id, reset)]),
        );
        for (let from = 0; from < pairs.length && !client.isClosed; from += 500)
          await client.send(Buffer.concat(pairs.slice(from, from + 500)));
        await client.closed;
      }
    }));

  it('of CONTINUATION frames do not disturb other clients (CVE-2024-27983)', () =>
    survives(async () => {
      const client = raw();
      await client.send(Buffer.concat([opening(), frame(FRAME.headers, 0, 1, get)]));
      const more = frame(
        FRAME.continuation,
        0,
        1,
        Buffer.concat(Array.from({ length: 100 }, () => callHead('x', 'y'))),
      );
      await client.flood(more, 5_000);
      await client.closed;
    }));

  it.each([
    { name: 'SETTINGS', bytes: frame(FRAME.settings, 0, 0, Buffer.from([0, 4, 0, 0, 255, 255])) },
    { name: 'PING', bytes: frame(FRAME.ping, 0, 0, Buffer.alloc(8)) },
    { name: 'empty DATA', bytes: frame(FRAME.data, 0, 1) },
    { name: 'WINDOW_UPDATE', bytes: frame(FRAME.windowUpdate, 0, 0, Buffer.from([0, 0, 0, 1])) },
  ])('of $name frames do not disturb other clients', ({ bytes }) =>
    survives(async () => {
      const client = raw();
      await client.send(Buffer.concat([opening(), callFrames(1, get)]));
      await client.flood(Buffer.concat(Array.from({ length: 1_000 }, () => bytes)), 50);
    }),
  );

  it.each([
    {
      name: 'invalid frames',
      begin: opening(),
      bytes: frame(FRAME.windowUpdate, 0, 0, Buffer.from([1])),
    },
    {
      name: 'frames of unknown types',
      begin: opening(),
      bytes: frame(0x77, 0, 0, Buffer.alloc(100)),
    },
    {
      name: 'data for closed streams',
      begin: opening(),
      bytes: frame(FRAME.data, 0, 101, Buffer.alloc(100)),
    },
    { name: 'garbage after the preface', begin: opening(), bytes: randomBytes(4_096) },
    { name: 'garbage', begin: Buffer.alloc(0), bytes: randomBytes(4_096) },
    {
      name: 'endless headers',
      begin: Buffer.from('POST / HTTP/1.1\r\n'),
      bytes: Buffer.from('a: b\r\n'.repeat(500)),
    },
  ])('of $name do not disturb other clients', ({ begin, bytes }) =>
    survives(() =>
      all(
        manyRaw(50).map(async (client) => {
          await client.send(begin);
          await client.flood(bytes, 50);
        }),
      ),
    ),
  );
});

describe('messages that need much memory when decoded', () => {
  onItsOwnCoordinator();

  const zeros = Buffer.alloc(128 * MIB);
  const postMany = (body: Uint8Array, headers: Readonly<Record<string, string>>) =>
    Promise.all(
      Array.from({ length: 5 }, () =>
        post(cluster.url, `${COORDINATOR}/CreateWorkload`, body, headers),
      ),
    );

  it.each([
    { encoding: 'gzip', compress: () => gzipSync(zeros, { level: 1 }) },
    {
      encoding: 'br',
      compress: () =>
        brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
    },
  ])('are refused as a compression bomb with $encoding', async ({ encoding, compress }) => {
    const bomb = compress();
    await survives(async () => {
      for (const { status } of await postMany(bomb, { 'content-encoding': encoding }))
        expect(status).toBe(429);
    });
  });

  const mib4 = (begin: string, unit: string, end: string): Buffer =>
    Buffer.from(begin + unit.repeat(Math.floor((4 * MIB - 100) / unit.length)) + end);
  const size = (bytes: number): readonly number[] => [
    (bytes & 127) | 128,
    ((bytes >> 7) & 127) | 128,
    ((bytes >> 14) & 127) | 128,
    bytes >> 21,
  ];
  /** Encodes a CreateWorkloadRequest whose spec (field 3) consists of repeated units. */
  const specOf = (unit: readonly number[]): Buffer => {
    const body = Buffer.alloc(
      Math.floor((4 * MIB - 100) / unit.length) * unit.length,
      Buffer.from(unit),
    );
    return Buffer.concat([Buffer.from([0x1a, ...size(body.length)]), body]);
  };
  const keys = (): string => {
    let text = '';
    for (let key = 0; text.length < 4 * MIB - 100; key += 1) text += `"${key.toString(36)}":"",`;
    return `{"name":"a","spec":{"env":{${text}"z-":""}}}`;
  };
  it.each([
    {
      name: 'deeply nested JSON lists',
      body: () => mib4('{"spec":', '[', ''),
      type: 'json',
      status: 429,
    },
    {
      name: 'deeply nested JSON objects',
      body: () => mib4('{"spec":', '{"a":', ''),
      type: 'json',
      status: 429,
    },
    {
      name: 'JSON elements',
      body: () => mib4('{"spec":{"ports":[', '{},', '{}]}}'),
      type: 'json',
      status: 429,
    },
    { name: 'JSON keys', body: () => Buffer.from(keys()), type: 'json', status: 429 },
    {
      name: 'a JSON string',
      body: () => mib4('{"name":"', '\\u0041', '"}'),
      type: 'json',
      status: 429,
    },
    {
      name: 'JSON digits',
      body: () => mib4('{"spec":{"replicas":', '9', '}}'),
      type: 'json',
      status: 400,
    },
    { name: 'repeated field elements', body: () => specOf([0x32, 0]), type: 'proto', status: 429 },
    { name: 'map entries', body: () => specOf([0x22, 0]), type: 'proto', status: 429 },
    { name: 'merged message fields', body: () => specOf([0x6a, 0]), type: 'proto', status: 429 },
    {
      name: 'unknown fields',
      body: () => Buffer.alloc(4 * MIB - 100, Buffer.from([0x78, 1])),
      type: 'proto',
      status: 429,
    },
    {
      name: 'deeply nested groups',
      body: () => Buffer.alloc(4 * MIB - 100, 0x7b),
      type: 'proto',
      status: 400,
    },
    {
      name: 'many groups',
      body: () => Buffer.alloc(4 * MIB - 100, Buffer.from([0x7b, 0x7c])),
      type: 'proto',
      status: 429,
    },
    {
      name: 'a string field',
      body: () =>
        Buffer.concat([
          Buffer.from([0x12, ...size(4 * MIB - 100)]),
          Buffer.alloc(4 * MIB - 100, 'a'),
        ]),
      type: 'proto',
      status: 429,
    },
  ])('are bounded for 4 MiB of $name', async ({ body, type, status }) => {
    const bytes = body();
    await survives(async () => {
      for (const answer of await postMany(bytes, { 'content-type': `application/${type}` }))
        expect(answer).toMatchObject({ status });
    });
  });
});

/** Reads one metric of the coordinator. */
async function metric(name: string): Promise<number> {
  const text = await (await fetch(`${cluster.opsUrl}/metrics`)).text();
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.split(' ')
      .at(-1),
  );
}

/** Waits until a metric of the coordinator satisfies a condition. */
async function untilMetric(name: string, fits: (value: number) => boolean): Promise<void> {
  while (!fits(await metric(name))) await new Promise((resolve) => setImmediate(resolve));
}
