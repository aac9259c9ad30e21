import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  CertificateAuthorityRotation_Phase as Phase,
  Event_Category as Category,
  Event_Severity as Severity,
  UserCredential_Kind as CredentialKind,
} from '@cloudless/api';
import {
  CertificateAuthorityRecordSchema,
  CertificateAuthorityRotationRecordSchema,
  RootRecordSchema,
  type CertificateAuthorityRecord,
  type CertificateRecord,
  type NodeIdentityRecord,
} from '@cloudless/api/store';
import { CERTIFICATE_AUTHORITY_KEY } from '../records/records.js';
import type { EventInit, Transaction } from '../transaction/transaction.js';
import type { ClusterView, Stored } from '../view/view.js';

/**
 * Time after the expiry of its certificate within which a node may still renew, milliseconds: 30
 * days, so that a machine that was switched off for some weeks comes back by itself.
 */
export const NODE_RENEWAL_GRACE_MS = 30 * 24 * 3_600_000;
/**
 * Time after a renewal within which the reply may be lost and the agent may come back with the
 * certificate before: far longer than a repeated call or a restart of the agent takes.
 */
export const RENEWAL_SETTLE_MS = 15_000;

/** Progress of a rotation that runs. */
export interface RotationProgress {
  readonly phase: Phase.DISTRIBUTING | Phase.REISSUING;
  /** Ids of the nodes that have not completed the phase, sorted. */
  readonly waitingNodes: readonly string[];
  /** Number of the nodes that have completed the phase. */
  readonly completedNodes: number;
  /** Names of the users that have not completed the phase, sorted. */
  readonly waitingUsers: readonly string[];
  /** Ids of the running coordinators that do not have the keys of the new generation, sorted. */
  readonly waitingCoordinators: readonly string[];
  /**
   * Wall-clock milliseconds at which something that the phase waits for ends by itself. Undefined:
   * the phase waits for nothing, or only for changes of records, such as for coordinators.
   */
  readonly nextAtMs: number | undefined;
}

/** Returns true while a rotation of the certificate authority runs. */
export function isRotating({ rotation }: CertificateAuthorityRecord): boolean {
  return rotation?.phase === Phase.DISTRIBUTING || rotation?.phase === Phase.REISSUING;
}

/**
 * Generation whose key has signed the certificate of the coordinators: the oldest root. The
 * coordinators change last, so that every client has the root of the coordinator it connects to.
 */
export function getServerGeneration({
  roots,
  issuingGeneration,
}: CertificateAuthorityRecord): number {
  return roots[0]?.generation ?? issuingGeneration;
}

/** Returns the record of a new certificate authority with one generation. */
export function createAuthorityRecord(
  trustDomain: string,
  root: { readonly generation: number; readonly pem: string },
): CertificateAuthorityRecord {
  return create(CertificateAuthorityRecordSchema, {
    trustDomain,
    roots: [create(RootRecordSchema, root)],
    issuingGeneration: root.generation,
    trustBundleGeneration: 1n,
  });
}

/**
 * Returns the record with which a rotation begins: the new root is trusted, and the old generation
 * still issues.
 * @param root - The new root, whose key files exist.
 * @param coordinatorId - Id of the coordinator that has the key files. Default: the only one.
 */
export function startRotation(
  before: CertificateAuthorityRecord,
  root: { readonly generation: number; readonly pem: string },
  nowMs: number,
  coordinatorId?: string,
): CertificateAuthorityRecord {
  const after = clone(CertificateAuthorityRecordSchema, before);
  after.roots.push(create(RootRecordSchema, root));
  after.trustBundleGeneration += 1n;
  after.rotation = create(CertificateAuthorityRotationRecordSchema, {
    phase: Phase.DISTRIBUTING,
    startedAt: timestampFromMs(nowMs),
    coordinators: coordinatorId === undefined ? [] : [coordinatorId],
  });
  return after;
}

/**
 * Returns the record that notes that a coordinator has the keys of the new generation; undefined when
 * no rotation runs or the coordinator is noted.
 */
export function noteKeyHolder(
  before: CertificateAuthorityRecord,
  coordinatorId: string,
): CertificateAuthorityRecord | undefined {
  const { rotation } = before;
  if (!isRotating(before) || rotation?.coordinators.includes(coordinatorId) !== false)
    return undefined;
  const after = clone(CertificateAuthorityRecordSchema, before);
  after.rotation?.coordinators.push(coordinatorId);
  return after;
}

/** Returns the record of the next phase of a rotation that runs. */
export function advanceRotation(
  before: CertificateAuthorityRecord,
  nowMs: number,
): CertificateAuthorityRecord {
  const after = clone(CertificateAuthorityRecordSchema, before);
  const newest = Math.max(...after.roots.map(({ generation }) => generation));
  const rotation = (after.rotation ??= create(CertificateAuthorityRotationRecordSchema));
  if (rotation.phase === Phase.DISTRIBUTING) {
    after.issuingGeneration = newest;
    rotation.phase = Phase.REISSUING;
  } else if (rotation.phase === Phase.REISSUING) {
    after.roots = after.roots.filter(({ generation }) => generation === newest);
    after.trustBundleGeneration += 1n;
    rotation.phase = Phase.COMPLETED;
    rotation.completedAt = timestampFromMs(nowMs);
  }
  return after;
}

/** Adds a new phase of a rotation to a transaction, with an event. */
export function putRotationPhase(
  transaction: Transaction,
  read: Stored<CertificateAuthorityRecord>,
  after: CertificateAuthorityRecord,
): Transaction {
  return transaction
    .require('ca', CERTIFICATE_AUTHORITY_KEY, read)
    .put('ca', CERTIFICATE_AUTHORITY_KEY, after)
    .event(createRotationEvent(after));
}

