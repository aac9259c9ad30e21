import type { DescMethod } from '@bufbuild/protobuf';
import type { UserRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  definedFields,
  errorKindOf,
  noMeter,
  type Clock,
  type Log,
  type Meter,
} from '@cloudless/base';
import type { ClusterState, RecordChange } from '@cloudless/cluster-state';
import { ANONYMOUS_LOOPBACK, type Grant, type Principal } from '@cloudless/identity';
import { isForwarded, namesClient, readForwardingHeaders } from '../roles/forwarding-headers.js';
import { createStaleViewError, isViewStale } from '../roles/stale-view.js';
import {
  AuthenticatedCaller,
  type AuthenticateNow,
  type Authentication,
} from './authenticated-caller.js';
import type { ApiCaller, Caller } from './caller.js';
import {
  ConnectionCertificates,
  checkCertificate,
  checkHolder,
  type CertificateHolder,
  type RenewedCertificate,
} from './certificate-authentication.js';
import { CredentialIndex } from './credential-index.js';
import { ForwardedCertificates, createForgedForwardError } from './forwarded-client.js';
import type { IdentityPort } from './identity-port.js';
import { ROLE_NAMES } from './role-names.js';
import { RefusalLog, type ReportRefusal } from './refusal-log.js';
import { RefusedCallError } from './refusal.js';
import {
  findTokenCredential,
  readBearerToken,
  requireUsableToken,
} from './token-authentication.js';

/** The connection of a call, as far as the authentication needs it. */
export interface AuthenticatedConnection {
  readonly id: string;
  readonly remoteAddress: string;
  /** The certificates that the client presented. Undefined: none. */
  readonly peer?: { readonly chainDer: readonly Uint8Array[] } | undefined;
  /** Closes the connection once its running calls have ended. */
  drain(): void;
}

/** A call before its request is read. */
export interface IncomingCall {
  readonly method: DescMethod;
  /** Undefined when the connection closed while the call came in. */
  readonly connection: AuthenticatedConnection | undefined;
  readonly header: Headers;
  /**
   * True for a call that this coordinator never forwards, so that no other one checks the credential
   * again. Default false.
   */
  readonly isServedHere?: boolean;
}

export interface AuthenticatorDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly log: Log;
  /** Absent in a cluster without TLS: every call has the principal `anonymous@loopback`. */
  readonly identity?: IdentityPort;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: refusals are only logged while another coordinator leads. */
  readonly reportRefusal?: ReportRefusal | undefined;
  /**
   * Called when a node has presented its newest certificate in a handshake: the node no longer
   * needs the previous certificate. Not called for users, who run several programs with one
   * identity: after a renewal by one program, the others still use the previous certificate.
   */
  readonly onNodeCertificateUsed?: (nodeId: string, serial: string) => void;
}

/**
 * Decides for each call which principal makes it, and whether the principal may make such calls at
 * all. A client certificate is verified once for each connection, and again after a change of the
 * trust bundle. Its validity and revocation, and those of bearer tokens, are checked at the start of
 * each call. While calls are open, their principals are checked again: see {@link checkHolder}.
 */
export class Authenticator {
  private readonly certificates = new WeakMap<AuthenticatedConnection, ConnectionCertificates>();
  private readonly principals = new WeakMap<UserRecord, Principal>();
  private readonly credentials: CredentialIndex;
  private readonly forwarded = new ForwardedCertificates();
  private readonly refusals: RefusalLog;
  private readonly listeners = new Set<() => void>();
  private readonly unsubscribes: readonly (() => void)[];

  constructor(private readonly deps: AuthenticatorDeps) {
    const { state, identity } = deps;
    this.credentials = new CredentialIndex(state);
    this.refusals = new RefusalLog({ ...deps, meter: deps.meter ?? noMeter });
    this.unsubscribes = [
      state.subscribe((changes) => {
        if (changes.some(isRelevant)) this.notify();
      }),
      identity?.onChange(() => this.notify()) ?? (() => undefined),
      () => this.credentials.close(),
    ];
  }

