import { create } from '@bufbuild/protobuf';
import {
  ServiceSchema,
  WatchServicesResponseSchema,
  WatchServicesResponse_Kind as WatchKind,
  matchesLabels,
  parseLabelSelector,
  type WatchServicesRequest,
  type WatchServicesResponse,
} from '@cloudless/api';
import type { ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  toServiceKeyId,
  type ClusterView,
  type HistoricChange,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import type { WatchSource } from '../watch/watch-records.js';
import { presentService } from './service-presenter.js';

/**
 * Creates the watch source of services.
 * @param isVisible - Returns true for the namespaces whose services are sent.
 * @throws kind `invalid` when the label selector cannot be parsed.
 */
export function createServiceSource(
  { state }: Pick<ReadDeps, 'state'>,
  request: WatchServicesRequest,
  isVisible: (namespace: string) => boolean,
): WatchSource<'service', WatchServicesResponse> {
  const selector = parseLabelSelector(request.labelSelector);
  return {
    ...createServiceRecordSource(),
    matchesFilter: ({ namespace, name, labels }) =>
      (request.namespace === '' || namespace === request.namespace) &&
      isVisible(namespace) &&
      (request.name === '' || name === request.name) &&
      matchesLabels(selector, labels),
    toItem: (update) => {
      const { revision } = update;
      switch (update.kind) {
        case 'put':
          return create(WatchServicesResponseSchema, {
            kind: WatchKind.PUT,
            service: presentService(state.view(), update.record),
            revision,
          });
        case 'deleted': {
          const { namespace, name, uid } = update.record;
          return create(WatchServicesResponseSchema, {
            kind: WatchKind.DELETED,
            service: create(ServiceSchema, { namespace, name, uid }),
            revision,
          });
        }
        case 'synced':
          return create(WatchServicesResponseSchema, { kind: WatchKind.SYNCED, revision });
        case 'bookmark':
          return create(WatchServicesResponseSchema, { kind: WatchKind.BOOKMARK, revision });
      }
    },
  };
}

/**
 * Creates the part of a watch source that the watches of services and of their endpoints share: the
 * records, and which services a change of a record affects.
 */
export function createServiceRecordSource(): Omit<
  WatchSource<'service', unknown>,
  'matchesFilter' | 'toItem'
> {
  return {
    kind: 'service',
    dependsOn: ['service', 'endpoint', 'workload', 'control', 'version', 'replica', 'network'],
    getKey: ({ namespace, name }: ServiceRecord) => toServiceKeyId(namespace, name),
    findRecord: (view, key) => view.service(key),
    listRecords: (view) => view.services(),
    listAffectedKeys: listAffectedServices,
    listKeysAffectedByLiveness: () => [],
  };
}

function listAffectedServices(
  view: ClusterView,
  change: RecordChange | HistoricChange,
): Iterable<string> {
  switch (change.kind) {
    case 'service':
      return [change.id];
    case 'endpoint':
      return [change.id.slice(0, change.id.lastIndexOf('/'))];
    case 'workload':
      return listServicesOfChange(view, change);
    case 'control':
    case 'version':
    case 'replica': {
      const workload = view.workload(change.id.split('/', 1)[0] ?? '');
      return workload === undefined ? [] : listKeys(view.servicesSelecting(workload.value));
    }
    case 'network':
      return listKeys(view.services());
    default:
      return [];
  }
}

/**
 * The history of the store does not show what a workload was before: it may have left services by a
 * change of its labels, or by its deletion. Then all services count as affected.
 */
function listServicesOfChange(
  view: ClusterView,
  change: RecordChange | HistoricChange,
): Iterable<string> {
  const before = 'before' in change ? (change.before as WorkloadRecord | undefined) : undefined;
  const after = change.after as WorkloadRecord | undefined;
  if (before === undefined && after?.generation !== 1n) return listKeys(view.services());
  return new Set(
    [before, after].flatMap((record) =>
      record === undefined ? [] : listKeys(view.servicesSelecting(record)),
    ),
  );
}

function listKeys(services: ReturnType<ClusterView['services']>): readonly string[] {
  return [...services].map(({ value }) => toServiceKeyId(value.namespace, value.name));
}
