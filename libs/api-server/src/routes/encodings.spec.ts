import { createRouterTransport, type Transport } from '@connectrpc/connect';
import { createCoordinatorClient, type CoordinatorClient } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  for (const id of ['node-1', 'node-2']) await bed.putNode(id, { zone: 'zone-a' });
  for (const id of ['a-0', 'a-1', 'b-0']) await bed.putReplica(id);
});
afterEach(() => bed.close());

async function firstOf<Item>(stream: AsyncIterable<Item>): Promise<Item | undefined> {
  for await (const item of stream) return item;
  return undefined;
}

describe('reads', () => {
  it.each<readonly [string, (client: CoordinatorClient) => Promise<object | undefined>]>([
    ['GetWorkload', (client) => client.getWorkload({ name: 'web-a' })],
    ['ListWorkloads', (client) => client.listWorkloads({})],
    ['ListWorkloads with replicas', (client) => client.listWorkloads({ includeReplicas: true })],
    [
      'ListWorkloads of a node',
      (client) => client.listWorkloads({ nodeId: 'node-1', includeReplicas: true }),
    ],
    ['WatchWorkloads', (client) => firstOf(client.watchWorkloads({}))],
    [
      'WatchWorkloads without replicas',
      (client) => firstOf(client.watchWorkloads({ omitReplicas: true })),
    ],
    ['ListReplicas', (client) => client.listReplicas({})],
    ['WatchReplicas', (client) => firstOf(client.watchReplicas({}))],
    ['GetNode', (client) => client.getNode({ nodeId: 'node-1' })],
    ['ListNodes', (client) => client.listNodes({})],
    ['WatchNodes', (client) => firstOf(client.watchNodes({ includeUsage: true }))],
  ])(
    '%s answers the same in the binary format, as shared bytes, and in JSON',
    async (_name, call) => {
      const json: Transport = createRouterTransport((router) => bed.registerRoutes(router), {
        transport: { useBinaryFormat: false },
      });
      const answer = await call(bed.client);
      expect(JSON.stringify(answer, toText)).toMatch(/web-a|node-1|a-0/);
      expect(await call(createCoordinatorClient(json))).toEqual(answer);
    },
  );
});

function toText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}
