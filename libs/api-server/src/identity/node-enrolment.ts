import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  EnrollNodeResponseSchema,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
} from '@cloudless/api';
import {
  NodeIdentityRecordSchema,
  NodeRecordSchema,
  type JoinTokenRecord,
  type NodeIdentityRecord,
  type NodeRecord,
} from '@cloudless/api/store';
import { InvalidInputError, noMeter, type Counter } from '@cloudless/base';
import { CERTIFICATE_AUTHORITY_KEY, type Stored, type Transaction } from '@cloudless/cluster-state';
import { readCsr } from '@cloudless/identity/x509';
import { RefusedCallError } from '../access/refusal.js';
import type { IdentityPort, IssuedCertificate } from '../access/identity-port.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { createNodeEventFields } from '../node/node-change.js';
import type { ApiServerDeps } from '../ports.js';
import { decideEnrolment, type EnrolmentDecision } from './enrolment-decision.js';
import { EnrolmentLimits } from './enrolment-limits.js';
import {
  INVALID_JOIN_TOKEN,
  countTokenUse,
  findJoinToken,
  judgeTokenUse,
  type TokenRefusal,
  type TokenSearch,
  type TokenUse,
} from './join-token.js';
import { requireAuthority, requireIssuingGeneration } from './issuing-generation.js';
import {
  presentNodeCertificate,
  renewNodeIdentity,
  toCertificateRecord,
  toSuccessor,
} from './node-certificate.js';

/** A machine that asks to join. */
interface Applicant {
  readonly request: EnrollNodeRequest;
  readonly address: string;
  readonly publicKeySha256: string;
}

/** The decision about an accepted {@link Applicant}, with the records that were read. */
interface Admission {
  readonly decision: EnrolmentDecision;
  readonly token: Stored<JoinTokenRecord>;
  readonly existing: Stored<NodeRecord> | undefined;
  /** True: a new use of the token. False: a retry, which does not count. */
  readonly counts: boolean;
}

/** Causes that show that the sender does not have the secret of a token: attempts to guess. */
const GUESSES: readonly TokenRefusal[] = [
  'empty token',
  'malformed token',
  'unknown token',
  'tampered token',
  'token of another authority',
];

/** Registers machines with join tokens, and issues the first certificate of each node. */
export class NodeEnrolment {
  private readonly limits: EnrolmentLimits;
  private readonly enrolments: Counter;
  private readonly refusals: Counter;

  constructor(
    private readonly deps: ApiServerDeps & MutationDeps,
    private readonly identity: IdentityPort,
  ) {
    const { meter = noMeter } = deps;
    this.limits = new EnrolmentLimits(deps.clock);
    this.enrolments = meter.counter({
      name: 'cloudless_enrolments_total',
      help: 'Machines that got a certificate with a join token, by what happened to the node record.',
      labels: ['kind'],
    });
    this.refusals = meter.counter({
      name: 'cloudless_join_token_refusals_total',
      help: 'Join tokens that were refused, by cause.',
      labels: ['cause'],
    });
  }

  /**
   * Registers the machine of a request as a node and issues its certificate. A repeated call with
   * the same key returns another certificate and does not count as a use of the token.
   * @throws reason INVALID_TOKEN with one message for every cause; the audit record has the cause.
   *   RATE_LIMITED, NODE_EXISTS, NODE_BANNED; kind `invalid` for an invalid request.
   */
  async enroll(request: EnrollNodeRequest, entry: AuditEntry): Promise<EnrollNodeResponse> {
    const { address } = entry.facts;
    this.requireTokenOfStranger(request, address);
    if (request.csr.length === 0)
      throw new InvalidInputError([{ field: 'csr', message: 'is required together with a token' }]);
    const { publicKey, publicKeySha256 } = await readCsr(request.csr);
    const applicant: Applicant = { request, address, publicKeySha256 };
    // Refuses before a certificate is made. `admit` decides again with the newest records.
    const { token } = this.decide(applicant);
    const issued = await this.identity.issue({
      id: { trustDomain: this.identity.trustDomain, kind: 'node', id: request.nodeId },
      publicKey,
      lifetimeMs: this.identity.lifetimes.nodeMs,
      usage: 'both',
    });
    const subject = `node "${request.nodeId}"`;
    const tokenSubject = `join token "${token.value.token?.id ?? ''}"`;
    const decision = await this.deps.mutex.run(subject, () =>
      this.deps.mutex.run(tokenSubject, () =>
        retryOnConflict({ ...this.deps, subject }, () => this.admit(applicant, issued, entry)),
      ),
    );
    this.enrolments.add(1, { kind: decision });
    return create(EnrollNodeResponseSchema, {
      nodeId: request.nodeId,
      clusterId: this.deps.state.clusterId,
      certificate: presentNodeCertificate(this.identity, issued),
    });
  }

  /**
   * Decides by the newest records and commits. One transaction counts the use and writes the node.
   */
  private async admit(
    applicant: Applicant,
    issued: IssuedCertificate,
    entry: AuditEntry,
  ): Promise<EnrolmentDecision> {
    const { state, clock } = this.deps;
    const admission = this.decide(applicant);
    const { decision, token, counts } = admission;
    const { nodeId } = applicant.request;
    const tokenId = token.value.token?.id ?? '';
    requireIssuingGeneration(this.identity, issued);
    const transaction = state
      .transaction()
      .require('jointoken', tokenId, token)
      .require('node', nodeId, admission.existing ?? 'absent')
      .require('ban', nodeId, 'absent')
      .require('ca', CERTIFICATE_AUTHORITY_KEY, requireAuthority(this.deps));
    if (counts) {
      const use = this.toTokenUse(applicant, token, admission.existing?.value);
      transaction.put('jointoken', tokenId, countTokenUse(token.value, use));
    }
    const identity = this.createIdentity(admission, issued, clock.wallTime());
    this.putNode(transaction, applicant, admission, identity);
    entry.nameObject(`node ${nodeId} with join token ${tokenId}`);
    // Allowed while the state is restored: when the restored state lacks the node, its agent must
    // be able to enrol and to report its newer orders.
    await entry.commit(transaction, 'commitObserved');
    return decision;
  }

