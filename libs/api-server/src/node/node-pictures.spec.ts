import { fromBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  ConditionSchema,
  NodeCapacitySchema,
  NodeSchema,
  NodeStatusSchema,
  NodeStatus_Phase as Phase,
  NodeUsageSchema,
  skipLength,
} from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import { ApiTestBed, NO_ALLOCATION } from '../testing/api-test-bed.js';
import { NodePictures } from './node-pictures.js';
import { presentNode } from './node-presenter.js';

const arbText = fc.constantFrom('', 'zone-a', 'a longer reason in some words '.repeat(5), 'ü');
const arbMs = fc.option(fc.integer({ min: 1, max: 4_000_000_000_000 }), { nil: undefined });
const arbCapacity = fc.record({ cpuMillis: fc.nat(), memoryBytes: fc.bigInt(0n, 2n ** 40n) });
const arbLive = fc
  .record({
    phase: fc.constantFrom(Phase.UNKNOWN, Phase.READY, Phase.DISCONNECTED, Phase.LOST, Phase.AWAY),
    reason: arbText,
    alive: fc.boolean(),
    agentSlow: fc.boolean(),
    agentSlowReason: arbText,
    memoryPressure: fc.boolean(),
    diskPressure: fc.boolean(),
    diskFull: fc.boolean(),
    networkUnavailable: fc.boolean(),
    containersUnavailable: fc.boolean(),
    processesProblem: arbText,
    networkProxyProblem: arbText,
    diskFullReason: arbText,
    quarantined: fc.boolean(),
    reliability: fc.double({ min: 0, max: 1, noNaN: true }),
    connectedSinceMs: arbMs,
    lastSeenMs: arbMs,
    usage: fc.option(
      arbCapacity.map((usage) => ({ ...usage, storageBytes: 5n })),
      {
        nil: undefined,
      },
    ),
  })
  .map((live) => live as unknown as NodeLiveStatus);
const arbRecord = fc.record({
  cordoned: fc.boolean(),
  draining: fc.boolean(),
  zone: fc.option(fc.constantFrom('', 'zone-b'), { nil: undefined }),
  createdAt: fc.option(fc.nat(4_000_000_000).map(timestampFromMs), { nil: undefined }),
  hello: fc.option(
    fc.record({
      region: arbText,
      zone: arbText,
      labels: fc.dictionary(fc.constantFrom('a', 'b'), arbText),
      capabilities: fc.array(arbText, { maxLength: 2 }),
      maxReplicas: fc.nat(),
      agentVersion: arbText,
      network: fc.option(fc.constant({}), { nil: undefined }),
      capacity: fc.option(arbCapacity, { nil: undefined }),
      reserved: fc.option(arbCapacity, { nil: undefined }),
    }),
    { nil: undefined },
  ),
});

describe('NodePictures', () => {
  it('equal messages that are built anew, for any record and live status, with and without usage', async () => {
    const bed = await ApiTestBed.open();
    await bed.putReplica('w-1', { nodeId: 'node-1' });
    let live: NodeLiveStatus | undefined;
    const deps = {
      state: bed.state,
      nodes: Object.assign(Object.create(bed.nodes) as typeof bed.nodes, {
        status: () => live ?? bed.nodes.status(''),
      }),
      placements: {
        getAllocated: () => ({
          ...{ cpuMillis: 250, memoryBytes: 2 ** 33, storageBytes: 2 ** 34, bandwidthBps: 1e9 },
          ...{ gpus: 2, custom: { license: 3, 'example.com/b': 2 ** 40 }, replicas: 1 },
        }),
      },
    };
    const pictures = new NodePictures(deps);
    await fc.assert(
      fc.asyncProperty(
        arbRecord,
        fc.array(arbLive, { minLength: 1, maxLength: 3 }),
        async (record, statuses) => {
          await bed.putNode('node-1', record as never);
          for (live of statuses) {
            const value = bed.state.view().node('node-1')?.value as NodeRecord;
            const expected = presentNode(deps, value);
            expect(fromBinary(NodeSchema, skipLength(pictures.encode(value)))).toEqual(expected);
            delete expected.status?.usage;
            expect(fromBinary(NodeSchema, skipLength(pictures.encode(value, false)))).toEqual(
              expected,
            );
          }
        },
      ),
      { numRuns: 50 },
    );
    pictures.close();
    await bed.close();
  });

  it.each([
    { schema: NodeStatusSchema, count: 19 },
    { schema: NodeCapacitySchema, count: 6 },
    { schema: NodeUsageSchema, count: 3 },
    { schema: ConditionSchema, count: 3 },
  ])(
    'write the $count fields of $schema.name: add a new one to node-pictures.ts',
    ({ schema, count }) => {
      expect(schema.fields).toHaveLength(count);
    },
  );

  it('encode the parts from the record once, until the record changes', async () => {
    const bed = await ApiTestBed.open();
    for (const id of ['node-1', 'node-2']) await bed.putNode(id);
    const pictures = new NodePictures({
      state: bed.state,
      nodes: bed.nodes,
      placements: { getAllocated: () => NO_ALLOCATION },
    });
    const readAll = (): void => {
      for (const { value } of bed.state.view().nodes()) pictures.encode(value);
    };
    for (let reader = 0; reader < 50; reader += 1) readAll();
    expect(pictures.builtRecords).toBe(2);
    await bed.putNode('node-1', { cordoned: true });
    for (let reader = 0; reader < 50; reader += 1) readAll();
    expect(pictures.builtRecords).toBe(3);
    pictures.close();
    await bed.close();
  });
});
