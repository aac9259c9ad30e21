import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  DeleteRouteResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  NetworkService,
  RouteSpecSchema,
  RouteTlsSchema,
  checkRoute,
  resolveNamespace,
  updateMessage,
  withRouteDefaults,
  type CreateRouteRequest,
  type DeleteRouteRequest,
  type DeleteRouteResponse,
  type Route,
  type RouteSpec,
  type UpdateRouteRequest,
} from '@cloudless/api';
import { RouteRecordSchema, type RouteRecord } from '@cloudless/api/store';
import { CloudlessError, randomHex } from '@cloudless/base';
import { toRouteKeyId, type EventInit } from '@cloudless/cluster-state';
import type { AuditEntry } from '../../audit/audit-log.js';
import { runIdempotent, type MutationDeps } from '../../mutation/idempotent-mutation.js';
import { changeLabels } from '../changed-labels.js';
import { putRouteClaims } from './route-claims.js';
import { getRouteSpec, requireExpectedRoute, requireRoute, toRouteKey } from './route-lookup.js';
import { presentRoute } from './route-presenter.js';

const calls = NetworkService.method;

/** Random bytes of the uid of a route. */
const UID_BYTES = 8;

/** Changes of routes run one at a time: each is compared with all other routes. */
const SUBJECT = 'the HTTP routes';

/** Handlers of the calls of NetworkService that change routes. */
export class RouteHandlers {
  constructor(private readonly deps: MutationDeps) {}

  /** @param requireClusterRole - Called when the route gets a certificate from files of nodes. */
  createRoute(
    request: CreateRouteRequest,
    entry: AuditEntry,
    requireClusterRole: () => void,
  ): Promise<Route> {
    const { requestId, labels, name } = request;
    const namespace = resolveNamespace(request);
    const key = toRouteKey(request);
    const given = request.spec ?? create(RouteSpecSchema);
    checkRoute(given);
    if (given.tls !== undefined) requireClusterRole();
    return runIdempotent(this.deps, calls.createRoute, toCall(request, entry), (view) => {
      if (view.route(key) !== undefined) {
        const message = `route "${key}" already exists; update it, or choose another name`;
        throw new CloudlessError('exists', message);
      }
      const { clock, random, state } = this.deps;
      const record = create(RouteRecordSchema, {
        ...{ namespace, name, labels, generation: 1n },
        uid: randomHex(random, UID_BYTES),
        spec: withRouteDefaults(given),
        createdAt: timestampFromMs(clock.wallTime()),
      });
      const transaction = state.transaction();
      putRouteClaims(view, transaction, record);
      transaction
        .require('route', key, 'absent')
        .put('route', key, record)
        .event(createRouteEvent(record, requestId, 'RouteCreated', 'was created'));
      return { response: presentRoute(view, record), transaction };
    });
  }

  /** @param requireClusterRole - Called when the certificate or key files of the route change. */
  updateRoute(
    request: UpdateRouteRequest,
    entry: AuditEntry,
    requireClusterRole: () => void,
  ): Promise<Route> {
    return runIdempotent(this.deps, calls.updateRoute, toCall(request, entry), (view) => {
      const current = requireExpectedRoute(view, request);
      const before = getRouteSpec(current.value);
      const patch = request.spec ?? create(RouteSpecSchema);
      const merged = updateMessage(RouteSpecSchema, before, patch, request.updateMask?.paths);
      checkRoute(merged);
      if (getsOtherFiles(before, merged)) requireClusterRole();
      const spec = withRouteDefaults(merged);
      const labels = changeLabels(current.value.labels, request.labels);
      if (equals(RouteSpecSchema, before, spec) && labels === undefined)
        return { response: presentRoute(view, current.value) };
      const next = clone(RouteRecordSchema, current.value);
      next.spec = spec;
      next.generation += 1n;
      if (labels !== undefined) next.labels = labels;
      const key = toRouteKey(request);
      const transaction = this.deps.state.transaction();
      putRouteClaims(view, transaction, next);
      transaction
        .require('route', key, current)
        .put('route', key, next)
        .event(
          createRouteEvent(
            next,
            request.requestId,
            'RouteUpdated',
            `has new settings (generation ${next.generation})`,
          ),
        );
      return { response: presentRoute(view, next), transaction };
    });
  }

  /** Deletes a route. A repeated call with another request id fails with NOT_FOUND. */
  deleteRoute(request: DeleteRouteRequest, entry: AuditEntry): Promise<DeleteRouteResponse> {
    return runIdempotent(this.deps, calls.deleteRoute, toCall(request, entry), (view) => {
      const current = requireRoute(view, request);
      const key = toRouteKey(request);
      const transaction = this.deps.state
        .transaction()
        .require('route', key, current)
        .delete('route', key)
        .event(createRouteEvent(current.value, request.requestId, 'RouteDeleted', 'was deleted'));
      return { response: create(DeleteRouteResponseSchema), transaction };
    });
  }
}

function toCall<Request>(request: Request, entry: AuditEntry) {
  return { request, entry, subject: SUBJECT };
}

function getsOtherFiles({ tls: before }: RouteSpec, { tls: after }: RouteSpec): boolean {
  if (after === undefined) return false;
  return before === undefined || !equals(RouteTlsSchema, before, after);
}

function createRouteEvent(
  { namespace, name }: RouteRecord,
  requestId: string,
  reason: string,
  text: string,
): EventInit {
  return {
    ...{ severity: Severity.INFO, category: Category.WORKLOAD, namespace, requestId, reason },
    message: `route ${toRouteKeyId(namespace, name)} ${text}`,
  };
}
