import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ListRoutesResponseSchema,
  NetworkService,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  type GetRouteRequest,
  type ListRoutesRequest,
  type ListRoutesResponse,
  type Route,
} from '@cloudless/api';
import type { RouteRecord } from '@cloudless/api/store';
import { toRouteKeyId, type ClusterView } from '@cloudless/cluster-state';
import { CallAccess } from '../../access/call-access.js';
import type { ReadDeps } from '../../ports.js';
import { getRouteSpec, requireRoute, toRouteKey } from './route-lookup.js';
import { presentRoute } from './route-presenter.js';

/** Handlers of the calls of NetworkService that read routes. */
export class RouteReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps) {
    this.access = new CallAccess(deps);
  }

  getRoute(request: GetRouteRequest): Route {
    const { state, clock } = this.deps;
    const view = state.view();
    return presentRoute(view, requireRoute(view, request).value, clock.wallTime());
  }

  listRoutes(request: ListRoutesRequest, context: HandlerContext): ListRoutesResponse {
    const { namespace, service, labelSelector } = request;
    const caller = this.access.getCaller(context);
    const isVisible = this.access.createFilter(caller, NetworkService.method.listRoutes, namespace);
    const selector = parseLabelSelector(labelSelector);
    const view = this.deps.state.view();
    const { items, nextPageToken } = paginateIndex(
      (after) => listRoutesAfter(view, namespace, after),
      toRouteKey,
      request,
      { filter: ['routes', namespace, labelSelector, service] },
      (record) =>
        isVisible(record.namespace) &&
        matchesLabels(selector, record.labels) &&
        (service === '' || getRouteSpec(record).rules.some((rule) => rule.service === service)),
    );
    const nowMs = this.deps.clock.wallTime();
    return create(ListRoutesResponseSchema, {
      routes: items.map((record) => presentRoute(view, record, nowMs)),
      nextPageToken,
      revision: view.revision,
    });
  }
}

function* listRoutesAfter(
  view: ClusterView,
  namespace: string,
  after: string | undefined,
): Generator<RouteRecord, void> {
  const prefix = namespace === '' ? '' : toRouteKeyId(namespace, '');
  for (const { value } of view.routesByName(
    after === undefined || after < prefix ? prefix : after,
  )) {
    if (namespace !== '' && value.namespace !== namespace) return;
    yield value;
  }
}
