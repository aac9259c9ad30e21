import { create, equals } from '@bufbuild/protobuf';
import {
  ServiceEndpointSchema,
  WatchServiceEndpointsResponseSchema,
  WatchServiceEndpointsResponse_Kind as Kind,
  type ServiceEndpoint,
  type WatchServiceEndpointsResponse,
} from '@cloudless/api';
import type { ServiceRecord } from '@cloudless/api/store';
import type { StopSignal } from '@cloudless/base';
import type { ReadDeps } from '../ports.js';
import { watchRecords, type WatchDeps, type WatchUpdate } from '../watch/watch-records.js';
import { listServiceEndpoints } from './service-endpoints.js';
import { createServiceRecordSource } from './watch-services.js';

/**
 * Sends the current endpoints of a service, then `SYNCED`, then each change. Ends when the service is
 * deleted, after its endpoints are.
 */
export async function* watchServiceEndpoints(
  deps: WatchDeps & Pick<ReadDeps, 'presenter'>,
  { uid }: ServiceRecord,
  signal: StopSignal,
): AsyncGenerator<WatchServiceEndpointsResponse> {
  const source = {
    ...createServiceRecordSource(),
    matchesFilter: (record: ServiceRecord) => record.uid === uid,
    toItem: (update: WatchUpdate<ServiceRecord>) => update,
  };
  let shown = new Map<string, ServiceEndpoint>();
  for await (const { revision, ...update } of watchRecords(deps, source, 0n, signal)) {
    const toItem = (kind: Kind, endpoint?: ServiceEndpoint): WatchServiceEndpointsResponse =>
      create(WatchServiceEndpointsResponseSchema, {
        kind,
        revision,
        ...(endpoint === undefined ? {} : { endpoint }),
      });
    if (update.kind === 'bookmark') yield toItem(Kind.BOOKMARK);
    else if (update.kind === 'synced') yield toItem(Kind.SYNCED);
    else {
      const endpoints =
        update.kind === 'put'
          ? listServiceEndpoints(deps.state.view(), update.record, deps.presenter)
          : [];
      const current = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
      const before = shown;
      shown = current;
      for (const [id, endpoint] of current) {
        const known = before.get(id);
        if (known === undefined) yield toItem(Kind.ADDED, endpoint);
        else if (!equals(ServiceEndpointSchema, known, endpoint))
          yield toItem(Kind.MODIFIED, endpoint);
      }
      for (const id of before.keys())
        if (!current.has(id)) yield toItem(Kind.DELETED, create(ServiceEndpointSchema, { id }));
      if (update.kind === 'deleted') return;
    }
  }
}
