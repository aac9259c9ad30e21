import { create } from '@bufbuild/protobuf';
import { EndpointSetSchema, type EndpointSet } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { WatchSource } from './watch-records.js';
import { createWorkloadRecordSource } from './watch-workloads.js';

/**
 * The watch source of the endpoints of one workload. Yields `gone` when the workload is deleted.
 */
export function createEndpointSource(
  uid: string,
  read: (record: WorkloadRecord) => EndpointSet,
): WatchSource<'workload', EndpointSet | 'gone'> {
  let shown: string | undefined;
  return {
    ...createWorkloadRecordSource(),
    matchesFilter: (record) => record.uid === uid,
    listKeysAffectedByLiveness: () => [],
    toItem: (news) => {
      const { revision } = news;
      if (news.kind === 'bookmark') return create(EndpointSetSchema, { bookmark: true, revision });
      if (news.kind === 'synced') return undefined;
      if (news.kind === 'deleted') return 'gone';
      const set = Object.assign(read(news.record), { revision });
      const text = JSON.stringify([set.readyReplicas, set.endpoints]);
      if (text === shown) return undefined;
      shown = text;
      return set;
    },
  };
}