  /**
   * Authenticates a call and checks the access table.
   * @throws {@link CloudlessError} `unauthenticated` for missing or invalid credentials, `denied`
   *   for a missing role, `invalid` for a bearer token beside a client certificate. The refusal is
   *   counted and recorded in the audit log. `unavailable` when the view of this coordinator is so
   *   old that it cannot tell whether the credentials are valid.
   */
  authorize({ method, connection, header, isServedHere }: IncomingCall): ApiCaller {
    const isStale = this.deps.identity !== undefined && isViewStale(this.deps.state);
    if (isStale && isServedHere === true) throw this.createUncheckedError();
    let authentication: AuthenticateNow | undefined;
    try {
      authentication = this.createAuthentication(connection, header);
      const connectionId = connection?.id ?? '';
      const caller = new AuthenticatedCaller(this.deps, authentication, method, connectionId);
      caller.check();
      return caller;
    } catch (reason) {
      // The credential, or its roles, may be newer than the view.
      if (isStale && isCredentialProblem(reason)) throw this.createUncheckedError();
      const forwardedFor = authentication?.address;
      this.refusals.record(method, forwardedFor ?? connection?.remoteAddress ?? '', header, reason);
      // The connection of a coordinator carries the calls of many clients.
      if (reason instanceof RefusedCallError && forwardedFor === undefined)
        if (connection?.peer !== undefined) connection.drain();
      throw reason;
    }
  }

  /**
   * Replaces the certificate of a caller's connection by a renewed certificate, so that open
   * streams of the connection go on after the expiry of the presented certificate, and calls of the
   * connection are forwarded with the renewed certificate.
   */
  replaceCredential(caller: Caller, certificate: RenewedCertificate): void {
    if (caller instanceof AuthenticatedCaller) caller.replaceCertificate(certificate);
  }

  /**
   * Returns the certificate chain with which a call of the caller is forwarded, DER: the renewed
   * certificate of a user, otherwise the presented certificate. Undefined: none.
   */
  getChain(caller: Caller): readonly Uint8Array[] | undefined {
    return caller instanceof AuthenticatedCaller ? caller.chainDer : undefined;
  }

  /**
   * Returns the principal of a client certificate that another server has received.
   * @param chainDer - The certificate of the client and those above, DER.
   * @throws {@link CloudlessError} of kind `unauthenticated` or `denied` for an invalid certificate.
   */
  readonly identifyCertificate = (chainDer: readonly Uint8Array[]): Principal => {
    const { identity, state, clock } = this.deps;
    if (identity === undefined) return ANONYMOUS_LOOPBACK;
    const nowMs = clock.wallTime();
    const certificate = new ConnectionCertificates(chainDer).get(identity.verifier, nowMs);
    const holder = checkCertificate(state.view(), this.credentials, certificate, nowMs);
    return this.toAuthentication(holder, undefined).principal;
  };

  /**
   * Calls the listener when open calls must be checked again: after changes of users, credentials,
   * bans, identities of nodes, and the trust bundle.
   * @returns A function that ends the subscription.
   */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  /** Returns a function that authenticates the call now, for its start and each later check. */
  private createAuthentication(
    connection: AuthenticatedConnection | undefined,
    header: Headers,
  ): AuthenticateNow {
    const { identity } = this.deps;
    if (identity === undefined)
      return { authenticate: () => ({ principal: ANONYMOUS_LOOPBACK }), replace: () => undefined };
    const chainDer = connection?.peer?.chainDer;
    if (connection === undefined || chainDer === undefined) {
      if (isForwarded(header)) throw createForgedForwardError('unauthenticated');
      return this.createTokenAuthentication(identity, header);
    }
    const certificates = this.certificates.get(connection) ?? new ConnectionCertificates(chainDer);
    this.certificates.set(connection, certificates);
    return isForwarded(header)
      ? this.createForwardedAuthentication(identity, certificates, header)
      : this.createCertificateAuthentication(identity, certificates, header);
  }

  /**
   * Authenticates the client of a call that another coordinator forwards: by the credentials of the
   * client, as if the client had called directly. The certificate of the connection must be that of
   * a coordinator. Without a client, the call is one of the coordinator itself.
   */
  private createForwardedAuthentication(
    identity: IdentityPort,
    certificates: ConnectionCertificates,
    header: Headers,
  ): AuthenticateNow {
    const { state, clock } = this.deps;
    const requireCoordinator = (): Authentication => {
      const nowMs = clock.wallTime();
      const certificate = certificates.get(identity.verifier, nowMs);
      const holder = checkCertificate(state.view(), this.credentials, certificate, nowMs);
      const authentication = this.toAuthentication(holder, undefined);
      if (holder.kind === 'controller') return authentication;
      throw createForgedForwardError(authentication.principal.name);
    };
    if (!namesClient(header)) return { authenticate: requireCoordinator, replace: () => undefined };
    let client: AuthenticateNow | undefined;
    let address: string | undefined;
    return {
      authenticate: (isStart) => {
        if (client === undefined || isStart) {
          requireCoordinator();
          address = readForwardingHeaders(header).remoteAddress;
        }
        client ??= this.createClientAuthentication(identity, header);
        return client.authenticate(isStart);
      },
      // The verified certificates of forwarded calls are shared by all connections of their client.
      replace: () => undefined,
      get address() {
        return address;
      },
    };
  }

