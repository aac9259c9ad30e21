import type { CertificateRecord, CredentialRecord } from '@cloudless/api/store';
import { errorReasonOf } from '@cloudless/base';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { PeerIdentity } from '@cloudless/identity/x509';
import type { CallCredential } from './caller.js';
import type { CredentialIndex } from './credential-index.js';
import type { CertificateVerifier } from './identity-port.js';
import { isAtOrAfter } from './is-at-or-after.js';
import { RefusedCallError, type RefusalCause } from './refusal.js';

/**
 * Time after the expiry of a certificate in which a node may still renew it, milliseconds: 30 days,
 * so that a machine that was switched off for some weeks comes back by itself.
 */
export const EXPIRED_NODE_GRACE_MS = 30 * 24 * 60 * 60 * 1_000;

/** The facts of a certificate that change when it is renewed. */
export type CertificateFacts = Pick<
  PeerIdentity,
  'serial' | 'notBeforeMs' | 'notAfterMs' | 'publicKeySha256'
>;

/** The certificate of a connection. */
export interface ConnectionCertificate {
  /** The identity in the presented certificate. */
  readonly presented: PeerIdentity;
  /** The certificate that counts: the presented one, or the one that replaced it by renewal. */
  readonly facts: CertificateFacts;
}

/**
 * The certificates of one connection: verifies the presented one once, and again after a change of
 * the trust bundle. A certificate that was renewed over the connection replaces the presented one.
 */
export class ConnectionCertificates {
  private verifier: CertificateVerifier | undefined;
  private presented: PeerIdentity | undefined;
  private failure: unknown;
  private replacement: CertificateFacts | undefined;

  constructor(private readonly chainDer: readonly Uint8Array[]) {}

  /** @throws {@link RefusedCallError} when the presented certificate is not valid. */
  get(verifier: CertificateVerifier, nowMs: number): ConnectionCertificate {
    const { presented, replacement } = this;
    if (presented !== undefined && replacement !== undefined)
      return { presented, facts: replacement };
    if (this.verifier !== verifier) this.verify(verifier, nowMs);
    if (this.presented === undefined) throw this.failure;
    return { presented: this.presented, facts: this.presented };
  }

  /** Makes a renewed certificate count instead of the presented one. */
  replace(facts: CertificateFacts): void {
    this.replacement = facts;
  }

  private verify(verifier: CertificateVerifier, nowMs: number): void {
    this.presented = undefined;
    try {
      this.presented = verifier.verify(this.chainDer, nowMs, {
        kinds: ['node', 'user', 'controller'],
        usage: 'client',
        expiredGraceMs: EXPIRED_NODE_GRACE_MS,
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

/** A certificate that is valid now. */
export type ValidCertificate =
  | { readonly kind: 'controller'; readonly id: string }
  | {
      readonly kind: 'node';
      readonly nodeId: string;
      /** Time of the expiry when the certificate has expired. */
      readonly expiredAtMs: number | undefined;
      readonly credential: CallCredential;
      /** True when this use confirms that the node has its newest certificate. */
      readonly confirmsCurrent: boolean;
    }
  | {
      readonly kind: 'user';
      readonly record: CredentialRecord;
      readonly credential: CallCredential;
      readonly confirmsCurrent: boolean;
    };

/**
 * Checks the certificate of a connection against the time and the state of the cluster: its serial
 * number must be that of the current certificate, or of the one before as long as the current one
 * was not used.
 * @throws {@link RefusedCallError} with a separate text for each cause.
 */
export function checkCertificate(
  view: ClusterView,
  credentials: CredentialIndex,
  { presented, facts }: ConnectionCertificate,
  nowMs: number,
): ValidCertificate {
  const { kind, id } = presented.id;
  const refused = { principal: `${kind}/${id}` };
  const refuse = (cause: RefusalCause, reason: RefusedCallError['reason'], message: string) =>
    new RefusedCallError(cause, reason, message, refused, {
      metadata: {
        serverTime: formatTime(nowMs),
        notBefore: formatTime(facts.notBeforeMs),
        notAfter: formatTime(facts.notAfterMs),
      },
    });
  if (nowMs < facts.notBeforeMs) {
    throw refuse(
      'certificate not yet valid',
      'CERTIFICATE_NOT_YET_VALID',
      `the certificate of ${refused.principal} is valid from ${formatTime(facts.notBeforeMs)} on, and the clock of the coordinator shows ${formatTime(nowMs)}; compare the clocks of both machines`,
    );
  }
  const isExpired = nowMs > facts.notAfterMs;
  const isRenewable = kind === 'node' && nowMs <= facts.notAfterMs + EXPIRED_NODE_GRACE_MS;
  if (isExpired && !isRenewable) {
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the certificate of ${refused.principal} expired at ${formatTime(facts.notAfterMs)}, and the clock of the coordinator shows ${formatTime(nowMs)}; ${kind === 'node' ? 'join the machine again with a join token' : 'log in again'}`,
    );
  }
  const isPresented = facts === presented;
  if (kind === 'node') {
    const node = view.node(id)?.value;
    if (view.nodeBan(id) !== undefined)
      throw refuse('banned node', 'NODE_BANNED', `node "${id}" is banned from this cluster`);
    if (node === undefined) {
      throw refuse(
        'certificate of a removed node',
        'CREDENTIAL_REVOKED',
        `node "${id}" is not part of this cluster; join the machine with a join token`,
      );
    }
    const { current, previous } = node.identity ?? {};
    if (!isKnownSerial(facts.serial, current, previous)) {
      throw refuse(
        'revoked certificate',
        'CREDENTIAL_REVOKED',
        `the certificate of node "${id}" was replaced by a newer one; join the machine again with a join token if the newer one is lost`,
      );
    }
    return {
      kind,
      nodeId: id,
      expiredAtMs: isExpired ? facts.notAfterMs : undefined,
      credential: { kind, id, serial: facts.serial },
      confirmsCurrent: isPresented && previous !== undefined && current?.serial === facts.serial,
    };
  }
  if (kind !== 'user') return { kind: 'controller', id };
  const record = credentials.find(facts.serial);
  const credential = record?.credential;
  const parent =
    credential === undefined || credential.tokenId === ''
      ? undefined
      : view.credential(credential.tokenId)?.value.credential;
  if (
    credential?.user !== id ||
    credential.revokedAt !== undefined ||
    parent?.revokedAt !== undefined
  ) {
    throw refuse(
      'revoked certificate',
      'CREDENTIAL_REVOKED',
      `the certificate of ${refused.principal} was revoked or replaced; log in again`,
    );
  }
  if (isAtOrAfter(nowMs, credential.expiresAt)) {
    throw refuse(
      'expired certificate',
      'CERTIFICATE_EXPIRED',
      `the login of ${refused.principal} has expired; log in again`,
    );
  }
  if (view.user(id) === undefined) {
    throw refuse(
      'certificate of a deleted user',
      'CREDENTIAL_REVOKED',
      `the user "${id}" does not exist; ask an administrator for a new token`,
    );
  }
  const { current, previous } = record as CredentialRecord;
  return {
    kind,
    record: record as CredentialRecord,
    credential: { kind, id: credential.id, serial: facts.serial },
    confirmsCurrent: isPresented && previous !== undefined && current?.serial === facts.serial,
  };
}

function isKnownSerial(
  serial: string,
  current: CertificateRecord | undefined,
  previous: CertificateRecord | undefined,
): boolean {
  return serial !== '' && (serial === current?.serial || serial === previous?.serial);
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}
