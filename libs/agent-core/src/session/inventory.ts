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
 * Splits reports into messages of at most {@link MAX_INVENTORY_BYTES}; a larger report has a
 * message of its own. The last message has `last`. Without reports there is one empty message.
 */
export function* toInventory(reports: readonly ReplicaReport[]): Generator<Inventory> {
  let pending: ReplicaReport[] = [];
  let bytes = 0;
  for (const report of reports) {
    const size = toBinary(ReplicaReportSchema, report).length + REPORT_OVERHEAD_BYTES;
    if (pending.length > 0 && bytes + size > MAX_INVENTORY_BYTES) {
      yield create(InventorySchema, { replicas: pending, last: false });
      pending = [];
      bytes = 0;
    }
    pending.push(report);
    bytes += size;
  }
  yield create(InventorySchema, { replicas: pending, last: true });
}
