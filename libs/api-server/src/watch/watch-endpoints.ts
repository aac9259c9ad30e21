import { create } from '@bufbuild/protobuf';
import { EndpointSetSchema, type EndpointSet } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { WatchSource } from './watch-records.js';
import { createWorkloadRecordSource } from './watch-workloads.js';

/**
 * Creates the watch source of the endpoints of one workload. The item of a deletion is `gone`. A
 * change that leaves the endpoints equal gives no item.
 * @param createEndpointSet - Returns the current endpoints of the workload.
 */
export function createEndpointSource(
  uid: string,
  createEndpointSet: (record: WorkloadRecord) => EndpointSet,
): WatchSource<'workload', EndpointSet | 'gone'> {
  /** The endpoints in the last item, as JSON. */
  let lastSent: string | undefined;
  return {
    ...createWorkloadRecordSource(),
    matchesFilter: (record) => record.uid === uid,
    listKeysAffectedByLiveness: () => [],
    toItem: (update) => {
      const { revision } = update;
      if (update.kind === 'bookmark')
        return create(EndpointSetSchema, { bookmark: true, revision });
      if (update.kind === 'synced') return undefined;
      if (update.kind === 'deleted') return 'gone';
      const set = Object.assign(createEndpointSet(update.record), { revision });
      const text = JSON.stringify([set.readyReplicas, set.endpoints]);
      if (text === lastSent) return undefined;
      lastSent = text;
      return set;
    },
  };
}
