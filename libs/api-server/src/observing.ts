import { create } from '@bufbuild/protobuf';
import {
  EndpointSetSchema,
  ListEventsResponseSchema,
  ReplicaEndpointSchema,
  pageOf,
  type EndpointSet,
  type ListEndpointsRequest,
  type ListEventsRequest,
  type ListEventsResponse,
  type WatchEndpointsRequest,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { isLive, servesOf } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import type { ApiServerDeps } from './ports.js';
import type { SoftChanges } from './soft-changes.js';
import { endpointSource } from './watch-endpoints.js';
import { eventFilter, watchEvents } from './watch-events.js';
import { watchRecords } from './watch-records.js';
import { relatedEvents } from './related-events.js';
import { found } from './workload-change.js';

/** Handlers of the endpoint and event calls of CoordinatorService. */
export class ObservingHandlers {
  constructor(private readonly deps: ApiServerDeps & { readonly soft: SoftChanges }) {}

  listEndpoints = (request: ListEndpointsRequest): EndpointSet =>
    this.endpoints(found(this.deps.state.view(), request).value);

  /**
   * Sends all endpoints at once, and again after each change. Ends when the workload is deleted.
   */
  async *watchEndpoints(
    request: WatchEndpointsRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<EndpointSet> {
    const { uid } = found(this.deps.state.view(), request).value;
    const source = endpointSource(this.deps.placements, uid, (record) => this.endpoints(record));
    for await (const item of watchRecords(this.deps, source, request.afterRevision, signal)) {
      if (item === 'gone') return;
      yield item;
    }
  }

  listEvents = (request: ListEventsRequest): ListEventsResponse => {
    const view = this.deps.state.view();
    const { namespace, workload, nodeId, newestFirst, categories, relatedTo } = request;
    const events = relatedTo === '' ? view.events() : relatedEvents(view.events(), relatedTo);
    const matching = events.filter(eventFilter(request));
    const { items, nextPageToken } = pageOf(
      newestFirst ? matching.reverse() : matching,
      ({ id }) => id,
      request,
      {
        filter: [
          'events',
          namespace,
          workload,
          nodeId,
          newestFirst,
          categories.join(','),
          relatedTo,
        ],
        ...(newestFirst ? { compare: descending } : {}),
      },
    );
    return create(ListEventsResponseSchema, {
      events: [...items],
      nextPageToken,
      revision: view.revision,
    });
  };

  watchEvents(
    request: WatchEventsRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<WatchEventsResponse> {
    return watchEvents(this.deps, request, signal);
  }

  private endpoints(record: WorkloadRecord): EndpointSet {
    const { state, placements } = this.deps;
    const view = state.view();
    const serves = servesOf(view, record.uid);
    const serving = [...view.replicasOf(record.uid)]
      .map(({ value }) => value)
      .filter(serves)
      .filter(
        (replica) => replica.ready && replica.desiredRunning && !replica.lost && isLive(replica),
      )
      .sort((a, b) => Number(a.sequence - b.sequence));
    const endpoints = serving.flatMap((replica) =>
      replica.endpoints.map(({ portName, ip, port }) => {
        const node = view.node(replica.nodeId)?.value;
        return create(ReplicaEndpointSchema, {
          replicaId: replica.id,
          nodeId: replica.nodeId,
          zone: node === undefined ? '' : placements.effective(node).zone,
          version: replica.version,
          portName,
          ip,
          port,
        });
      }),
    );
    return create(EndpointSetSchema, {
      endpoints,
      revision: view.revision,
      readyReplicas: serving.length,
    });
  }
}

const descending = (a: string, b: string): number => (a > b ? -1 : a < b ? 1 : 0);
