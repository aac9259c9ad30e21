import { clone, create, type DescMethod } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  AgentService,
  AuthorizeAgentCallResponseSchema,
  WorkloadCertificateSchema,
  resolveNamespace,
  type AuthorizeAgentCallRequest,
  type AuthorizeAgentCallResponse,
  type IssueWorkloadCertificateRequest,
  type NodeCertificate,
  type RenewNodeCertificateRequest,
  type WorkloadCertificate,
} from '@cloudless/api';
import {
  NodeRecordSchema,
  type NodeRecord,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { CERTIFICATE_AUTHORITY_KEY, isLive, type Stored } from '@cloudless/cluster-state';
import { hasRole, type Principal } from '@cloudless/identity';
import { checkCall, getAccessRule } from '@cloudless/identity/authorization';
import { readCsr } from '@cloudless/identity/x509';
import type { CallAccess } from '../access/call-access.js';
import type { IdentityPort, IssuedCertificate } from '../access/identity-port.js';
import { createAuditEvent } from '../audit/audit-event.js';
import { getAuditPolicy } from '../audit/audit-policy.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { ApiServerDeps } from '../ports.js';
import { requireAuthority, requireIssuingGeneration } from './issuing-generation.js';
import {
  presentNodeCertificate,
  presentTrustBundle,
  type NodeRenewal,
  renewNodeIdentity,
  toCertificateRecord,
} from './node-certificate.js';

/** Handlers of the calls of IdentityService that agents make. */
export class NodeIdentityHandlers {
  constructor(
    private readonly deps: ApiServerDeps & MutationDeps,
    private readonly access: CallAccess,
    private readonly identity: IdentityPort,
  ) {}

  /**
   * Issues a new certificate for the node of the caller, and makes it count for the connection of
   * the call. The certificate of the call stays valid until the new one was used.
   * @throws reason WRONG_CLUSTER when the instance id is not that of the node.
   */
  async renewNodeCertificate(
    request: RenewNodeCertificateRequest,
    context: HandlerContext,
  ): Promise<NodeCertificate> {
    const { nodeId } = request;
    const caller = this.access.getCaller(context);
    this.access.requireNode(caller, nodeId);
    const before = this.requireNode(request).value.identity;
    const callerSerial = caller.credential?.serial;
    const known = [before?.current?.serial, before?.previous?.serial];
    const isCallerNewer = callerSerial !== undefined && !known.includes(callerSerial);
    const { publicKey } = await readKey(request.csr);
    const issued = await this.identity.issue({
      id: { trustDomain: this.identity.trustDomain, kind: 'node', id: nodeId },
      publicKey,
      lifetimeMs: this.identity.lifetimes.nodeMs,
      usage: 'both',
    });
    const subject = `node "${nodeId}"`;
    await this.deps.mutex.run(subject, () =>
      retryOnConflict({ ...this.deps, subject }, () => {
        // A ban, a removal or a newer certificate may have ended that of the caller meanwhile.
        caller.check();
        return this.commitRenewal(request, issued, { callerSerial, isCallerNewer });
      }),
    );
    this.deps.replaceCredential?.(caller, issued);
    return presentNodeCertificate(this.identity, issued);
  }

  /**
   * Issues a certificate of the workload of a replica that is assigned to the node of the caller.
   * @throws kind `notFound` for any other replica; `precondition` when the replica is stopping, or
   *   its workload has no identity.
   */
  async issueWorkloadCertificate(
    request: IssueWorkloadCertificateRequest,
    context: HandlerContext,
  ): Promise<WorkloadCertificate> {
    const caller = this.access.getCaller(context);
    this.access.requireNode(caller, request.nodeId);
    const { namespace, name } = this.requireWorkloadOf(request);
    const { publicKey } = await readKey(request.csr);
    const issued = await this.identity.issue({
      id: {
        trustDomain: this.identity.trustDomain,
        kind: 'workload',
        id: `${namespace}.${name}`,
      },
      publicKey,
      lifetimeMs: this.identity.lifetimes.workloadMs,
      usage: 'both',
    });
    // Neither a banned node nor a node that lost the replica meanwhile gets the certificate.
    caller.check();
    this.requireWorkloadOf(request);
    return create(WorkloadCertificateSchema, {
      certificateChain: issued.pem,
      trustBundle: presentTrustBundle(this.identity),
      notBefore: timestampFromMs(issued.notBeforeMs),
      notAfter: timestampFromMs(issued.notAfterMs),
    });
  }

  /**
   * Decides whether a user may make a call to the agent of a node. An error in the certificate of
   * the user is a refusal, not an error of the agent's call. A permitted privileged call that begins
   * is in the audit log, under the name of the user, before the reply.
   */
  async authorizeAgentCall(
    request: AuthorizeAgentCallRequest,
    context: HandlerContext,
  ): Promise<AuthorizeAgentCallResponse> {
    this.access.requireNode(this.access.getCaller(context), request.nodeId);
    const method = AgentService.methods.find(({ name }) => name === request.rpc);
    if (method === undefined) {
      const message = `${JSON.stringify(request.rpc)} is not an RPC of AgentService`;
      throw new InvalidInputError([{ field: 'rpc', message }]);
    }
    const identified = this.identify(request);
    if ('reason' in identified)
      return create(AuthorizeAgentCallResponseSchema, { reason: identified.reason });
    const { principal } = identified;
    const reason = this.findRefusal(request, method, principal);
    const response = create(AuthorizeAgentCallResponseSchema, {
      allowed: reason === undefined,
      principal: principal.name,
      reason: reason ?? '',
    });
    if (response.allowed && !request.running && getAuditPolicy(method) === 'privileged')
      await this.recordStart(request, method, principal);
    return response;
  }

  private async recordStart(
    { nodeId, target, rpc }: AuthorizeAgentCallRequest,
    method: DescMethod,
    principal: Principal,
  ): Promise<void> {
    const { state } = this.deps;
    const event = createAuditEvent({
      rpc: `${method.parent.typeName}/${rpc}`,
      address: '',
      traceId: '',
      principal: principal.name,
      credentialId: '',
      subject: { nodeId, replicaId: this.findReplica(nodeId, target)?.id ?? '' },
      requestId: '',
      result: 'started',
    });
    await state.commitObserved(state.transaction().event(event));
  }

  private identify({
    certificateChain,
  }: AuthorizeAgentCallRequest): { readonly principal: Principal } | { readonly reason: string } {
    const { identifyCertificate } = this.deps;
    if (identifyCertificate === undefined)
      return { reason: 'this coordinator cannot verify certificates' };
    try {
      return { principal: identifyCertificate(certificateChain) };
    } catch (reason) {
      if (reason instanceof CloudlessError && reason.kind !== 'internal')
        return { reason: reason.message };
      throw reason;
    }
  }

  private findRefusal(
    { nodeId, target }: AuthorizeAgentCallRequest,
    method: DescMethod,
    principal: Principal,
  ): string | undefined {
    const rule = getAccessRule(method);
    const decision = checkCall(rule, principal);
    if (!decision.allowed) return decision.message;
    const role = rule?.user?.role;
    if (principal.kind !== 'user' || role === undefined)
      return `${principal.name} may not call an agent`;
    const namespace = target === '' ? '' : this.findNamespace(nodeId, target);
    // Callers get the same answer for what they may not see as for what does not exist.
    if (namespace === undefined || (target !== '' && !hasRole(principal, 'viewer', namespace)))
      return `no container or replica "${target}" is assigned to node "${nodeId}"`;
    if (hasRole(principal, role, namespace)) return undefined;
    const where = namespace === '' ? 'in the whole cluster' : `in namespace "${namespace}"`;
    return `${principal.name} does not have the role ${role} ${where}; ask an administrator for the role`;
  }

  /** Returns the namespace of a replica on a node, named by its id or by that of a container. */
  private findNamespace(nodeId: string, target: string): string | undefined {
    const replica = this.findReplica(nodeId, target);
    if (replica === undefined) return undefined;
    const workload = this.deps.state.view().workload(replica.uid)?.value;
    // A replica of a deleted workload belongs to a namespace that is no longer known.
    return workload === undefined ? '' : resolveNamespace(workload);
  }

  private findReplica(nodeId: string, target: string): ReplicaRecord | undefined {
    for (const { value } of this.deps.state.view().replicasOn(nodeId)) {
      if ([value.id, value.containerId, ...value.earlierContainerIds].includes(target))
        return value;
    }
    return undefined;
  }

  private async commitRenewal(
    request: RenewNodeCertificateRequest,
    issued: IssuedCertificate,
    callers: Pick<NodeRenewal, 'callerSerial' | 'isCallerNewer'>,
  ): Promise<void> {
    const { state, clock } = this.deps;
    const { nodeId } = request;
    const node = this.requireNode(request);
    const { identity } = node.value;
    if (identity === undefined) throw createUnknownNodeError(nodeId);
    requireIssuingGeneration(this.identity, issued);
    const record = clone(NodeRecordSchema, node.value);
    const { generation } = this.identity.getTrustBundle();
    const confirmed = request.trustBundleGeneration;
    record.identity = renewNodeIdentity(identity, {
      issued: toCertificateRecord(issued, clock.wallTime()),
      ...callers,
      // An agent cannot have a bundle that does not exist yet.
      trustBundleGeneration: confirmed > generation ? 0n : confirmed,
    });
    // Allowed while the state is restored, so that no certificate expires meanwhile.
    await state.commitObserved(
      state
        .transaction()
        .require('node', nodeId, node)
        .require('ban', nodeId, 'absent')
        .require('ca', CERTIFICATE_AUTHORITY_KEY, requireAuthority(this.deps))
        .put('node', nodeId, record),
    );
  }

  private requireNode({ nodeId, instanceId }: RenewNodeCertificateRequest): Stored<NodeRecord> {
    const node = this.deps.state.view().node(nodeId);
    if (node === undefined) throw createUnknownNodeError(nodeId);
    if (node.value.instanceId === instanceId) return node;
    throw new CloudlessError(
      'WRONG_CLUSTER',
      `node "${nodeId}" belongs to another machine; join this machine with a join token`,
    );
  }

  private requireWorkloadOf({ nodeId, replicaId }: IssueWorkloadCertificateRequest): {
    readonly namespace: string;
    readonly name: string;
  } {
    const view = this.deps.state.view();
    const replica = view.replica(replicaId)?.value;
    if (replica === undefined || replica.nodeId !== nodeId || replica.lost) {
      throw new CloudlessError(
        'REPLICA_NOT_FOUND',
        `replica "${replicaId}" is not assigned to node "${nodeId}"`,
      );
    }
    const workload: WorkloadRecord | undefined = view.workload(replica.uid)?.value;
    if (workload === undefined || !replica.desiredRunning || !isLive(replica)) {
      throw new CloudlessError(
        'REPLICA_NOT_RUNNING',
        `replica "${replicaId}" is stopping or has ended, so it gets no certificate`,
      );
    }
    if (view.version(replica.uid, replica.version)?.template?.identity === undefined) {
      throw new CloudlessError(
        'precondition',
        `the workload of replica "${replicaId}" has no identity; add "identity: {}" to its spec`,
      );
    }
    return { namespace: resolveNamespace(workload), name: workload.name };
  }
}

async function readKey(csr: Uint8Array): ReturnType<typeof readCsr> {
  if (csr.length === 0) throw new InvalidInputError([{ field: 'csr', message: 'is required' }]);
  return readCsr(csr);
}

function createUnknownNodeError(nodeId: string): CloudlessError {
  return new CloudlessError(
    'CREDENTIAL_REVOKED',
    `node "${nodeId}" has no valid certificate in this cluster; join the machine with a join token`,
  );
}
