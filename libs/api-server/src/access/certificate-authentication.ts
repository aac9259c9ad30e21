import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { CertificateRecord, CredentialRecord, NodeRecord } from '@cloudless/api/store';
import { CloudlessError, errorReasonOf, type ErrorReason } from '@cloudless/base';
import { NODE_RENEWAL_GRACE_MS, type ClusterView } from '@cloudless/cluster-state';
import { decodeCertificates, type PeerIdentity } from '@cloudless/identity/x509';
import type { CredentialIndex } from './credential-index.js';
import type { CertificateVerifier } from './identity-port.js';
import { isAtOrAfter } from './is-at-or-after.js';
import { RefusedCallError, type RefusalCause } from './refusal.js';

/** The facts of a certificate that change when it is renewed. */
export type CertificateFacts = Pick<
  PeerIdentity,
  'serial' | 'notBeforeMs' | 'notAfterMs' | 'publicKeySha256'
>;

/** A certificate that was issued over the connection whose certificate is to be replaced. */
export type RenewedCertificate = CertificateFacts & {
  /** The certificate chain, PEM, with the certificate first. */
  readonly pem: string;
};

/** The certificate of a connection. */
export interface ConnectionCertificate {
  /** The identity in the presented certificate. */
  readonly presented: PeerIdentity;
  /** The presented certificate, or the renewed certificate that has replaced it. */
  readonly facts: CertificateFacts;
}

/**
 * The certificates of one connection. Verifies the presented certificate once, and again after a
 * change of the trust bundle. A certificate that was renewed over the connection replaces the
 * presented certificate.
 */
export class ConnectionCertificates {
  private verifier: CertificateVerifier | undefined;
  private presented: PeerIdentity | undefined;
  private failure: unknown;
  private replacement: CertificateFacts | undefined;
  private renewedDer: readonly Uint8Array[] | undefined;

  constructor(private readonly presentedDer: readonly Uint8Array[]) {}

  /**
   * The certificate chain with which calls of the connection are forwarded, DER: for a user the
   * renewed certificate, for a node always the presented certificate, because a leader takes the
   * renewed certificate of a node as proof that the node has received the certificate.
   */
  get chainDer(): readonly Uint8Array[] {
    return this.renewedDer ?? this.presentedDer;
  }

  /** Serial number of the renewed or presented certificate; undefined before {@link get}. */
  get serial(): string | undefined {
    return (this.replacement ?? this.presented)?.serial;
  }

  /** @throws {@link RefusedCallError} when the presented certificate is not valid. */
  get(verifier: CertificateVerifier, nowMs: number): ConnectionCertificate {
    const { presented, replacement } = this;
    if (presented !== undefined && replacement !== undefined)
      return { presented, facts: replacement };
    if (this.verifier !== verifier) this.verify(verifier, nowMs);
    if (this.presented === undefined) throw this.failure;
    return { presented: this.presented, facts: this.presented };
  }

  /** Replaces the presented certificate by a renewed certificate. */
  replace(renewed: RenewedCertificate): void {
    this.replacement = renewed;
    if (this.presented?.id.kind === 'user')
      this.renewedDer = decodeCertificates(renewed.pem, 'the renewed certificate');
  }

  private verify(verifier: CertificateVerifier, nowMs: number): void {
    this.presented = undefined;
    try {
      this.presented = verifier.verify(this.presentedDer, nowMs, {
        kinds: ['node', 'user', 'controller', 'workload', 'service'],
        usage: 'client',
        expiredGraceMs: NODE_RENEWAL_GRACE_MS,
      });
      this.verifier = verifier;
    } catch (reason) {
      this.failure = toRefusal(reason);
      // A certificate that is not valid yet may be valid in the next call.
      const isFinal = errorReasonOf(reason) !== 'CERTIFICATE_NOT_YET_VALID';
      this.verifier = isFinal ? verifier : undefined;
    }
  }
}

const CAUSES: Readonly<Record<string, RefusalCause>> = {
  CERTIFICATE_EXPIRED: 'expired certificate',
  CERTIFICATE_NOT_YET_VALID: 'certificate not yet valid',
};