  private putNode(
    transaction: Transaction,
    { request }: Applicant,
    { decision, existing, token }: Admission,
    identity: NodeIdentityRecord,
  ): void {
    const { nodeId, instanceId } = request;
    const record =
      existing === undefined
        ? create(NodeRecordSchema, {
            id: nodeId,
            createdAt: timestampFromMs(this.deps.clock.wallTime()),
          })
        : clone(NodeRecordSchema, existing.value);
    record.instanceId = instanceId;
    record.identity = identity;
    if (decision === 'replace') delete record.hello;
    if (decision !== 'repeat') {
      const { labels = {}, id = '' } = token.value.token ?? {};
      Object.assign(record.labels, labels);
      record.removedLabels = record.removedLabels.filter((key) => !Object.hasOwn(labels, key));
      transaction.event({
        ...createNodeEventFields(record, { requestId: '' }),
        reason: 'NodeEnrolled',
        message: `node ${nodeId} was enrolled${describeDecision[decision]} with join token ${id}`,
      });
    }
    transaction.put('node', nodeId, record);
  }

  private createIdentity(
    { decision, existing, token }: Admission,
    issued: IssuedCertificate,
    nowMs: number,
  ): NodeIdentityRecord {
    const current = toCertificateRecord(issued, nowMs);
    const before = existing?.value.identity;
    if (decision === 'repeat' && before !== undefined) {
      const { trustBundleGeneration } = before;
      return renewNodeIdentity(before, {
        issued: current,
        callerSerial: undefined,
        trustBundleGeneration,
      });
    }
    return create(NodeIdentityRecordSchema, {
      current: toSuccessor(current, before?.current),
      trustBundleGeneration: this.identity.getTrustBundle().generation,
      joinTokenId: token.value.token?.id ?? '',
    });
  }

  /** @throws the refusal of the token or of the node id. Changes nothing. */
  private decide(applicant: Applicant): Admission {
    const { state, nodes } = this.deps;
    const { request, address, publicKeySha256 } = applicant;
    const { nodeId, instanceId } = request;
    const view = state.view();
    const token = this.requireToken(request, address);
    const existing = view.node(nodeId);
    const use = this.toTokenUse(applicant, token, existing?.value);
    const judgement = judgeTokenUse(token.value, use);
    const id = token.value.token?.id ?? '';
    if (judgement.kind === 'refused') throw this.refuse(judgement.cause, id, address);
    const decision = decideEnrolment({
      nodeId,
      instanceId,
      publicKeySha256,
      existing: existing?.value,
      ban: view.nodeBan(nodeId)?.value,
      phase: nodes.status(nodeId).phase,
      replicaCount: [...view.replicasOn(nodeId)].length,
    });
    // A retry of a machine whose node was removed or has a newer key meanwhile is a new use.
    const counts = judgement.kind === 'accepted' || decision !== 'repeat';
    const { useCount = 0, maxUses = 0 } = token.value.token ?? {};
    if (counts && useCount >= maxUses) throw this.refuse('used up token', id, address);
    return { decision, token, existing, counts };
  }

  /**
   * Checks the secret of the token. A valid secret is never limited: machines join also from behind
   * an address from which another client guesses secrets.
   * @throws reason INVALID_TOKEN, which counts as a guess; RATE_LIMITED after too many of them.
   */
  private requireTokenOfStranger(request: EnrollNodeRequest, address: string): void {
    if (this.searchToken(request).kind === 'found') return;
    this.limits.check(address);
    this.requireToken(request, address);
  }

  private requireToken(request: EnrollNodeRequest, address: string): Stored<JoinTokenRecord> {
    const search = this.searchToken(request);
    if (search.kind === 'found') return search.record;
    throw this.refuse(search.cause, search.id, address);
  }

  private searchToken({ token }: EnrollNodeRequest): TokenSearch {
    const { tokenSecret } = this.identity;
    const { rootSha256s } = this.identity.getTrustBundle();
    return findJoinToken(this.deps.state.view(), { tokenSecret, rootSha256s }, token);
  }

  private toTokenUse(
    { request, address, publicKeySha256 }: Applicant,
    token: Stored<JoinTokenRecord>,
    node: NodeRecord | undefined,
  ): TokenUse {
    const { nodeId, instanceId } = request;
    const nowMs = this.deps.clock.wallTime();
    const hasJoined =
      node?.instanceId === instanceId &&
      node.identity?.current?.publicKeySha256 === publicKeySha256 &&
      node.identity.joinTokenId === token.value.token?.id;
    return { nodeId, instanceId, address, publicKeySha256, nowMs, hasJoined };
  }

  private refuse(cause: TokenRefusal, tokenId: string, address: string): RefusedCallError {
    this.refusals.add(1, { cause });
    if (GUESSES.includes(cause)) this.limits.recordFailure(address);
    return new RefusedCallError(cause, 'INVALID_TOKEN', INVALID_JOIN_TOKEN, {
      credentialId: tokenId,
    });
  }
}

const describeDecision: Readonly<Record<Exclude<EnrolmentDecision, 'repeat'>, string>> = {
  create: '',
  return: ' again',
  replace: ' again, on another machine,',
};
