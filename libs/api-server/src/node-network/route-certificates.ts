import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  GetRouteCertificateResponseSchema,
  NodeNetworkService,
  RouteCertificateVersionSchema,
  type GetRouteCertificateRequest,
  type GetRouteCertificateResponse,
} from '@cloudless/api';
import type { SecretRecord } from '@cloudless/api/store';
import { CloudlessError, type Clock } from '@cloudless/base';
import { selectsNode, type ClusterState } from '@cloudless/cluster-state';
import { createDeniedError, type CallAccess } from '../access/call-access.js';
import type { AuditSubject } from '../audit/audit-event.js';
import type { AuditEntry, AuditLog } from '../audit/audit-log.js';
import { getRouteSpec, requireRoute, toRouteKey } from '../network/ingress-routes/route-lookup.js';
import {
  MAX_READS,
  createBusyError,
  findRouteSecret,
  getSecretName,
  isSameVersion,
  readCertificatePair,
  requireRouteSecret,
} from '../network/ingress-routes/route-secret.js';
import { requireUnexpired, toSecretKey } from '../secret/secret-lookup.js';
import type { StoredSecretValues } from '../secret/secret-values.js';
import { requireMember, requireProxyOf } from './proxy-caller.js';

const { getRouteCertificate } = NodeNetworkService.method;

export interface RouteCertificatesDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly access: CallAccess;
  readonly audit: AuditLog;
  readonly values: StoredSecretValues;
}

/** Sends the certificates of routes that are in secrets to the nodes that serve the routes. */
export class RouteCertificateHandler {
  constructor(private readonly deps: RouteCertificatesDeps) {}

  /**
   * Handles GetRouteCertificate. The caller, the route and the secret are checked again after the
   * values are read and after the audit record is committed: the record comes before the answer, and
   * no values are sent that became forbidden or old meanwhile.
   * @throws kind `denied` for a client that is not the node, and for a node that is banned or not
   *   selected; `notFound` without such a node or route; `precondition` when the route names no
   *   secret, also with reason MISSING_REFERENCE, SECRET_EXPIRED or NO_SECRETS_KEY; `unavailable` when
   *   the secret changes too often.
   */
  async getRouteCertificate(
    request: GetRouteCertificateRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<GetRouteCertificateResponse> {
    const { state, audit } = this.deps;
    requireProxyOf(request.nodeId, { ...this.deps, view: state.view() }, context);
    for (let count = 0; count < MAX_READS; count += 1) {
      const secret = this.requirePermitted(request, entry);
      const pair = await readCertificatePair(this.deps, secret);
      if (!isSameVersion(secret, this.requirePermitted(request, entry))) continue;
      if (pair === undefined) continue;
      const { uid, version } = secret;
      entry.describe({ secretVersions: [version] });
      await audit.recordValues(entry);
      if (!isSameVersion(secret, this.requirePermitted(request, entry))) continue;
      return create(GetRouteCertificateResponseSchema, {
        version: create(RouteCertificateVersionSchema, { secretUid: uid, version }),
        certificate: Buffer.from(pair.certificate, 'latin1'),
        key: Buffer.from(pair.key, 'latin1'),
      });
    }
    throw createBusyError();
  }

  /** Returns the secret of the route, whose newest values the node may have now. */
  private requirePermitted(
    { nodeId, ...request }: GetRouteCertificateRequest,
    entry: AuditEntry,
  ): SecretRecord {
    const { state, clock } = this.deps;
    entry.caller.check();
    const view = state.view();
    const node = requireMember(nodeId, view);
    const { value: route } = requireRoute(view, request);
    const { namespace } = route;
    const spec = getRouteSpec(route);
    const name = getSecretName(spec);
    const key = toRouteKey(request);
    entry.describe({
      secrets: name === '' ? [] : [toSecretKey({ namespace, name })],
      secretVersions: [],
    });
    if (!selectsNode(spec.nodeSelector, node))
      throw createDeniedError(entry.caller.principal, getRouteCertificate, {
        message: `route "${key}" does not select node "${nodeId}", so the node gets no certificate of the route`,
      });
    if (name === '')
      throw new CloudlessError(
        'precondition',
        `route "${key}" names no secret; set spec.tls.certificate_secret`,
      );
    const secret = findRouteSecret(view, route);
    const nowMs = clock.wallTime();
    if (secret !== undefined) requireUnexpired(secret, nowMs);
    return requireRouteSecret(view, route, nowMs);
  }
}

/** Returns the objects of the call for its audit record. */
export function describeCertificateCall(request: GetRouteCertificateRequest): AuditSubject {
  const key = toRouteKey(request);
  return { namespace: request.namespace, nodeId: request.nodeId, object: `route ${key}` };
}
