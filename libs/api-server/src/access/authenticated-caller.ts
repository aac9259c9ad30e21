import type { DescMethod } from '@bufbuild/protobuf';
import type { Clock, CloudlessError } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Principal } from '@cloudless/identity';
import { checkCall, getAccessRule } from '@cloudless/identity/authorization';
import { createDeniedError } from './call-access.js';
import type { ApiCaller, CallCredential } from './caller.js';
import type { RenewedCertificate } from './certificate-authentication.js';
import { RefusedCallError } from './refusal.js';

/** The principal and the credential of a call. Both may change while the call is open. */
export interface Authentication {
  readonly principal: Principal;
  readonly credential?: CallCredential | undefined;
}

/** Authenticates one call, at its start and in each later check. */
export interface AuthenticateNow {
  /** @param isStart - True: for the start of the call; false: for a later check. */
  readonly authenticate: (isStart: boolean) => Authentication;
  /** Replaces the certificate of the connection by a renewed certificate. */
  readonly replace: (renewed: RenewedCertificate) => void;
  /** The certificates with which the call is forwarded, DER. Undefined: none. */
  readonly chainDer?: readonly Uint8Array[] | undefined;
  /** Address of the client of a forwarded call, once its forwarder is known to be a coordinator. */
  readonly address?: string | undefined;
}

/** Time after which the roles of a caller are read again although the state has not changed. */
const REFRESH_MS = 100;

/** A caller whose credentials are checked again with each {@link check}. */
export class AuthenticatedCaller implements ApiCaller {
  private current: Authentication;
  private readonly requirements: (() => void)[] = [];
  /** Revision of the state, and monotonic time, of the last authentication. */
  private revision: bigint;
  private checkedAtMs: number;

  /** @throws the error of the authentication. */
  constructor(
    private readonly deps: { readonly state: ClusterState; readonly clock: Clock },
    private readonly authentication: AuthenticateNow,
    private readonly method: DescMethod,
    readonly connectionId: string,
  ) {
    this.revision = deps.state.view().revision;
    this.checkedAtMs = deps.clock.now();
    this.current = authentication.authenticate(/* isStart */ true);
  }

  get chainDer(): readonly Uint8Array[] | undefined {
    return this.authentication.chainDer;
  }

  get address(): string | undefined {
    return this.authentication.address;
  }

  /**
   * The principal with its current roles; without roles once its credentials are refused. Lists read
   * the principal for each item, so the credentials are checked at most once for each revision of the
   * state and {@link REFRESH_MS}.
   */
  get principal(): Principal {
    this.tryRefresh();
    return this.current.principal;
  }

  get credential(): CallCredential | undefined {
    this.tryRefresh();
    return this.current.credential;
  }

  check(): void {
    this.refresh();
    const { principal } = this.current;
    const decision = checkCall(getAccessRule(this.method), principal);
    if (!decision.allowed) throw createRefusal(decision, principal, this.method);
    for (const requirement of this.requirements) requirement();
  }

  require(requirement: () => void): void {
    requirement();
    this.requirements.push(requirement);
  }

  replaceCertificate(renewed: RenewedCertificate): void {
    this.authentication.replace(renewed);
    this.revision = -1n;
  }

  private tryRefresh(): void {
    const { state, clock } = this.deps;
    const isFresh =
      state.view().revision === this.revision && clock.now() - this.checkedAtMs < REFRESH_MS;
    if (isFresh) return;
    try {
      this.refresh();
    } catch {
      // The next check ends the call. Until then the caller has no role.
    }
  }

  /** @throws the error of the authentication, after taking all roles from the principal. */
  private refresh(): void {
    const { state, clock } = this.deps;
    this.revision = state.view().revision;
    this.checkedAtMs = clock.now();
    try {
      this.current = this.authentication.authenticate(/* isStart */ false);
    } catch (reason) {
      const { principal } = this.current;
      if (principal.kind === 'user')
        this.current = { ...this.current, principal: { ...principal, grants: [] } };
      throw reason;
    }
  }
}

function createRefusal(
  decision: Extract<ReturnType<typeof checkCall>, { allowed: false }>,
  principal: Principal,
  method: DescMethod,
): CloudlessError {
  if (decision.code === 'denied') return createDeniedError(principal, method, decision);
  return principal.kind === 'expired-node'
    ? new RefusedCallError('expired certificate', 'CERTIFICATE_EXPIRED', decision.message, {
        principal: principal.name,
      })
    : new RefusedCallError('no credentials', 'UNAUTHENTICATED', decision.message);
}
