import { create, toBinary } from '@bufbuild/protobuf';
import {
  InventorySchema,
  ReplicaReportSchema,
  type Inventory,
  type ReplicaReport,
} from '@cloudless/api';

/** Largest inventory message, bytes. */
export const MAX_INVENTORY_BYTES = 256 * 1024;
/** Room for the field number and length before each report. */
const REPORT_OVERHEAD_BYTES = 8;

/**
 * All reports in chunks of at most {@link MAX_INVENTORY_BYTES}; the final one says so, also when
 * there is nothing to report.
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
