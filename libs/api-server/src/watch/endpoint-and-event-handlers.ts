import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  EndpointSetSchema,
  ListEventsResponseSchema,
  ReplicaEndpointSchema,
  iterateAfter,
  iterateBefore,
  paginateIndex,
  type EndpointSet,
  type Event,
  type ListEndpointsRequest,
  type ListEventsRequest,
  type ListEventsResponse,
  type WatchEndpointsRequest,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { createServingFilter, getZone, isLive } from '@cloudless/cluster-state';
import { CallAccess } from '../access/call-access.js';
import type { ReadDeps } from '../ports.js';
import { requireWorkload } from '../lookup.js';
import type { LivenessChanges } from './liveness-changes.js';
import { createEndpointSource } from './watch-endpoints.js';
import { createEventFilter, watchEvents } from './watch-events.js';
import { watchRecords } from './watch-records.js';
import { findRelatedEvents } from './related-events.js';

/** Handlers of the endpoint and event calls of CoordinatorService. */
export class EndpointAndEventHandlers {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly livenessChanges: LivenessChanges }) {
    this.access = new CallAccess(deps);
  }

  listEndpoints(request: ListEndpointsRequest): EndpointSet {
    return this.createEndpointSet(requireWorkload(this.deps.state.view(), request).value);
  }

  /**
   * Sends the current endpoints of a workload, and all of them again after each change. Ends when
   * the workload is deleted.
   * @throws kind `notFound` when there is no such workload at the start.
   */
  async *watchEndpoints(
    request: WatchEndpointsRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<EndpointSet> {
    const { uid } = requireWorkload(this.deps.state.view(), request).value;
    const source = createEndpointSource(uid, (record) => this.createEndpointSet(record));
    for await (const item of watchRecords(this.deps, source, request.afterRevision, signal)) {
      if (item === 'gone') return;
      yield item;
    }
  }

  listEvents(request: ListEventsRequest, context: HandlerContext): ListEventsResponse {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.listEvents,
      request.namespace,
    );
    const view = this.deps.state.view();
    const { namespace, workload, nodeId, newestFirst, categories, relatedTo } = request;
    const all = view.events();
    const isVisibleEvent = ({ namespace }: Event): boolean => isVisible(namespace);
    const events = relatedTo === '' ? all : findRelatedEvents(all, relatedTo, isVisibleEvent);
    const isSelected = createEventFilter(request);
    const { items, nextPageToken } = paginateIndex(
      (after) => (newestFirst ? iterateBefore : iterateAfter)(events, ({ id }) => id, after),
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
          request.reasons.join(','),
          request.severities.join(','),
          request.since === undefined ? '' : String(timestampMs(request.since)),
        ],
      },
      (event) => isVisibleEvent(event) && isSelected(event),
    );
    return create(ListEventsResponseSchema, {
      events: [...items],
      nextPageToken,
      revision: view.revision,
    });
  }

  watchEvents(
    request: WatchEventsRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchEventsResponse> {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.watchEvents,
      request.namespace,
    );
    return watchEvents(this.deps, request, context.signal, isVisible);
  }

  /** Returns the endpoints of the ready replicas that are not leaving, by sequence number. */
  private createEndpointSet(record: WorkloadRecord): EndpointSet {
    const view = this.deps.state.view();
    const isServing = createServingFilter(view, record.uid);
    const serving = [...view.replicasOf(record.uid)]
      .map(({ value }) => value)
      .filter(isServing)
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
          zone: node === undefined ? '' : getZone(node),
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
