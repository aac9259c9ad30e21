import { ANONYMOUS_LOOPBACK, type Principal } from '@cloudless/identity';

/** The client of one call, as the RPC server passes it to the handlers. */
export interface Caller {
  /** The principal with its current roles. */
  readonly principal: Principal;
  /** Id of the connection; for logs. */
  readonly connectionId: string;
  /**
   * Runs each second while the call is open, and after each change of {@link Authenticator.onChange}.
   * @throws {@link CloudlessError} when the call must end.
   */
  check(): void;
}

/** The credential of a call. */
export interface CallCredential {
  readonly kind: 'node' | 'user';
  /** Id of the node, or id of the credential of the user. */
  readonly id: string;
  /**
   * Serial number of the certificate: the renewed certificate once the connection has one. Absent
   * for a bearer token.
   */
  readonly serial?: string;
}

/** A {@link Caller} with requirements that are checked again while its calls are open. */
export interface ApiCaller extends Caller {
  /** Undefined in a cluster without TLS, and for calls without credentials. */
  readonly credential?: CallCredential | undefined;
  /** Address of the client of a forwarded call. Default: the address of the connection. */
  readonly address?: string | undefined;
  /**
   * Runs `requirement` now and again with each {@link Caller.check} of this call.
   * @throws the error of `requirement`.
   */
  require(requirement: () => void): void;
}

/** The client of every call in a cluster without TLS, and of calls within one process. */
export const ANONYMOUS_CALLER: ApiCaller = {
  principal: ANONYMOUS_LOOPBACK,
  connectionId: '',
  check: () => undefined,
  require: (requirement) => requirement(),
};

/**
 * Returns a caller with the method `require`. Requirements of a caller that is not yet an
 * {@link ApiCaller} are checked only once.
 */
export function toApiCaller(caller: Caller): ApiCaller {
  if ('require' in caller) return caller as ApiCaller;
  return {
    get principal() {
      return caller.principal;
    },
    connectionId: caller.connectionId,
    check: () => caller.check(),
    require: (requirement) => requirement(),
  };
}