function toRefusal(reason: unknown): unknown {
  if (!(reason instanceof CloudlessError) || reason.kind !== 'unauthenticated') return reason;
  const cause = CAUSES[reason.reason] ?? 'invalid certificate';
  const options = { cause: reason, metadata: reason.metadata };
  return new RefusedCallError(cause, reason.reason, reason.message, {}, options);
}

/** The holder of a certificate that was valid at the start of a call. */
export type CertificateHolder =
  | { readonly kind: 'controller'; readonly id: string }
  | {
      readonly kind: 'node';
      readonly id: string;
      /** Instance id of the machine, which changes when another machine takes the name. */
      readonly instanceId: string;
      /** Time of the expiry when the certificate has expired. */
      readonly expiredAtMs: number | undefined;
      /** Expiry of a certificate that is newer than the record. Undefined: the record has it. */
      readonly newerNotAfterMs: number | undefined;
      /** True when this use confirms that the node has its newest certificate. */
      readonly confirmsCurrent: boolean;
    }
  | {
      readonly kind: 'user';
      /** Id of the credential. */
      readonly id: string;
      readonly userName: string;
    }
  | UnrecordedHolder<'workload'>
  | UnrecordedHolder<'service'>;

/** The holder of a certificate that the store has no record of. */
interface UnrecordedHolder<Kind extends 'workload' | 'service'> {
  readonly kind: Kind;
  /** `<namespace>.<name>` of a workload. */
  readonly id: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/**
 * Checks the certificate of a connection at the start of a call: the validity, and that its serial
 * number is that of the current certificate, or of the one before: of a node as long as the current
 * one was not used, of a user until the next renewal.
 * @throws {@link RefusedCallError} with a separate text for each cause.
 */
export function checkCertificate(
  view: ClusterView,
  credentials: CredentialIndex,
  certificate: ConnectionCertificate,
  nowMs: number,
): CertificateHolder {
  const { presented, facts } = certificate;
  const { kind, id } = presented.id;
  const name = `${kind}/${id}`;
  const refuse = createRefusalFactory(name, facts, nowMs);
  if (nowMs < facts.notBeforeMs) {
    throw refuse(
      'certificate not yet valid',
      'CERTIFICATE_NOT_YET_VALID',
      `the certificate of ${name} is valid from ${formatTime(facts.notBeforeMs)} on, and the clock of the coordinator shows ${formatTime(nowMs)}; compare the clocks of both machines`,
    );
  }
  const isExpired = nowMs > facts.notAfterMs;
  if (isExpired && !(kind === 'node' && nowMs <= facts.notAfterMs + NODE_RENEWAL_GRACE_MS)) {
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the certificate of ${name} expired at ${formatTime(facts.notAfterMs)}, and the clock of the coordinator shows ${formatTime(nowMs)}; ${describeRenewal(kind)}`,
    );
  }
  if (kind === 'workload' || kind === 'service') {
    const { notBeforeMs, notAfterMs } = facts;
    const holder = { kind, id, notBeforeMs, notAfterMs };
    if (kind === 'workload') requireWorkloadInGoodStanding(view, holder, refuse);
    return holder;
  }
  if (kind === 'node') {
    const { identity, instanceId } = requireNodeInGoodStanding(view, id, refuse);
    const isNewer = isIssuedAfter(facts, identity?.current);
    if (!isNewer) requireCurrentSerial(view, facts.serial, identity, name, refuse);
    return {
      kind,
      id,
      instanceId,
      newerNotAfterMs: isNewer ? facts.notAfterMs : undefined,
      expiredAtMs: isExpired ? facts.notAfterMs : undefined,
      confirmsCurrent: facts === presented && identity?.current?.serial === facts.serial,
    };
  }
  if (kind !== 'user') return { kind: 'controller', id };
  const record = credentials.find(facts.serial);
  requireCurrentSerial(view, facts.serial, record, name, refuse);
  const credentialId = record?.credential?.id ?? '';
  requireCredentialInGoodStanding(view, credentialId, id, nowMs, refuse);
  return {
    kind,
    id: credentialId,
    userName: id,
  };
}

/**
 * Checks the holder of a certificate while a call runs that began with a valid certificate. The call
 * goes on when the certificate was renewed, expires or loses its root meanwhile, as long as its
 * holder is in good standing and has a newer certificate that is valid.
 * @throws {@link RefusedCallError} with a separate text for each cause.
 */
export function checkHolder(view: ClusterView, holder: CertificateHolder, nowMs: number): void {
  if (holder.kind === 'controller') return;
  const name = holder.kind === 'user' ? `user/${holder.userName}` : `${holder.kind}/${holder.id}`;
  const refuse = createRefusalFactory(name, undefined, nowMs);
  if (holder.kind === 'workload' || holder.kind === 'service') {
    if (holder.kind === 'workload') requireWorkloadInGoodStanding(view, holder, refuse);
    if (nowMs <= holder.notAfterMs) return;
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the certificate of ${name} expired at ${formatTime(holder.notAfterMs)}`,
    );
  }
  let current: CertificateRecord | undefined;
  if (holder.kind === 'node') {
    const node = requireNodeInGoodStanding(view, holder.id, refuse);
    if (node.instanceId !== holder.instanceId) throw refuse(...describeReplaced(name));
    if (holder.expiredAtMs !== undefined) return;
    current = node.identity?.current;
    if (current !== undefined && nowMs <= (holder.newerNotAfterMs ?? 0)) return;
  } else {
    const record = requireCredentialInGoodStanding(view, holder.id, holder.userName, nowMs, refuse);
    current = record.current;
  }
  if (current === undefined) throw refuse(...describeReplaced(name));
  requireTrustedGeneration(view, current, name, refuse);
  if (current.notAfter !== undefined && nowMs > timestampMs(current.notAfter)) {
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the certificate of ${name} expired at ${formatTime(timestampMs(current.notAfter))} and was not renewed`,
    );
  }
}

type CreateRefusal = (
  cause: RefusalCause,
  reason: ErrorReason,
  message: string,
) => RefusedCallError;

/** @param facts - The certificate whose times clients compare with their clock. */
function createRefusalFactory(
  principal: string,
  facts: CertificateFacts | undefined,
  nowMs: number,
): CreateRefusal {
  const metadata =
    facts === undefined
      ? undefined
      : {
          serverTime: formatTime(nowMs),
          notBefore: formatTime(facts.notBeforeMs),
          notAfter: formatTime(facts.notAfterMs),
        };
  return (cause, reason, message) =>
    new RefusedCallError(cause, reason, message, { principal }, { metadata });
}

/** @throws {@link RefusedCallError} for a banned node, and for one that is not in the cluster. */
function requireNodeInGoodStanding(
  view: ClusterView,
  id: string,
  refuse: CreateRefusal,
): NodeRecord {
  if (view.nodeBan(id) !== undefined)
    throw refuse('banned node', 'NODE_BANNED', `node "${id}" is banned from this cluster`);
  const node = view.node(id)?.value;
  if (node !== undefined) return node;
  throw refuse(
    'certificate of a removed node',
    'CREDENTIAL_REVOKED',
    `node "${id}" is not part of this cluster; join the machine with a join token`,
  );
}

/**
 * The certificates of workloads are in no record: they end when they expire, and when the workload is
 * deleted, also when there is a new workload of the same name.
 * @throws {@link RefusedCallError} for a workload that does not exist.
 */
function requireWorkloadInGoodStanding(
  view: ClusterView,
  { id, notBeforeMs }: { readonly id: string; readonly notBeforeMs: number },
  refuse: CreateRefusal,
): void {
  const [namespace = '', name = ''] = id.split('.');
  const workload = view.workloadByName(namespace, name)?.value;
  const createdMs = workload?.createdAt === undefined ? 0 : timestampMs(workload.createdAt);
  if (workload !== undefined && createdMs <= notBeforeMs + ISSUED_WITHIN_MS) return;
  const problem =
    workload === undefined
      ? 'does not exist'
      : 'was deleted and created again after the certificate was issued';
  throw refuse(
    'certificate of a deleted workload',
    'CREDENTIAL_REVOKED',
    `workload "${namespace}/${name}" ${problem}`,
  );
}

/**
 * Time from the beginning of the validity within which a certificate was issued, milliseconds: the
 * authority begins the validity up to 5 minutes early, and the clocks of coordinators may differ.
 */
const ISSUED_WITHIN_MS = 10 * 60_000;

function describeRenewal(kind: string): string {
  if (kind === 'node') return 'join the machine again with a join token';
  if (kind === 'user') return 'log in again';
  return 'load the renewed certificate from the directory of the identity';
}

/**
 * @throws {@link RefusedCallError} for a credential that was revoked, also by revoking the token with
 *   which it was created, or has expired, or whose user was deleted.
 */
function requireCredentialInGoodStanding(
  view: ClusterView,
  credentialId: string,
  userName: string,
  nowMs: number,
  refuse: CreateRefusal,
): CredentialRecord {
  if (view.user(userName) === undefined) {
    throw refuse(
      'certificate of a deleted user',
      'CREDENTIAL_REVOKED',
      `the user "${userName}" does not exist; ask an administrator for a new token`,
    );
  }
  const record = view.credential(credentialId)?.value;
  const credential = record?.credential;
  const token =
    credential === undefined || credential.tokenId === ''
      ? undefined
      : view.credential(credential.tokenId)?.value.credential;
  if (
    record === undefined ||
    credential?.user !== userName ||
    credential.revokedAt !== undefined ||
    token?.revokedAt !== undefined
  )
    throw refuse(...describeReplaced(`user/${userName}`));
  if (isAtOrAfter(nowMs, credential.expiresAt)) {
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the login of user "${userName}" has expired; log in again`,
    );
  }
  return record;
}

