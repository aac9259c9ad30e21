import { create } from '@bufbuild/protobuf';
import {
  EndpointSetSchema,
  ListEventsResponseSchema,
  ReplicaEndpointSchema,
  WatchEventsResponseSchema,
  pageOf,
  type EndpointSet,
  type Event,
  type ListEndpointsRequest,
  type ListEventsRequest,
  type ListEventsResponse,
  type WatchEndpointsRequest,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { isLive } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import { DirtyKeys } from './changes.js';
import type { ApiServerDeps } from './ports.js';
import { found } from './workloads.js';

/** The endpoint and event calls of CoordinatorService. */
export class ObservingHandlers {
  constructor(private readonly deps: ApiServerDeps) {}

  listEndpoints = (request: ListEndpointsRequest): EndpointSet => this.endpoints(found(this.deps.state.view(), request).value);

  /** The whole set at once, then at each change; ends when the workload is gone. */
  async *watchEndpoints(request: WatchEndpointsRequest, { signal }: HandlerContext): AsyncGenerator<EndpointSet> {
    const { state, clock } = this.deps;
    const { uid } = found(state.view(), request).value;
    const dirty = new DirtyKeys();
    const unsubscribe = state.subscribe((changes) => {
      for (const { kind, id, before, after } of changes) {
        const about = kind === 'workload' ? id : kind === 'replica' ? ((after ?? before) as ReplicaRecord).uid : undefined;
        if (about === uid) dirty.mark(uid);
      }
    });
    try {
      let shown: string | undefined;
      for (let keys: readonly string[] | undefined = [uid]; keys !== undefined; keys = await dirty.next(clock, signal)) {
        const record = state.view().workload(uid)?.value;
        if (record === undefined) return;
        const set = this.endpoints(record);
        const key = JSON.stringify([set.readyReplicas, set.endpoints.map((e) => [e.replicaId, e.portName, e.ip, e.port])]);
        if (key === shown && keys.length > 0) continue;
        shown = key;
        yield set;
      }
    } finally {
      unsubscribe();
    }
  }

  listEvents = (request: ListEventsRequest): ListEventsResponse => {
    const matching = this.deps.state.view().events().filter(eventFilter(request));
    const ordered = request.newestFirst ? matching.reverse() : matching;
    const descending = (a: string, b: string): number => (a > b ? -1 : a < b ? 1 : 0);
    const { items, nextPageToken } = pageOf(ordered, ({ id }) => id, request, request.newestFirst ? descending : undefined);
    return create(ListEventsResponseSchema, { events: [...items], nextPageToken });
  };

  async *watchEvents(request: WatchEventsRequest, { signal }: HandlerContext): AsyncGenerator<WatchEventsResponse> {
    const { state, clock } = this.deps;
    const wanted = eventFilter(request);
    let after = request.afterId !== '' ? request.afterId : (state.view().events().at(-1)?.id ?? '');
    const dirty = new DirtyKeys();
    const unsubscribe = state.subscribe((changes) => {
      if (changes.some(({ kind, after: added }) => kind === 'event' && added !== undefined)) dirty.mark('events');
    });
    try {
      for (let keys: readonly string[] | undefined = ['events']; keys !== undefined; keys = await dirty.next(clock, signal)) {
        if (keys.length === 0) yield create(WatchEventsResponseSchema);
        for (const event of eventsAfter(state.view().events(), after)) {
          after = event.id;
          if (wanted(event)) yield create(WatchEventsResponseSchema, { event });
        }
      }
    } finally {
      unsubscribe();
    }
  }

  private endpoints(record: WorkloadRecord): EndpointSet {
    const { state, placements } = this.deps;
    const view = state.view();
    const serving = [...view.replicasOf(record.uid)]
      .map(({ value }) => value)
      .filter((replica) => replica.ready && replica.desiredRunning && !replica.lost && isLive(replica))
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
    return create(EndpointSetSchema, { endpoints, revision: view.revision, readyReplicas: serving.length });
  }
}

interface EventRequest {
  readonly namespace: string;
  readonly workload: string;
  readonly nodeId: string;
}

function eventFilter({ namespace, workload, nodeId }: EventRequest): (event: Event) => boolean {
  return (event) =>
    (namespace === '' || event.namespace === namespace) &&
    (workload === '' || event.workload === workload) &&
    (nodeId === '' || event.nodeId === nodeId);
}

/** Events are sorted by id, so those after one are found from the end. */
function eventsAfter(events: readonly Event[], after: string): readonly Event[] {
  let start = events.length;
  while (start > 0 && (events[start - 1]?.id ?? '') > after) start -= 1;
  return events.slice(start);
}
