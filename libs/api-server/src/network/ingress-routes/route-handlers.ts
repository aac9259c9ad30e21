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
import { RouteRecordSchema, type RouteRecord, type SecretRecord } from '@cloudless/api/store';
import { CloudlessError, randomHex } from '@cloudless/base';
import {
  putFilesUse,
  toRouteKeyId,
  type ClusterView,
  type EventInit,
  type Transaction,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../../audit/audit-log.js';
import {
  runIdempotent,
  type MutationDeps,
  type MutationResult,
} from '../../mutation/idempotent-mutation.js';
import { toSecretKey } from '../../secret/secret-lookup.js';
import type { StoredSecretValues } from '../../secret/secret-values.js';
import { changeLabels } from '../changed-labels.js';
import { putRouteClaims, type ClaimedRoute } from './route-claims.js';
import { getRouteSpec, requireExpectedRoute, requireRoute, toRouteKey } from './route-lookup.js';
import { presentRoute } from './route-presenter.js';
import {
  MAX_READS,
  createBusyError,
  getSecretName,
  isSameVersion,
  readCertificatePair,
  requireRouteSecret,
} from './route-secret.js';

const calls = NetworkService.method;

/** Random bytes of the uid of a route. */
const UID_BYTES = 8;

/** Changes of routes run one at a time: each is compared with all other routes. */
const SUBJECT = 'the HTTP routes';

export interface RouteHandlersDeps extends MutationDeps {
  readonly values: StoredSecretValues;
}

/**
 * Why a change of a route needs a role in the whole cluster: the route gets other files of nodes, or
 * begins to have the certificate for every host: another secret without hosts, or no hosts any more.
 */
export type ClusterRoleNeed = 'files' | 'everyHost';

/**
 * A decision on a change of a route. `check`: first find out whether the newest version of this secret
 * is a certificate with its key, then decide again.
 */
type Decision = MutationResult<Route> | { readonly check: SecretRecord };

/** Handlers of the calls of NetworkService that change routes. */
export class RouteHandlers {
  constructor(private readonly deps: RouteHandlersDeps) {}

  /** @param requireClusterRole - Called when the route needs a role in the whole cluster. */
  createRoute(
    request: CreateRouteRequest,
    entry: AuditEntry,
    requireClusterRole: (need: ClusterRoleNeed) => void,
  ): Promise<Route> {
    const { requestId, labels, name } = request;
    const namespace = resolveNamespace(request);
    const key = toRouteKey(request);
    const given = request.spec ?? create(RouteSpecSchema);
    checkRoute(given);
    describeSecrets(entry, namespace, undefined, given);
    const need = findClusterRoleNeed(undefined, given);
    if (need !== undefined) requireClusterRole(need);
    const decide = (view: ClusterView, fitting: SecretRecord | undefined): Decision => {
      if (view.route(key) !== undefined) {
        const message = `route "${key}" already exists; update it, or choose another name`;
        throw new CloudlessError('exists', message);
      }
      const { clock, random, state } = this.deps;
      const nowMs = clock.wallTime();
      const record = create(RouteRecordSchema, {
        ...{ namespace, name, labels, generation: 1n },
        uid: randomHex(random, UID_BYTES),
        spec: withRouteDefaults(given),
        createdAt: timestampFromMs(nowMs),
      });
      const transaction = state.transaction();
      putRouteClaims(view, transaction, { record, before: undefined });
      const check = putSecretUse(view, transaction, { record, before: undefined, fitting, nowMs });
      if (check !== undefined) return { check };
      transaction
        .require('route', key, 'absent')
        .put('route', key, record)
        .event(createRouteEvent(record, requestId, 'RouteCreated', 'was created'));
      return { response: presentRoute(view, record, nowMs), transaction };
    };
    return runIdempotent(this.deps, calls.createRoute, toCall(request, entry), () =>
      this.decide(decide),
    );
  }

  /** @param requireClusterRole - Called when the change needs a role in the whole cluster. */
  updateRoute(
    request: UpdateRouteRequest,
    entry: AuditEntry,
    requireClusterRole: (need: ClusterRoleNeed) => void,
  ): Promise<Route> {
    const decide = (view: ClusterView, fitting: SecretRecord | undefined): Decision => {
      const current = requireExpectedRoute(view, request);
      const before = getRouteSpec(current.value);
      const patch = request.spec ?? create(RouteSpecSchema);
      const merged = updateMessage(RouteSpecSchema, before, patch, request.updateMask?.paths);
      checkRoute(merged);
      describeSecrets(entry, current.value.namespace, before, merged);
      const need = findClusterRoleNeed(before, merged);
      if (need !== undefined) requireClusterRole(need);
      const { clock, state } = this.deps;
      const nowMs = clock.wallTime();
      const spec = withRouteDefaults(merged);
      const labels = changeLabels(current.value.labels, request.labels);
      if (equals(RouteSpecSchema, before, spec) && labels === undefined)
        return { response: presentRoute(view, current.value, nowMs) };
      const next = clone(RouteRecordSchema, current.value);
      next.spec = spec;
      next.generation += 1n;
      if (labels !== undefined) next.labels = labels;
      const key = toRouteKey(request);
      const transaction = state.transaction();
      putRouteClaims(view, transaction, { record: next, before });
      const check = putSecretUse(view, transaction, { record: next, before, fitting, nowMs });
      if (check !== undefined) return { check };
      const text = `has new settings (generation ${next.generation})`;
      transaction
        .require('route', key, current)
        .put('route', key, next)
        .event(createRouteEvent(next, request.requestId, 'RouteUpdated', text));
      return { response: presentRoute(view, next, nowMs), transaction };
    };
    return runIdempotent(this.deps, calls.updateRoute, toCall(request, entry), () =>
      this.decide(decide),
    );
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

  /**
   * Decides by the newest view, and again after each secret that had to be read.
   * @throws the errors of {@link readCertificatePair}; kind `unavailable` when the secret changes
   *   too often.
   */
  private async decide(
    decide: (view: ClusterView, fitting: SecretRecord | undefined) => Decision,
  ): Promise<MutationResult<Route>> {
    let fitting: SecretRecord | undefined;
    for (let count = 0; count <= MAX_READS; count += 1) {
      const decided = decide(this.deps.state.view(), fitting);
      if (!('check' in decided)) return decided;
      const pair = await readCertificatePair(this.deps, decided.check);
      fitting = pair === undefined ? undefined : decided.check;
    }
    throw createBusyError();
  }
}

function toCall<Request>(request: Request, entry: AuditEntry) {
  return { request, entry, subject: SUBJECT };
}

/**
 * Returns why a change of a route needs a role in the whole cluster; undefined when the role in the
 * namespace is enough. A secret belongs to the namespace, but a route without hosts has every host.
 */
function findClusterRoleNeed(
  before: RouteSpec | undefined,
  after: RouteSpec,
): ClusterRoleNeed | undefined {
  if (after.tls === undefined) return undefined;
  const isSame = before?.tls !== undefined && equals(RouteTlsSchema, before.tls, after.tls);
  if (getSecretName(after) === '') return isSame ? undefined : 'files';
  if (after.hosts.length > 0 || (isSame && before.hosts.length === 0)) return undefined;
  return 'everyHost';
}

/** Names the secrets that a route begins and ceases to use in the audit record. */
function describeSecrets(
  entry: AuditEntry,
  namespace: string,
  before: RouteSpec | undefined,
  after: RouteSpec,
): void {
  const names = [before === undefined ? '' : getSecretName(before), getSecretName(after)];
  const changed = names[0] === names[1] ? [] : names.filter((name) => name !== '');
  entry.describe({ secrets: changed.map((name) => toSecretKey({ namespace, name })) });
}

/**
 * Checks the secret that a new or changed route begins to use, and makes the commit conflict when a
 * secret of the namespace changes meanwhile.
 * @param change - `fitting`: a secret whose version is known to be a certificate with its key.
 * @returns A secret of which this is not known yet; undefined when all is checked.
 * @throws reason MISSING_REFERENCE.
 */
function putSecretUse(
  view: ClusterView,
  transaction: Transaction,
  {
    record,
    before,
    fitting,
    nowMs,
  }: ClaimedRoute & { readonly fitting: SecretRecord | undefined; readonly nowMs: number },
): SecretRecord | undefined {
  const name = getSecretName(getRouteSpec(record));
  if (name === '' || (before !== undefined && name === getSecretName(before))) return undefined;
  const secret = requireRouteSecret(view, record, nowMs);
  if (!isSameVersion(secret, fitting)) return secret;
  putFilesUse(view, transaction, record.namespace);
  return undefined;
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