/**
 * Returns true for a certificate that was issued after the newest one in the record of its node: the
 * state was restored from a backup that is older than the certificate. Every certificate that was
 * replaced, or that another machine had under the same name, was issued before the newest one.
 */
function isIssuedAfter(
  { serial, notBeforeMs }: CertificateFacts,
  current: CertificateRecord | undefined,
): boolean {
  if (current?.issuedAt === undefined || current.serial === serial) return false;
  // The validity begins at the issue or earlier.
  return notBeforeMs > timestampMs(current.issuedAt);
}

/**
 * Checks that a serial number is that of the current or the previous certificate, and that the
 * cluster still trusts the root that the certificate was issued under.
 */
function requireCurrentSerial(
  view: ClusterView,
  serial: string,
  certificates:
    Partial<Readonly<Record<'current' | 'previous', CertificateRecord | undefined>>> | undefined,
  name: string,
  refuse: CreateRefusal,
): void {
  const record = [certificates?.current, certificates?.previous].find(
    (candidate) => serial !== '' && candidate?.serial === serial,
  );
  if (record === undefined) throw refuse(...describeReplaced(name));
  requireTrustedGeneration(view, record, name, refuse);
}

/** Checks that the cluster still trusts the root that a certificate was issued under. */
function requireTrustedGeneration(
  view: ClusterView,
  record: CertificateRecord,
  name: string,
  refuse: CreateRefusal,
): void {
  const roots = view.certificateAuthority()?.value.roots;
  if (roots === undefined || roots.some(({ generation }) => generation === record.generation))
    return;
  throw refuse(
    'invalid certificate',
    'CERTIFICATE_INVALID',
    `the certificate of ${name} is of a certificate authority that was retired; ${describeWayBack(name)}`,
  );
}

function describeReplaced(name: string): Parameters<CreateRefusal> {
  return [
    'revoked certificate',
    'CREDENTIAL_REVOKED',
    `the certificate of ${name} was revoked, or replaced by a newer one that was used; ${describeWayBack(name)}`,
  ];
}

function describeWayBack(name: string): string {
  return name.startsWith('node/') ? 'join the machine again with a join token' : 'log in again';
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}
