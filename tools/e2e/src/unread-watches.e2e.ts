import { createGrpcTransport } from '@connectrpc/connect-node';
import { createCoordinatorClient } from '@cloudless/api';
import {
  runAttack,
  encodeCall,
  encodeCallHead,
  encodeEnvelope,
  encodeOpening,
  RawClient,
  readResidentMiB,
  listStreamIds,
} from './support/http2-frames.js';
import { RealCluster } from './support/cluster.js';

/** Limit of streams of one principal, which is one connection here. */
const STREAMS_PER_CONNECTION = 64;
/** Enough connections for 5 056 watches, about ten times the limit of one address. */
const CONNECTIONS = 79;
/** Limit of streams of one address. */
const STREAMS_PER_ADDRESS = 512;
/**
 * Coarse bound of the memory growth: the open streams use about 50 MiB, the rest is heap that Node
 * keeps after the burst.
 */
const GROWTH_MIB = 384;

let cluster: RealCluster;
const clients: RawClient[] = [];
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  const annotations = Object.fromEntries(
    Array.from({ length: 4 }, (_, index) => [`k${index}`, 'x'.repeat(8_000)]),
  );
  const spec = { command: ['true'], replicas: 0, annotations };
  for (let index = 0; index < 32; index += 1)
    await cluster.client.createWorkload({ name: `w${index}`, spec });
});
afterAll(async () => {
  for (const client of clients) client.close();
  await cluster.stop();
});

/** Reads the metrics of the coordinator, by name with labels. */
async function readMetrics(): Promise<ReadonlyMap<string, number>> {
  const text = await (await fetch(`${cluster.opsUrl}/metrics`)).text();
  return new Map(
    text
      .split('\n')
      .filter((line) => !line.startsWith('#'))
      .map((line) => [
        line.slice(0, line.lastIndexOf(' ')),
        Number(line.slice(line.lastIndexOf(' ') + 1)),
      ]),
  );
}

/** Returns the number of watches that are open or were refused. */
function countAnswered(metrics: ReadonlyMap<string, number>): number {
  return [...metrics]
    .filter(([name]) => /^cloudless_rpc_(streams$|streams_refused_total$|shed_total\{)/.test(name))
    .reduce((sum, [, count]) => sum + count, 0);
}

describe('5,056 watches from one address that are never read', () => {
  it('are limited to the streams of one address, and another client is served', async () => {
    const { pid } = cluster.coordinatorProcess;
    const restMiB = readResidentMiB(pid);
    const bystander = createCoordinatorClient(createGrpcTransport({ baseUrl: cluster.url }));
    const head = encodeCallHead('WatchWorkloads', 'application/grpc');
    const watches = listStreamIds(STREAMS_PER_CONNECTION).map((stream) =>
      encodeCall(stream, head, encodeEnvelope(new Uint8Array())),
    );
    const effect = await runAttack(pid, restMiB, bystander, 'w1', async () => {
      for (let count = 0; count < CONNECTIONS; count += 1) {
        const client = new RawClient(cluster.url);
        clients.push(client);
        await client.send(Buffer.concat([encodeOpening(), ...watches]));
      }
      while (countAnswered(await readMetrics()) < STREAMS_PER_CONNECTION * CONNECTIONS) {
        await new Promise((resolve) => setImmediate(resolve));
      }
    });
    const open = (await readMetrics()).get('cloudless_rpc_streams');
    process.stdout.write(`    ${JSON.stringify({ ...effect, open })}\n`);
    await expect(bystander.watchWorkloads({})[Symbol.asyncIterator]().next()).rejects.toThrow(
      'clients at loopback have 512 streams open, the limit of one address; close some first',
    );
    expect(effect.failures).toEqual([]);
    expect(open).toBeLessThanOrEqual(STREAMS_PER_ADDRESS);
    expect(effect.growthMiB).toBeLessThan(GROWTH_MIB);
  });
});
