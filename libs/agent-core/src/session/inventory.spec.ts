import { create, toBinary } from '@bufbuild/protobuf';
import { InventorySchema, ReplicaReportSchema, type ReplicaReport } from '@cloudless/api';
import { MAX_INVENTORY_BYTES, toInventory } from './inventory.js';

const aReport = (index: number, bytes: number): ReplicaReport =>
  create(ReplicaReportSchema, { replicaId: `web-${index}`, reason: 'x'.repeat(bytes) });

describe('toInventory', () => {
  it('returns one empty last message when there are no reports', () => {
    expect([...toInventory([])]).toMatchObject([{ replicas: [], last: true }]);
  });

  it.each([{ bytes: 100 }, { bytes: 10_000 }, { bytes: 60_000 }, { bytes: 130_000 }])(
    'splits reports of $bytes bytes into messages of at most 256 KiB, in order',
    ({ bytes }) => {
      const reports = Array.from({ length: 30 }, (_, index) => aReport(index, bytes));
      const messages = [...toInventory(reports)];
      for (const message of messages)
        expect(toBinary(InventorySchema, message).length).toBeLessThanOrEqual(MAX_INVENTORY_BYTES);
      expect(messages.flatMap(({ replicas }) => replicas)).toEqual(reports);
      expect(messages.map(({ last }) => last)).toEqual(
        messages.map((_, index) => index === messages.length - 1),
      );
    },
  );

  it('puts a report that is larger than the limit into a message of its own', () => {
    const reports = [aReport(1, 10), aReport(2, MAX_INVENTORY_BYTES), aReport(3, 10)];
    expect([...toInventory(reports)].map(({ replicas }) => replicas.length)).toEqual([1, 1, 1]);
  });
});