  private createClientAuthentication(identity: IdentityPort, header: Headers): AuthenticateNow {
    const { chainDer } = readForwardingHeaders(header);
    return chainDer === undefined
      ? this.createTokenAuthentication(identity, header)
      : this.createCertificateAuthentication(
          identity,
          this.forwarded.get(header, chainDer),
          header,
        );
  }

  private createCertificateAuthentication(
    identity: IdentityPort,
    certificates: ConnectionCertificates,
    header: Headers,
  ): AuthenticateNow {
    const { state, clock } = this.deps;
    let holder: CertificateHolder | undefined;
    return {
      authenticate: (isStart) => {
        if (isStart && header.has('authorization')) throw createTwoCredentialsError();
        const nowMs = clock.wallTime();
        if (isStart || holder === undefined) {
          const certificate = certificates.get(identity.verifier, nowMs);
          holder = checkCertificate(state.view(), this.credentials, certificate, nowMs);
          this.reportUse(holder, certificates.serial);
        } else checkHolder(state.view(), holder, nowMs);
        return this.toAuthentication(holder, certificates.serial);
      },
      replace: (renewed) => certificates.replace(renewed),
      get chainDer() {
        return certificates.chainDer;
      },
    };
  }

  private createTokenAuthentication(identity: IdentityPort, header: Headers): AuthenticateNow {
    const { state, clock } = this.deps;
    let credentialId: string | undefined;
    return {
      authenticate: (isStart) => {
        if (isStart) {
          const token = readBearerToken(header);
          credentialId =
            token === undefined
              ? undefined
              : findTokenCredential(state.view(), identity.tokenSecret, token);
        }
        if (credentialId === undefined)
          return { principal: { kind: 'unauthenticated', name: 'unauthenticated' } };
        const { credential } = requireUsableToken(state.view(), credentialId, clock.wallTime());
        return {
          principal: this.toUserPrincipal(credential?.user ?? ''),
          credential: { kind: 'user', id: credentialId },
        };
      },
      replace: () => undefined,
    };
  }

  private toAuthentication(holder: CertificateHolder, serial: string | undefined): Authentication {
    const { id } = holder;
    const name = `${holder.kind}/${id}`;
    if (holder.kind !== 'node' && holder.kind !== 'user')
      return { principal: { kind: holder.kind, name } };
    const credential = { kind: holder.kind, id, ...definedFields({ serial }) };
    if (holder.kind === 'user')
      return { principal: this.toUserPrincipal(holder.userName), credential };
    const { kind, expiredAtMs } = holder;
    return expiredAtMs === undefined
      ? { principal: { kind, name, nodeId: id }, credential }
      : { principal: { kind: 'expired-node', name, nodeId: id, expiredAtMs }, credential };
  }

  /** Returns the principal of a user with the current roles. */
  private toUserPrincipal(userName: string): Principal {
    const record = this.deps.state.view().user(userName)?.value;
    const known = record === undefined ? undefined : this.principals.get(record);
    if (known !== undefined) return known;
    const principal: Principal = {
      kind: 'user',
      name: `user/${userName}`,
      userName,
      grants: toGrants(record),
    };
    if (record !== undefined) this.principals.set(record, principal);
    return principal;
  }

  private createUncheckedError(): CloudlessError {
    return createStaleViewError(this.deps.state, 'so it cannot check the credential');
  }

  private reportUse(holder: CertificateHolder, serial: string | undefined): void {
    if (holder.kind === 'node' && holder.confirmsCurrent)
      this.deps.onNodeCertificateUsed?.(holder.id, serial ?? '');
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }
}

function isCredentialProblem(reason: unknown): boolean {
  const kind = errorKindOf(reason);
  return kind === 'unauthenticated' || kind === 'denied';
}

function createTwoCredentialsError(): CloudlessError {
  return new CloudlessError(
    'invalid',
    'the call has a client certificate and a bearer token; send one of them',
  );
}

/** Returns the roles of a user. Roles of a newer version of this program are ignored. */
export function toGrants(record: UserRecord | undefined): readonly Grant[] {
  return (record?.user?.grants ?? []).flatMap(({ role, namespace }) => {
    const name = ROLE_NAMES[role];
    return name === undefined ? [] : [{ role: name, namespace }];
  });
}

/** Returns true for a change after which an open call may no longer be permitted. */
function isRelevant(change: RecordChange): boolean {
  switch (change.kind) {
    case 'user':
    case 'credential':
    case 'ban':
    case 'ca':
      return true;
    case 'node':
      return (
        change.after === undefined ||
        (change.before !== undefined &&
          change.before.identity?.current?.serial !== change.after.identity?.current?.serial) ||
        change.before?.identity?.previous?.serial !== change.after.identity?.previous?.serial
      );
    default:
      return false;
  }
}