/** Returns the progress of the rotation; undefined when none runs. */
export function getRotationProgress(
  view: Pick<
    ClusterView,
    'certificateAuthority' | 'nodes' | 'credentials' | 'nodeBan' | 'coordinators'
  >,
  nowMs: number,
): RotationProgress | undefined {
  const authority = view.certificateAuthority()?.value;
  const phase = authority?.rotation?.phase;
  if (authority === undefined) return undefined;
  if (phase !== Phase.DISTRIBUTING && phase !== Phase.REISSUING) return undefined;
  const waitingNodes: string[] = [];
  const times: number[] = [];
  let completedNodes = 0;
  for (const { value } of view.nodes()) {
    const wait = judgeNode(authority, value.identity, nowMs);
    if (wait === undefined || view.nodeBan(value.id) !== undefined) continue;
    if (wait === 'completed') completedNodes += 1;
    else {
      waitingNodes.push(value.id);
      times.push(wait.untilMs);
    }
  }
  const users = phase === Phase.REISSUING ? findWaitingUsers(view, authority, nowMs) : new Map();
  times.push(...users.values());
  return {
    phase,
    waitingNodes: waitingNodes.sort(),
    completedNodes,
    waitingUsers: [...users.keys()].sort(),
    waitingCoordinators: findWaitingCoordinators(view, authority),
    nextAtMs: times.length === 0 ? undefined : Math.min(...times),
  };
}

/** New certificates depend on the new keys from the second phase on, whoever leads then. */
function findWaitingCoordinators(
  view: Pick<ClusterView, 'coordinators'>,
  { rotation }: CertificateAuthorityRecord,
): readonly string[] {
  return [...view.coordinators()]
    .map(({ value }) => value.id)
    .filter((id) => rotation?.coordinators.includes(id) !== true)
    .sort();
}

/**
 * Returns true when the agent of a node must renew its certificate now: the trust bundle or the
 * issuing generation has changed since its last renewal.
 */
export function needsRenewal(
  authority: CertificateAuthorityRecord,
  identity: NodeIdentityRecord,
): boolean {
  return (
    identity.trustBundleGeneration < authority.trustBundleGeneration ||
    (identity.current?.generation ?? 0) < authority.issuingGeneration
  );
}

/**
 * @returns Undefined for a node that can only come back with a join token, `completed`, or the time
 *   until which the phase waits for the node at most.
 */
function judgeNode(
  authority: CertificateAuthorityRecord,
  identity: NodeIdentityRecord | undefined,
  nowMs: number,
): 'completed' | { readonly untilMs: number } | undefined {
  const { current, previous } = identity ?? {};
  if (identity === undefined || current === undefined) return undefined;
  const untilMs = toMs(current.notAfter) + NODE_RENEWAL_GRACE_MS;
  if (nowMs >= untilMs) return undefined;
  if (authority.rotation?.phase === Phase.DISTRIBUTING) {
    const hasBundle = identity.trustBundleGeneration >= authority.trustBundleGeneration;
    return hasBundle ? 'completed' : { untilMs };
  }
  if (current.generation < authority.issuingGeneration) return { untilMs };
  const settledMs = toMs(current.issuedAt) + RENEWAL_SETTLE_MS;
  const isSettling = isOlder(previous, authority) && nowMs < settledMs;
  return isSettling ? { untilMs: settledMs } : 'completed';
}

function isOlder(
  certificate: CertificateRecord | undefined,
  { issuingGeneration }: CertificateAuthorityRecord,
): boolean {
  return certificate !== undefined && certificate.generation < issuingGeneration;
}

/** @returns For each user with a certificate of an older generation, the expiry of the first one. */
function findWaitingUsers(
  view: Pick<ClusterView, 'credentials'>,
  authority: CertificateAuthorityRecord,
  nowMs: number,
): Map<string, number> {
  const users = new Map<string, number>();
  for (const { value } of view.credentials()) {
    const { credential, current } = value;
    if (credential?.kind !== CredentialKind.CERTIFICATE || !isOlder(current, authority)) continue;
    const expiresAtMs = toMs(current?.notAfter);
    if (credential.revokedAt !== undefined || nowMs >= expiresAtMs) continue;
    users.set(credential.user, Math.min(expiresAtMs, users.get(credential.user) ?? Infinity));
  }
  return users;
}

function createRotationEvent({ rotation, roots }: CertificateAuthorityRecord): EventInit {
  const newest = Math.max(...roots.map(({ generation }) => generation));
  const common = { severity: Severity.INFO, category: Category.MEMBERSHIP };
  switch (rotation?.phase) {
    case Phase.REISSUING:
      return {
        ...common,
        reason: 'CertificateAuthorityReissuing',
        message: `generation ${newest} of the certificate authority issues all certificates from now on; both roots are trusted until all nodes and users have new certificates`,
      };
    case Phase.COMPLETED:
      return {
        ...common,
        reason: 'CertificateAuthorityRotated',
        message: `only generation ${newest} of the certificate authority is trusted; join tokens and user tokens from before the rotation name only the retired root`,
      };
    default:
      return {
        ...common,
        reason: 'CertificateAuthorityRotationStarted',
        message: `generation ${newest} of the certificate authority was created; nodes get its root`,
      };
  }
}

function toMs(time: Parameters<typeof timestampMs>[0] | undefined): number {
  return time === undefined ? 0 : timestampMs(time);
}
