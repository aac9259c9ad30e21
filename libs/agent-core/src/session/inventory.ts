import { create, toBinary } from '@bufbuild/protobuf';
import {
  InventorySchema,
  ReplicaReportSchema,
  type Inventory,
  type ReplicaReport,
} from '@cloudless/api';

/** Maximum size of an inventory message, bytes. */
export const MAX_INVENTORY_BYTES = 256 * 1024;
/** Size of the field number and length before each report. */
const REPORT_OVERHEAD_BYTES = 8;

/**
 * Splits reports into messages of at most {@link MAX_INVENTORY_BYTES}. The last message is marked
 * as such; without reports there is one empty message.
 */
export function* toInventory(reports: readonly ReplicaReport[]): Generator<Inventory> {
  let chunk: ReplicaReport[] = [];
  let bytes = 0;
  for (const report of reports) {
    const size = toBinary(ReplicaReportSchema, report).length + REPORT_OVERHEAD_BYTES;
    if (chunk.length > 0 && bytes + size > MAX_INVENTORY_BYTES) {
      yield create(InventorySchema, { replicas: chunk, last: false });
      chunk = [];
      bytes = 0;
    }
    chunk.push(report);
    bytes += size;
  }
  yield create(InventorySchema, { replicas: chunk, last: true });
}
